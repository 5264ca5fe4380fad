// Kernels of digest.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#include "matrix/digest.cu"

AKX_ON_HOST_KERNEL(digest_leaves)
