// The kernels of `reordered.cuh` for values of type AKX_VALUE: float, double, cfloat, cdouble.
#include "reordered.cuh"

constexpr u32 WIDTH = LINE / sizeof(AKX_VALUE);

extern "C" __global__ void __launch_bounds__(THREADS)
take_starts(u32 rows, u32 vectors, const u32 *from, const AKX_VALUE *x, AKX_VALUE *taken, AKX_VALUE *first) {
    take_start(rows, vectors, from, x, taken, first);
}
extern "C" __global__ void __launch_bounds__(THREADS)
put_side_by_side(u32 rows, u32 count, u32 shift, const AKX_VALUE *in, AKX_VALUE *beside) {
    __shared__ AKX_VALUE tile[WIDTH * PITCH];
    if (count == WIDTH && (u64(blockIdx.x) + 1) * TILE <= rows) side_by_side<true>(rows, count, shift, in, beside, tile);
    else side_by_side<false>(rows, count, shift, in, beside, tile);
}
extern "C" __global__ void __launch_bounds__(THREADS)
put_apart(u32 rows, u32 count, u32 shift, const u32 *from, const AKX_VALUE *beside, AKX_VALUE *out) {
    __shared__ AKX_VALUE tile[WIDTH * PITCH];
    if (count == WIDTH && (u64(blockIdx.x) + 1) * TILE <= rows) apart<true>(rows, count, shift, from, beside, out, tile);
    else apart<false>(rows, count, shift, from, beside, out, tile);
}
