// The instance of `conjugate.cuh` that the macro asks for: ordinary steps.
//
//   AKX_VALUE  float, double, cfloat, cdouble
#include "vectors/conjugate.cuh"

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

extern "C" __global__ void descend_by(u64 n, const T *w, T *r, const T *d, cdouble *partial, u32 *counter,
                                      double *state, double *ring, u32 slots) {
    descend_step_by(n, w, r, d, partial, counter, state, ring, slots);
}

extern "C" __global__ void turn_by(u64 n, T *p, const T *r, const T *d, T *x, const double *state) {
    turn_step_by(n, p, r, d, x, state);
}
