// A vector of another precision, times a factor, rounded.
//
//   AKX_VALUE  float, double, cfloat, cdouble       AKX_FROM  the type of what is taken, real or complex as that
#include "vectors/vectors.cuh"

typedef AKX_VALUE T;
typedef AKX_FROM V;
typedef typename Wide<V>::type S;

__device__ __forceinline__ double times(float a, double f) { return double(a) * f; }
__device__ __forceinline__ double times(double a, double f) { return a * f; }
template <class C> __device__ __forceinline__ cdouble times(C a, double f) { return {double(a.re) * f, double(a.im) * f}; }

extern "C" __global__ void taken(u64 n, const V *v, double factor, T *out) {
    const u64 step = u64(gridDim.x) * blockDim.x;
    for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
        T found;
        narrow(S(times(v[i], factor)), found);
        out[i] = found;
    }
}
