// Matrix powers of a caller's CSR arrays as they are, all steps in one launch: v_{j+1} = a_j A v_j + b_j v_j + c_j v_{j-1}.
//
// LANES neighbouring threads take a row (lane l its entries l, l + LANES, ...), the next one as many rows on as there are
// such groups, and all blocks meet after each step; so they have to be on the device at once (a cooperative launch). Rows
// may be in any order of their entries, with entries twice.
//
// A row of more than LONG entries has a whole block, where LONG is not 0: in a graph with hubs all others would wait for
// them. A row's sum is in a fixed order: every thread its own entries, then lane by lane, then warp by warp.
//
// The arrays are not akx's, and may change between two calls: a row or a column that is out of range is left out, and
// `told` becomes 1, as where a value is not finite. A step reads what other blocks have just written, so vectors never
// come through the read-only path.
//
// Bytes: k times the matrix, unless the L2 cache has it. Flops: 2 nnz k.
#pragma once
#include "include/meet.cuh"
#include "matrix/content.cuh"

constexpr int TOGETHER = 4, THREADS = 512, WARPS = THREADS / WARP;
constexpr u32 ROUNDS = 8; // after so many rounds of rows a block takes the long ones among them

// What a step reads and writes. `before` and `first` may be null: there is nothing before, and p_0 is where it should be.
template <class T> struct Step {
    const T *own, *before;
    T *made, *first, a, b, c;
};

template <class T> __device__ __forceinline__ void write(const Step<T> &step, u64 at, T sum) {
    T found = mad(step.a, sum, zero<T>());
    if (!is_zero(step.b)) found = mad(step.b, step.own[at], found);
    if (step.before != nullptr && !is_zero(step.c)) found = mad(step.c, step.before[at], found);
    if (step.first != nullptr) step.first[at] = step.own[at];
    step.made[at] = found;
}

// Where a row is: [p, stop), and nothing where that is not in the arrays. Whether it is.
template <class I>
__device__ __forceinline__ bool find_row(u64 row, u64 entries, const I *start, u64 &p, u64 &stop) {
    p = load(start + row), stop = load(start + row + 1);
    if (p <= stop && stop <= entries) return true;
    p = stop = 0;
    return false;
}

// Sums of a row's entries p, p + BY, ..., TOGETHER of them at a time, and whether one of them is wrong.
template <int BY, class T, class I, int B>
__device__ __forceinline__ bool sum_entries(u32 n, u64 p, u64 stop, const I *column, const T *value, const T *own,
                                            bool looks, T (&sum)[B]) {
    bool is_wrong = false;
#pragma unroll
    for (int v = 0; v < B; ++v) sum[v] = zero<T>();
    for (; p < stop; p += TOGETHER * BY) {
        u64 place[TOGETHER];
        T entry[TOGETHER];
        bool is_there[TOGETHER];
#pragma unroll
        for (int u = 0; u < TOGETHER; ++u) {
            const u64 q = p + u64(u) * BY;
            is_there[u] = q < stop;
            place[u] = is_there[u] ? u64(load(column + q)) : 0;
            entry[u] = is_there[u] ? load(value + q) : zero<T>();
        }
#pragma unroll
        for (int u = 0; u < TOGETHER; ++u) {
            if (place[u] >= n) is_wrong = true, is_there[u] = false;
            if (looks && !is_finite(entry[u])) is_wrong = true;
            if (is_there[u])
#pragma unroll
                for (int v = 0; v < B; ++v) sum[v] = mad(entry[u], own[u64(v) * n + place[u]], sum[v]);
        }
    }
    return is_wrong;
}

template <int LANES, class T, int B> __device__ __forceinline__ void sum_lanes(T (&sum)[B]) {
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset /= 2)
#pragma unroll
        for (int v = 0; v < B; ++v) sum[v] = add(sum[v], across(sum[v], offset));
}

// The number of a thread where the warps of a launch are dealt to its blocks in turn.
__device__ __forceinline__ u64 dealt_number(u32 warp, u32 lane) {
    return (u64(warp) * gridDim.x + blockIdx.x) * WARP + lane;
}

