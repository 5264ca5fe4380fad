// What values of a matrix are stored as: themselves (S = T), numbers of half the bytes, where that is exact, or offsets
// in bytes into a table of all that are different: alone (S = u16), or with a column in the upper half (S = u32).
#pragma once
#include "common.cuh"

template <class S> constexpr bool is_offset = false;
template <> constexpr bool is_offset<u16> = true;
template <> constexpr bool is_offset<u32> = true;

// A value, from what it is stored as.
template <class T, class S> __device__ __forceinline__ T widened(const T *table, S v) {
    if constexpr (is_offset<S>)
        return *reinterpret_cast<const T *>(reinterpret_cast<const char *>(table) + (u32(v) & 0xffffu));
    else return T(v);
}
template <> __device__ __forceinline__ cdouble widened<cdouble, cfloat>(const cdouble *, cfloat v) {
    return {v.re, v.im};
}
