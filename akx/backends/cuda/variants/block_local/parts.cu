// The instance of `resident` or `ghost` that the macros ask for.
//
//   AKX_VALUE    float, double, cfloat, cdouble       AKX_VECTORS  start vectors at a time: 1, 2 or 4
//   AKX_STORED   that, a type of half the bytes, or u32, an offset into the table and a column: values of the matrix
//   AKX_BR, AKX_BC  rows and columns of a dense block AKX_LANES    lanes per block row
//   AKX_HELD_SLICES, AKX_HELD_SLOTS  slots in registers, for each warp
//   AKX_THREADS  threads per block                    AKX_STREAM   1: some slots are in global memory
//   AKX_MODE     0 x in shared memory, 1 x in global memory, 2 ghost zones, 3 those of clusters
//   AKX_STAGED   1: results come in the order of rows through a stage
//   AKX_RINGED   1: parts wait for values of others, not for flags
//   AKX_DEEP     1: x of others is fetched every so many steps, and computed along in between
//   AKX_LISTED   1: nodes have 1 to AKX_BC rows, anywhere
#include "variants/block_local/parts.cuh"

typedef AKX_VALUE T;

extern "C" __global__ void __launch_bounds__(AKX_THREADS, AKX_BLOCKS)
    steps(const Part *parts, const Slice *slice_of, const u32 *node_of, const u32 *neighbour_of, const u32 *active,
          const AKX_STORED *values, const u16 *columns, const T *table, u32 tabled, const T *coefficients, u32 *flags,
          const T *x, T *out, u32 k, u32 vectors, u32 from_vector, u32 to_vector, i64 n, u32 from_step, u32 step_count,
          u32 depth, u32 share, T *stage, const u32 *place_of, const void *from, u32 chunk, const u32 *halo_of, T *ring,
          u32 ringed, u32 pitch) {
    Parts<T, AKX_STORED, AKX_BR, AKX_BC, AKX_LANES, AKX_HELD_SLICES, AKX_HELD_SLOTS, AKX_VECTORS, AKX_THREADS, AKX_MODE,
          AKX_STREAM, AKX_STAGED, AKX_LISTED, AKX_RINGED, AKX_DEEP>::run(parts, slice_of, node_of, neighbour_of, active, values, columns, table,
                                                   tabled, coefficients, flags, x, out, k, vectors, from_vector,
                                                   to_vector, n, from_step, step_count, depth, share, stage, place_of,
                                                   from, chunk, halo_of, ring, ringed, pitch);
}
