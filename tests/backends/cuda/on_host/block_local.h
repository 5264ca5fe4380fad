// What parts.cuh says to the GPU in its own words. Halves of what has sixteen bytes come one after the other.
#include "cuda_on_host.h"

#include "variants/block_local/exchange.cuh"

template <class T> inline void put_whole(T *to, const Whole<T> &of) {
    if constexpr (sizeof(T) <= 8) {
        *to = of.value;
    } else {
        reinterpret_cast<u64 *>(to)[0] = of.word[0];
        on_host::rest();
        reinterpret_cast<u64 *>(to)[1] = of.word[1];
    }
    on_host::tell();
}
template <class T> inline T published(const T *from) {
    on_host::look();
    return *from;
}
inline void fence() {}

inline u64 keep_policy() { return 0; }
inline u64 pass_policy() { return 0; }
template <class T> inline T load_kept(const T *p, u64) { return *p; }
template <class T> inline void store_passing(T *p, T v, u64) { *p = v; }
template <class T> inline T load_foreign(const T *p) { return *p; }
inline void raise(u32 *flag, u32 value) { *flag = value, on_host::tell(); }
inline void arrive(u32 *counter) { ++*counter, on_host::tell(); }
inline u32 flag_of(const u32 *flag) {
    on_host::look();
    return *flag;
}
inline u32 address_in(u32 address, u32 rank) { return on_host::address_in(address, rank); }
template <class T> inline void give_one(u32 to, T v, u32 barrier) { on_host::give(to, &v, sizeof(T), barrier); }
inline void cluster_arrive() { on_host::arrive_in_cluster(); }
inline void cluster_wait() { on_host::wait_for_cluster(); }
