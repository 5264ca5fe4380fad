// The instance of `csr_powers.cuh` that the macros ask for.
//
//   AKX_VALUE  float, double, cfloat, cdouble    AKX_INDEX  u32 or u64
//   AKX_VECTORS  start vectors, 1 to 8           AKX_LANES  threads per row
//   AKX_LONG   rows of more entries have a whole block; 0: none has
#include "csr/csr_powers.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, AKX_VECTORS == 1 ? 2 : 1)
powers(u32 n, u64 entries, const AKX_INDEX *start, const AKX_INDEX *column, const AKX_VALUE *value, u32 k, u64 pitch,
       const AKX_VALUE *x, AKX_VALUE *out, const AKX_VALUE *coefficients, u32 *arrived, const u32 *only, u32 *told) {
    all_steps<AKX_VALUE, AKX_INDEX, AKX_VECTORS, AKX_LANES, AKX_LONG>(n, entries, start, column, value, k, pitch, x,
                                                                      out, coefficients, arrived, only, told);
}
