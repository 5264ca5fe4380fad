// Kernels of parts_layout.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#include "variants/block_local/parts_layout.cu"

AKX_ON_HOST_KERNEL(sort_parts)
AKX_ON_HOST_KERNEL(list_parts)
AKX_ON_HOST_KERNEL(number_nodes)
AKX_ON_HOST_KERNEL(lay_alone)
AKX_ON_HOST_KERNEL(lay_beside)
AKX_ON_HOST_KERNEL(lay_in_blocks)
