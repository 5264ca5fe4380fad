// The kernels of `canonical.cuh`.
#include "matrix/canonical.cuh"

extern "C" __global__ void narrow_index(u32 type, u64 count, u64 limit, const void *in, u32 *out, u64 *found) {
    narrow_any(type, count, limit, in, out, found);
}
extern "C" __global__ void look_at_each_row(u32 rows, u32 entries, const u32 *pointer, const u32 *index, u64 *found) {
    look_at_rows(rows, entries, pointer, index, found);
}
extern "C" __global__ void mark_first_entries(u32 rows, const u32 *pointer, const u32 *index, u32 *mark) {
    mark_firsts(rows, pointer, index, mark);
}
extern "C" __global__ void mark_other_entries(u32 type, u32 count, const void *data, u32 *mark) {
    mark_any(type, count, data, mark);
}
extern "C" __global__ void list_marked_entries(u32 count, const u32 *before, u32 *begin) {
    list_marked(count, before, begin);
}
extern "C" __global__ void gather_values(u32 from, u32 to, u32 count, const u32 *begin, const u32 *source,
                                         const void *in, void *out) {
    gather_any(from, to, count, begin, source, in, out);
}
extern "C" __global__ void measure_values(u32 type, u64 count, const void *data, u64 *most) {
    measure_any(type, count, data, most);
}
extern "C" __global__ void take_the_diagonal(u32 type, u32 rows, const u32 *pointer, const u32 *index, const void *data,
                                             void *out) {
    take_diagonal_any(type, rows, pointer, index, data, out);
}
extern "C" __global__ void compare_with_mirrors(u32 type, u32 rows, u32 entries, double tolerance, const u32 *pointer,
                                                const u32 *index, const void *data, const void *diagonal, u64 *found) {
    compare_mirrors_any(type, rows, entries, tolerance, pointer, index, data, diagonal, found);
}
