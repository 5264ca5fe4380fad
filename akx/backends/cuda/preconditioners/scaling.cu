// out_i = d_i x_i: a diagonal matrix times a vector. One thread per entry; three words moved for each.
//
//   AKX_VALUE  float, double, cfloat, cdouble
#include "include/common.cuh"

extern "C" __global__ void scale_entries(u64 n, const AKX_VALUE *d, const AKX_VALUE *x, AKX_VALUE *out) {
    const u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) out[i] = mad(load(d + i), load(x + i), zero<AKX_VALUE>());
}
