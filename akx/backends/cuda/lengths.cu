// The kernels of `lengths.cuh`.
#include "lengths.cuh"

extern "C" __global__ void sort_windows(u32 rows, u32 group, const u32 *pointer, u32 *order) {
    AKX_DYNAMIC_SHARED(shared);
    sort_window(rows, group, pointer, order, reinterpret_cast<u64 *>(shared + TEAM_BYTES), shared);
}
extern "C" __global__ void slots_of_slices(u32 rows, u32 slices, const u32 *order, const u32 *pointer, u32 *slots) {
    slots_of_slice(rows, slices, order, pointer, slots);
}
extern "C" __global__ void slots_of_rows(u32 rows, u32 pad, u32 unit, const u32 *pointer, u32 *slots) {
    slots_of_row(rows, pad, unit, pointer, slots);
}
extern "C" __global__ void place_partitions(u32 partitions, u32 partition, u32 rows, const u32 *start, u32 *row,
                                            u32 *begin, u32 *end) {
    place_partition(partitions, partition, rows, start, row, begin, end);
}
extern "C" __global__ void measure_windows(u32 rows, const u32 *pointer, const u32 *index, u64 *totals) {
    AKX_DYNAMIC_SHARED(shared);
    u64 *keys = reinterpret_cast<u64 *>(shared + TEAM_BYTES), *found = keys + WINDOW;
    u32 *first = reinterpret_cast<u32 *>(found + 32);
    measure_window(rows, pointer, index, totals, keys, found, first, first + WINDOW, shared);
}
