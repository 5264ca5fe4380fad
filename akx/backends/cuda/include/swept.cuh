// What the kernels of `sweep` have in common.
//
// A step may begin before the one before it has ended (programmatic dependent launch, compute capability 9.0): as soon as
// all blocks of that have begun, those of this one take the places that become free, and ask for their first entries. So
// the time in which a kernel starts, and that in which the last blocks of the one before it end, are not lost. What
// kernels of the same call write may only be read behind `after_the_last`, and by `fresh`: it is not constant while the
// kernel runs, which the read-only path of `load` would ask for.
//
// How matrix data comes by, HOW: by any cache (0), marked as not to be kept (1), or by what a policy says of L2 (2), for a
// matrix that is larger than L2: so many 256ths of it are asked to stay, the rest leaves first. Otherwise the data of
// each step would drive out that of the next.
#pragma once
#include "value_compression/stored.cuh"

// Let the next kernel of the call begin, now that this block has.
__device__ __forceinline__ void let_the_next_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Wait for the kernels of the call before this one, and for all that they have written. `any`: true, but the compiler is
// not to know, since it would move what is asked for before to behind the wait.
__device__ __forceinline__ void after_the_last(bool any) {
#if __CUDA_ARCH__ >= 900
    if (any) asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// What a kernel before this one may have written.
template <class T> __device__ __forceinline__ T fresh(const T *p) { return *p; }

// What L2 is told of a piece of the matrix; pieces that stay lie evenly among the others.
template <int HOW> __device__ __forceinline__ u64 policy_of(u32 piece, u32 kept) {
    u64 policy = 0;
#ifndef AKX_ON_HOST
    if constexpr (HOW == 2) {
        if ((u64(piece) + 1) * kept / 256 != u64(piece) * kept / 256)
            asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
        else
            asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    }
#endif
    return policy;
}
// Matrix data; it passes L1 by where a policy says what L2 does.
template <int HOW, class S> __device__ __forceinline__ S fetch(const S *p, u64 policy) {
    if constexpr (HOW < 2) return fetch<HOW == 1>(p);
    union {
        S value;
        u16 short_word;
        u32 word;
        u64 long_word[sizeof(S) > 8 ? 2 : 1];
    } bits;
#ifdef AKX_ON_HOST
    bits.value = *p;
#else
    if constexpr (sizeof(S) == 2)
        asm("ld.global.nc.L1::no_allocate.L2::cache_hint.b16 %0, [%1], %2;"
            : "=h"(bits.short_word)
            : "l"(p), "l"(policy));
    else if constexpr (sizeof(S) == 4)
        asm("ld.global.nc.L1::no_allocate.L2::cache_hint.b32 %0, [%1], %2;" : "=r"(bits.word) : "l"(p), "l"(policy));
    else if constexpr (sizeof(S) == 8)
        asm("ld.global.nc.L1::no_allocate.L2::cache_hint.b64 %0, [%1], %2;"
            : "=l"(bits.long_word[0])
            : "l"(p), "l"(policy));
    else
        asm("ld.global.nc.L1::no_allocate.L2::cache_hint.v2.b64 {%0, %1}, [%2], %3;"
            : "=l"(bits.long_word[0]), "=l"(bits.long_word[1])
            : "l"(p), "l"(policy));
#endif
    return bits.value;
}

// One entry of v_{j+1}, from the entry of A v_j. Terms whose coefficient is zero are not read, so that what is not
// there yet, or is not finite, cannot spoil them. `first`, where given, is v_0 to be filled from x.
template <class T>
__device__ __forceinline__ void finish_step(T product, const T *x, const T *before, T *y, T *first,
                                            const T *coefficient, i64 at) {
    const T a = load(coefficient), b = load(coefficient + 1), c = load(coefficient + 2);
    const bool has_own = !is_zero(b), has_old = before != nullptr && !is_zero(c);
    const T own = has_own || first != nullptr ? fresh(x + at) : zero<T>(), old = has_old ? fresh(before + at) : zero<T>();
    T value = mad(a, product, zero<T>());
    if (has_own) value = mad(b, own, value);
    if (has_old) value = mad(c, old, value);
    if (first != nullptr) first[at] = own;
    y[at] = value;
}
