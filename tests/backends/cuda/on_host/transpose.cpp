// Kernels of transpose.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#include "matrix/transpose.cu"

AKX_ON_HOST_KERNEL(count_entries)
AKX_ON_HOST_KERNEL(sum_in_chunks)
AKX_ON_HOST_KERNEL(sum_of_chunks)
AKX_ON_HOST_KERNEL(add_to_chunks)
AKX_ON_HOST_KERNEL(scatter_entries)
AKX_ON_HOST_KERNEL(sort_rows)
AKX_ON_HOST_KERNEL(sort_long_rows)
AKX_ON_HOST_KERNEL(find_rows)
AKX_ON_HOST_KERNEL(take_each)
