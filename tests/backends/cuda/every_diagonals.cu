// `resident` with diagonals, in one translation unit: with and without slots in global memory, for the value type
// VALUES, VECTORS start vectors at a time and HELD_SLICES x HELD_SLOTS slots in registers.
#include "variants/diagonals.cuh"

typedef VALUES T;

#define INSTANCE(THREADS, STREAM)                                                                                      \
    extern "C" __global__ void __launch_bounds__(THREADS) steps_##THREADS##_##STREAM(                                  \
        const Band *bands, const BandSlice *slice_of, const int *offset_of, const u32 *neighbour_of, const T *values,  \
        const u16 *columns, const T *coefficients, u32 *flags, const T *x, T *out, u32 k, u32 vectors,                 \
        u32 from_vector, u32 to_vector, i64 n, u32 share) {                                                            \
        Diagonals<T, HELD_SLICES, HELD_SLOTS, VECTORS, THREADS, STREAM>::run(                                          \
            bands, slice_of, offset_of, neighbour_of, values, columns, coefficients, flags, x, out, k, vectors,        \
            from_vector, to_vector, n, share);                                                                         \
    }

INSTANCE(256, 0)
INSTANCE(256, 1)
INSTANCE(1024, 0)
INSTANCE(1024, 1)
