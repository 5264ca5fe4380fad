// The kernels of `slots.cuh`.
#include "variants/slots.cuh"

extern "C" __global__ void range_of_slices(u32 rows, u32 slices, const u32 *order, const u32 *pointer, const u32 *index,
                                           u32 *low, u32 *high) {
    range_of_slice(rows, slices, order, pointer, index, low, high);
}
extern "C" __global__ void lay_near_slices(u32 rows, u32 slices, const u32 *order, const u32 *pointer, const u32 *index,
                                           const u32 *start, const u32 *least, u16 *column, u32 *entry) {
    lay_slice<u16>(rows, slices, order, pointer, index, start, least, 1, column, entry);
}
extern "C" __global__ void lay_slices(u32 rows, u32 slices, const u32 *order, const u32 *pointer, const u32 *index,
                                      const u32 *start, const u32 *least, u32 *column, u32 *entry) {
    lay_slice<u32>(rows, slices, order, pointer, index, start, least, 0, column, entry);
}
extern "C" __global__ void lay_rows(u32 rows, const u32 *pointer, const u32 *index, const u32 *start, u32 *column,
                                    u32 *entry) {
    lay_row(rows, pointer, index, start, column, entry);
}
