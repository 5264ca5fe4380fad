// New values of a matrix whose pattern is laid out already, from data in CSR order that is on the device.
//
//   place_one    values[p] = data[entry[p] - 1], or 0 where entry[p] is 0: padding. One thread per place.
//   examine_one  found = 1 where an entry is NaN or infinite; nothing otherwise. All who write, write the same.
#pragma once
#include "common.cuh"

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
template <class T, class F>
__device__ __forceinline__ void place_one(u64 count, const u32 *entry, const F *data, T *values) {
    const u64 p = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (p >= count) return;
    T value = zero<T>();
    if (entry == nullptr) {
        assign(load(data + p), value);
    } else {
        const u32 e = load(entry + p);
        if (e != 0) assign(load(data + (e - 1)), value);
    }
    values[p] = value;
}

template <class F> __device__ __forceinline__ void examine_one(u64 count, const F *data, u32 *found) {
    const u64 p = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (p < count && !is_finite(load(data + p))) *found = 1;
}
