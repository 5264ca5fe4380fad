// The kernel of wavefront.cu, to be run by cuda_on_host.h. Halves of a pair come one after the other.
#include "cuda_on_host.h"

inline unsigned long long passing() { return 0; }
template <class T> inline void put(T *to, T value) { *to = value; }
inline void publish_word(unsigned long long *to, unsigned half, unsigned tag, bool wanted) {
    if (wanted) *to = static_cast<unsigned long long>(tag) << 32 | half, on_host::tell();
}
inline void publish_pair(unsigned long long *to, unsigned low, unsigned high, unsigned tag, bool wanted) {
    publish_word(to, low, tag, wanted);
    if (wanted) on_host::rest();
    publish_word(to + 1, high, tag, wanted);
}
inline void published_word(unsigned long long &word, const unsigned long long *from, bool wanted) {
    if (wanted) on_host::look(), word = *from;
}
inline void published_pair(unsigned long long &first, unsigned long long &second, const unsigned long long *from,
                           bool wanted) {
    published_word(first, from, wanted);
    if (wanted) second = from[1];
}
inline void beat(unsigned *to, unsigned value) { *to = value, on_host::tell(); }
inline unsigned beat_of(const unsigned *from) {
    on_host::look();
    return *from;
}

#include "schedules/wavefront/wavefront.cu"

AKX_ON_HOST_KERNEL(steps)
