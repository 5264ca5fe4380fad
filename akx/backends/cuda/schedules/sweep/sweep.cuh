// `sweep`: one step v_{j+1} = a_j A v_j + b_j v_j + c_j v_{j-1} of B start vectors, in every SpMV variant.
// T value type, S what values are stored as, with a table where these are offsets into it; LANES threads per row, HOW
// matrix data comes by, with `kept` 256ths of it to stay in L2 (swept.cuh).
#pragma once
#include "include/swept.cuh"

// The next TOGETHER slots of a lane that has every STRIDE-th, or as many of them as there are: all that they need is
// asked for before the first is used. `waits`: the step before may not have ended, and matrix data is asked for before it
// has.
template <u32 TOGETHER, bool ALL, u32 STRIDE, int HOW, class T, class S, class INDEX, int B>
__device__ __forceinline__ void add_slots(u32 n, u32 slots, u32 base, const INDEX *column, const S *value,
                                          const T *table, const T *x, T (&sum)[B], u64 policy, bool &waits) {
    u32 at[TOGETHER];
    S stored[TOGETHER];
#pragma unroll
    for (u32 u = 0; u < TOGETHER; ++u)
        if (ALL || u < slots) at[u] = base + fetch<HOW>(column + u * STRIDE, policy);
#pragma unroll
    for (u32 u = 0; u < TOGETHER; ++u)
        if (ALL || u < slots) stored[u] = fetch<HOW>(value + u * STRIDE, policy);
    after_the_last(waits);
    waits = false;
#pragma unroll
    for (int v = 0; v < B; ++v) {
        T own[TOGETHER];
#pragma unroll
        for (u32 u = 0; u < TOGETHER; ++u)
            if (ALL || u < slots) own[u] = fresh(x + i64(v) * n + at[u]);
#pragma unroll
        for (u32 u = 0; u < TOGETHER; ++u)
            if (ALL || u < slots) sum[v] = mad(widened<T>(table, stored[u]), own[u], sum[v]);
    }
}

// Sums of the slots first, first + STRIDE, ... before `stop`, in this order.
template <u32 STRIDE, int HOW, class T, class S, class INDEX, int B>
__device__ __forceinline__ void sum_slots(u32 n, u32 first, u32 stop, u32 base, const INDEX *column, const S *value,
                                          const T *table, const T *x, T (&sum)[B], u64 policy) {
    constexpr u32 TOGETHER = 4;
    bool waits = n != 0;
    u32 slots = first < stop ? (stop - first - 1) / STRIDE + 1 : 0;
    for (column += first, value += first; slots >= TOGETHER; slots -= TOGETHER) {
        add_slots<TOGETHER, true, STRIDE, HOW>(n, slots, base, column, value, table, x, sum, policy, waits);
        column += TOGETHER * STRIDE, value += TOGETHER * STRIDE;
    }
    if (slots != 0)
        add_slots<TOGETHER - 1, false, STRIDE, HOW>(n, slots, base, column, value, table, x, sum, policy, waits);
    after_the_last(waits); // of no slots
}

// ---------------------------------------------------------------------------------------------------------------- CSR
// LANES neighbouring threads take a row: lane l its entries l, l + LANES, ... (Bell and Garland, SC 2009).
template <class T, class S, int B, int LANES, int HOW>
__device__ __forceinline__ void csr_step(u32 n, const u32 *__restrict__ start, const u32 *__restrict__ column,
                                         const S *__restrict__ value, const T *__restrict__ table,
                                         const T *x, const T *before, T *y, T *first, const T *coefficient,
                                         u32 kept) {
    let_the_next_begin();
    const u64 thread = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    const u32 row = u32(thread / LANES), lane = u32(thread % LANES);
    T sum[B];
#pragma unroll
    for (int v = 0; v < B; ++v) sum[v] = zero<T>();
    const u32 begin = row < n ? load(start + row) + lane : 0, stop = row < n ? load(start + row + 1) : 0;
    const u64 policy = policy_of<HOW>(u32(thread / 32), kept);
    sum_slots<LANES, HOW>(n, begin, stop, 0, column, value, table, x, sum, policy);
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset /= 2)
#pragma unroll
        for (int v = 0; v < B; ++v) sum[v] = add(sum[v], across(sum[v], offset));
    if (row < n && lane == 0)
