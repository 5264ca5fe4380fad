// Kernels of mix.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#include "vectors/mix.cu"

AKX_ON_HOST_KERNEL(mix_rows)
