// `stream`: one step of a window of row chunks that slides over a matrix in host memory.
//
// At step t, power p is done on `rows` rows from t * rows - p * lag on, all powers at once: what power p reads of power
// p - 1 was made in earlier steps. Chunks of `rows` rows of the matrix lie in slots: the first `kept` of them stay there,
// the others take turns in slot_count more. Vectors of each power lie in rings of
// `ring` rows: row i at i mod ring. rows, lag and ring are multiples of 32. A chunk: start (rows / 32 + 1) and base
// (rows / 32) of its slices, padded to `header` bytes, values, columns. Columns are rows of the ring, relative to base
// (16 bits), wrapped around once where needed. Power 0 is the fetching of x, and of the vector before it.
#pragma once
#include "include/common.cuh"

// What is on the device of the matrix.
struct Frame {
    const u8 *slots;
    u64 slot_bytes;
    u32 slot_count, kept, header, rows, lag, n;

    __device__ __forceinline__ u64 slot_of(u32 chunk) const {
        return (chunk < kept ? chunk : kept + (chunk - kept) % slot_count) * slot_bytes;
    }
};

// Vectors: before, x and y are those of power 1, those of the next powers lie `stride` entries further.
template <class T> struct Vectors {
    T *before, *x, *y;
    i64 stride;
    u32 ring, older;  // older: whether there is a vector before x
    const T *coefficients;
};

// LIVE: others write to the device's memory while the kernel runs, so nothing may be read through the read-only path.
template <bool LIVE, class T> __device__ __forceinline__ T read(const T *p) {
    if (LIVE) return *p;
    return load(p);
}

// Power 0 by one of `threads` threads: rows from `from` on, x and before being those of row `from`.
template <class T, int B>
__device__ __forceinline__ void stream_fetch(const Frame f, const Vectors<T> at, i64 from, const T *x, const T *before,
                                             i64 pitch, u32 thread, u32 threads) {
    for (u32 i = thread; i < f.rows && from + i < f.n; i += threads)
        for (int v = 0; v < B; ++v) {
            const u32 place = u32(from + i) % at.ring;
            at.x[i64(v) * at.ring + place] = x[v * pitch + i];
            if (at.older) at.before[i64(v) * at.ring + place] = before[v * pitch + i];
        }
}

// One warp's share of a power: 32 / LANES rows. `prepare` reads what does not depend on the power before, the first
// HELD entries of each lane among it; `finish` does the rest, results to y, and with `back` to back + v * pitch + place.
template <class T, class INDEX, int B, int LANES, bool LIVE, int HELD> struct Share {
    static constexpr u32 ROWS = 32 / LANES;
    u32 power, place, row, next, stop, low;
    bool ours;
    const T *value;
    const INDEX *column;
    T values[HELD ? HELD : 1];
    INDEX columns[HELD ? HELD : 1];

    __device__ __forceinline__ void prepare(const Frame f, i64 from, u32 of, u32 warp) {
        power = of;
        place = warp * ROWS + threadIdx.x % ROWS;
        ours = place < f.rows && from + place >= 0 && from + place < f.n;
        row = ours ? u32(from + place) : 0;
        next = stop = low = 0;
        if (!ours) return;
        const u32 chunk = row / f.rows, slice = row % f.rows / 32, lane = threadIdx.x % 32 / ROWS;
        const u8 *slot = f.slots + f.slot_of(chunk);
        const u32 *start = reinterpret_cast<const u32 *>(slot), *base = start + f.rows / 32 + 1;
        value = reinterpret_cast<const T *>(slot + f.header);
        column = reinterpret_cast<const INDEX *>(value + read<LIVE>(start + f.rows / 32));
        low = read<LIVE>(base + slice);
        stop = read<LIVE>(start + slice + 1);
        next = read<LIVE>(start + slice) + lane * 32 + place % 32;
#pragma unroll
        for (int i = 0; i < HELD; ++i)
            if (next + i * 32 * LANES < stop) {
                columns[i] = read<LIVE>(column + next + i * 32 * LANES);
                values[i] = read<LIVE>(value + next + i * 32 * LANES);
            }
    }

    __device__ __forceinline__ void add_to(T *sum, const Vectors<T> at, const T *x, u32 of, T a) const {
        u32 from_row = low + of;
        if (from_row >= at.ring) from_row -= at.ring;
#pragma unroll
        for (int v = 0; v < B; ++v) sum[v] = mad(a, read<LIVE>(x + i64(v) * at.ring + from_row), sum[v]);
    }

    __device__ __forceinline__ void finish(const Vectors<T> at, T *back, i64 pitch) const {
        const i64 later = i64(power - 1) * at.stride;
        const T *x = at.x + later, *coefficient = at.coefficients + 3 * i64(power - 1);
        T sum[B];
#pragma unroll
        for (int v = 0; v < B; ++v) sum[v] = zero<T>();
        if (ours) {
#pragma unroll
            for (int i = 0; i < HELD; ++i)
                if (next + i * 32 * LANES < stop) add_to(sum, at, x, columns[i], values[i]);
#pragma unroll 4
            for (u32 p = next + HELD * 32 * LANES; p < stop; p += 32 * LANES)
                add_to(sum, at, x, read<LIVE>(column + p), read<LIVE>(value + p));
        }
#pragma unroll
        for (u32 offset = 16; offset >= ROWS && LANES > 1; offset /= 2)
#pragma unroll
            for (int v = 0; v < B; ++v) sum[v] = add(sum[v], across(sum[v], int(offset)));
        if (!ours || threadIdx.x % 32 >= ROWS) return;
        const T a = load(coefficient), b = load(coefficient + 1), c = load(coefficient + 2);
#pragma unroll
        for (int v = 0; v < B; ++v) {
            const i64 own = i64(v) * at.ring + row % at.ring;
            T result = mad(a, sum[v], zero<T>());
            if (!is_zero(b)) result = mad(b, read<LIVE>(x + own), result);
            if (!is_zero(c) && (power > 1 || at.older)) result = mad(c, read<LIVE>(at.before + later + own), result);
            at.y[later + own] = result;
            if (back != nullptr) back[v * pitch + place] = result;
        }
    }
};

// One step as a launch: `per` blocks for each power from `first` on. Power 0 is fetched straight from host memory.
template <class T, class INDEX, int B, int LANES>
__device__ __forceinline__ void stream_step(const Frame f, const Vectors<T> at, i64 t, u32 first, u32 per,
                                            const T *host_x, const T *host_before, i64 host_pitch, T *back,
                                            i64 back_power, i64 back_vector) {
    const u32 power = first + blockIdx.x / per, thread = blockIdx.x % per * blockDim.x + threadIdx.x;
    const i64 from = t * f.rows - i64(power) * f.lag;
    if (power == 0) {
        stream_fetch<T, B>(f, at, from, host_x + from, host_before + from, host_pitch, thread, per * blockDim.x);
    } else {
        Share<T, INDEX, B, LANES, false, 0> share;
        share.prepare(f, from, power, thread / 32);
        share.finish(at, back + i64(power) * back_power, back_vector);
    }
}
