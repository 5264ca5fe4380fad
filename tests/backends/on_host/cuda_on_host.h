// CUDA's words on the host, so that kernels which use no more than these run without a GPU: one block after another, a
// fiber for each of its threads (cuda_on_host.cpp, which is compiled once).
//
// A fiber runs until it waits: __syncthreads for all threads of the block that are left, a shuffle or __syncwarp for
// those of the warp. Shared memory is NaN when a block begins and ends where a page ends that may not be touched: what is
// read too early, or beyond, shows.
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
struct dim { unsigned x; };

namespace on_host { // of cuda_on_host.cpp
extern unsigned me;
extern unsigned char *shared;
extern double slots[1024][2];
extern unsigned long came; // how often threads came to a barrier, or to their end
void rest();
void sync_warp();
void sync_block();
void bring16(unsigned to, const void *from);
void brought();
// Run a kernel with these arguments as so many blocks of threads with bytes of dynamic shared memory. False where threads
// wait for others that never come.
bool launch(unsigned grid, unsigned block, size_t bytes, void (*kernel)(void **), void **given);
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
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline int __clz(int bits) { return bits == 0 ? 32 : __builtin_clz(unsigned(bits)); }
inline size_t __cvta_generic_to_shared(const void *p) {
    return size_t(static_cast<const unsigned char *>(p) - on_host::shared);
}
template <class T> inline T atomicAdd(T *to, T value) {
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
    ++on_host::came;
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
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }

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

// Copies of 16 bytes that are done when they are waited for, as late as may be; not at all to or from where 16 bytes
// cannot begin, or beyond what the launch asked for.
using on_host::bring16;
using on_host::brought;

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

#define AKX_ON_HOST_KERNEL(name)                                                                                       \
    extern "C" bool launch_##name(unsigned grid, unsigned block, size_t bytes, void **given) {                         \
        return on_host::launch(grid, block, bytes, [](void **from) { on_host::spread(name, from); }, given);           \
    }

#endif
