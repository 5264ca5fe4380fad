// Kernels of vbell.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#define step step_of_vbell // the C library has a `step`, which would be found before ours
#include "variants/vbell.cu"

AKX_ON_HOST_KERNEL(step)
