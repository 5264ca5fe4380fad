// Kernels of sweep.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#define step step_of_sweep // the C library has a `step`, which would be found before ours
#include "schedules/sweep/sweep.cu"

AKX_ON_HOST_KERNEL(step)
#if AKX_VARIANT == 3
AKX_ON_HOST_KERNEL(join)
#endif
