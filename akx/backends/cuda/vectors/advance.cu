// The instance of `advance_block` of conjugate.cuh that the macros ask for.
//
//   AKX_VALUE  float, double, cfloat, cdouble       AKX_STEPS  s
#include "vectors/conjugate.cuh"

typedef AKX_VALUE T;
typedef typename Wide<T>::type S;

extern "C" __global__ void end_of_block(u64 n, T *W, T *x, const S *F, const double *active) {
    advance_block<T, AKX_STEPS>(n, W, x, F, active);
}
