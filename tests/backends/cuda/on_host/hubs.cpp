// Kernels of hubs.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#define step step_of_hubs // the C library has a `step`, which would be found before ours
#include "variants/hubs.cu"

AKX_ON_HOST_KERNEL(step)
AKX_ON_HOST_KERNEL(join)
AKX_ON_HOST_KERNEL(gather)
