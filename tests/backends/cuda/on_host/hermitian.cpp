// Kernels of hermitian.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#include "preconditioners/hermitian.cu"

AKX_ON_HOST_KERNEL(merge_each)
