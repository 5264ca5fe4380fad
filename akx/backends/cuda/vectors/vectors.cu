// The instance of `vectors.cuh` that the macro asks for: single vectors. Results go where they are wanted, page-locked
// host memory too.
//
//   AKX_VALUE  float, double, cfloat, cdouble
#include "vectors/vectors.cuh"

typedef AKX_VALUE T;
typedef typename Wide<T>::type S;

extern "C" __global__ void dot(u64 n, const T *a, const T *b, S *partial, u32 *counter, S *found) {
    S total;
    if (over_grid(dot_part(n, a, b), partial, counter, total)) *found = total;
}

extern "C" __global__ void descend(u64 n, const S *factor, const T *w, T *r, S *partial, u32 *counter, S *found) {
    T alpha;
    S total;
    narrow(*factor, alpha);
    if (over_grid(descend_part(n, alpha, w, r), partial, counter, total)) *found = total;
}

extern "C" __global__ void turn(u64 n, const S *factors, T *p, const T *u, T *x) {
    T alpha, beta;
    narrow(factors[0], alpha);
    narrow(factors[1], beta);
    turn_part(n, alpha, beta, p, u, x);
}

extern "C" __global__ void remain(u64 n, const T *b, T *w, S *partial, u32 *counter, S *found) {
    S total;
    if (over_grid(remain_part(n, b, w), partial, counter, total)) *found = total;
}
