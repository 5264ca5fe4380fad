// The kernel of diagonals.cu, to be run by cuda_on_host.h.
#include "block_local.h"

template <int BYTES> inline void copy_some(void *to, const void *from) {
    on_host::copy(on_host::address_of(to), from, BYTES);
}
template <int THREADS> inline void announce() { on_host::announce(); }
template <int THREADS> inline void await_announcements() { on_host::await_announcements(); }

#include "variants/diagonals.cu"

AKX_ON_HOST_KERNEL(steps)
