// The instance of `long_rows.cuh` that the macros ask for.
//
//   AKX_VALUE  float, double, cfloat, cdouble    AKX_VECTORS  start vectors, 1 to 8    AKX_LANES  threads of a short row
#include "csr/long_rows.cuh"

extern "C" __global__ void __launch_bounds__(256)
step(u32 n, u32 count, u32 most, const u32 *rows, const u32 *start, const u32 *column, const AKX_VALUE *value,
     const AKX_VALUE *x, const AKX_VALUE *before, AKX_VALUE *y, AKX_VALUE *first, const AKX_VALUE *coefficient) {
    step_with_long_rows<AKX_VALUE, AKX_VECTORS, AKX_LANES>(n, count, most, rows, start, column, value, x, before, y, first,
                                                           coefficient);
}
