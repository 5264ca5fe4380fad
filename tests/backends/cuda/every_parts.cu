// Every dense block in every mode of `resident` and `ghost`, in one translation unit, for the value type VALUES, VECTORS
// start vectors at a time, PER_ROW lanes per block row, and HELD_SLICES x HELD_SLOTS slots in registers.
//
// In the modes of `resident` also for values that are stored as words (where one is in a table, and its column), and as
// type NARROW, of half the bytes, where there is one; and with results that come through a stage. With FEW single entries
// and blocks of 3 x 3 only. Some are also those of nodes whose rows are listed.
#include "variants/block_local/parts.cuh"

typedef VALUES T;

#define INSTANCE(W, BR, BC, MODE, STREAM, STAGED) NODES(W, BR, BC, MODE, STREAM, STAGED, 0)
#define NODES(W, BR, BC, MODE, STREAM, STAGED, LISTED) WAITING(W, BR, BC, MODE, STREAM, STAGED, LISTED, 0, 0)
// VALUES_ALONE: parts wait for values, not for flags; DEEP: not in every step.
#define WAITING(W, BR, BC, MODE, STREAM, STAGED, LISTED, VALUES_ALONE, DEEP)                                           \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        steps_##W##_##BR##x##BC##_##MODE##_##STREAM##STAGED##LISTED##VALUES_ALONE##DEEP(                                \
            const Part *parts, const Slice *slice_of, const u32 *node_of, const u32 *neighbour_of, const u32 *active,  \
            const W *values, const u16 *columns, const T *table, u32 tabled, const T *coefficients, u32 *flags,        \
            const T *x, T *out, u32 k, u32 vectors, u32 from_vector, u32 to_vector, i64 n, u32 from_step,              \
            u32 step_count, u32 depth, u32 share, T *stage, const u32 *place_of, const void *from, u32 chunk,          \
            const u32 *halo_of, T *ring, u32 ringed, u32 pitch) {                                                      \
        Parts<T, W, BR, BC, PER_ROW, HELD_SLICES, HELD_SLOTS, VECTORS, 256, MODE, STREAM, STAGED, LISTED,                \
              VALUES_ALONE, DEEP>::run(                                                                                \
            parts, slice_of, node_of, neighbour_of, active, values, columns, table, tabled, coefficients, flags, x,    \
            out, k, vectors, from_vector, to_vector, n, from_step, step_count, depth, share, stage, place_of,          \
            from, chunk, halo_of, ring, ringed, pitch);                                                                \
    }
// Clusters, where there are any.
#if __CUDA_ARCH__ >= 900
#define CLUSTERED(BR, BC, STREAM) INSTANCE(T, BR, BC, 3, STREAM, 0)
#else
#define CLUSTERED(BR, BC, STREAM)
#endif
#define RESIDENT(W, BR, BC)                                                                                            \
    INSTANCE(W, BR, BC, 0, 0, 0)                                                                                       \
    WAITING(W, BR, BC, 0, 0, 0, 0, 1, 0)                                                                               \
    WAITING(W, BR, BC, 0, 1, 0, 0, 1, 1)                                                                               \
    INSTANCE(W, BR, BC, 0, 1, 0)                                                                                       \
    INSTANCE(W, BR, BC, 0, 1, 1)                                                                                       \
    INSTANCE(W, BR, BC, 1, 0, 0)                                                                                       \
    INSTANCE(W, BR, BC, 1, 1, 0)
#define MODES(BR, BC)                                                                                                  \
    RESIDENT(T, BR, BC)                                                                                                \
    INSTANCE(T, BR, BC, 2, 0, 0)                                                                                       \
    INSTANCE(T, BR, BC, 2, 1, 0)                                                                                       \
    CLUSTERED(BR, BC, 0)                                                                                               \
    CLUSTERED(BR, BC, 1)

MODES(1, 1)
MODES(3, 3)
#ifndef FEW
MODES(2, 2)
MODES(1, 3)
MODES(2, 6)
MODES(3, 6)
#endif
NODES(T, 3, 3, 0, 1, 1, 1)
NODES(T, 3, 3, 1, 1, 0, 1)
WAITING(T, 3, 3, 0, 1, 0, 1, 1, 1)
#ifndef FEW
WAITING(T, 2, 6, 0, 0, 0, 1, 1, 0)
NODES(T, 3, 3, 0, 1, 0, 1)
NODES(T, 3, 3, 2, 0, 0, 1)
#if __CUDA_ARCH__ >= 900
NODES(T, 3, 3, 3, 0, 0, 1)
#endif
NODES(T, 2, 2, 0, 0, 0, 1)
NODES(T, 1, 3, 0, 1, 0, 1)
NODES(T, 3, 6, 0, 1, 0, 1)
NODES(T, 2, 6, 1, 0, 0, 1)
#endif
RESIDENT(u32, 1, 1)
INSTANCE(T, 1, 1, 0, 0, 1)
#ifdef NARROW
typedef NARROW Half;
RESIDENT(Half, 1, 1)
RESIDENT(Half, 3, 3)
NODES(Half, 3, 3, 0, 1, 0, 1)
#ifndef FEW
RESIDENT(Half, 2, 6)
#endif
#endif
