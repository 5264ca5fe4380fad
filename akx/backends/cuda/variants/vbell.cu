// The instance of `sweep`, variant `vbell`, that the macros ask for.
//
//   AKX_VALUE    float, double, cfloat, cdouble      AKX_VECTORS  start vectors, 1 to 8
//   AKX_STORED   what values are stored as           AKX_ONCE     how matrix data comes by (swept.cuh)
//   AKX_THREADS  threads per block: with 128 a thread has 128 registers at most, with 256 80, with 512 64. What is
//                faster depends on whether the matrix is in L2 (more under way in each thread) or not (more threads).
#include "variants/vbell.cuh"

typedef AKX_VALUE T;
typedef AKX_STORED S;

extern "C" __global__ void __launch_bounds__(AKX_THREADS, AKX_THREADS <= 128 ? 4 : AKX_THREADS <= 256 ? 3 : 2)
    step(u32 n, u32 slices, const u32 *head, const u32 *first_row, const u32 *columns, const S *stored, const T *table,
         const T *x, const T *before, T *y, T *first, const T *coefficient, u32 kept) {
    vbell_step<T, S, AKX_VECTORS, AKX_ONCE, (AKX_THREADS > 256)>(n, slices, head, first_row, columns, stored, table, x,
                                                                 before, y, first, coefficient, kept);
}
