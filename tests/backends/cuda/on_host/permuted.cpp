// Kernels of permuted.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#include "matrix/permuted.cu"

AKX_ON_HOST_KERNEL(invert_order)
AKX_ON_HOST_KERNEL(measure_rows)
AKX_ON_HOST_KERNEL(permute_rows)
AKX_ON_HOST_KERNEL(tell_difference)
AKX_ON_HOST_KERNEL(find_longest)
