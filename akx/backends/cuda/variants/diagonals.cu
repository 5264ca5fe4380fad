// The instance of `resident` with diagonals that the macros ask for.
//
//   AKX_VALUE    float, double, cfloat, cdouble       AKX_VECTORS  start vectors at a time: 1, 2 or 4
//   AKX_HELD_SLICES, AKX_HELD_SLOTS  slots in registers, for each warp
//   AKX_THREADS  threads per block                    AKX_BLOCKS   blocks per multiprocessor
//   AKX_STREAM   1: some slots are in global memory
#include "variants/diagonals.cuh"

typedef AKX_VALUE T;

extern "C" __global__ void __launch_bounds__(AKX_THREADS, AKX_BLOCKS)
    steps(const Band *bands, const BandSlice *slice_of, const int *offset_of, const u32 *neighbour_of, const T *values,
          const u16 *columns, const T *coefficients, u32 *flags, const T *x, T *out, u32 k, u32 vectors,
          u32 from_vector, u32 to_vector, i64 n, u32 share) {
    Diagonals<T, AKX_HELD_SLICES, AKX_HELD_SLOTS, AKX_VECTORS, AKX_THREADS, AKX_STREAM>::run(
        bands, slice_of, offset_of, neighbour_of, values, columns, coefficients, flags, x, out, k, vectors,
        from_vector, to_vector, n, share);
}
