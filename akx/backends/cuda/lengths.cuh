// What rows tell by their lengths and ends, and what layouts make of it. Rows come in windows of 1024, slices of 32.
//
//   sort_window      rows by falling length in groups of a window, ties as they come: akx/formats/sell.py's order
//   slots_of_slice   slots of a slice, in an order or as rows come
//   slots_of_row     slots of a row of padded CSR
//   place_partition  of each partition of padded CSR the row of its first slot, and where that row begins and ends
//   measure_window   numbers of all rows, for cost models: sums and largest ones, in 64 bits
//
// Bytes: 4 a row of the pointers, and for the last one 8 of the ends of a row.
#pragma once
#include "include/team.cuh"

constexpr u32 WINDOW = 1024;
// What is measured (SUMS and LARGEST of lengths.py).
constexpr int SUMS = 15, LARGEST = 5;

__device__ __forceinline__ u64 key_of(u32 length, u32 place) { return u64(~length) << 10 | place; }

// `keys` is (1024,), shared; a block for each window. Rows are sorted in groups of `group`, a power of two.
__device__ __forceinline__ void sort_window(u32 rows, u32 group, const u32 *pointer, u32 *order, u64 *keys, u8 *team) {
    const u32 t = threadIdx.x;
    const u64 first = u64(blockIdx.x) * WINDOW, row = first + t;
    const u64 within = u64(t / group) << 42;
    keys[t] = row < rows ? within | key_of(load(pointer + row + 1) - load(pointer + row), t) : ~0ull;
    __syncthreads();
    sort_items(Team<WINDOW>(team), keys, WINDOW);
    const u64 places = (u64(rows) + WARP - 1) / WARP * WARP;
    if (row < places) order[row] = row < rows ? u32(first) + u32(keys[t] & (WINDOW - 1)) : 0;
}

__device__ __forceinline__ u32 warp_most(u32 a) {
    for (int offset = WARP / 2; offset > 0; offset >>= 1) {
        const u32 other = __shfl_xor_sync(ALL, a, offset);
        a = a > other ? a : other;
    }
    return a;
}

// `slots` is (slices + 1,), the last of which is zero.
__device__ __forceinline__ void slots_of_slice(u32 rows, u32 slices, const u32 *order, const u32 *pointer, u32 *slots) {
    const u64 slice = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / WARP, place = slice * WARP + threadIdx.x % WARP;
    if (slice > slices) return;
    u32 length = 0;
    if (place < rows) {
        const u32 row = order == nullptr ? u32(place) : load(order + place);
        length = load(pointer + row + 1) - load(pointer + row);
    }
    length = warp_most(length);
    if (threadIdx.x % WARP == 0) slots[slice] = WARP * length;
}

// `slots` is (rows + 1,), the last of which is zero; in units of `unit`.
__device__ __forceinline__ void slots_of_row(u32 rows, u32 pad, u32 unit, const u32 *pointer, u32 *slots) {
    const u64 row = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row > rows) return;
    u32 length = 0;
    if (row < rows) {
        length = load(pointer + row + 1) - load(pointer + row);
        length = (length > 0 ? length - 1 : 0) / pad + 1;
    }
    slots[row] = length * (pad / unit);
}

__device__ __forceinline__ void place_partition(u32 partitions, u32 partition, u32 rows, const u32 *start, u32 *row,
                                                u32 *begin, u32 *end) {
    const u64 p = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (p > partitions) return;
    const u32 found = place_of(start, rows + 1, u32(p * partition));
    row[p] = found, begin[p] = start[found], end[p] = start[found < rows ? found + 1 : rows];
}

struct Ends {
    u32 length, first, last;
};

// Of a slice, a lane for each row: whether its columns are too far apart for 16 bits.
__device__ __forceinline__ bool is_far(const Ends &row) {
    const u32 most = warp_most(row.length ? row.last : 0), least = ~warp_most(row.length ? ~row.first : 0);
    return least <= most && most - least >= 65536;
}

__device__ __forceinline__ u64 warp_total(u64 a) {
    for (int offset = WARP / 2; offset > 0; offset >>= 1) a += __shfl_xor_sync(ALL, a, offset);
    return a;
}

// `keys` (1024,), `first` and `last` (1024,), `found` (SUMS + LARGEST,) are shared; `totals` is zero before.
__device__ __forceinline__ void measure_window(u32 rows, const u32 *pointer, const u32 *index, u64 *totals, u64 *keys,
                                               u64 *found, u32 *first, u32 *last, u8 *team) {
    const u32 t = threadIdx.x;
    const u64 row = u64(blockIdx.x) * WINDOW + t;
    const bool is_row = row < rows;
    Ends own = {0, 0, 0};
    if (is_row) {
        const u32 begin = load(pointer + row), end = load(pointer + row + 1);
        own.length = end - begin;
        if (own.length) own.first = load(index + begin), own.last = load(index + end - 1);
    }
    if (t < SUMS + LARGEST) found[t] = 0;
    keys[t] = is_row ? key_of(own.length, t) : ~0ull;
    first[t] = own.first, last[t] = own.last;
    __syncthreads();
    sort_items(Team<WINDOW>(team), keys, WINDOW);
    Ends other = {0, 0, 0};
    if (is_row) {
        const u32 place = u32(keys[t] & (WINDOW - 1));
        other = {~u32(keys[t] >> 10), first[place], last[place]};
    }
    const i64 below = own.length ? i64(row) - own.first : 0, above = own.length ? i64(own.last) - i64(row) : 0;
    const u64 length = own.length, least = is_row && length == 0 ? 1 : length;
    const bool leads = t % WARP == 0;
    const u32 slots = warp_most(own.length), sorted = warp_most(other.length);
    const bool far = is_far(own), far_sorted = is_far(other);
    u64 sums[SUMS] = {leads ? u64(WARP) * slots : 0, leads ? u64(WARP) * sorted : 0, u64(leads && far),
                      u64(leads && far_sorted), 0, 0, 0, 0, 0, 0, 0, 0, is_row && length == 0, below > 0 ? u64(below) : 0,
                      length * length};
    for (int p = 0; p < 5; ++p) sums[4 + p] = (least + (1u << p) - 1) >> p << p;
    for (int p = 1; p < 4; ++p) sums[8 + p] = (length + (1u << p) - 1) >> p << p;
    for (int s = 0; s < SUMS; ++s) {
        const u64 total = warp_total(sums[s]);
        if (leads && total) atomicAdd(found + s, total);
    }
    // The longest row, how far one reaches (its own row included), below, above, and what the shortest lacks.
    const u64 reach = u64((below > 0 ? below : 0) + (above > 0 ? above : 0));
    const u64 largest[LARGEST] = {length, reach, below > 0 ? u64(below) : 0, above > 0 ? u64(above) : 0,
                                  is_row ? u64(~own.length) : 0};
    for (int s = 0; s < LARGEST; ++s) {
        const u64 most = warp_most(u32(largest[s]));
        if (leads && most) atomicMax(found + SUMS + s, most);
    }
    __syncthreads();
    if (t < SUMS && found[t]) atomicAdd(totals + t, found[t]);
    if (t >= SUMS && t < SUMS + LARGEST && found[t]) atomicMax(totals + t, found[t]);
}
