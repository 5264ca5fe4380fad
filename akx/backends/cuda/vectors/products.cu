// The instance of `products` of vectors.cuh that the macros ask for; results go where they are wanted, page-locked host
// memory too.
//
//   AKX_VALUE  float, double, cfloat, cdouble
//   AKX_DOWN, AKX_ACROSS  m and s over 8, rounded up
#include "vectors/vectors.cuh"

typedef AKX_VALUE T;
typedef typename Wide<T>::type S;

extern "C" __global__ void __launch_bounds__(512) gram(u64 n, const T *W, u32 m, S *partial, u32 *counter, S *found) {
    all_products<T, AKX_DOWN, AKX_DOWN, true>(n, W, {m, m, true}, partial, counter, found);
}

extern "C" __global__ void __launch_bounds__(512)
    some(u64 n, const T *W, u32 m, u32 s, S *partial, u32 *counter, S *found) {
    all_products<T, AKX_DOWN, AKX_ACROSS, false>(n, W, {m, s, false}, partial, counter, found);
}
