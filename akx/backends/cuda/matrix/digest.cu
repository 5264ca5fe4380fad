// The kernel of `digest.cuh`.
#include "matrix/digest.cuh"

extern "C" __global__ void digest_leaves(u32 leaves, u32 of_rows, u32 rows, u32 entries, const u32 *pointer,
                                         const u32 *index, const u64 *key, u64 *out) {
    digest_leaf(leaves, of_rows, rows, entries, pointer, index, key, out);
}
