// The instance of `stream` that the macros ask for.
//
//   AKX_VALUE  float, double, cfloat, cdouble      AKX_VECTORS  start vectors, 1 to 8
//   AKX_INDEX  u16 or u32                          AKX_LANES    threads per row
#include "stream.cuh"

typedef AKX_VALUE T;

extern "C" __global__ void step(const u8 *slots, u64 slot_bytes, u32 slot_count, u32 header, u32 rows, u32 lag, u32 n,
                                i64 t, u32 first, u32 per, T *before, T *x, T *y, i64 stride, u32 ring, u32 older,
                                const T *host_x, const T *host_before, T *back, i64 back_power, i64 back_vector,
                                const T *coefficients) {
    const Vectors<T> at = {before, x, y, stride, ring, older, host_x, host_before, back, back_power, back_vector};
    stream_step<T, AKX_INDEX, AKX_VECTORS, AKX_LANES>(slots, slot_bytes, slot_count, header, rows, lag, n, t, first,
                                                      per, at, coefficients);
}
