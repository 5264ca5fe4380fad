// Kernels of blocks.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#include "vectors/blocks.cu"

AKX_ON_HOST_KERNEL(steps)
AKX_ON_HOST_KERNEL(look)