// The long rows of `rounds` times as many rows as there are groups, from `base` on, one after another by the whole block.
// `marked` has a word for each warp and round: bit l where the row that begins at lane l is long.
template <class T, class I, int B, int LANES>
__device__ __forceinline__ bool sum_long_rows(u32 n, u64 entries, const I *start, const I *column, const T *value,
                                              const Step<T> &step, bool looks, u64 base, u32 rounds, const u32 *marked) {
    __shared__ T part[2][B][WARPS]; // of one row and of the next
    const u64 groups = u64(gridDim.x) * THREADS / LANES;
    bool is_wrong = false;
    u32 turn = 0;
    for (u32 m = 0; m < rounds * WARPS; ++m)
        for (u32 left = marked[m]; left != 0; left &= left - 1) {
            const u32 lane = u32(__ffs(int(left))) - 1;
            const u64 row = base + m / WARPS * groups + dealt_number(m % WARPS, lane) / LANES;
            u64 p, stop;
            T sum[B];
            if (!find_row(row, entries, start, p, stop)) is_wrong = true;
            is_wrong |= sum_entries<THREADS>(n, p + threadIdx.x, stop, column, value, step.own, looks, sum);
            sum_lanes<WARP>(sum);
            if (threadIdx.x % WARP == 0)
#pragma unroll
                for (int v = 0; v < B; ++v) part[turn][v][threadIdx.x / WARP] = sum[v];
            __syncthreads();
            if (threadIdx.x < B) {
                const T *of_warps = part[turn][threadIdx.x];
                T total = of_warps[0];
                for (int w = 1; w < WARPS; ++w) total = add(total, of_warps[w]);
                write(step, u64(threadIdx.x) * n + row, total);
            }
            turn ^= 1;
        }
    __syncthreads(); // all have read `marked`
    return is_wrong;
}

template <class T, class I, int B, int LANES, u32 LONG>
__device__ __forceinline__ bool one_step(u32 n, u64 entries, const I *start, const I *column, const T *value,
                                         const Step<T> &step, bool looks) {
    // Neighbours may all be long: in turn, few of them are of one block.
    const u64 number = LONG ? dealt_number(threadIdx.x / WARP, threadIdx.x % WARP) : own_number();
    const u64 groups = u64(gridDim.x) * blockDim.x / LANES;
    const u32 lane = u32(number % LANES);
    bool is_wrong = false, marks = false;
    u32 round = 0;
    for (u64 base = 0; base < n; base += groups) { // all lanes of a warp take part to the end
        const u64 row = base + number / LANES;
        u64 p = 0, stop = 0;
        if (row < n && !find_row(row, entries, start, p, stop)) is_wrong = true;
        const bool is_long = LONG && stop - p > LONG;
        T sum[B];
        is_wrong |= sum_entries<LANES>(n, p + lane, is_long ? 0 : stop, column, value, step.own, looks, sum);
        sum_lanes<LANES>(sum);
        if (row < n && lane == 0 && !is_long)
#pragma unroll
            for (int v = 0; v < B; ++v) write(step, u64(v) * n + row, sum[v]);
        if constexpr (LONG > 0) {
            __shared__ u32 marked[ROUNDS * WARPS];
            const u32 found = __ballot_sync(ALL, is_long && lane == 0);
            if (threadIdx.x % WARP == 0) marked[round * WARPS + threadIdx.x / WARP] = found;
            marks |= found != 0;
            if (++round < ROUNDS && base + groups < n) continue;
            if (__syncthreads_or(marks))
                is_wrong |= sum_long_rows<T, I, B, LANES>(n, entries, start, column, value, step, looks,
                                                          base - (round - 1) * groups, round, marked);
            marks = false, round = 0;
        }
    }
    return is_wrong;
}

// x is (B, n), `out` (k + 1, vectors, n) from the first of these vectors on: a power is `pitch` numbers after the one
// before. Nothing is done where `only` points to 0. `arrived` is 0 before and after.
template <class T, class I, int B, int LANES, u32 LONG>
__device__ __forceinline__ void all_steps(u32 n, u64 entries, const I *start, const I *column, const T *value, u32 k,
                                          u64 pitch, const T *x, T *out, const T *coefficients, u32 *arrived,
                                          const u32 *only, u32 *told) {
    if (only != nullptr && *only == 0) return;
    bool is_wrong = false;
    for (u32 j = 0; j < k; ++j) {
        const T *own = j == 0 ? x : out + j * pitch, *before = j == 0 ? nullptr : j == 1 ? x : out + (j - 1) * pitch;
        const T *coefficient = coefficients + 3 * j;
        const Step<T> step = {own, before, out + (j + 1) * pitch, j == 0 && x != out ? out : nullptr,
                              load(coefficient), load(coefficient + 1), load(coefficient + 2)};
        is_wrong |= one_step<T, I, B, LANES, LONG>(n, entries, start, column, value, step, j == 0);
        if (j + 1 < k) meet(arrived, (j + 1) * gridDim.x);
    }
    if (is_wrong) *told = 1;
    if (threadIdx.x == 0 && atomicAdd(arrived, 1u) + 1 == k * gridDim.x) *arrived = 0;
}
