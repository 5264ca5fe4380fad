// The instance of `hermitian.cuh` for one type of values.
//
//   AKX_VALUE  float, double, cfloat, cdouble
#include "preconditioners/hermitian.cuh"

extern "C" __global__ void merge_each(u32 n, const u32 *row_start, const u32 *row_index, const AKX_VALUE *row_value,
                                      const u32 *column_start, const u32 *column_index, const AKX_VALUE *column_value,
                                      u32 *out_start, u32 *out_index, AKX_VALUE *out_value) {
    merge_rows<AKX_VALUE>(n, row_start, row_index, row_value, column_start, column_index, column_value, out_start,
                          out_index, out_value);
}
