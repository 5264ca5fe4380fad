// The kernel of long_rows.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#define step step_of_long_rows // the C library has a `step`, which would be found before ours
#include "csr/long_rows.cu"

AKX_ON_HOST_KERNEL(step)
