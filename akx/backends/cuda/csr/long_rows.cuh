// A step of plain products of CSR arrays with few very long rows: v_{j+1} = a_j A v_j + b_j v_j + c_j v_{j-1}.
//
// A block has each of the long rows, and these blocks begin first; LANES neighbouring threads take each of the others, as
// csr_step of sweep.cuh does. A row's sum is in a fixed order: every thread its own entries, then warp by warp.
//
// Bytes: the matrix once, x once or more often. Flops: 2 nnz.
#pragma once
#include "schedules/sweep/sweep.cuh"

constexpr int THREADS = 256;

// `rows` is (count,): the long ones, those of more than `most` entries.
template <class T, int B, int LANES>
__device__ __forceinline__ void step_with_long_rows(u32 n, u32 count, u32 most, const u32 *rows, const u32 *start,
                                                    const u32 *column, const T *value, const T *x, const T *before, T *y,
                                                    T *first, const T *coefficient) {
    constexpr int WARPS = THREADS / 32;
    const bool is_long = blockIdx.x < count;
    const u64 thread = u64(blockIdx.x - (is_long ? 0 : count)) * THREADS + threadIdx.x;
    const u32 row = is_long ? load(rows + blockIdx.x) : u32(thread / LANES);
    u32 begin = row < n ? load(start + row) : 0, stop = row < n ? load(start + row + 1) : 0;
    T sum[B];
#pragma unroll
    for (int v = 0; v < B; ++v) sum[v] = zero<T>();
    if (!is_long) {
        const bool is_mine = stop - begin <= most;
        sum_slots<LANES, 0>(n, begin + u32(thread % LANES), is_mine ? stop : begin, 0, column, value,
                            static_cast<const T *>(nullptr), x, sum, 0);
#pragma unroll
        for (int offset = LANES / 2; offset > 0; offset /= 2)
#pragma unroll
            for (int v = 0; v < B; ++v) sum[v] = add(sum[v], across(sum[v], offset));
        if (row < n && thread % LANES == 0 && is_mine)
#pragma unroll
            for (int v = 0; v < B; ++v) finish_step(sum[v], x, before, y, first, coefficient, i64(v) * n + row);
        return;
    }
    __shared__ T part[B][WARPS];
    sum_slots<THREADS, 0>(n, begin + threadIdx.x, stop, 0, column, value, static_cast<const T *>(nullptr), x, sum, 0);
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2)
#pragma unroll
        for (int v = 0; v < B; ++v) sum[v] = add(sum[v], across(sum[v], offset));
    if (threadIdx.x % 32 == 0)
#pragma unroll
        for (int v = 0; v < B; ++v) part[v][threadIdx.x / 32] = sum[v];
    __syncthreads();
    if (threadIdx.x == 0)
#pragma unroll
        for (int v = 0; v < B; ++v) {
            for (int w = 1; w < WARPS; ++w) sum[v] = add(sum[v], part[v][w]);
            finish_step(sum[v], x, before, y, first, coefficient, i64(v) * n + row);
        }
}
