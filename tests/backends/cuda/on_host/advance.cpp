// The kernel of advance.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#include "vectors/advance.cu"

AKX_ON_HOST_KERNEL(end_of_block)
