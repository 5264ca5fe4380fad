// The instance of `values.cuh` that the macros ask for.
//
//   AKX_VALUE  what the values are kept as, AKX_GIVEN  what the data is: float, double, cfloat, cdouble
//   AKX_EACH   places per thread
#include "value_compression/values.cuh"

extern "C" __global__ void place(u64 count, const u32 *entry, const AKX_GIVEN *data, AKX_VALUE *values) {
    place_some<AKX_EACH, AKX_VALUE, AKX_GIVEN>(count, entry, data, values);
}

extern "C" __global__ void examine(u64 count, const AKX_GIVEN *data, u32 *found) {
    examine_one<AKX_GIVEN>(count, data, found);
}
