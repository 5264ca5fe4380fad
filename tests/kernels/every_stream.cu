// Every instance of `stream` for the value type VALUES and VECTORS start vectors, in one translation unit.
#include "../../akx/kernels/cuda/stream.cuh"

typedef VALUES T;

#define INSTANCE(INDEX, LANES)                                                                                         \
    extern "C" __global__ void step_##INDEX##_##LANES(const u8 *slots, u64 slot_bytes, u32 slot_count, u32 header,     \
                                                      u32 rows, u32 lag, u32 n, i64 t, u32 first, u32 per,             \
                                                      const Vectors<T> at, const T *coefficients) {                    \
        stream_step<T, INDEX, VECTORS, LANES>(slots, slot_bytes, slot_count, header, rows, lag, n, t, first, per, at,  \
                                              coefficients);                                                           \
    }
#define INSTANCES(INDEX) INSTANCE(INDEX, 1) INSTANCE(INDEX, 2) INSTANCE(INDEX, 4) INSTANCE(INDEX, 8)

INSTANCES(u16)
INSTANCES(u32)
