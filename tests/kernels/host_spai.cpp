// The kernels of spai.cu on the host.
#include "host_cuda.hpp"

#include "../../akx/kernels/cuda/spai.cu"

#define KERNEL(name) \
    if (std::strcmp(kernel, #name) == 0) return host::call(name, grid, width, order, slots);

extern "C" bool launch(const char *kernel, unsigned grid, unsigned width, unsigned long order,
                       const std::uint64_t *slots) {
    KERNEL(largest_sizes)
    KERNEL(keep_entries)
    KERNEL(count_reached)
    KERNEL(count_in_classes)
    KERNEL(list_by_class)
    KERNEL(measure_columns)
    KERNEL(solve_columns)
    return false;
}
