// What values of a matrix are stored as: themselves (S = T), numbers of half the bytes, where that is exact, or offsets
// in bytes into a table of all that are different: alone (S = u16), or with a column in the upper half (S = u32).
#pragma once
#include "include/common.cuh"

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

#ifndef AKX_ON_HOST
// Have a value in its register now: what is computed from it is computed after this, not kept from before.
__device__ __forceinline__ void settle(u32 &v) { asm volatile("" : "+r"(v)); }
__device__ __forceinline__ void settle(float &v) { asm volatile("" : "+f"(v)); }
__device__ __forceinline__ void settle(double &v) { asm volatile("" : "+d"(v)); }
__device__ __forceinline__ void settle(cfloat &v) { settle(v.re), settle(v.im); }
__device__ __forceinline__ void settle(cdouble &v) { settle(v.re), settle(v.im); }

// Keep what is held over many steps as it is stored: unpacked it would take more registers.
template <class T, class S> __device__ __forceinline__ void as_stored(S &v) {
    if constexpr (is_offset<S> || sizeof(S) != sizeof(T)) settle(v);
}

// A copy to shared memory of one value, as wide as it is.
template <class T> __device__ __forceinline__ void copy_value(T *to, const T *from, bool wanted) {
    const u32 place = u32(__cvta_generic_to_shared(to));
    if constexpr (sizeof(T) == 16)
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "setp.ne.u32 p, %2, 0;\n"
                     "@p cp.async.cg.shared.global [%0], [%1], 16;\n"
                     "}\n" ::"r"(place),
                     "l"(from), "r"(u32(wanted))
                     : "memory");
    else
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "setp.ne.u32 p, %2, 0;\n"
                     "@p cp.async.ca.shared.global [%0], [%1], %3;\n"
                     "}\n" ::"r"(place),
                     "l"(from), "r"(u32(wanted)), "n"(sizeof(T))
                     : "memory");
}
#endif
