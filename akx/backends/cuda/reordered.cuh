// Vectors on their way between the user's order of rows and another one: x into it, results out of it.
//
//   take_start     what is at row `from[i]` of x goes to row i, for all start vectors; v_0 is filled by the way
//   side_by_side   of as many vectors as make up LINE bytes of a row, values of one row side by side
//   apart          and from there to the vectors, row i from line `from[i]`
//
// A vector that comes value by value costs a sector of 32 bytes for each; side by side these are whole lines, which are
// read once, in any order. Bytes: of each result four times its own; of x its own, a sector and 4 a row.
#pragma once
#include "include/common.cuh"

constexpr u32 LINE = 64, TILE = 128, THREADS = 256;
// Rows of shared memory that lie so far apart are read without two threads at one bank, along and across.
constexpr u32 PITCH = TILE + 2;

template <class T>
__device__ __forceinline__ void take_start(u32 rows, u32 vectors, const u32 *from, const T *x, T *taken, T *first) {
    const u64 row = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const u32 source = load(from + row);
    for (u32 v = 0; v < vectors; ++v) {
        taken[u64(v) * rows + row] = load(x + u64(v) * rows + source);
        if (first != nullptr) first[u64(v) * rows + row] = load(x + u64(v) * rows + row);
    }
}

// put(i, take(i)) of a block's `items`, EACH of a thread where all of them are there: then all are asked for at first.
template <u32 EACH, class T, class A, class B>
__device__ __forceinline__ void each_item(bool all, u32 items, A &&take, B &&put) {
    if (!all) {
        for (u32 i = threadIdx.x; i < items; i += THREADS) put(i, take(i));
        return;
    }
    T item[EACH];
#pragma unroll
    for (u32 u = 0; u < EACH; ++u) item[u] = take(u * THREADS + threadIdx.x);
#pragma unroll
    for (u32 u = 0; u < EACH; ++u) put(u * THREADS + threadIdx.x, item[u]);
}

// `count` vectors from `in` on, at most WIDTH; a line has 2^shift values, the least power of two that is not below
// `count`. A block has TILE rows. FULL: there are WIDTH vectors and all of its rows.
template <bool FULL, class T>
__device__ __forceinline__ void side_by_side(u32 rows, u32 count, u32 shift, const T *in, T *beside, T *tile) {
    constexpr u32 WIDTH = LINE / sizeof(T), EACH = TILE * WIDTH / THREADS;
    const u64 first = u64(blockIdx.x) * TILE;
    const u32 here = u32(FULL || rows - first > TILE ? TILE : rows - first), wide = FULL ? WIDTH : 1u << shift;
    each_item<EACH, T>(
        FULL, count * TILE,
        [&](u32 i) { return FULL || i % TILE < here ? load_once(in + u64(i / TILE) * rows + first + i % TILE) : zero<T>(); },
        [&](u32 i, T item) { tile[i / TILE * PITCH + i % TILE] = item; });
    __syncthreads();
    for (u32 i = threadIdx.x; i < here * wide; i += THREADS)
        if (FULL || i % wide < count) beside[first * wide + i] = tile[i % wide * PITCH + i / wide];
}

template <bool FULL, class T>
__device__ __forceinline__ void apart(u32 rows, u32 count, u32 shift, const u32 *from, const T *beside, T *out, T *tile) {
    constexpr u32 WIDTH = LINE / sizeof(T), EACH = TILE * WIDTH / THREADS;
    const u64 first = u64(blockIdx.x) * TILE;
    const u32 here = u32(FULL || rows - first > TILE ? TILE : rows - first), wide = FULL ? WIDTH : 1u << shift;
    each_item<EACH, T>(
        FULL, here * wide,
        [&](u32 i) {
            return FULL || i % wide < count ? load_once(beside + u64(load(from + first + i / wide)) * wide + i % wide)
                                            : zero<T>();
        },
        [&](u32 i, T item) { tile[i % wide * PITCH + i / wide] = item; });
    __syncthreads();
    for (u32 i = threadIdx.x; i < count * TILE; i += THREADS)
        if (FULL || i % TILE < here) out[u64(i / TILE) * rows + first + i % TILE] = tile[i / TILE * PITCH + i % TILE];
}
