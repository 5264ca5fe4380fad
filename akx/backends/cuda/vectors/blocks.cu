// The instance of `conjugate.cuh` that the macros ask for: blocks of steps, and looks at the directions' images.
//
//   AKX_VALUE  float, double, cfloat, cdouble       AKX_STEPS  s
#include "vectors/conjugate.cuh"

typedef AKX_VALUE T;
typedef typename Wide<T>::type S;

extern "C" __global__ void __launch_bounds__(512)
    steps(u64 n, const T *W, const T *basis, S *partial, u32 *counter, double *state, S *F, double *ring, u32 slots) {
    block_of_steps<T, AKX_STEPS>(n, W, basis, partial, counter, state, F, ring, slots);
}

extern "C" __global__ void __launch_bounds__(512) look(u64 n, const T *W, S *partial, u32 *counter, double *state) {
    look_at_images<T, AKX_STEPS>(n, W, partial, counter, state);
}
