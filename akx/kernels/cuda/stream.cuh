// `stream`: one step of a window of row chunks that slides over a matrix in host memory.
//
// At step t, power p is done on `rows` rows from t * rows - p * lag on, all powers in one launch: what power p reads of
// power p - 1 was made in earlier steps. Chunks of `rows` rows of the matrix lie in slots, vectors of each power in
// rings of `ring` rows: row i at i mod ring. rows, lag and ring are multiples of 32. A chunk: start (rows / 32 + 1) and
// base (rows / 32) of its slices, padded to `header` bytes, values, columns. Columns are rows of the ring, relative to
// base (16 bits), wrapped around once where needed. Power 0 is the fetching of x, and of the vector before it, straight
// from host memory.
#pragma once
#include "common.cuh"

// Vectors: before, x and y are those of power 1, those of the next powers lie `stride` entries further. Results go to
// y and to back + p * back_power + v * back_vector: memory of the host, or where a copy to the host begins.
template <class T> struct Vectors {
    T *before, *x, *y;
    i64 stride;
    u32 ring, older;  // older: whether there is a vector before x
    const T *host_x, *host_before;
    T *back;
    i64 back_power, back_vector;
};

template <class T, class INDEX, int B, int LANES>
__device__ __forceinline__ void stream_step(const u8 *__restrict__ slots, u64 slot_bytes, u32 slot_count, u32 header,
                                            u32 rows, u32 lag, u32 n, i64 t, u32 first, u32 per, const Vectors<T> at,
                                            const T *coefficients) {
    constexpr u32 ROWS = 32 / LANES;
    const u32 power = first + blockIdx.x / per, thread = blockIdx.x % per * blockDim.x + threadIdx.x;
    const i64 from = t * rows - i64(power) * lag;
    if (power == 0) {
        for (u32 i = thread; i < rows && from + i < n; i += per * blockDim.x)
            for (int v = 0; v < B; ++v) {
                const u32 row = u32(from) + i;
                at.x[i64(v) * at.ring + row % at.ring] = at.host_x[i64(v) * n + row];
                if (at.older) at.before[i64(v) * at.ring + row % at.ring] = at.host_before[i64(v) * n + row];
            }
        return;
    }
    const u32 place = thread / 32 * ROWS + threadIdx.x % ROWS, lane = threadIdx.x % 32 / ROWS;
    const bool ours = place < rows && from + place >= 0 && from + place < n;
    const u32 row = ours ? u32(from + place) : 0, chunk = row / rows, slice = row % rows / 32;
    const u8 *slot = slots + chunk % slot_count * slot_bytes;
    const u32 *start = reinterpret_cast<const u32 *>(slot), *base = start + rows / 32 + 1;
    const T *value = reinterpret_cast<const T *>(slot + header);
    const INDEX *column = reinterpret_cast<const INDEX *>(value + load(start + rows / 32));
    const i64 later = i64(power - 1) * at.stride;
    const T *x = at.x + later, *coefficient = coefficients + 3 * i64(power - 1);
    T sum[B];
#pragma unroll
    for (int v = 0; v < B; ++v) sum[v] = zero<T>();
    if (ours) {
        const u32 low = load(base + slice), stop = load(start + slice + 1);
#pragma unroll 4
        for (u32 p = load(start + slice) + lane * 32 + place % 32; p < stop; p += 32 * LANES) {
            u32 from_row = low + load(column + p);
            if (from_row >= at.ring) from_row -= at.ring;
            const T a = load(value + p);
#pragma unroll
            for (int v = 0; v < B; ++v) sum[v] = mad(a, load(x + i64(v) * at.ring + from_row), sum[v]);
        }
    }
#pragma unroll
    for (u32 offset = 16; offset >= ROWS && LANES > 1; offset /= 2)
#pragma unroll
        for (int v = 0; v < B; ++v) sum[v] = add(sum[v], across(sum[v], int(offset)));
    if (ours && lane == 0) {
        const T a = load(coefficient), b = load(coefficient + 1), c = load(coefficient + 2);
#pragma unroll
        for (int v = 0; v < B; ++v) {
            const i64 own = i64(v) * at.ring + row % at.ring;
            T result = mad(a, sum[v], zero<T>());
            if (!is_zero(b)) result = mad(b, load(x + own), result);
            if (!is_zero(c) && (power > 1 || at.older)) result = mad(c, load(at.before + later + own), result);
            at.y[later + own] = result;
            at.back[i64(power) * at.back_power + i64(v) * at.back_vector + place] = result;
        }
    }
}
