// What all kernels of akx share: value types, multiply-add, loads with a hint, and the fused recurrence
//
//     v_{j+1} = a_j A v_j + b_j v_j + c_j v_{j-1}.
//
// Vectors: v_j of b start vectors is (b, n), contiguous. Coefficients: (k, 3), a triple (a_j, b_j, c_j) a step.
// Complex numbers are interleaved pairs. No header of the toolkit is included, so that NVRTC needs none.
#pragma once

// The shared memory that a launch asks for.
#ifndef AKX_DYNAMIC_SHARED
#define AKX_DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#endif

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

struct alignas(8) cfloat {
    float re, im;
};
struct alignas(16) cdouble {
    double re, im;
};

template <class T> __device__ __forceinline__ T zero() { return T(0); }
template <> __device__ __forceinline__ cfloat zero<cfloat>() { return {0.0f, 0.0f}; }
template <> __device__ __forceinline__ cdouble zero<cdouble>() { return {0.0, 0.0}; }

// a * b + c, each part by two fused multiply-adds where the numbers are complex.
__device__ __forceinline__ float mad(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ double mad(double a, double b, double c) { return fma(a, b, c); }
__device__ __forceinline__ cfloat mad(cfloat a, cfloat b, cfloat c) {
    return {fmaf(-a.im, b.im, fmaf(a.re, b.re, c.re)), fmaf(a.im, b.re, fmaf(a.re, b.im, c.im))};
}
__device__ __forceinline__ cdouble mad(cdouble a, cdouble b, cdouble c) {
    return {fma(-a.im, b.im, fma(a.re, b.re, c.re)), fma(a.im, b.re, fma(a.re, b.im, c.im))};
}

__device__ __forceinline__ float add(float a, float b) { return a + b; }
__device__ __forceinline__ double add(double a, double b) { return a + b; }
__device__ __forceinline__ cfloat add(cfloat a, cfloat b) { return {a.re + b.re, a.im + b.im}; }
__device__ __forceinline__ cdouble add(cdouble a, cdouble b) { return {a.re + b.re, a.im + b.im}; }

__device__ __forceinline__ bool is_zero(float a) { return a == 0.0f; }
__device__ __forceinline__ bool is_zero(double a) { return a == 0.0; }
__device__ __forceinline__ bool is_zero(cfloat a) { return a.re == 0.0f && a.im == 0.0f; }
__device__ __forceinline__ bool is_zero(cdouble a) { return a.re == 0.0 && a.im == 0.0; }

// Sum over lanes that are `offset` apart.
__device__ __forceinline__ float across(float a, int offset) { return __shfl_xor_sync(0xffffffffu, a, offset); }
__device__ __forceinline__ double across(double a, int offset) { return __shfl_xor_sync(0xffffffffu, a, offset); }
__device__ __forceinline__ cfloat across(cfloat a, int offset) { return {across(a.re, offset), across(a.im, offset)}; }
__device__ __forceinline__ cdouble across(cdouble a, int offset) {
    return {across(a.re, offset), across(a.im, offset)};
}

// Loads of what no thread writes while the kernel runs: through the read-only path, and marked as not to be kept.
template <class T> __device__ __forceinline__ T load(const T *p) { return __ldg(p); }
template <> __device__ __forceinline__ cfloat load<cfloat>(const cfloat *p) {
    const float2 v = __ldg(reinterpret_cast<const float2 *>(p));
    return {v.x, v.y};
}
template <> __device__ __forceinline__ cdouble load<cdouble>(const cdouble *p) {
    const double2 v = __ldg(reinterpret_cast<const double2 *>(p));
    return {v.x, v.y};
}
template <class T> __device__ __forceinline__ T load_once(const T *p) { return __ldcs(p); }
template <> __device__ __forceinline__ cfloat load_once<cfloat>(const cfloat *p) {
    const float2 v = __ldcs(reinterpret_cast<const float2 *>(p));
    return {v.x, v.y};
}
template <> __device__ __forceinline__ cdouble load_once<cdouble>(const cdouble *p) {
    const double2 v = __ldcs(reinterpret_cast<const double2 *>(p));
    return {v.x, v.y};
}
template <bool ONCE, class T> __device__ __forceinline__ T fetch(const T *p) { return ONCE ? load_once(p) : load(p); }

// One entry of v_{j+1}, from the entry of A v_j. Terms whose coefficient is zero are not read, so that what is not
// there yet, or is not finite, cannot spoil them. `first`, where given, is v_0 to be filled from x.
template <class T>
__device__ __forceinline__ void finish(T product, const T *x, const T *before, T *y, T *first, const T *coefficient,
                                       i64 at) {
    const T a = load(coefficient), b = load(coefficient + 1), c = load(coefficient + 2);
    T value = mad(a, product, zero<T>());
    if (!is_zero(b) || first != nullptr) {
        const T own = load(x + at);
        if (!is_zero(b)) value = mad(b, own, value);
        if (first != nullptr) first[at] = own;
    }
    if (before != nullptr && !is_zero(c)) value = mad(c, load(before + at), value);
    y[at] = value;
}
