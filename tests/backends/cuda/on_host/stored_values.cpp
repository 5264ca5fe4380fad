// Kernels of stored_values.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#include "value_compression/stored_values.cu"

#ifdef AKX_HALF
AKX_ON_HOST_KERNEL(halve)
#else
AKX_ON_HOST_KERNEL(collect)
AKX_ON_HOST_KERNEL(pair)
AKX_ON_HOST_KERNEL(number)
AKX_ON_HOST_KERNEL(place_alone)
AKX_ON_HOST_KERNEL(place_beside)
#endif
