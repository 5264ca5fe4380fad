// Kernels of rates.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#include "cost/rates.cu"

AKX_ON_HOST_KERNEL(read_shared_cache)
AKX_ON_HOST_KERNEL(read_shared_memory)
