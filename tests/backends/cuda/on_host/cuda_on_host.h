// CUDA's words on the host, so that kernels which use no more than these run without a GPU: a fiber for each thread
// (cuda_on_host.cpp, which is compiled once). Blocks of a cooperative launch, or of a cluster, are there at once; others
// come one after another.
//
// A fiber runs until it waits: __syncthreads for all threads of the block that are left, a shuffle or __syncwarp for
// those of the warp, and `look` where it looks for what another block tells. Shared memory is NaN when a block begins and
// ends where a page ends that may not be touched; what is copied there is NaN on its way, and comes when it is waited
// for: what is read too early, or beyond, or where something else was put too early, shows.
#ifndef AKX_CUDA_ON_HOST // not by the file: host_engine.py has a copy, compiled before
#define AKX_CUDA_ON_HOST
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#define AKX_ON_HOST
#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ static
#define __align__(n) alignas(n)
#define __launch_bounds__(...)
#define AKX_DYNAMIC_SHARED(name) unsigned char *name = on_host::shared

using std::hypot;
using std::isfinite;
struct float2 { float x, y; };
struct double2 { double x, y; };
struct uint4 { unsigned x, y, z, w; };
struct int4 { int x, y, z, w; };
struct dim { unsigned x; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline double2 make_double2(double x, double y) { return {x, y}; }

namespace on_host { // of cuda_on_host.cpp
extern unsigned me;
extern unsigned char *shared;
extern double (*slots)[2];
// How often threads came to a barrier, to their end, or told others something; and without what is between a warp's.
extern unsigned long came, told;
void rest();
void look(); // where nothing is to be found yet
void tell(); // others may find something now
void sync_warp();
void sync_block();
void announce(); // of all threads of a block some wait until the others have been here
void await_announcements();
void arrive_in_cluster();
void wait_for_cluster();
// Addresses in shared memory, of this block or of another of its cluster.
unsigned address_of(const void *p);
unsigned address_in(unsigned address, unsigned number);
// Copies of 4, 8 or 16 bytes, which a thread waits for: for all but the last groups, or for all.
void copy(unsigned to, const void *from, unsigned size);
void commit();
void copied_but(unsigned left);
void copied();
// Copies that a barrier counts, and values for another block: `expected` waits for all bytes of a phase.
void count(unsigned barrier, unsigned threads);
void expect(unsigned barrier, unsigned bytes);
void deliver(unsigned to, const void *from, unsigned size, unsigned barrier);
void give(unsigned to, const void *value, unsigned size, unsigned barrier);
void expected(unsigned barrier, unsigned parity);

struct Launch {
    unsigned grid, block;
    size_t bytes;              // of dynamic shared memory
    unsigned at_once, cluster; // blocks
    unsigned char *statics;    // where static variables are, shared ones among them
    size_t static_bytes;
};
// Run a kernel with these arguments. False where threads wait for others that never come, or touch memory beyond.
bool launch(const Launch &how, void (*kernel)(void **), void **given);
} // namespace on_host

extern dim blockIdx, gridDim, blockDim;
struct ThreadIdx { struct { operator unsigned() const { return on_host::me; } } x; };
inline ThreadIdx threadIdx;

inline void __syncthreads() { on_host::sync_block(); }
inline int __syncthreads_or(int own) {
    on_host::slots[on_host::me][0] = own;
    on_host::sync_block();
    int found = 0;
    for (unsigned t = 0; t < blockDim.x; ++t) found |= on_host::slots[t][0] != 0;
    on_host::sync_block();
    return found;
}
inline void __syncwarp() { on_host::sync_warp(); }
inline void __threadfence() {}
template <class T> inline T __shfl_sync(unsigned, T value, int lane) {
    std::memcpy(on_host::slots[on_host::me], &value, sizeof(T));
    on_host::sync_warp();
    T found;
    std::memcpy(&found, on_host::slots[on_host::me / 32 * 32 + unsigned(lane) % 32], sizeof(T));
    on_host::sync_warp();
    return found;
}
template <class T> inline T __shfl_xor_sync(unsigned all, T value, int offset) {
    return __shfl_sync(all, value, int(on_host::me) ^ offset);
}
template <class T> inline T __shfl_up_sync(unsigned all, T value, int offset) {
    const int lane = int(on_host::me % 32);
    return __shfl_sync(all, value, lane < offset ? lane : lane - offset);
}
template <class T> inline T __shfl_down_sync(unsigned all, T value, int offset) {
    const int lane = int(on_host::me) % 32;
    return __shfl_sync(all, value, lane + offset > 31 ? lane : lane + offset);
}
inline unsigned __ballot_sync(unsigned, bool own) {
    on_host::slots[on_host::me][0] = own;
    on_host::sync_warp();
    unsigned found = 0;
    for (unsigned lane = 0; lane < 32; ++lane)
        found |= unsigned(on_host::slots[on_host::me / 32 * 32 + lane][0] != 0) << lane;
    on_host::sync_warp();
    return found;
}
inline unsigned __match_any_sync(unsigned, unsigned own) {
    on_host::slots[on_host::me][0] = own;
    on_host::sync_warp();
    unsigned found = 0;
    for (unsigned lane = 0; lane < 32; ++lane)
        found |= unsigned(on_host::slots[on_host::me / 32 * 32 + lane][0] == own) << lane;
    on_host::sync_warp();
    return found;
}
inline int __any_sync(unsigned all, bool own) { return __ballot_sync(all, own) != 0; }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline int __clz(int bits) { return bits == 0 ? 32 : __builtin_clz(unsigned(bits)); }
inline size_t __cvta_generic_to_shared(const void *p) { return on_host::address_of(p); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(uint64_t(a) * b >> 32); }
template <class T> inline T atomicAdd(T *to, T value) {
    on_host::tell();
    const T before = *to;
    *to += value;
    return before;
}
template <class T> inline T atomicOr(T *to, T value) {
    const T before = *to;
    *to |= value;
    return before;
}
template <class T> inline T atomicMax(T *to, T value) {
    const T before = *to;
    *to = before < value ? value : before;
    return before;
}
// Others have their turn just before: what was read is no longer there.
template <class T> inline T atomicCAS(T *at, T known, T value) {
    on_host::tell();
    on_host::rest();
    const T before = *at;
    if (before == known) *at = value;
    return before;
}
inline int __float_as_int(float a) {
    int found;
    std::memcpy(&found, &a, sizeof(found));
    return found;
}
inline long long __double_as_longlong(double a) {
    long long found;
    std::memcpy(&found, &a, sizeof(found));
    return found;
}
template <class T> inline T __ldg(const T *p) { return *p; }
template <class T> inline T __ldcs(const T *p) { return *p; }
template <class T> inline T __ldcg(const T *p) { return *p; }
template <class T> inline void __stcs(T *p, T value) { *p = value; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a < b ? b : a; }
inline long long min(long long a, long long b) { return a < b ? a : b; }
inline long long max(long long a, long long b) { return a < b ? b : a; }

// What the tensor cores do: lane 4 r + q has A[r][q], B[q][r], D[r][2 q] and D[r][2 q + 1] of D += A B.
inline void multiply_add(double (&d)[2], double a, double b) {
    const unsigned first = on_host::me / 32 * 32, r = on_host::me % 32 / 4, q = on_host::me % 4;
    on_host::slots[on_host::me][0] = a;
    on_host::slots[on_host::me][1] = b;
    on_host::sync_warp();
    for (unsigned c = 0; c < 2; ++c)
        for (unsigned k = 0; k < 4; ++k)
            d[c] = std::fma(on_host::slots[first + 4 * r + k][0], on_host::slots[first + 4 * (2 * q + c) + k][1], d[c]);
    on_host::sync_warp();
}

// What hubs.cuh, async.cuh and stored.cuh say to the GPU in its own words.
inline void bring16(unsigned to, const void *from) { on_host::copy(to, from, 16); }
inline void brought() { on_host::copied(); }
inline void copy16(void *to, const void *from, unsigned long long) { on_host::copy(on_host::address_of(to), from, 16); }
inline void commit_copies() { on_host::commit(); }
template <int LEFT> inline void copies_done_but() { on_host::copied_but(LEFT); }
inline void copies_done() { on_host::copied(); }
inline void make_barrier(unsigned barrier) { on_host::count(barrier, 1); }
inline void barriers_made() {}
inline void expect_bytes(unsigned barrier, unsigned bytes) { on_host::expect(barrier, bytes); }
inline void wait_for_bytes(unsigned barrier, unsigned parity) { on_host::expected(barrier, parity); }
inline void copy_bulk(void *to, const void *from, unsigned size, unsigned barrier, unsigned long long) {
    on_host::deliver(on_host::address_of(to), from, size, barrier);
}
template <class T> inline void settle(T &) {}
template <class T, class S> inline void as_stored(S &) {}
template <class T> inline void copy_value(T *to, const T *from, bool wanted) {
    if (wanted) on_host::copy(on_host::address_of(to), from, sizeof(T));
}

namespace on_host {
// Arguments as the driver takes them: an array of addresses.
template <class... A, size_t... I>
inline void call(void (*kernel)(A...), void **given, std::index_sequence<I...>) {
    kernel(*static_cast<A *>(given[I])...);
}
template <class... A> inline void spread(void (*kernel)(A...), void **given) {
    call(kernel, given, std::index_sequence_for<A...>{});
}
} // namespace on_host

// The variables of a library that begin as zero, as said by the linker.
extern "C" __attribute__((visibility("hidden"))) unsigned char __bss_start[], _end[];

#define AKX_ON_HOST_KERNEL(name)                                                                                       \
    extern "C" bool launch_##name(unsigned grid, unsigned block, size_t bytes, unsigned at_once, unsigned cluster,     \
                                  void **given) {                                                                      \
        return on_host::launch({grid, block, bytes, at_once, cluster, __bss_start, size_t(_end - __bss_start)},        \
                               [](void **from) { on_host::spread(name, from); }, given);                               \
    }

#endif
