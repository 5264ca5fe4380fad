// Kernels of content.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#include "matrix/content.cu"

AKX_ON_HOST_KERNEL(sum_all_arrays)
AKX_ON_HOST_KERNEL(look_at_callers_csr)
