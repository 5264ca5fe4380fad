// The kernel of hermitian.cu on the host.
#include "host_cuda.hpp"

#include "../../akx/kernels/cuda/hermitian.cu"

extern "C" bool launch(const char *kernel, unsigned grid, unsigned width, unsigned long order,
                       const std::uint64_t *slots) {
    return std::strcmp(kernel, "merge_each") == 0 && host::call(merge_each, grid, width, order, slots);
}
