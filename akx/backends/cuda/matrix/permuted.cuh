// P A P^T: rows and columns of a matrix in another order, with columns that ascend.
//
//   invert        place[order[p]] = p
//   lengths_of    length[p] = entries of row order[p]; 0 behind the last
//   tell_other    told = 1 where two arrays are not the same; find_largest: the largest number of an array
//   permute_row   columns of row p, and which entry of A each entry is; a warp for each row
//
// Bytes: 16 an entry, which come in the order of the rows of A that are taken.
#pragma once
#include "include/team.cuh"

__device__ __forceinline__ u64 own_place() { return u64(blockIdx.x) * blockDim.x + threadIdx.x; }

__device__ __forceinline__ void invert(u32 rows, const u32 *order, u32 *place) {
    const u64 p = own_place();
    if (p < rows) place[load(order + p)] = u32(p);
}

__device__ __forceinline__ void length_of(u32 rows, const u32 *order, const u32 *pointer, u32 *length) {
    const u64 p = own_place();
    if (p > rows) return;
    const u32 row = p < rows ? load(order + p) : 0;
    length[p] = p < rows ? load(pointer + row + 1) - load(pointer + row) : 0;
}

// `keys` has room for all entries, for rows of more than 32; null where there are none.
__device__ __forceinline__ void permute_row(u32 rows, const u32 *order, const u32 *place, const u32 *pointer,
                                            const u32 *column, const u32 *start, u32 *made, u32 *source, u64 *keys) {
    const u64 p = own_place() / WARP;
    if (p >= rows) return;
    const u32 lane = threadIdx.x % WARP, row = load(order + p);
    const u32 from = load(pointer + row), count = load(pointer + row + 1) - from, to = load(start + p);
    if (count <= WARP) { // the place of each is the number of those that are smaller
        const u32 own = lane < count ? load(place + load(column + from + lane)) : ~0u;
        u32 smaller = 0;
        for (u32 i = 0; i < count; ++i) smaller += __shfl_sync(ALL, own, int(i)) < own;
        if (lane < count) made[to + smaller] = own, source[to + smaller] = from + lane;
        return;
    }
    for (u32 i = lane; i < count; i += WARP) keys[to + i] = u64(load(place + load(column + from + i))) << 32 | (from + i);
    __syncwarp();
    sort_items(Team<WARP>(nullptr), keys + to, count);
    for (u32 i = lane; i < count; i += WARP) made[to + i] = u32(keys[to + i] >> 32), source[to + i] = u32(keys[to + i]);
}

__device__ __forceinline__ void tell_other(u32 count, const u32 *one, const u32 *other, u32 *told) {
    const u64 p = own_place();
    if (p < count && load(one + p) != load(other + p)) *told = 1;
}

__device__ __forceinline__ void find_largest(u32 count, const u32 *numbers, u32 *found) {
    const u64 p = own_place();
    u32 own = p < count ? load(numbers + p) : 0;
    for (int offset = WARP / 2; offset > 0; offset >>= 1) {
        const u32 other = __shfl_xor_sync(ALL, own, offset);
        own = own > other ? own : other;
    }
    if (threadIdx.x % WARP == 0 && own) atomicMax(found, own);
}
