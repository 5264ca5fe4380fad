// The instance of `gram_schmidt.cuh` that the macros ask for: blocks of several rows, and single ones.
//
//   AKX_VALUE  float, double, cfloat, cdouble       AKX_TILE  rows of a tile of products
#include "gram_schmidt.cuh"

typedef AKX_VALUE T;
typedef typename Wide<T>::type S;

#define AKX_ROUND(name, round, rows, columns)                                                                          \
    extern "C" __global__ void name(u64 n, const T *W, u32 k, u32 s, u32 width, u32 shift, S *partial, u32 *counter,   \
                                    double *state, S *F, double *ring, u32 slots, u32 size) {                          \
        round<T, rows, columns>(n, W, k, s, width, shift, partial, counter, state, F, ring, slots, size);              \
    }

AKX_ROUND(first_of_block, first_round, AKX_TILE, AKX_TILE)
AKX_ROUND(second_of_block, second_round, AKX_TILE, AKX_TILE)
AKX_ROUND(first_of_row, first_round, 8, 1)
AKX_ROUND(second_of_row, second_round, 8, 1)
