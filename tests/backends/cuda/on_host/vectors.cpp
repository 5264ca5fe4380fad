// Kernels of vectors.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#include "vectors/vectors.cu"

AKX_ON_HOST_KERNEL(dot)
AKX_ON_HOST_KERNEL(descend)
AKX_ON_HOST_KERNEL(turn)
AKX_ON_HOST_KERNEL(remain)
