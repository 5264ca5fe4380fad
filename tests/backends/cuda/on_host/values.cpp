// Kernels of values.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#include "value_compression/values.cu"

AKX_ON_HOST_KERNEL(place)
AKX_ON_HOST_KERNEL(examine)
