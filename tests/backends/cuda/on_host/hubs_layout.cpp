// Kernels of hubs_layout.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#include "variants/hubs_layout.cu"

AKX_ON_HOST_KERNEL(lay_chunked_rows)
AKX_ON_HOST_KERNEL(mark_chunks)
