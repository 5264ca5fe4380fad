// The kernel of taken.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#include "vectors/taken.cu"

AKX_ON_HOST_KERNEL(taken)
