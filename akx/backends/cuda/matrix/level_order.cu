// The kernel of `level_order.cuh`.
//
//   AKX_THREADS  of a block    AKX_ALONE  rows of a level that one block does alone
#include "matrix/level_order.cuh"

// kept, order, counts (n,), ends (n + 2,), sums (blocks,), state (16,), most (3,); kept, state and most are zero before, and
// ends[0].
extern "C" __global__ void __launch_bounds__(ORDERING, 2)
order_by_levels(u32 n, const u32 *pointer, const u32 *column, const u32 *across_pointer, const u32 *across_column,
                u32 *kept, u32 *order, u32 *counts, u32 *ends, u32 *sums, u32 *state, u64 *most, u32 fewest,
                u32 most_components, u32 deepest) {
    __shared__ u32 part[33];
    const Graph graph = {n, pointer, column, across_pointer, across_column};
    Ordering(graph, kept, order, counts, ends, sums, state, most, part, deepest).run(fewest, most_components);
}
