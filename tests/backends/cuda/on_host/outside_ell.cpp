// The kernel of outside_ell.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#define step step_of_outside // the C library has a `step`, which would be found before ours
#include "../outside_ell.cu"

AKX_ON_HOST_KERNEL(step)
