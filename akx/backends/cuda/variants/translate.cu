// The kernels of `translate.cuh`.
#include "variants/translate.cuh"

extern "C" __global__ void compare_rows(u32 rows, const u32 *pointer, const u32 *index, u8 *flags, u8 *apart) {
    compare_row(rows, pointer, index, flags, apart);
}
extern "C" __global__ void __launch_bounds__(1024)
    find_ends_of_runs(u32 rows, u32 chunks, const u8 *flags, const u8 *apart, u32 *ends) {
    AKX_DYNAMIC_SHARED(shared);
    find_ends(rows, chunks, flags, apart, ends, reinterpret_cast<u32 *>(shared));
}
extern "C" __global__ void __launch_bounds__(1024)
    cut_runs(u32 rows, u32 chunks, const u8 *flags, const u8 *apart, const u32 *ends, u8 *parts, u32 *totals,
             u64 *nodes) {
    AKX_DYNAMIC_SHARED(shared);
    cut_run(rows, chunks, flags, apart, ends, parts, totals, nodes, reinterpret_cast<u32 *>(shared));
}
extern "C" __global__ void __launch_bounds__(1024)
    number_nodes(u32 rows, u32 window, const u8 *parts, const u32 *totals, u32 *cuts, u32 *firsts) {
    AKX_DYNAMIC_SHARED(shared);
    number_chunk(rows, window, parts, totals, cuts, firsts, reinterpret_cast<u32 *>(shared));
}
extern "C" __global__ void count_blocks(const u32 *pointer, const u32 *index, const u8 *flags, const u8 *parts,
                                        const u64 *nodes, const u32 *cuts, u32 *counts, u64 *found) {
    AKX_DYNAMIC_SHARED(shared);
    count_node(Noded{pointer, index, flags, parts}, nodes, cuts, counts, found, reinterpret_cast<u64 *>(shared));
}
extern "C" __global__ void __launch_bounds__(1024)
    sort_nodes(u32 rows, const u32 *firsts, const u32 *cuts, const u32 *counts, u32 *keys, u32 *orders, u32 *sizes) {
    AKX_DYNAMIC_SHARED(shared);
    sort_window(rows, firsts, cuts, counts, keys, orders, sizes, reinterpret_cast<u32 *>(shared));
}
extern "C" __global__ void __launch_bounds__(1024)
    make_slices(u32 groups, u32 lanes, const u32 *sizes, const u32 *order, const u32 *counts, u32 *about, u64 *totals,
                u64 *slices) {
    AKX_DYNAMIC_SHARED(shared);
    make_slice(groups, lanes, sizes, order, counts, about, totals, slices, reinterpret_cast<u64 *>(shared));
}
extern "C" __global__ void __launch_bounds__(1024) add_slices_up(u32 chunks, u64 *totals, u64 *found) {
    AKX_DYNAMIC_SHARED(shared);
    sum_slices(chunks, totals, found, reinterpret_cast<u64 *>(shared));
}
extern "C" __global__ void place_slices(u32 rows, u32 lanes, u32 per, u32 chunks, const u32 *pointer, const u32 *index,
                                        const u8 *flags, const u8 *parts, const u32 *cuts, const u32 *counts,
                                        const u32 *order, const u32 *about, const u64 *totals, u32 *head, u32 *first,
                                        u32 *column, u32 *entry) {
    place_slice(rows, lanes, per, chunks, Noded{pointer, index, flags, parts}, cuts, counts, order, about, totals, head,
                first, column, entry);
}
