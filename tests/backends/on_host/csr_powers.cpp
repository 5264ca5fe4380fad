// Kernels of csr_powers.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#include "csr/csr_powers.cu"

AKX_ON_HOST_KERNEL(powers)
