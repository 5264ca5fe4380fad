// New values as they are stored (`stored.cuh`), from data in the order of CSR that is on the device. A thread has one
// value, or one place.
//
//   collect_words  the words of all values in a set
//   collect_pairs  where the two words of each value are in theirs, in another set
//   number_one     stored[i] = offset[where the value is in the set]
//   place_offset   values[p] = stored[entry[p] - 1], or 0 where entry[p] is 0: padding
//   halve_one      stored[i] = data[i] in half the bytes, and the largest relative error of all
//
// A word is 64 bits: those of a number, the first half of them where it has 32, or one part of a complex128. Values are
// the same where their bits are. A set has words that are not 0, which says that a slot is free: open addressing over
// 2^bits slots, and behind them how many words there are. With more than `most` it is told that there are too many and
// not which. What is in a set does not depend on the order of threads, where it is in it does.
#pragma once
#include "value_compression/values.cuh"

__device__ __forceinline__ u64 word_of(float a, u32) { return u32(__float_as_int(a)); }
__device__ __forceinline__ u64 word_of(double a, u32) { return u64(__double_as_longlong(a)); }
__device__ __forceinline__ u64 word_of(cfloat a, u32) { return word_of(a.im, 0) << 32 | word_of(a.re, 0); }
__device__ __forceinline__ u64 word_of(cdouble a, u32 part) { return word_of(part == 0 ? a.re : a.im, 0); }
template <class T> constexpr u32 WORDS = sizeof(T) == 16 ? 2 : 1;

template <class T, class F> __device__ __forceinline__ T value_at(const F *data, u64 i) {
    T value = zero<T>();
    assign(load(data + i), value);
    return value;
}

// The slots of a set, of which a word takes the first that is free or has it, from one that its bits say.
struct Slots {
    u64 *slot;
    u32 bits;

    // 2^64 over the golden ratio, as in stored.py.
    __device__ __forceinline__ u32 first(u64 word) const { return u32(word * 0x9e3779b97f4a7c15ull >> (64 - bits)); }
    __device__ __forceinline__ u32 next(u32 at) const { return (at + 1) & ((1u << bits) - 1); }
    __device__ __forceinline__ u64 *count() const { return slot + (u64(1) << bits); }

    __device__ __forceinline__ void include(u64 word, u32 most) const {
        if (word == 0) return;
        for (u32 at = first(word);; at = next(at)) {
            u64 held = __ldcg(slot + at);
            if (held == 0) {
                held = atomicCAS(slot + at, u64(0), word);
                if (held == 0) {
                    atomicAdd(count(), u64(1));
                    return;
                }
            }
            if (held == word || __ldcg(count()) > most) return;
        }
    }

    // One plus the slot of a word, or 0 for 0; the set is complete, and has free slots.
    __device__ __forceinline__ u32 find(u64 word) const {
        if (word == 0) return 0;
        u32 at = first(word);
        for (u64 held = load(slot + at); held != word; held = load(slot + at)) {
            if (held == 0) return 0;
            at = next(at);
        }
        return at + 1;
    }
};

// What a set of values has for one: its word, or where both of its words are.
template <class T> __device__ __forceinline__ u64 key_of(T value, const Slots &words) {
    if constexpr (WORDS<T> == 1) return word_of(value, 0);
    else return u64(words.find(word_of(value, 0))) << 32 | words.find(word_of(value, 1));
}

template <class T, class F>
__device__ __forceinline__ void collect_words(u64 count, const F *data, const Slots &words, u32 most) {
    const u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const T value = value_at<T>(data, i);
    for (u32 part = 0; part < WORDS<T>; ++part) words.include(word_of(value, part), most);
}

// Nothing where there are too many words.
template <class T, class F>
__device__ __forceinline__ void collect_pairs(u64 count, const F *data, const Slots &words, u32 most_words,
                                              const Slots &pairs, u32 most) {
    const u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= count || load(words.count()) > most_words) return;
    pairs.include(key_of(value_at<T>(data, i), words), most);
}

// `offset` has that of zero first, then one for each slot of the keys.
template <class T, class F>
__device__ __forceinline__ void number_one(u64 count, const F *data, const Slots &words, const Slots &keys,
                                           const u16 *offset, u16 *stored) {
    const u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) stored[i] = load(offset + keys.find(key_of(value_at<T>(data, i), words)));
}

// An offset alone, or beside the column that is in the upper half already.
__device__ __forceinline__ void put(u16 offset, u16 &to) { to = offset; }
__device__ __forceinline__ void put(u16 offset, u32 &to) { to = (to & 0xffff0000u) | offset; }

template <class W>
__device__ __forceinline__ void place_offset(u64 count, const u32 *entry, const u16 *stored, W *values) {
    const u64 p = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (p >= count) return;
    const u32 e = load(entry + p);
    put(e == 0 ? u16(0) : load(stored + (e - 1)), values[p]);
}

__device__ __forceinline__ float halved(double a) { return float(a); }
__device__ __forceinline__ cfloat halved(cdouble a) { return {float(a.re), float(a.im)}; }

// |b - a| / |a|, infinite where that is no number; 0 where b is a.
__device__ __forceinline__ double relative_error(float b, double a) {
    return double(b) == a ? 0.0 : fabs(double(b) - a) / fabs(a);
}
__device__ __forceinline__ double relative_error(cfloat b, cdouble a) {
    if (double(b.re) == a.re && double(b.im) == a.im) return 0.0;
    return hypot(double(b.re) - a.re, double(b.im) - a.im) / hypot(a.re, a.im);
}

// `worst` has the bits of the largest error, which as those of numbers that are not negative are in their order.
template <class T, class F, class H>
__device__ __forceinline__ void halve_one(u64 count, const F *data, H *stored, u64 *worst) {
    const u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const T value = value_at<T>(data, i);
    const H half = halved(value);
    stored[i] = half;
    const double error = relative_error(half, value);
    const u64 bits = error == error ? word_of(error, 0) : 0x7ff0000000000000ull;
    if (bits > __ldcg(worst)) atomicMax(worst, bits);
}
