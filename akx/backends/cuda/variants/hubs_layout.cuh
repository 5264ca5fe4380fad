// Entries in chunks for graphs with hubs, laid out on the device: to the bit the arrays of
// akx/backends/cuda/variants/hot_columns.py.
//
//   lay_chunked_row   columns of a row and which entry each slot has, a warp for each, and a bit where the row begins
//   mark_chunk        of each lane its bits and how many rows begin in lanes before, a warp for each chunk of 256 slots
//
// Slot 8 l + u of chunk c is at place 256 c + 32 u + l. A slot has one plus the number of its entry, or 0 for padding,
// which reads the first hub.
#pragma once
#include "include/team.cuh"

constexpr u32 FIRST_HUB = 0x80000000u, NO_ROW = 0xffffffffu, LANE_SLOTS = 8;

// `start` is (rows + 1,), the first slots of rows; `bits`, a byte for each lane of each chunk, is zero before.
__device__ __forceinline__ void lay_chunked_row(u32 rows, const u32 *pointer, const u32 *index, const u32 *start,
                                                const u32 *known_as, u32 *column, u32 *entry, u32 *bits) {
    const u64 row = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / WARP;
    if (row >= rows) return;
    const u32 first = load(pointer + row), stop = load(pointer + row + 1), begin = load(start + row);
    const u32 count = load(start + row + 1) - begin, lane = threadIdx.x % WARP;
    for (u32 s = lane; s < count; s += WARP) {
        const u32 slot = begin + s, of_lane = slot / LANE_SLOTS, u = slot % LANE_SLOTS;
        const u64 at = u64(of_lane / WARP) * (WARP * LANE_SLOTS) + WARP * u + of_lane % WARP;
        const bool is_there = first + s < stop;
        column[at] = is_there ? load(known_as + load(index + first + s)) : FIRST_HUB;
        entry[at] = is_there ? first + s + 1 : 0;
        if (s == 0) atomicAdd(bits + of_lane / 4, 1u << (of_lane % 4 * 8 + u));
    }
}

// `row_before` is the row of the slot before the first of each chunk.
__device__ __forceinline__ void mark_chunk(u32 chunks, u32 rows, const u32 *start, const u8 *bits, u16 *mark,
                                           u32 *row_before) {
    const u64 chunk = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / WARP;
    if (chunk >= chunks) return;
    const u32 lane = threadIdx.x % WARP, own = load(bits + chunk * WARP + lane), begun = __popc(own);
    mark[chunk * WARP + lane] = u16(own | (warp_scan(begun, int(lane)) - begun) << 8);
    if (lane == 0) row_before[chunk] = chunk ? place_of(start, rows, u32(chunk) * (WARP * LANE_SLOTS) - 1) : NO_ROW;
}
