// The instance of `sweep`, variant `hubs`, that the macros ask for.
//
//   AKX_VALUE    float, double, cfloat, cdouble      AKX_THREADS  threads per block
//   AKX_STORED   that, a type of half the bytes, or u16, an offset into the table: values of the matrix
//   AKX_ONCE     how matrix data comes by (swept.cuh)
#include "variants/hubs.cuh"

typedef AKX_VALUE T;
typedef AKX_STORED S;

extern "C" __global__ void __launch_bounds__(AKX_THREADS, 1)
    step(u32 chunks, u32 hubs, const u32 *columns, const S *values, const T *table, const u16 *marks,
         const u32 *row_before, const T *hub, T *head, T *tail, const T *x, const T *before, T *y, T *first,
         const T *coefficient, u32 kept) {
    hubs_step<T, S, AKX_THREADS, AKX_ONCE>(chunks, hubs, columns, values, table, marks, row_before, hub, head, tail, x,
                                           before, y, first, coefficient, kept);
}
extern "C" __global__ void join(u32 splits, u32 hubs, const u32 *split, const u32 *begin, const u32 *end,
                                const u32 *number, const u32 *row, const T *head, const T *tail, const T *x,
                                const T *before, T *y, T *first, const T *coefficient, T *hub) {
    hubs_join(splits, hubs, split, begin, end, number, row, head, tail, x, before, y, first, coefficient, hub);
}
extern "C" __global__ void gather(u32 hubs, const u32 *row, const T *x, T *hub) { hubs_gather(hubs, row, x, hub); }
