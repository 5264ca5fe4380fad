// A variant of somebody else's: rows of AKX_WIDTH slots, stored by columns, a thread for each row.
#include "swept.cuh"

typedef AKX_VALUE T;

extern "C" __global__ void step(u32 n, const u32 *column, const T *value, const T *x, const T *before, T *y, T *first,
                                const T *coefficient) {
    let_the_next_begin();
    const u32 row = blockIdx.x * blockDim.x + threadIdx.x;
    after_the_last(n != 0);
    if (row >= n) return;
    for (int v = 0; v < AKX_VECTORS; ++v) {
        T sum = zero<T>();
        for (u32 slot = 0; slot < AKX_WIDTH; ++slot) {
            const u64 at = u64(slot) * n + row;
            sum = mad(load(value + at), fresh(x + i64(v) * n + load(column + at)), sum);
        }
        finish_step(sum, x, before, y, first, coefficient, i64(v) * n + row);
    }
}
