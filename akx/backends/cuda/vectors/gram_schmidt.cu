// The instance of `gram_schmidt.cuh` that the macros ask for.
//
//   AKX_VALUE  float, double, cfloat, cdouble
//   AKX_DOWN, AKX_ACROSS  k + s and s over 8, rounded up; s + lag over 8 is the same
#include "vectors/gram_schmidt.cuh"

typedef AKX_VALUE T;
typedef typename Wide<T>::type S;

#define AKX_ROUND(name, round)                                                                                         \
    extern "C" __global__ void __launch_bounds__(512)                                                                  \
        name(u64 n, const T *W, u32 k, u32 s, u32 lag, S *partial, u32 *counter, double *state, S *F, double *ring,    \
             u32 slots, u32 size) {                                                                                               \
        round<T, AKX_DOWN, AKX_ACROSS>(n, W, k, s, lag, partial, counter, state, F, ring, slots, size);                \
    }

AKX_ROUND(first, first_round)
AKX_ROUND(second, second_round)
