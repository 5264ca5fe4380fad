// The kernels of `parts_layout.cuh`.
#include "variants/block_local/parts_layout.cuh"

extern "C" __global__ void sort_parts(u32 longest, u32 bits, const u32 *cut, const u32 *pointer, const u8 *border,
                                      u32 *key, u32 *node, u32 *next_key, u32 *next_node, u32 *on_border) {
    AKX_DYNAMIC_SHARED(shared);
    u32 *part = reinterpret_cast<u32 *>(shared);
    sort_part(longest, bits, cut, pointer, border, {key, node, next_key, next_node}, on_border, part + WARP, part);
}
extern "C" __global__ void list_parts(u32 words, const u32 *bits, const u32 *begin, u32 *rows) {
    AKX_DYNAMIC_SHARED(shared);
    list_part(words, bits, begin, rows, reinterpret_cast<u32 *>(shared));
}
extern "C" __global__ void number_nodes(u32 parts, u32 count, const u32 *lists, const Part *part, const u32 *nodes,
                                        u32 *key, u16 *where) {
    number_node(parts, count, lists, part, nodes, key, where);
}
extern "C" __global__ void lay_alone(u32 slices, u32 br, u32 bc, u32 lanes, u32 last, const Part *parts,
                                     const Slice *known, const u32 *nodes, const u32 *key, const u16 *where,
                                     const u32 *pointer, const u32 *index, const u32 *listed, u32 *base, u32 *is_far,
                                     u16 *columns, u32 *entry) {
    lay_columns(slices, br, lanes, parts, known, nodes, {key, where}, pointer, index, {listed, bc, last}, base, is_far,
                columns, entry);
}
extern "C" __global__ void lay_beside(u32 slices, u32 br, u32 bc, u32 lanes, u32 last, const Part *parts,
                                      const Slice *known, const u32 *nodes, const u32 *key, const u16 *where,
                                      const u32 *pointer, const u32 *index, const u32 *listed, u32 *base, u32 *is_far,
                                      u32 *columns, u32 *entry) {
    lay_columns(slices, br, lanes, parts, known, nodes, {key, where}, pointer, index, {listed, bc, last}, base, is_far,
                columns, entry);
}
extern "C" __global__ void lay_in_blocks(u32 slices, u32 br, u32 bc, u32 lanes, u32 last, u32 is_local,
                                         const Part *parts, const Slice *known, const u32 *nodes, const u32 *pointer,
                                         const u32 *index, const u32 *listed, const u32 *row_pointer,
                                         const u32 *row_index, const u32 *of, const u8 *within, u32 *entry) {
    lay_blocks(slices, br, lanes, is_local, parts, known, nodes, pointer, index, {listed, bc, last}, row_pointer,
               row_index, of, within, entry);
}