#pragma unroll
        for (int v = 0; v < B; ++v) finish_step(sum[v], x, before, y, first, coefficient, i64(v) * n + row);
}

// ------------------------------------------------------------------------------------------------------------- rows16
// Rows padded to 16 entries, half a warp each; products are gathered in shared memory, so that y is written in long
// runs (Zhang et al. 2009, after Baskaran and Bordawekar). start counts entries in units of 16. A block of 256 threads
// takes 128 rows.
constexpr int ROWS16 = 128;
template <class T, class S, int B, int HOW>
__device__ __forceinline__ void rows16_step(u32 n, const u32 *__restrict__ start, const u32 *__restrict__ column,
                                            const S *__restrict__ value, const T *__restrict__ table,
                                            const T *x, const T *before, T *y, T *first, const T *coefficient,
                                            u32 kept) {
    let_the_next_begin();
    __shared__ T staged[B][ROWS16];
    const u32 lane = threadIdx.x % 16, group = threadIdx.x / 16, groups = blockDim.x / 16;
    const u64 base = u64(blockIdx.x) * ROWS16, policy = policy_of<HOW>(blockIdx.x, kept);
    for (u32 local = group; local < ROWS16; local += groups) {
        const u64 row = base + local;
        T sum[B];
#pragma unroll
        for (int v = 0; v < B; ++v) sum[v] = zero<T>();
        if (row < n) {
            const u32 begin = load(start + row) * 16 + lane, stop = load(start + row + 1) * 16;
            sum_slots<16, HOW>(n, begin, stop, 0, column, value, table, x, sum, policy);
        }
#pragma unroll
        for (int offset = 8; offset > 0; offset /= 2)
#pragma unroll
            for (int v = 0; v < B; ++v) sum[v] = add(sum[v], across(sum[v], offset));
        if (lane == 0)
#pragma unroll
            for (int v = 0; v < B; ++v) staged[v][local] = sum[v];
    }
    __syncthreads();
    after_the_last(n != 0); // of no rows
    for (u32 local = threadIdx.x; local < ROWS16; local += blockDim.x)
        if (base + local < n)
#pragma unroll
            for (int v = 0; v < B; ++v)
                finish_step(staged[v][local], x, before, y, first, coefficient, i64(v) * n + i64(base + local));
}

// --------------------------------------------------------------------------------------------------------------- PCSR
// Partitions of 256 entries whatever the rows; rows padded to PAD entries, at least PAD of them (Mehri Dehnavi 2012,
// ch. 3 and 4). A block of 256 threads takes AHEAD partitions and loads the next while it sums one. Of a row that is
// split between partitions, each partition keeps its share: `head` where the row began before, else `tail`; a second
// kernel adds the shares in order, so there are no atomics. start: (n + 1) entries where rows begin, row: (P + 1) the
// row of the first entry of each partition (n after the last).
constexpr int PART = 256;
template <class T, class S, int B, int PAD, int AHEAD, int HOW>
__device__ __forceinline__ void pcsr_step(u32 n, const u32 *__restrict__ start, const u32 *__restrict__ column,
                                          const S *__restrict__ value, const T *__restrict__ table,
                                          const u32 *__restrict__ row, u32 partitions, T *__restrict__ head,
                                          T *__restrict__ tail, const T *x, const T *before, T *y, T *first,
                                          const T *coefficient, u32 kept) {
    let_the_next_begin();
    __shared__ T sums[PART / PAD];
    const u32 thread = threadIdx.x, from = blockIdx.x * AHEAD;
    const u64 policy = policy_of<HOW>(blockIdx.x, kept);
    u32 at = fetch<HOW>(column + u64(from) * PART + thread, policy);
    S a = fetch<HOW>(value + u64(from) * PART + thread, policy);
    after_the_last(partitions != 0);
    for (u32 step = 0; step < AHEAD && from + step < partitions; ++step) {
        const u32 part = from + step;
        const u64 base = u64(part) * PART;
        const u32 here = at;
        const T mine = widened<T>(table, a);
        if (step + 1 < AHEAD && part + 1 < partitions) {  // 1. the next partition is on its way
            at = fetch<HOW>(column + base + PART + thread, policy);
            a = fetch<HOW>(value + base + PART + thread, policy);
        }
        const u32 low = load(row + part), own = low + thread;  // 2. this thread sums row `own`, where it is ours
        const u64 begins = own < n ? u64(load(start + own)) : base + PART;
        const u64 ends = own < n ? u64(load(start + own + 1)) : base + PART;
        const bool ours = own < n && begins < base + PART;
        const u32 left = u32((begins > base ? begins - base : 0) / PAD);
        const u32 right = u32((ends < base + PART ? ends - base : u64(PART)) / PAD);
#pragma unroll
        for (int v = 0; v < B; ++v) {
            T product = mad(mine, fresh(x + i64(v) * n + here), zero<T>());  // 3. products, 4. sums of PAD of them
#pragma unroll
            for (int offset = PAD / 2; offset > 0; offset /= 2) product = add(product, across(product, offset));
            if (thread % PAD == 0) sums[thread / PAD] = product;
            __syncthreads();
            if (ours) {  // 5. rows
                T sum = zero<T>();
                for (u32 s = left; s < right; ++s) sum = add(sum, sums[s]);
                if (begins < base)
                    head[u64(v) * partitions + part] = sum;
                else if (ends > base + PART)
                    tail[u64(v) * partitions + part] = sum;
                else
                    finish_step(sum, x, before, y, first, coefficient, i64(v) * n + own);
            }
            __syncthreads();
        }
    }
}

