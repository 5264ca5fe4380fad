// Kernels of gram_schmidt.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#include "vectors/gram_schmidt.cu"

AKX_ON_HOST_KERNEL(first)
AKX_ON_HOST_KERNEL(second)
