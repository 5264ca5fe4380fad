// Kernels of canonical.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#include "matrix/canonical.cu"

AKX_ON_HOST_KERNEL(narrow_index)
AKX_ON_HOST_KERNEL(look_at_each_row)
AKX_ON_HOST_KERNEL(mark_first_entries)
AKX_ON_HOST_KERNEL(mark_other_entries)
AKX_ON_HOST_KERNEL(list_marked_entries)
AKX_ON_HOST_KERNEL(gather_values)
AKX_ON_HOST_KERNEL(measure_values)
AKX_ON_HOST_KERNEL(take_the_diagonal)
AKX_ON_HOST_KERNEL(compare_with_mirrors)
