// The instance of `mix` of vectors.cuh that the macros ask for.
//
//   AKX_VALUE  float, double, cfloat, cdouble       AKX_MIXES  combinations
#include "vectors/vectors.cuh"

typedef AKX_VALUE T;
typedef typename Wide<T>::type S;

extern "C" __global__ void mix_rows(u64 n, const T *W, u32 m, const S *F, T *x, T *y, u32 added, const double *active) {
    mix<T, AKX_MIXES>(n, W, m, F, x, y, added, active);
}
