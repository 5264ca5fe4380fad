// Kernels of products.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#include "vectors/products.cu"

AKX_ON_HOST_KERNEL(gram)
AKX_ON_HOST_KERNEL(some)
