// The instance of `wavefront` that the macros ask for.
//
//   AKX_VALUE    float, double, cfloat, cdouble       AKX_LANES    lanes per row
//   AKX_STORED   that, a type of half the bytes, or u16, an offset into the table: values of the matrix
//   AKX_LAG      steps between powers of a block      AKX_PER      slices of a warp at work in a step
//   AKX_HELD_SLOTS  slots of a slice in registers     AKX_SLICES   slices of a block of a strip
//   AKX_WARPS    warps that compute                   AKX_ASKS, AKX_XS  values and entries of x asked for in a step
//   AKX_HELPERS  threads that bring what they need
//   AKX_NEAR     1: some slots stay in shared memory  AKX_SLACK  0 to 2, see wavefront.cuh
//   AKX_RUNS, AKX_OWN  lengths of runs of diagonals, 0 where columns are stored; the slot of the rows themselves, or -1
#include "schedules/wavefront/wavefront.cuh"

typedef AKX_VALUE T;

extern "C" __global__ void __launch_bounds__(32 * AKX_WARPS + AKX_HELPERS, 1)
    steps(u32 blocks, u32 strips, u32 reach, u32 slack, u32 ring, u32 stride, u32 halo_room, u32 publishing, u32 words,
          u32 near_slots, u32 nears, u32 lists, u32 halos, u32 most_readers, u32 powers, const u32 *meta,
          const AKX_STORED *values, const u16 *near_columns, const u32 *nodes, const u32 *halo, const u32 *readers,
          const u32 *places, const T *coefficients, const T *table, u32 tabled, u64 *published, u32 *beats, u32 *epochs,
          const T *x, T *out, i64 n, u32 from, u32 total) {
    const Sizes size = {blocks,     strips,     reach, slack, ring,  stride,       halo_room, publishing,
                        words,      near_slots, nears, lists, halos, most_readers, powers};
    Front<T, AKX_STORED, AKX_LANES, AKX_LAG, AKX_PER, AKX_HELD_SLOTS, AKX_SLICES, AKX_WARPS, AKX_HELPERS, AKX_ASKS,
          AKX_XS, AKX_NEAR, AKX_SLACK, AKX_RUNS, AKX_OWN>::run(size, meta, values, near_columns, nodes, halo, readers, places,
                                            coefficients, table, tabled, published, beats, epochs, x, out, n, from,
                                            total);
}
