// Sliced ELL and padded CSR laid out on the device: to the bit the arrays of akx/formats/sell.py and pcsr.py.
//
//   range_of_slice   the least and the greatest column of a slice of 32 rows, 0 and 0 of one without entries
//   lay_slice        columns of a slice, relative to its base or not, and which entry each slot has
//   lay_row          the same for a row of padded CSR, a warp for each
//
// A slot has one plus the number of its entry, or 0 for padding, whose column is the last of its row.
#pragma once
#include "include/team.cuh"

// The row in a place of an order, or in its own where there is none.
__device__ __forceinline__ u32 row_in(const u32 *order, u32 place) { return order == nullptr ? place : load(order + place); }

__device__ __forceinline__ void range_of_slice(u32 rows, u32 slices, const u32 *order, const u32 *pointer,
                                               const u32 *index, u32 *low, u32 *high) {
    const u64 slice = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / WARP;
    if (slice >= slices) return;
    const u64 place = slice * WARP + threadIdx.x % WARP;
    u32 least = ~0u, most = 0;
    if (place < rows) {
        const u32 row = row_in(order, u32(place)), begin = load(pointer + row), end = load(pointer + row + 1);
        if (end > begin) least = load(index + begin), most = load(index + end - 1);
    }
    for (int offset = WARP / 2; offset > 0; offset >>= 1) {
        const u32 other = __shfl_xor_sync(ALL, least, offset), more = __shfl_xor_sync(ALL, most, offset);
        least = least < other ? least : other;
        most = most < more ? more : most;
    }
    if (threadIdx.x % WARP == 0) {
        low[slice] = least <= most ? least : 0;
        high[slice] = least <= most ? most : 0;
    }
}

// `least` is (slices,); columns are relative to it where `is_relative`.
template <class I>
__device__ __forceinline__ void lay_slice(u32 rows, u32 slices, const u32 *order, const u32 *pointer, const u32 *index,
                                          const u32 *start, const u32 *least, u32 is_relative, I *column, u32 *entry) {
    const u64 slice = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / WARP;
    if (slice >= slices) return;
    const u32 lane = threadIdx.x % WARP;
    const u64 place = slice * WARP + lane, end = load(start + slice + 1);
    u32 p = 0, stop = 0, last = load(least + slice);
    const u32 base = is_relative ? last : 0;
    if (place < rows) {
        const u32 row = row_in(order, u32(place));
        p = load(pointer + row), stop = load(pointer + row + 1);
        if (stop > p) last = load(index + stop - 1);
    }
    for (u64 at = u64(load(start + slice)) + lane; at < end; at += WARP, ++p) {
        const bool is_there = p < stop;
        column[at] = I((is_there ? load(index + p) : last) - base);
        entry[at] = is_there ? p + 1 : 0;
    }
}

__device__ __forceinline__ void lay_row(u32 rows, const u32 *pointer, const u32 *index, const u32 *start, u32 *column,
                                        u32 *entry) {
    const u64 row = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / WARP;
    if (row >= rows) return;
    const u32 first = load(pointer + row), stop = load(pointer + row + 1);
    const u32 last = stop > first ? load(index + stop - 1) : u32(row);
    const u64 begin = load(start + row), end = load(start + row + 1);
    for (u64 at = begin + threadIdx.x % WARP; at < end; at += WARP) {
        const u64 p = first + (at - begin);
        column[at] = p < stop ? load(index + p) : last;
        entry[at] = p < stop ? u32(p + 1) : 0;
    }
}
