// The instance of `conjugate.cuh` that the macros ask for.
//
//   AKX_VALUE  float, double, cfloat, cdouble       AKX_TILE  rows of a tile of products
#include "conjugate.cuh"

typedef AKX_VALUE T;
typedef typename Wide<T>::type S;

extern "C" __global__ void curvature(u64 n, const T *p, const T *w, S *partial, u32 *counter, double *state,
                                     double *ring, u32 slots) {
    curvature_step(n, p, w, partial, counter, state, ring, slots);
}

extern "C" __global__ void descend(u64 n, const T *w, T *r, S *partial, u32 *counter, double *state, double *ring,
                                   u32 slots) {
    descend_step(n, w, r, partial, counter, state, ring, slots);
}

extern "C" __global__ void turn(u64 n, T *p, const T *r, T *x, const double *state) { turn_step(n, p, r, x, state); }

extern "C" __global__ void steps(u64 n, const T *W, u32 s, const T *basis, u32 width, u32 shift, S *partial,
                                 u32 *counter, double *state, S *F, double *ring, u32 slots) {
    block_of_steps<T, AKX_TILE>(n, W, s, basis, width, shift, partial, counter, state, F, ring, slots);
}

extern "C" __global__ void look(u64 n, const T *W, u32 s, u32 width, u32 shift, S *partial, u32 *counter,
                                double *state) {
    look_at_images<T, AKX_TILE>(n, W, s, width, shift, partial, counter, state);
}
