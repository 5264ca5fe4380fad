// Every instance of `values` that a program can ask for, one per call of a macro, to be compiled and never run.
#include "value_compression/values.cuh"

template <class T, class F> __global__ void every_place(u64 count, const u32 *entry, const F *data, T *values) {
    place_some<4, T, F>(count, entry, data, values);
}
template <class F> __global__ void every_examine(u64 count, const F *data, u32 *found) {
    examine_one<F>(count, data, found);
}

#define PLACE(T, F) template __global__ void every_place<T, F>(u64, const u32 *, const F *, T *);
#define EXAMINE(F) template __global__ void every_examine<F>(u64, const F *, u32 *);

PLACE(float, float)
PLACE(double, double) PLACE(double, float)
PLACE(cfloat, cfloat) PLACE(cfloat, float)
PLACE(cdouble, cdouble) PLACE(cdouble, cfloat) PLACE(cdouble, double) PLACE(cdouble, float)
EXAMINE(float) EXAMINE(double) EXAMINE(cfloat) EXAMINE(cdouble)
