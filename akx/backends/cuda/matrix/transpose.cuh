// The columns of a matrix in CSR, or the rows of one in CSC: where each entry goes.
//
//   count_each     count[index[p]] += 1
//   sum_chunk, sum_chunks, add_chunks   count becomes the sums of what is before: the new pointers
//   scatter        source[place] = p, in any order within a new row
//   sort_row       ... in ascending order, which is that of the old rows: what a transposition is, to the bit
//   row_of_each    the old row of p, for all p
//   take           out[q] = in[source[q]]
//
// Bytes: for each entry 4 of its index and 4 of its source, twice each; atomics are of integers alone.
#pragma once
#include "include/team.cuh"

// Numbers summed by a block, four by each of its threads.
constexpr u32 CHUNK = 1024;

__device__ __forceinline__ u64 own_number() { return u64(blockIdx.x) * blockDim.x + threadIdx.x; }

__device__ __forceinline__ void count_each(u32 entries, const u32 *index, u32 *count) {
    const u64 p = own_number();
    if (p < entries) atomicAdd(count + load(index + p), 1u);
}

// Over the threads of a block of at most 1024: the sum of `a` before this thread, and of all. `part` is (33,), shared.
__device__ __forceinline__ u32 sum_before(u32 a, u32 *part, u32 &total) {
    const int lane = int(threadIdx.x % WARP);
    const u32 warp = threadIdx.x / WARP, warps = blockDim.x / WARP, upto = warp_scan(a, lane);
    if (lane == WARP - 1) part[warp] = upto;
    __syncthreads();
    u32 before = 0;
    total = 0;
    for (u32 w = 0; w < warps; ++w) {
        if (w < warp) before += part[w];
        total += part[w];
    }
    __syncthreads();
    return before + upto - a;
}

__device__ __forceinline__ void sum_chunk(u32 count, u32 *numbers, u32 *totals, u32 *part) {
    const u64 first = u64(blockIdx.x) * CHUNK + 4 * threadIdx.x;
    u32 own[4], sum = 0, total;
    for (u32 i = 0; i < 4; ++i) sum += own[i] = first + i < count ? numbers[first + i] : 0;
    u32 before = sum_before(sum, part, total);
    for (u32 i = 0; i < 4; ++i) {
        if (first + i < count) numbers[first + i] = before;
        before += own[i];
    }
    if (threadIdx.x == 0) totals[blockIdx.x] = total;
}

__device__ __forceinline__ void sum_chunks(u32 count, u32 *totals, u32 *part) {
    u32 before = 0;
    for (u32 base = 0; base < count; base += blockDim.x) {
        const u32 i = base + threadIdx.x, own = i < count ? totals[i] : 0;
        u32 all;
        const u32 within = sum_before(own, part, all);
        if (i < count) totals[i] = before + within;
        before += all;
    }
}

__device__ __forceinline__ void add_chunks(u32 count, u32 *numbers, const u32 *totals) {
    const u64 i = own_number();
    if (i < count) numbers[i] += load(totals + i / CHUNK);
}

__device__ __forceinline__ void scatter(u32 entries, const u32 *index, u32 *next, u32 *source) {
    const u64 p = own_number();
    if (p < entries) source[atomicAdd(next + load(index + p), 1u)] = u32(p);
}

// A warp for each new row; rows of more than `most` are left to `sort_long`, and noted. `far` is (1 + rows,): how many,
// then which.
__device__ __forceinline__ void sort_row(u32 rows, const u32 *pointer, u32 *source, u32 most, u32 *far) {
    const u64 row = own_number() / WARP;
    if (row >= rows) return;
    const Team<WARP> team(nullptr);
    const u32 begin = load(pointer + row), count = load(pointer + row + 1) - begin;
    if (count <= WARP) { // the place of each is the number of those that are smaller
        const u32 own = u32(team.lane) < count ? source[begin + team.lane] : ~0u;
        u32 smaller = 0;
        for (u32 i = 0; i < count; ++i) smaller += __shfl_sync(ALL, own, int(i)) < own;
        __syncwarp();
        if (u32(team.lane) < count) source[begin + smaller] = own;
    } else if (count <= most) {
        sort_items(team, source + begin, count);
    } else if (team.lane == 0) {
        far[1 + atomicAdd(far, 1u)] = u32(row);
    }
}

template <int TEAM>
__device__ __forceinline__ void sort_long(const u32 *pointer, u32 *source, const u32 *far, u8 *shared) {
    const Team<TEAM> team(shared);
    for (u32 i = blockIdx.x; i < load(far); i += gridDim.x) {
        const u32 row = load(far + 1 + i), begin = load(pointer + row);
        sort_items(team, source + begin, load(pointer + row + 1) - begin);
    }
}

__device__ __forceinline__ void row_of_each(u32 rows, const u32 *pointer, u32 *row_of) {
    const u64 row = own_number() / WARP;
    if (row >= rows) return;
    const u32 end = load(pointer + row + 1);
    for (u32 p = load(pointer + row) + threadIdx.x % WARP; p < end; p += WARP) row_of[p] = u32(row);
}

template <class T> __device__ __forceinline__ void take(u32 count, const u32 *source, const T *in, T *out) {
    const u64 q = own_number();
    if (q < count) out[q] = load(in + load(source + q));
}
