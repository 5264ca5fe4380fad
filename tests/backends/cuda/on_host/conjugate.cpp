// Kernels of conjugate.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#include "vectors/conjugate.cu"

AKX_ON_HOST_KERNEL(curvature)
AKX_ON_HOST_KERNEL(descend)
AKX_ON_HOST_KERNEL(descend_by)
AKX_ON_HOST_KERNEL(turn)
AKX_ON_HOST_KERNEL(turn_by)