// The rows that are split: row split[s], from partition begin[s] on to partition end[s].
template <class T, int B>
__device__ __forceinline__ void pcsr_join(u32 n, const u32 *__restrict__ split, const u32 *__restrict__ begin,
                                          const u32 *__restrict__ end, u32 splits, u32 partitions,
                                          const T *head, const T *tail, const T *x, const T *before, T *y, T *first,
                                          const T *coefficient) {
    let_the_next_begin();
    const u32 s = blockIdx.x * blockDim.x + threadIdx.x;
    if (s >= splits) return;
    const u32 low = load(begin + s), high = load(end + s);
    after_the_last(splits != 0);
#pragma unroll
    for (int v = 0; v < B; ++v) {
        T sum = fresh(tail + u64(v) * partitions + low);
        for (u32 part = low + 1; part <= high; ++part) sum = add(sum, fresh(head + u64(v) * partitions + part));
        finish_step(sum, x, before, y, first, coefficient, i64(v) * n + load(split + s));
    }
}

// --------------------------------------------------------------------------------------------------------- sliced ELL
// Slices of 32 rows, stored column by column, columns relative to the base of the slice. A warp takes 32 / LANES rows;
// the lanes of a row are 32 / LANES threads apart, so that every load of the warp is of LANES whole runs.
// order: the row of each place where rows are sorted by length, else null.
template <class T, class S, class INDEX, int B, int LANES, int HOW>
__device__ __forceinline__ void sell_step(u32 n, const u32 *__restrict__ start, const u32 *__restrict__ base,
                                          const INDEX *__restrict__ column, const S *__restrict__ value,
                                          const T *__restrict__ table, const u32 *__restrict__ order,
                                          const T *x, const T *before, T *y, T *first, const T *coefficient,
                                          u32 kept) {
    let_the_next_begin();
    constexpr u32 ROWS = 32 / LANES;
    const u64 warp = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    const u32 place = u32(warp * ROWS) + threadIdx.x % ROWS, lane = threadIdx.x % 32 / ROWS;
    const u32 slice = place / 32;
    T sum[B];
#pragma unroll
    for (int v = 0; v < B; ++v) sum[v] = zero<T>();
    const bool is_row = place < n;
    const u32 begin = is_row ? load(start + slice) + lane * 32 + place % 32 : 0;
    const u32 stop = is_row ? load(start + slice + 1) : 0;
    const u32 low = is_row ? load(base + slice) : 0;
    const u64 policy = policy_of<HOW>(u32(warp), kept);
    sum_slots<32 * LANES, HOW>(n, begin, stop, low, column, value, table, x, sum, policy);
#pragma unroll
    for (u32 offset = 16; offset >= ROWS && LANES > 1; offset /= 2)
#pragma unroll
        for (int v = 0; v < B; ++v) sum[v] = add(sum[v], across(sum[v], int(offset)));
    if (is_row && lane == 0) {
        const u32 row = order == nullptr ? place : load(order + place);
#pragma unroll
        for (int v = 0; v < B; ++v) finish_step(sum[v], x, before, y, first, coefficient, i64(v) * n + row);
    }
}
