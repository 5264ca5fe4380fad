// Kernels of lengths.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#include "lengths.cu"

AKX_ON_HOST_KERNEL(sort_windows)
AKX_ON_HOST_KERNEL(slots_of_slices)
AKX_ON_HOST_KERNEL(slots_of_rows)
AKX_ON_HOST_KERNEL(place_partitions)
AKX_ON_HOST_KERNEL(measure_windows)
