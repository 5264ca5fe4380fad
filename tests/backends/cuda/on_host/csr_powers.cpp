// Kernels of csr_powers.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

inline unsigned now_at(const unsigned *p) {
    on_host::look();
    return *p;
}

#include "csr/csr_powers.cu"

AKX_ON_HOST_KERNEL(powers)
