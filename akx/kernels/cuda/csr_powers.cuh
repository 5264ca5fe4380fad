// Matrix powers of a caller's CSR arrays as they are, all steps in one launch: v_{j+1} = a_j A v_j + b_j v_j + c_j v_{j-1}.
//
// LANES neighbouring threads take a row (lane l its entries l, l + LANES, ...), the next one as many rows on as there are
// such groups, and all blocks meet after each step; so they have to be on the device at once (a cooperative launch). Rows
// may be in any order of their entries, with entries twice.
//
// The arrays are not akx's, and may change between two calls: a row or a column that is out of range is left out, and
// `told` becomes 1, as where a value is not finite. A step reads what other blocks have just written, so vectors never
// come through the read-only path.
//
// Bytes: k times the matrix, unless the L2 cache has it. Flops: 2 nnz k.
#pragma once
#include "content.cuh"

constexpr int TOGETHER = 4;

// All blocks have come here `count` / gridDim times when they go on.
__device__ __forceinline__ void meet(u32 *arrived, u32 count) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1u);
        while (*static_cast<volatile u32 *>(arrived) < count) {}
        __threadfence();
    }
    __syncthreads();
}

template <class T, class I, int B, int LANES>
__device__ __forceinline__ bool one_step(u32 n, u64 entries, const I *start, const I *column, const T *value, const T *own,
                                         const T *before, T *made, T *first, const T *coefficient, bool looks) {
    const u64 number = own_number(), groups = u64(gridDim.x) * blockDim.x / LANES;
    const u32 lane = u32(number % LANES);
    const T a = load(coefficient), b = load(coefficient + 1), c = load(coefficient + 2);
    bool is_wrong = false;
    for (u64 base = 0; base < n; base += groups) { // all lanes of a warp take part to the end
        const u64 row = base + number / LANES;
        T sum[B];
#pragma unroll
        for (int v = 0; v < B; ++v) sum[v] = zero<T>();
        u64 p = 0, stop = 0;
        if (row < n) p = load(start + row), stop = load(start + row + 1);
        if (p > stop || stop > entries) is_wrong = true, p = stop = 0;
        for (p += lane; p < stop; p += TOGETHER * LANES) {
            u64 place[TOGETHER];
            T entry[TOGETHER];
            bool is_there[TOGETHER];
#pragma unroll
            for (int u = 0; u < TOGETHER; ++u) {
                const u64 q = p + u64(u) * LANES;
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
#pragma unroll
        for (int offset = LANES / 2; offset > 0; offset /= 2)
#pragma unroll
            for (int v = 0; v < B; ++v) sum[v] = add(sum[v], across(sum[v], offset));
        if (row >= n || lane != 0) continue;
#pragma unroll
        for (int v = 0; v < B; ++v) {
            const u64 at = u64(v) * n + row;
            T found = mad(a, sum[v], zero<T>());
            if (!is_zero(b)) found = mad(b, own[at], found);
            if (before != nullptr && !is_zero(c)) found = mad(c, before[at], found);
            if (first != nullptr) first[at] = own[at];
            made[at] = found;
        }
    }
    return is_wrong;
}

// x is (B, n), `out` (k + 1, vectors, n) from the first of these vectors on: a power is `pitch` numbers after the one
// before. Nothing is done where `only` points to 0. `arrived` is 0 before and after.
template <class T, class I, int B, int LANES>
__device__ __forceinline__ void all_steps(u32 n, u64 entries, const I *start, const I *column, const T *value, u32 k,
                                          u64 pitch, const T *x, T *out, const T *coefficients, u32 *arrived,
                                          const u32 *only, u32 *told) {
    if (only != nullptr && *only == 0) return;
    bool is_wrong = false;
    for (u32 j = 0; j < k; ++j) {
        const T *own = j == 0 ? x : out + j * pitch, *before = j == 0 ? nullptr : j == 1 ? x : out + (j - 1) * pitch;
        is_wrong |= one_step<T, I, B, LANES>(n, entries, start, column, value, own, before, out + (j + 1) * pitch,
                                             j == 0 && x != out ? out : nullptr, coefficients + 3 * j, j == 0);
        if (j + 1 < k) meet(arrived, (j + 1) * gridDim.x);
    }
    if (is_wrong) *told = 1;
    if (threadIdx.x == 0 && atomicAdd(arrived, 1u) + 1 == k * gridDim.x) *arrived = 0;
}
