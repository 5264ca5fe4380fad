// Kernels of spai.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#include "preconditioners/spai.cu"

AKX_ON_HOST_KERNEL(largest_sizes)
AKX_ON_HOST_KERNEL(keep_entries)
AKX_ON_HOST_KERNEL(count_reached)
AKX_ON_HOST_KERNEL(count_in_classes)
AKX_ON_HOST_KERNEL(list_by_class)
AKX_ON_HOST_KERNEL(measure_columns)
AKX_ON_HOST_KERNEL(solve_columns)
