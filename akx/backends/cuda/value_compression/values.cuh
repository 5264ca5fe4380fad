// New values of a matrix whose pattern is laid out already, from data in CSR order that is on the device.
//
//   place_some   values[p] = data[entry[p] - 1], or 0 where entry[p] is 0: padding. EACH places per thread, one block of
//                threads apart, so that all their entries are asked for before the first has come (0.90 of the time of
//                one place per thread, on an H100; data marked as not to be kept takes 1.2 times as long: neighbouring
//                places read parts of the same sectors).
//   examine_one  found = 1 where an entry is NaN or infinite; nothing otherwise. All who write, write the same.
#pragma once
#include "include/common.cuh"

// A narrower number, or a real one, as what the values are kept as.
__device__ __forceinline__ void assign(float a, float &to) { to = a; }
__device__ __forceinline__ void assign(float a, double &to) { to = a; }
__device__ __forceinline__ void assign(double a, double &to) { to = a; }
__device__ __forceinline__ void assign(float a, cfloat &to) { to = {a, 0.0f}; }
__device__ __forceinline__ void assign(float a, cdouble &to) { to = {a, 0.0}; }
__device__ __forceinline__ void assign(double a, cdouble &to) { to = {a, 0.0}; }
__device__ __forceinline__ void assign(cfloat a, cfloat &to) { to = a; }
__device__ __forceinline__ void assign(cfloat a, cdouble &to) { to = {a.re, a.im}; }
__device__ __forceinline__ void assign(cdouble a, cdouble &to) { to = a; }

__device__ __forceinline__ bool is_finite(float a) { return fabsf(a) <= 3.402823466e+38f; }
__device__ __forceinline__ bool is_finite(double a) { return fabs(a) <= 1.7976931348623157e+308; }
__device__ __forceinline__ bool is_finite(cfloat a) { return is_finite(a.re) && is_finite(a.im); }
__device__ __forceinline__ bool is_finite(cdouble a) { return is_finite(a.re) && is_finite(a.im); }

// `entry` null: the places are the entries.
template <int EACH, class T, class F>
__device__ __forceinline__ void place_some(u64 count, const u32 *entry, const F *data, T *values) {
    const u64 first = u64(blockIdx.x) * blockDim.x * EACH + threadIdx.x;
    u64 from[EACH];  // one plus an entry
#pragma unroll
    for (int u = 0; u < EACH; u++) {
        const u64 p = first + u64(u) * blockDim.x;
        from[u] = p >= count ? 0 : entry == nullptr ? p + 1 : u64(load(entry + p));
    }
    T value[EACH];
#pragma unroll
    for (int u = 0; u < EACH; u++) {
        value[u] = zero<T>();
        if (from[u] != 0) assign(load(data + (from[u] - 1)), value[u]);
    }
#pragma unroll
    for (int u = 0; u < EACH; u++) {
        const u64 p = first + u64(u) * blockDim.x;
        if (p < count) values[p] = value[u];
    }
}

template <class F> __device__ __forceinline__ void examine_one(u64 count, const F *data, u32 *found) {
    const u64 p = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (p < count && !is_finite(load(data + p))) *found = 1;
}
