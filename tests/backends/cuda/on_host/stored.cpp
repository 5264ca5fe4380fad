// What values are stored as, widened as kernels do (stored.cuh): one function for each pair of types.
#include "cuda_on_host.h"

#include "value_compression/stored.cuh"

#define WIDENED(T, S)                                                                                                  \
    extern "C" void widened_##T##_##S(const T *table, const S *stored, T *to, size_t count) {                          \
        for (size_t i = 0; i < count; ++i) to[i] = widened(table, stored[i]);                                          \
    }
#define OF_A_TABLE(T)                                                                                                  \
    WIDENED(T, T)                                                                                                      \
    WIDENED(T, u16)                                                                                                    \
    WIDENED(T, u32)

OF_A_TABLE(float)
OF_A_TABLE(double)
OF_A_TABLE(cfloat)
OF_A_TABLE(cdouble)
WIDENED(double, float)
WIDENED(cdouble, cfloat)
