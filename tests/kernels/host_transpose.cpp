// The kernels of transpose.cu on the host.
#include "host_cuda.hpp"

#include "../../akx/kernels/cuda/transpose.cu"

#define KERNEL(name) \
    if (std::strcmp(kernel, #name) == 0) return host::call(name, grid, width, order, slots);

extern "C" bool launch(const char *kernel, unsigned grid, unsigned width, unsigned long order,
                       const std::uint64_t *slots) {
    KERNEL(count_entries)
    KERNEL(sum_in_chunks)
    KERNEL(sum_of_chunks)
    KERNEL(add_to_chunks)
    KERNEL(scatter_entries)
    KERNEL(sort_rows)
    KERNEL(sort_long_rows)
    KERNEL(find_rows)
    KERNEL(take_each)
    return false;
}
