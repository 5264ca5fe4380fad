// `sweep`, variable block ELL: one step v_{j+1} = a_j A v_j + b_j v_j + c_j v_{j-1} of B start vectors, of dense blocks
// of mixed sizes (akx/formats/vbell.py has the layout). T value type, S what values are stored as, HOW matrix data comes
// by, with `kept` 256ths of it to stay in L2 (swept.cuh).
//
// A warp has a slice: N nodes of r rows, L lanes a row; lane (l r + i) N + t has row i of node t, and blocks l, l + L,
// ... of each width. All of the C entries of x that a block needs are asked for before the first is used (Rennich).
#pragma once
#include "include/swept.cuh"

// The value of the lane `lanes` above.
__device__ __forceinline__ float of_lane_above(float a, u32 lanes) { return __shfl_down_sync(0xffffffffu, a, lanes); }
__device__ __forceinline__ double of_lane_above(double a, u32 lanes) { return __shfl_down_sync(0xffffffffu, a, lanes); }
__device__ __forceinline__ cfloat of_lane_above(cfloat a, u32 lanes) {
    return {of_lane_above(a.re, lanes), of_lane_above(a.im, lanes)};
}
__device__ __forceinline__ cdouble of_lane_above(cdouble a, u32 lanes) {
    return {of_lane_above(a.re, lanes), of_lane_above(a.im, lanes)};
}

constexpr u32 VBELL_HEAD = 12, VBELL_NOWHERE = 0xffffffffu;

// The blocks of C columns, `steps` of them for each lane; column and value move on behind them. Some blocks at a time:
// all that they need is asked for before the first is used, and so are the indices of the next ones. FEW: fewer at a
// time, in fewer registers. `waits`: the step before may not have ended; the first blocks are asked for before it has.
template <int C, class T, class S, int B, int HOW, bool FEW>
__device__ __forceinline__ void vbell_blocks(u32 n, u32 steps, u32 indices, u32 values, const u32 *&column,
                                             const S *&value, const T *table, const T *x, T (&sum)[B], u64 policy,
                                             bool &waits) {
    constexpr u32 TOGETHER = FEW ? (C > 4 ? 1 : C > 2 ? 2 : C > 1 ? 3 : 6) : C > 3 ? 2 : C > 2 ? 3 : C > 1 ? 4 : 6;
    u32 at[TOGETHER];
#pragma unroll
    for (u32 u = 0; u < TOGETHER; ++u) at[u] = u < steps ? fetch<HOW>(column + u * indices, policy) : 0;
    for (u32 s = 0; s < steps; s += TOGETHER) {
        S stored[TOGETHER][C];
        T own[TOGETHER][C];
#pragma unroll
        for (u32 u = 0; u < TOGETHER; ++u)
#pragma unroll
            for (u32 j = 0; j < C; ++j)
                if (s + u < steps) stored[u][j] = fetch<HOW>(value + (u * C + j) * values, policy);
        after_the_last(waits);
        waits = false;
#pragma unroll
        for (int v = 0; v < B; ++v) {
#pragma unroll
            for (u32 u = 0; u < TOGETHER; ++u)
#pragma unroll
                for (u32 j = 0; j < C; ++j)
                    if (s + u < steps) own[u][j] = fresh(x + i64(v) * n + at[u] + j);
            if (v == B - 1)
#pragma unroll
                for (u32 u = 0; u < TOGETHER; ++u)
                    if (s + TOGETHER + u < steps) at[u] = fetch<HOW>(column + (TOGETHER + u) * indices, policy);
#pragma unroll
            for (u32 u = 0; u < TOGETHER; ++u)
#pragma unroll
                for (u32 j = 0; j < C; ++j)
                    if (s + u < steps) sum[v] = mad(widened<T>(table, stored[u][j]), own[u][j], sum[v]);
        }
        const u32 done = min(TOGETHER, steps - s);
        column += done * indices;
        value += done * C * values;
    }
}

template <class T, class S, int B, int HOW, bool FEW>
__device__ __forceinline__ void vbell_step(u32 n, u32 slices, const u32 *__restrict__ head,
                                           const u32 *__restrict__ first_row, const u32 *__restrict__ columns,
                                           const S *__restrict__ stored, const T *__restrict__ table,
                                           const T *x, const T *before, T *y, T *first, const T *coefficient,
                                           u32 kept) {
    let_the_next_begin();
    const u32 slice = u32((u64(blockIdx.x) * blockDim.x + threadIdx.x) / 32), lane = threadIdx.x % 32;
    if (slice >= slices) return;
    head += u64(slice) * VBELL_HEAD;
    const u32 r = load(head + 3), nodes = load(head + 4), lanes = load(head + 5);
    const u32 width = nodes * r, part = lane / width, in_part = lane % width, i = in_part / nodes, t = in_part % nodes;
    const bool active = part < lanes;
    const u32 row = active ? load(first_row + load(head) + t) : VBELL_NOWHERE;
    u32 steps[6];
#pragma unroll
    for (u32 c = 0; c < 6; ++c) steps[c] = load(head + 6 + c);
    T sum[B];
#pragma unroll
    for (int v = 0; v < B; ++v) sum[v] = zero<T>();
    const u64 policy = policy_of<HOW>(slice, kept);
    bool waits = true;
    if (active) {
        const u32 *column = columns + load(head + 1) + part * nodes + t;
        const S *value = stored + load(head + 2) + lane;
        const u32 indices = lanes * nodes, values = lanes * width;
        vbell_blocks<6, T, S, B, HOW, FEW>(n, steps[0], indices, values, column, value, table, x, sum, policy, waits);
        vbell_blocks<5, T, S, B, HOW, FEW>(n, steps[1], indices, values, column, value, table, x, sum, policy, waits);
        vbell_blocks<4, T, S, B, HOW, FEW>(n, steps[2], indices, values, column, value, table, x, sum, policy, waits);
        vbell_blocks<3, T, S, B, HOW, FEW>(n, steps[3], indices, values, column, value, table, x, sum, policy, waits);
        vbell_blocks<2, T, S, B, HOW, FEW>(n, steps[4], indices, values, column, value, table, x, sum, policy, waits);
        vbell_blocks<1, T, S, B, HOW, FEW>(n, steps[5], indices, values, column, value, table, x, sum, policy, waits);
    }
    after_the_last(waits); // of no blocks
    // The lanes of a row are `width` apart: the first adds what the others have, in their order.
    T total[B];
#pragma unroll
    for (int v = 0; v < B; ++v) total[v] = sum[v];
    for (u32 l = 1; l < lanes; ++l)
#pragma unroll
        for (int v = 0; v < B; ++v) total[v] = add(total[v], of_lane_above(sum[v], l * width));
    if (part == 0 && row != VBELL_NOWHERE)
#pragma unroll
        for (int v = 0; v < B; ++v) finish_step(total[v], x, before, y, first, coefficient, i64(v) * n + row + i);
}
