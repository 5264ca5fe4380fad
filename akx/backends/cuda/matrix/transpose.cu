// The kernels of `transpose.cuh`.
//
//   AKX_VALUE  what `take` takes: unsigned, float, double, cfloat, cdouble
//   AKX_LONG   threads of a block that sorts one long row
#include "matrix/transpose.cuh"

extern "C" __global__ void count_entries(u32 entries, const u32 *index, u32 *count) {
    count_each(entries, index, count);
}
extern "C" __global__ void sum_in_chunks(u32 count, u32 *numbers, u32 *totals) {
    AKX_DYNAMIC_SHARED(shared);
    sum_chunk(count, numbers, totals, reinterpret_cast<u32 *>(shared));
}
extern "C" __global__ void sum_of_chunks(u32 count, u32 *totals) {
    AKX_DYNAMIC_SHARED(shared);
    sum_chunks(count, totals, reinterpret_cast<u32 *>(shared));
}
extern "C" __global__ void add_to_chunks(u32 count, u32 *numbers, const u32 *totals) {
    add_chunks(count, numbers, totals);
}
extern "C" __global__ void scatter_entries(u32 entries, const u32 *index, u32 *next, u32 *source) {
    scatter(entries, index, next, source);
}
extern "C" __global__ void sort_rows(u32 rows, const u32 *pointer, u32 *source, u32 most, u32 *far) {
    sort_row(rows, pointer, source, most, far);
}
extern "C" __global__ void sort_long_rows(const u32 *pointer, u32 *source, const u32 *far) {
    AKX_DYNAMIC_SHARED(shared);
    sort_long<AKX_LONG>(pointer, source, far, shared);
}
extern "C" __global__ void find_rows(u32 rows, const u32 *pointer, u32 *row_of) { row_of_each(rows, pointer, row_of); }
extern "C" __global__ void take_each(u32 count, const u32 *source, const AKX_VALUE *in, AKX_VALUE *out) {
    take<AKX_VALUE>(count, source, in, out);
}
