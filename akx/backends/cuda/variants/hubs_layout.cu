// The kernels of `hubs_layout.cuh`.
#include "variants/hubs_layout.cuh"

extern "C" __global__ void lay_chunked_rows(u32 rows, const u32 *pointer, const u32 *index, const u32 *start,
                                            const u32 *known_as, u32 *column, u32 *entry, u32 *bits) {
    lay_chunked_row(rows, pointer, index, start, known_as, column, entry, bits);
}
extern "C" __global__ void mark_chunks(u32 chunks, u32 rows, const u32 *start, const u8 *bits, u16 *mark,
                                       u32 *row_before) {
    mark_chunk(chunks, rows, start, bits, mark, row_before);
}
