// Kernels of scaling.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#include "preconditioners/scaling.cu"

AKX_ON_HOST_KERNEL(scale_entries)
