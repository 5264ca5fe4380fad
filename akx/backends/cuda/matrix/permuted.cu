// The kernels of `permuted.cuh`.
#include "matrix/permuted.cuh"

extern "C" __global__ void invert_order(u32 rows, const u32 *order, u32 *place) { invert(rows, order, place); }
extern "C" __global__ void measure_rows(u32 rows, const u32 *order, const u32 *pointer, u32 *length) {
    length_of(rows, order, pointer, length);
}
extern "C" __global__ void permute_rows(u32 rows, const u32 *order, const u32 *place, const u32 *pointer,
                                        const u32 *column, const u32 *start, u32 *made, u32 *source, u64 *keys) {
    permute_row(rows, order, place, pointer, column, start, made, source, keys);
}
extern "C" __global__ void tell_difference(u32 count, const u32 *one, const u32 *other, u32 *told) {
    tell_other(count, one, other, told);
}
extern "C" __global__ void find_longest(u32 count, const u32 *numbers, u32 *found) { find_largest(count, numbers, found); }
