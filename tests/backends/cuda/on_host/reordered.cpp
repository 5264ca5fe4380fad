// Kernels of reordered.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#include "reordered.cu"

AKX_ON_HOST_KERNEL(take_starts)
AKX_ON_HOST_KERNEL(put_side_by_side)
AKX_ON_HOST_KERNEL(put_apart)
