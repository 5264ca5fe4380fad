// Kernels of slots.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#include "variants/slots.cu"

AKX_ON_HOST_KERNEL(range_of_slices)
AKX_ON_HOST_KERNEL(lay_near_slices)
AKX_ON_HOST_KERNEL(lay_slices)
AKX_ON_HOST_KERNEL(lay_rows)
