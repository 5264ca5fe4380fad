// The instance of `sweep` that the macros ask for.
//
//   AKX_VALUE    float, double, cfloat, cdouble      AKX_VECTORS  start vectors, 1 to 8
//   AKX_STORED   that, a type of half the bytes, or u16, an offset into the table: values of the matrix
//   AKX_VARIANT  1 csr, 2 rows16, 3 pcsr, 4 sell     AKX_LANES    threads per row (csr, sell)
//   AKX_ONCE     how matrix data comes by (swept.cuh)  AKX_PAD, AKX_AHEAD (pcsr)    AKX_INDEX  u16 or u32 (sell)
#include "schedules/sweep/sweep.cuh"

typedef AKX_VALUE T;
typedef AKX_STORED S;

#if AKX_VARIANT == 1
extern "C" __global__ void step(u32 n, const u32 *start, const u32 *column, const S *value, const T *table, const T *x,
                                const T *before, T *y, T *first, const T *coefficient, u32 kept) {
    csr_step<T, S, AKX_VECTORS, AKX_LANES, AKX_ONCE>(n, start, column, value, table, x, before, y, first, coefficient,
                                                        kept);
}
#elif AKX_VARIANT == 2
extern "C" __global__ void step(u32 n, const u32 *start, const u32 *column, const S *value, const T *table, const T *x,
                                const T *before, T *y, T *first, const T *coefficient, u32 kept) {
    rows16_step<T, S, AKX_VECTORS, AKX_ONCE>(n, start, column, value, table, x, before, y, first, coefficient,
                                                kept);
}
#elif AKX_VARIANT == 3
extern "C" __global__ void step(u32 n, const u32 *start, const u32 *column, const S *value, const T *table,
                                const u32 *row, u32 partitions, T *head, T *tail, const T *x, const T *before, T *y,
                                T *first, const T *coefficient, u32 kept) {
    pcsr_step<T, S, AKX_VECTORS, AKX_PAD, AKX_AHEAD, AKX_ONCE>(n, start, column, value, table, row, partitions, head,
                                                               tail, x, before, y, first, coefficient, kept);
}
extern "C" __global__ void join(u32 n, const u32 *split, const u32 *begin, const u32 *end, u32 splits,
                                u32 partitions, const T *head, const T *tail, const T *x, const T *before, T *y,
                                T *first, const T *coefficient) {
    pcsr_join<T, AKX_VECTORS>(n, split, begin, end, splits, partitions, head, tail, x, before, y, first, coefficient);
}
#else
extern "C" __global__ void step(u32 n, const u32 *start, const u32 *base, const AKX_INDEX *column, const S *value,
                                const T *table, const u32 *order, const T *x, const T *before, T *y, T *first,
                                const T *coefficient, u32 kept) {
    sell_step<T, S, AKX_INDEX, AKX_VECTORS, AKX_LANES, AKX_ONCE>(n, start, base, column, value, table, order, x,
                                                                 before, y, first, coefficient, kept);
}
#endif
