// The kernels of `spai.cuh` for one type of values.
//
//   AKX_VALUE  float, double, cfloat, cdouble
//   AKX_TEAM   threads that solve one problem: 32, of which there are several in a block, or all of a block
#include "preconditioners/spai.cuh"

extern "C" __global__ void largest_sizes(u32 rows, const u32 *start, const AKX_VALUE *values, const double *sizes,
                                         double *most, double *scale) {
    largest<AKX_VALUE>(rows, start, values, sizes, most, scale);
}
extern "C" __global__ void keep_entries(u32 n, const u32 *start, const u32 *row, const AKX_VALUE *values,
                                        const double *sizes, const double *most, double factor, u32 *kept_start,
                                        u32 *kept) {
    keep<AKX_VALUE>(n, start, row, values, sizes, most, factor, kept_start, kept);
}
extern "C" __global__ void count_reached(u32 n, const u32 *start, const u32 *kept_start, const u32 *kept, u64 *need) {
    reached_entries(n, start, kept_start, kept, need);
}
extern "C" __global__ void count_in_classes(u32 n, const u64 *need, u32 classes, const u64 *limits, u32 *count,
                                            u64 *most) {
    AKX_DYNAMIC_SHARED(shared);
    count_classes(n, need, classes, limits, count, most, shared);
}
extern "C" __global__ void list_by_class(u32 n, const u64 *need, u32 classes, const u64 *limits, u32 *next, u32 *list) {
    AKX_DYNAMIC_SHARED(shared);
    list_classes(n, need, classes, limits, next, list, shared);
}
extern "C" __global__ void __launch_bounds__(AKX_TEAM < 256 ? 256 : AKX_TEAM, 2)
    measure_columns(u32 count, const u32 *list, u64 bytes, u8 *places, u32 *queue, const u32 *start, const u32 *row,
                    const u32 *kept_start, const u32 *kept, u32 *n1, u64 *need) {
    AKX_DYNAMIC_SHARED(shared);
    const Measure<AKX_VALUE> work{start, row, kept_start, kept, n1, need};
    each_column<AKX_TEAM>(count, list, bytes, places, queue, shared, work);
}
extern "C" __global__ void __launch_bounds__(AKX_TEAM < 256 ? 256 : AKX_TEAM, 2)
    solve_columns(u32 count, const u32 *list, u64 bytes, u8 *places, u32 *queue, const u32 *start, const u32 *row,
                  const AKX_VALUE *value, const double *scale, const u32 *kept_start, const u32 *kept,
                  const u32 *n1, double tolerance, AKX_VALUE *result, double *misfit, u32 *odd) {
    AKX_DYNAMIC_SHARED(shared);
    const Solve<AKX_VALUE> work{start, row, value, scale, kept_start, kept, n1, tolerance, result, misfit, odd};
    each_column<AKX_TEAM>(count, list, bytes, places, queue, shared, work);
}
