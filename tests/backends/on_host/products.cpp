// Kernels of products.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#include "products.cu"

AKX_ON_HOST_KERNEL(gram)
AKX_ON_HOST_KERNEL(some)
