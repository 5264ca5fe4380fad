// The kernel of parts.cu, to be run by cuda_on_host.h.
#include "block_local.h"

#include "variants/block_local/parts.cu"

AKX_ON_HOST_KERNEL(steps)
