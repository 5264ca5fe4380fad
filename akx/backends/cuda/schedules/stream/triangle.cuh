// Chunks of a symmetric matrix of which one triangle travels: what whole chunks are made of.
//
// A chunk as it travels (a half one): begin (rows / 32 + 1), where the entries below the diagonal of each slice begin,
// padded to `header` bytes; the diagonal (rows); values, columns relative to base and marks of these entries; a mark for
// each row. start (rows / 32 + 1) and base (rows / 32) of the slices of whole chunks, `heads`, are on the device, one chunk
// after another. Of a slice come the first entries of its 32 rows, then the
// second ones of those that have any, and so on, without padding. The mark of an entry (i, j) is 2 r + l: its mirror is number r of row j, and l = 1 if it is the last one.
// The mark of a row is 4 c + 2 u + d: it has c entries below the diagonal, u = 1 if any beyond, d = 1 if on it.
//
// To make the whole chunk t is to write its rows' entries up to the diagonal, and the mirrors of all these, of which many go
// to chunks before it, whoever is at work on these. Each place of a whole chunk is written by one thread: an
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

// What is known of the slices of a whole chunk, and where it is.
template <class T, class INDEX> struct WholeChunk {
    const u32 *start, *base;
    u8 *slot;
    T *value;
    INDEX *column;

    __device__ __forceinline__ WholeChunk(const Frame whole, const u32 *heads, u32 chunk) {
        start = heads + u64(chunk) * (2 * (whole.rows / 32) + 1);
        base = start + whole.rows / 32 + 1;
        slot = const_cast<u8 *>(whole.slots) + whole.slot_of(chunk);
        value = reinterpret_cast<T *>(slot + whole.header);
        column = reinterpret_cast<INDEX *>(value + load(start + whole.rows / 32));
    }
};

// One warp's work: the rows of a slice. `heads` is of all whole chunks.
template <class T, class INDEX, class HALF>
__device__ __forceinline__ void stream_mirror(const Frame whole, const Frame half, const u32 *heads, u32 ring, u32 chunk,
                                              u32 slice) {
    typedef typename HALF::Mark Mark;
    constexpr int U = 4;  // entries of a row at a time
    const u32 slices = whole.rows / 32, lane = threadIdx.x % 32, own = slice * 32 + lane;
    const u8 *slot = half.slots + half.slot_of(chunk);
    const u32 *begin = reinterpret_cast<const u32 *>(slot);
    const T *diagonal = reinterpret_cast<const T *>(slot + half.header), *value = diagonal + whole.rows;
    const INDEX *column = reinterpret_cast<const INDEX *>(value + begin[slices]);
    const Mark *mark = reinterpret_cast<const Mark *>(column + begin[slices]);
    const u32 of_row = mark[begin[slices] + own], count = of_row / 4;
    const WholeChunk<T, INDEX> to(whole, heads, chunk);
    const u32 end = load(to.start + slice + 1), low = load(to.base + slice), row = chunk * whole.rows + own;
    const u32 at = row % ring;
    u32 p = load(to.start + slice) + lane, next = begin[slice];
    INDEX last = INDEX(0);
    for (u32 s = 0;; s += U) {
        u32 from[U], told[U], there[U], inside[U], first[U], base[U];
        T a[U];
        INDEX of[U];
        bool any = false;
#pragma unroll
        for (u32 u = 0; u < U; ++u) {
            const u32 having = __ballot_sync(0xffffffffu, s + u < count);
            any = any || having != 0;
            from[u] = next + __popc(having & ((1u << lane) - 1));
            next += __popc(having);
        }
        if (!any) break;
#pragma unroll
        for (u32 u = 0; u < U; ++u)
            if (s + u < count) a[u] = value[from[u]], of[u] = column[from[u]], told[u] = mark[from[u]];
#pragma unroll
        for (u32 u = 0; u < U; ++u)
            if (s + u < count) {
                u32 place = low + of[u];
                if (place >= ring) place -= ring;
                const u32 other = row - (at >= place ? at - place : at + ring - place);
                there[u] = other / whole.rows;
                inside[u] = other - there[u] * whole.rows;
                const u32 *start = heads + u64(there[u]) * (2 * slices + 1) + inside[u] / 32;
                first[u] = load(start), base[u] = load(start + slices + 1);
            }
#pragma unroll
        for (u32 u = 0; u < U; ++u)
            if (s + u < count) {
                to.value[p] = a[u];
                to.column[p] = last = of[u];
                p += 32;
                const WholeChunk<T, INDEX> back(whole, heads, there[u]);
                const INDEX own_column = INDEX(at >= base[u] ? at - base[u] : at + ring - base[u]);
                u32 q = first[u] + told[u] / 2 * 32 + inside[u] % 32;
                back.value[q] = mirrored<HALF::CONJUGATE>(a[u]);
                back.column[q] = own_column;
                if (told[u] % 2 == 0) continue;
                const u32 stop = load(back.start + inside[u] / 32 + 1);
                for (q += 32; q < stop; q += 32) back.value[q] = zero<T>(), back.column[q] = own_column;
            }
    }
    if (of_row % 2 != 0) {
        last = INDEX(at >= low ? at - low : at + ring - low);
        to.value[p] = diagonal[own];
        to.column[p] = last;
        p += 32;
    }
    if (of_row / 2 % 2 == 0)
        for (; p < end; p += 32) to.value[p] = zero<T>(), to.column[p] = last;
    // What steps are told of the slice.
    u32 *head = reinterpret_cast<u32 *>(to.slot);
    if (lane == 0) head[slice] = load(to.start + slice);
    if (lane == 1) head[slices + 1 + slice] = low;
    if (lane == 2 && slice + 1 == slices) head[slices] = end;
}
