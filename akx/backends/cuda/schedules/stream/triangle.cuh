// Chunks of a symmetric matrix of which one triangle travels: what a step makes whole chunks of.
//
// A chunk as it travels (a half one): start (rows / 32 + 1) and base (rows / 32) of the slices of the whole chunk, begin
// (rows / 32 + 1) of their lower triangles, padded to `header` bytes; the diagonal (rows); values, columns relative to
// base and marks of the lower triangles; a mark for each row. Of a slice come the first entries of its 32 rows, then the
// second ones of those that have any, and so on, without padding. The mark of an entry (i, j) is 2 r + l: its mirror is number r of row j, and l = 1 if it is the last one.
// The mark of a row is 4 c + 2 u + d: it has c entries below the diagonal, u = 1 if any beyond, d = 1 if on it.
//
// Step t makes the whole chunk t: its rows' entries up to the diagonal, and the mirrors of all these, of which those of
// earlier rows go to chunks that were made in steps before. Each place of a whole chunk is written by one thread: an
// entry, its mirror, and the padding of a row by whoever writes its last entry.
#pragma once
#include "schedules/stream/stream.cuh"

// What travels. MARK: u8 or u16. CONJUGATE: a_ji = conj(a_ij).
struct Whole {
    static constexpr bool HALF = false;
};
template <class M, bool C> struct Half {
    static constexpr bool HALF = true, CONJUGATE = C;
    typedef M Mark;
};

template <bool CONJUGATE, class T> __device__ __forceinline__ T mirrored(T a) {
    if constexpr (CONJUGATE) a.im = -a.im;
    return a;
}

// What is known of a whole chunk, and where it is.
template <class T, class INDEX> struct WholeChunk {
    const u32 *start, *base;
    T *value;
    INDEX *column;

    __device__ __forceinline__ WholeChunk(const Frame whole, u32 chunk, const u32 *head) {
        u8 *slot = const_cast<u8 *>(whole.slots) + whole.slot_of(chunk);
        start = head != nullptr ? head : reinterpret_cast<const u32 *>(slot);
        base = start + whole.rows / 32 + 1;
        value = reinterpret_cast<T *>(slot + whole.header);
        column = reinterpret_cast<INDEX *>(value + start[whole.rows / 32]);
    }
};

// One warp's share of a slice: every PARTS-th entry of a row, from `part` on.
template <class T, class INDEX, class HALF, int PARTS>
__device__ __forceinline__ void stream_mirror(const Frame whole, const Frame half, u32 ring, u32 chunk, u32 slice,
                                              u32 part) {
    typedef typename HALF::Mark Mark;
    const u32 slices = whole.rows / 32, lane = threadIdx.x % 32, own = slice * 32 + lane;
    const u8 *slot = half.slots + half.slot_of(chunk);
    const u32 *head = reinterpret_cast<const u32 *>(slot), *begin = head + 2 * slices + 1;
    const T *diagonal = reinterpret_cast<const T *>(slot + half.header), *value = diagonal + whole.rows;
    const INDEX *column = reinterpret_cast<const INDEX *>(value + begin[slices]);
    const Mark *mark = reinterpret_cast<const Mark *>(column + begin[slices]);
    const u32 of_row = mark[begin[slices] + own], count = of_row / 4;
    const WholeChunk<T, INDEX> to(whole, chunk, head);
    const u32 first = to.start[slice] + lane, end = to.start[slice + 1], low = to.base[slice];
    const u32 row = chunk * whole.rows + own, at = row % ring;
    if (part == 0) {
        u32 *copy = reinterpret_cast<u32 *>(const_cast<u8 *>(whole.slots) + whole.slot_of(chunk));
        if (lane == 0) copy[slice] = head[slice];
        if (lane == 1) copy[slices + 1 + slice] = head[slices + 1 + slice];
        if (lane == 2 && slice + 1 == slices) copy[slices] = head[slices];
    }
    u32 next = begin[slice], mine = next;
#pragma unroll 1
    for (u32 s = 0;; ++s) {
        const u32 having = __ballot_sync(0xffffffffu, s < count);
        if (having == 0) break;
        if (s < count) mine = next + __popc(having & ((1u << lane) - 1));  // of the last one, at the end
        next += __popc(having);
        if (s >= count || s % PARTS != part) continue;
        const T a = value[mine];
        const INDEX of = column[mine];
        const u32 told = mark[mine];
        to.value[first + s * 32] = a;
        to.column[first + s * 32] = of;
        u32 place = low + of;
        if (place >= ring) place -= ring;
        const u32 other = row - (at >= place ? at - place : at + ring - place), there = other / whole.rows;
        const u32 inside = (other - there * whole.rows) / 32;
        const WholeChunk<T, INDEX> back(whole, there, there == chunk ? head : nullptr);
        u32 p = back.start[inside] + told / 2 * 32 + other % 32;
        const u32 from = back.base[inside];
        const INDEX column_back = INDEX(at >= from ? at - from : at + ring - from);
        back.value[p] = mirrored<HALF::CONJUGATE>(a);
        back.column[p] = column_back;
        if (told % 2 == 0) continue;
        for (p += 32; p < back.start[inside + 1]; p += 32) back.value[p] = zero<T>(), back.column[p] = column_back;
    }
    if (part != 0) return;
    u32 p = first + count * 32;
    INDEX last = count > 0 ? column[mine] : INDEX(0);
    if (of_row % 2 != 0) {
        last = INDEX(at >= low ? at - low : at + ring - low);
        to.value[p] = diagonal[own];
        to.column[p] = last;
        p += 32;
    }
    if (of_row / 2 % 2 != 0) return;
    for (; p < end; p += 32) to.value[p] = zero<T>(), to.column[p] = last;
}
