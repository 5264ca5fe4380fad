// The kernels of `features.cuh`.
#include "matrix/features.cuh"

extern "C" __global__ void count_new_keys(u32 rows, u32 shares, const u32 *slice, const u32 *pointer, const u32 *index,
                                          u32 per, u64 *found) {
    count_new(rows, shares, slice, pointer, index, per, found);
}
extern "C" __global__ void count_lines_of_loads(u32 rows, u32 slices, u32 shares, const u32 *slice, const u32 *before,
                                                const u32 *pointer, const u32 *index, u32 per, u64 *found) {
    count_lines(rows, slices, shares, slice, before, pointer, index, per, found);
}
extern "C" __global__ void count_alike_rows(u32 some, const u32 *row, const u32 *pointer, const u32 *index, u64 *found) {
    count_alike(some, row, pointer, index, found);
}
extern "C" __global__ void count_twin_rows(u32 some, const u32 *row, const u32 *pointer, const u32 *index, u64 *found) {
    count_twins(some, row, pointer, index, found);
}
extern "C" __global__ void mark_parts(u32 parts, u32 from, u32 shares, u32 words, const u32 *cut, const u32 *pointer,
                                      const u32 *index, u32 *bits, u32 *met, u64 *numbers, u8 *border) {
    mark_part(parts, from, shares, words, cut, pointer, index, bits, met, numbers, border);
}
extern "C" __global__ void check_for_blocks(u32 rows, const u32 *pointer, const u32 *index, u32 *wrong) {
    check_blocks(rows, pointer, index, wrong);
}
extern "C" __global__ void take_all_blocks(u32 nodes, u32 size, const u32 *pointer, const u32 *index, u32 *node_pointer,
                                           u32 *node_index) {
    take_blocks(nodes, size, pointer, index, node_pointer, node_index);
}
extern "C" __global__ void choose_all_diagonals(u32 rows, u32 slices, const u32 *pointer, const u32 *index, i64 *found) {
    choose_diagonals(rows, slices, pointer, index, found);
}
extern "C" __global__ void find_blocks_read(u32 rows, u32 blocks, const u32 *begin, const u32 *pointer, const u32 *index,
                                            u32 *found) {
    find_blocks(rows, blocks, begin, pointer, index, found);
}
extern "C" __global__ void check_for_lines(u32 rows, u32 line, const u32 *pointer, const u32 *index, u32 *found) {
    check_lines(rows, line, pointer, index, found);
}
extern "C" __global__ void count_all_counts(u32 columns, const u32 *count, u32 *bins, u32 *rest) {
    AKX_DYNAMIC_SHARED(shared);
    count_counts(columns, count, bins, rest, reinterpret_cast<u32 *>(shared));
}
