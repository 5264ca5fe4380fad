// Kernels of features.cu, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#include "matrix/features.cu"

AKX_ON_HOST_KERNEL(count_new_keys)
AKX_ON_HOST_KERNEL(count_lines_of_loads)
AKX_ON_HOST_KERNEL(count_alike_rows)
AKX_ON_HOST_KERNEL(count_twin_rows)
AKX_ON_HOST_KERNEL(mark_parts)
AKX_ON_HOST_KERNEL(check_for_blocks)
AKX_ON_HOST_KERNEL(take_all_blocks)
AKX_ON_HOST_KERNEL(choose_all_diagonals)
AKX_ON_HOST_KERNEL(find_blocks_read)
AKX_ON_HOST_KERNEL(check_for_lines)
AKX_ON_HOST_KERNEL(count_all_counts)
