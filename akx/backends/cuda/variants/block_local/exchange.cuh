// What parts publish for one another: values in global memory that are there when they are found there, without a flag.
//
// A place holds `absent` until its value comes, and again when all have read that. `absent` is a signalling NaN, which no
// arithmetic makes: operations return quiet ones whatever they are given (IEEE 754, 6.2), and all that is published has
// been multiplied and added. Eight bytes come as a whole, so that who does not find `absent` has the value (of sixteen,
// each half): no fence, flag or barrier lies between a value and its readers.
//
// Vectors of places form a ring of TURNS, and who publishes also takes back, with no more than a fence of one warp. In
// terms of the number m of what is published, where everyone reads from all those that read from him:
//
//   m has been read       so all others have published m, and had read m - 1 before
//   m - 1 is taken back   while the next step is computed; a barrier of the block ends that
//   a warp fences         in the step after; a barrier of the block ends that
//   m + 3 is published    at the earliest
//   m + 4 is asked for    by those who have found m + 3: its place holds `absent` or m + 4, and may be that of m - 1
#pragma once
#include "include/common.cuh"

constexpr u32 TURNS = 5;

// In words of 32 bits, all the same, so that memory can be filled with them.
template <class T> struct Absent { static constexpr u32 WORD = 0x7ff47ff4u; };
template <> struct Absent<float> { static constexpr u32 WORD = 0x7fa57fa5u; };
template <> struct Absent<cfloat> { static constexpr u32 WORD = 0x7fa57fa5u; };

// A value as it is written and read: `word` where it has eight bytes or more.
template <class T> union Whole {
    T value;
    u32 half;
    u64 word[sizeof(T) > 8 ? 2 : 1];
    __device__ __forceinline__ Whole() {}
    __device__ __forceinline__ void set(u32 to) {
        if constexpr (sizeof(T) == 4) {
            half = to;
        } else {
#pragma unroll
            for (u32 w = 0; w < sizeof(T) / 8; ++w) word[w] = u64(to) << 32 | to;
        }
    }
    __device__ __forceinline__ bool has(u32 part) const {
        if constexpr (sizeof(T) == 4) return half == part;
        bool found = false;
#pragma unroll
        for (u32 w = 0; w < (sizeof(T) + 7) / 8; ++w) found |= word[w] == (u64(part) << 32 | part);
        return found;
    }
};

#ifndef AKX_ON_HOST
template <class T> __device__ __forceinline__ void put_whole(T *to, const Whole<T> &of) {
    if constexpr (sizeof(T) == 4) {
        asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(of.half));
    } else {
#pragma unroll
        for (u32 w = 0; w < sizeof(T) / 8; ++w)
            asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(reinterpret_cast<u64 *>(to) + w), "l"(of.word[w]));
    }
}

template <class T> __device__ __forceinline__ T published(const T *from) {
    Whole<T> of;
    if constexpr (sizeof(T) == 4) {
        asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(of.half) : "l"(from));
    } else {
#pragma unroll
        for (u32 w = 0; w < sizeof(T) / 8; ++w)
            asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];"
                         : "=l"(of.word[w])
                         : "l"(reinterpret_cast<const u64 *>(from) + w));
    }
    return of.value;
}

// What this thread, and those that it has met at a barrier, have written before is seen before what they write later.
__device__ __forceinline__ void fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
#endif

template <class T> __device__ __forceinline__ void publish(T *to, T value) {
    Whole<T> of;
    of.value = value;
    put_whole(to, of);
}

template <class T> __device__ __forceinline__ void take_back(T *from) {
    Whole<T> of;
    of.set(Absent<T>::WORD);
    put_whole(from, of);
}

// Whether a value, or a half of it, has not come.
template <class T> __device__ __forceinline__ bool is_absent(T value) {
    Whole<T> of;
    of.value = value;
    return of.has(Absent<T>::WORD);
}
