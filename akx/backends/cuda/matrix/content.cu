// The kernels of `content.cuh`.
#include "matrix/content.cuh"

extern "C" __global__ void __launch_bounds__(256)
sum_all_arrays(u64 bytes_a, const u8 *a, u64 bytes_b, const u8 *b, u64 bytes_c, const u8 *c, u64 *sums, const u64 *known,
               u64 *found, u32 *differs, u32 *told) {
    sum_arrays(bytes_a, a, bytes_b, b, bytes_c, c, sums, known, found, differs, told);
}
extern "C" __global__ void look_at_callers_csr(u32 type, u32 index, u32 rows, u64 entries, const void *start,
                                               const void *column, const void *value, u64 *found) {
    look_at_csr(type, index, rows, entries, start, column, value, found);
}
