// Kernels of translate.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#include "variants/translate.cu"

AKX_ON_HOST_KERNEL(compare_rows)
AKX_ON_HOST_KERNEL(find_ends_of_runs)
AKX_ON_HOST_KERNEL(cut_runs)
AKX_ON_HOST_KERNEL(number_nodes)
AKX_ON_HOST_KERNEL(count_blocks)
AKX_ON_HOST_KERNEL(sort_nodes)
AKX_ON_HOST_KERNEL(make_slices)
AKX_ON_HOST_KERNEL(add_slices_up)
AKX_ON_HOST_KERNEL(place_slices)
