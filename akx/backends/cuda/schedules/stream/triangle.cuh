// Chunks of a symmetric matrix of which one triangle travels: what whole chunks are made of.
//
// A chunk as it travels (a half one): begin (rows / 32 + 1), where the entries below the diagonal of each slice begin,
// padded to `header` bytes; the diagonal (rows); values, columns relative to base and marks of these entries; a mark for
// each row. start (rows / 32 + 1) and base (rows / 32) of the slices of whole chunks, `heads`, are on the device, one chunk
// after another. Of a slice come the first entries of its 32 rows, then the
// second ones of those that have any, and so on, without padding. The mark of an entry (i, j) is 2 r + l: its mirror is number r of row j, and l = 1 if it is the last one.
// The mark of a row is 4 c + 2 u + d: it has c entries below the diagonal, u = 1 if any beyond, d = 1 if on it.
//
// Step t makes the whole chunk t: its rows' entries up to the diagonal, and the mirrors of all these, of which many go to
// chunks before it. Each place of a whole chunk is written by one thread: an
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

// A warp's share of a slice: U entries of each row, and others as many `parts` times U further. `heads` is of all chunks.
template <class T, class INDEX, class HALF>
__device__ __forceinline__ void stream_mirror(const Frame whole, const Frame half, const u32 *heads, u32 ring, u32 chunk,
                                              u32 slice, u32 part, u32 parts) {
    typedef typename HALF::Mark Mark;
    constexpr int U = 2;
    const u32 slices = whole.rows / 32, lane = threadIdx.x % 32, own = slice * 32 + lane;
    const u8 *slot = half.slots + half.slot_of(chunk);
    const u32 *begin = reinterpret_cast<const u32 *>(slot);
    const T *diagonal = reinterpret_cast<const T *>(slot + half.header), *value = diagonal + whole.rows;
    const INDEX *column = reinterpret_cast<const INDEX *>(value + begin[slices]);
    const Mark *mark = reinterpret_cast<const Mark *>(column + begin[slices]);
    const u32 of_row = mark[begin[slices] + own], count = of_row / 4, least = begin[slice];
    const WholeChunk<T, INDEX> to(whole, heads, chunk);
    const u32 row = chunk * whole.rows + own, at = row % ring, low = load(to.base + slice);
    const u32 first = load(to.start + slice) + lane, end = load(to.start + slice + 1);
    for (u32 s = part * U;; s += parts * U) {
        if (__ballot_sync(0xffffffffu, s < count) == 0) break;
        u32 next = min(s, count);  // entries before these, of all rows
#pragma unroll
        for (u32 offset = 16; offset > 0; offset /= 2) next += __shfl_xor_sync(0xffffffffu, next, int(offset));
        next += least;
        u32 told[U], there[U], inside[U], q[U], base[U], slots[U];
        T a[U];
        INDEX of[U];
#pragma unroll
        for (u32 u = 0; u < U; ++u) {
            const u32 having = __ballot_sync(0xffffffffu, s + u < count);
            const u32 from = s + u < count ? next + __popc(having & ((1u << lane) - 1)) : least;
            next += __popc(having);
            a[u] = value[from], of[u] = column[from], told[u] = mark[from];
        }
#pragma unroll
        for (u32 u = 0; u < U; ++u) {
            u32 place = low + of[u];
            if (place >= ring) place -= ring;
            const u32 back = at >= place ? at - place : at + ring - place, other = s + u < count ? row - back : row;
            there[u] = other / whole.rows;
            inside[u] = other - there[u] * whole.rows;
            const u32 *start = heads + u64(there[u]) * (2 * slices + 1);
            q[u] = load(start + inside[u] / 32), base[u] = load(start + slices + 1 + inside[u] / 32);
            slots[u] = load(start + slices);
        }
#pragma unroll
        for (u32 u = 0; u < U; ++u) {
            if (s + u >= count) continue;
            u32 p = first + (s + u) * 32;
            to.value[p] = a[u];
            to.column[p] = of[u];
            if (s + u + 1 == count && of_row % 4 == 0)  // nothing behind it
                for (p += 32; p < end; p += 32) to.value[p] = zero<T>(), to.column[p] = of[u];
            T *values = reinterpret_cast<T *>(const_cast<u8 *>(whole.slots) + whole.slot_of(there[u]) + whole.header);
            INDEX *columns = reinterpret_cast<INDEX *>(values + slots[u]);
            const INDEX own_column = INDEX(at >= base[u] ? at - base[u] : at + ring - base[u]);
            p = q[u] + told[u] / 2 * 32 + inside[u] % 32;
            values[p] = mirrored<HALF::CONJUGATE>(a[u]);
            columns[p] = own_column;
            if (told[u] % 2 == 0) continue;
            const u32 stop = load(heads + u64(there[u]) * (2 * slices + 1) + inside[u] / 32 + 1);
            for (p += 32; p < stop; p += 32) values[p] = zero<T>(), columns[p] = own_column;
        }
    }
    if (part != 0) return;
    u32 p = first + count * 32;
    const bool on = of_row % 2 != 0;
    const INDEX last = on ? INDEX(at >= low ? at - low : at + ring - low) : INDEX(0);
    if (on) {
        to.value[p] = diagonal[own];
        to.column[p] = last;
        p += 32;
    }
    if (of_row / 2 % 2 == 0 && (on || count == 0))
        for (; p < end; p += 32) to.value[p] = zero<T>(), to.column[p] = last;
    // What steps are told of the slice.
    u32 *head = reinterpret_cast<u32 *>(to.slot);
    if (lane == 0) head[slice] = load(to.start + slice);
    if (lane == 1) head[slices + 1 + slice] = low;
    if (lane == 2 && slice + 1 == slices) head[slices] = end;
}
