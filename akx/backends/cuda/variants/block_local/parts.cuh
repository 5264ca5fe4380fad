// Parts: the matrix is cut in parts, one thread block each, that keep their share of it for all steps of a call.
//
//     v_{j+1} = a_j A v_j + b_j v_j + c_j v_{j-1}
//
// A part computes `rows` block rows of BR rows each, 32 / LANES of them in a slice, a slice per warp at a time. A slot
// is one dense BR x BC block for each of the 32 lanes: BR*BC values and one 16-bit column. W says what values are stored
// as (`stored.cuh`); with W = u32, for blocks of one entry, a word has both: where the value is in a table in shared
// memory, and the column. The slots of a slice live in three places: in registers (HS slices per warp, HW slots each),
// in shared memory, and in global memory (the rest, read again in each step; STREAM says that there are any). x is in
// shared memory, once for even steps and once for odd ones, or, where it does not fit, in global memory. MODE says what a
// step needs from other parts:
//
//   SHARED  x on the nodes of others, fetched every `depth` steps (DEEP: not in every one), in between
//           which these are computed along                                             (`resident`)
//   GLOBAL  x is read where it is in global memory, when the neighbours' flags say so  (`resident`)
//   ALONE   nothing: ghost rows are computed along, fewer in each step                 (`ghost`)
//   CLUSTER what other blocks of its cluster compute, which they write into its shared memory; the ghost rows of the
//           cluster are computed along                                                 (`ghost` with cluster > 1)
//
// Slices that neighbours wait for come first in a part and are published before the others are computed: by a flag, when
// results are there, or (VALUES_ALONE, with x in shared memory) in a ring of places that a part's readers look at until
// values are there (`exchange.cuh`).
//
// STAGED is for parts whose rows lie anywhere in the results: a warp takes longer to write 32 values to 32 places than to
// compute them. Results go into a stage, where those of a part that belong to the same chunk of rows lie side by side;
// others fetch them from there. Each part brings a chunk of them to its shared memory while it does the step after the
// next, and writes them from there in the order of rows. A part waits for all others, at a counter, not for its neighbours.
//
// LISTED is for nodes of 1 to BC rows, which may lie anywhere: `node_of` and `place_of` then have BC words a node, the row
// or the place of each, and NONE for what fills a node up. That is zero in shared memory, and stays so. Where x is in
// global memory the rows of a node follow one another, and a column is its first one: blocks multiply what comes after a
// small node by zeros, so that a part waits for who computes that as well. In the stage results are part by part, in the
// order in which warps have them; `from` then says where each row is, and rows are gathered on their way to shared memory.
#pragma once
#include "include/async.cuh"
#include "variants/block_local/exchange.cuh"
#include "value_compression/stored.cuh"

enum Mode { SHARED = 0, GLOBAL = 1, ALONE = 2, CLUSTER = 3 };

struct Part {
    u32 node, nodes;            // first in `node_of`, number: own and computed ones, then those that are fetched
    u32 computed, own;          // nodes computed here, and those of them (the first ones, `before` aside) that are written
    u32 slice, slices, border;  // first in `slice_of`, number, how many come first
    u32 held;                   // first slot in registers, HW for each of the first slices
    u32 near, nears;            // first slot in shared memory, number
    u32 neighbour, neighbours;  // first in `neighbour_of`, number; CLUSTER: pairs of words, what goes where
    u32 before, span, taken;    // CLUSTER: ghosts before the own nodes, room of each copy of x, nodes given by others
    u32 given, givens;          // RINGED: first place of what is published, number: of the first own rows, as they come
    u32 halo, halos;            // RINGED: first in `halo_of`, number: rows of others, and some that are only waited for
};

struct alignas(16) Slice {
    u32 near, far;    // first slot in shared memory (of the part), and in global memory (of all)
    u16 nears, fars;  // numbers
    u32 base;         // GLOBAL: columns are relative to this node, or row (LISTED)
};

#ifndef AKX_ON_HOST
// What is to stay in L2, and what is to leave first.
__device__ __forceinline__ u64 keep_policy() {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
__device__ __forceinline__ u64 pass_policy() {
    u64 policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

__device__ __forceinline__ double load_kept(const double *p, u64 policy) {
    double v;
    asm("ld.global.nc.L1::no_allocate.L2::cache_hint.f64 %0, [%1], %2;" : "=d"(v) : "l"(p), "l"(policy));
    return v;
}
__device__ __forceinline__ float load_kept(const float *p, u64 policy) {
    float v;
    asm("ld.global.nc.L1::no_allocate.L2::cache_hint.f32 %0, [%1], %2;" : "=f"(v) : "l"(p), "l"(policy));
    return v;
}
__device__ __forceinline__ cfloat load_kept(const cfloat *p, u64 policy) {
    cfloat v;
    asm("ld.global.nc.L1::no_allocate.L2::cache_hint.v2.f32 {%0, %1}, [%2], %3;"
        : "=f"(v.re), "=f"(v.im)
        : "l"(p), "l"(policy));
    return v;
}
__device__ __forceinline__ cdouble load_kept(const cdouble *p, u64 policy) {
    cdouble v;
    asm("ld.global.nc.L1::no_allocate.L2::cache_hint.v2.f64 {%0, %1}, [%2], %3;"
        : "=d"(v.re), "=d"(v.im)
        : "l"(p), "l"(policy));
    return v;
}
__device__ __forceinline__ u16 load_kept(const u16 *p, u64 policy) {
    u16 v;
    asm("ld.global.nc.L1::no_allocate.L2::cache_hint.u16 %0, [%1], %2;" : "=h"(v) : "l"(p), "l"(policy));
    return v;
}
__device__ __forceinline__ u32 load_kept(const u32 *p, u64 policy) {
    u32 v;
    asm("ld.global.nc.L1::no_allocate.L2::cache_hint.u32 %0, [%1], %2;" : "=r"(v) : "l"(p), "l"(policy));
    return v;
}
__device__ __forceinline__ void store_passing(double *p, double v, u64 policy) {
    asm volatile("st.global.L2::cache_hint.f64 [%0], %1, %2;" ::"l"(p), "d"(v), "l"(policy) : "memory");
}
__device__ __forceinline__ void store_passing(float *p, float v, u64 policy) {
    asm volatile("st.global.L2::cache_hint.f32 [%0], %1, %2;" ::"l"(p), "f"(v), "l"(policy) : "memory");
}
__device__ __forceinline__ void store_passing(cfloat *p, cfloat v, u64 policy) {
    asm volatile("st.global.L2::cache_hint.v2.f32 [%0], {%1, %2}, %3;" ::"l"(p), "f"(v.re), "f"(v.im), "l"(policy)
                 : "memory");
}
__device__ __forceinline__ void store_passing(cdouble *p, cdouble v, u64 policy) {
    asm volatile("st.global.L2::cache_hint.v2.f64 [%0], {%1, %2}, %3;" ::"l"(p), "d"(v.re), "d"(v.im), "l"(policy)
                 : "memory");
}

// What another block wrote before it raised its flag: from L2, never from this multiprocessor's L1.
__device__ __forceinline__ double load_foreign(const double *p) { return __ldcg(p); }
__device__ __forceinline__ float load_foreign(const float *p) { return __ldcg(p); }
__device__ __forceinline__ cfloat load_foreign(const cfloat *p) {
    const float2 v = __ldcg(reinterpret_cast<const float2 *>(p));
    return {v.x, v.y};
}
__device__ __forceinline__ cdouble load_foreign(const cdouble *p) {
    const double2 v = __ldcg(reinterpret_cast<const double2 *>(p));
    return {v.x, v.y};
}

__device__ __forceinline__ void raise(u32 *flag, u32 value) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
__device__ __forceinline__ void arrive(u32 *counter) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
__device__ __forceinline__ u32 flag_of(const u32 *flag) {
    u32 value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}

// Distributed shared memory, from compute capability 9.0 on. Blocks of a cluster follow each other in the grid.
//
// What one block writes into another's shared memory is counted by a barrier there. A barrier of the cluster after each
// step would do as well, but its release waits until all results written to global memory have arrived: 1 us a step.

// The address in block `rank` of what is at `address` in this one.
__device__ __forceinline__ u32 address_in(u32 address, u32 rank) {
    u32 found;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(found) : "r"(address), "r"(rank));
    return found;
}
// Store into another block, and tell its barrier when it has arrived.
__device__ __forceinline__ void give_one(u32 to, double v, u32 barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f64 [%0], %1, [%2];" ::"r"(to), "d"(v),
                 "r"(barrier)
                 : "memory");
}
__device__ __forceinline__ void give_one(u32 to, float v, u32 barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(to), "f"(v),
                 "r"(barrier)
                 : "memory");
}
__device__ __forceinline__ void give_one(u32 to, cfloat v, u32 barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(to),
                 "f"(v.re), "f"(v.im), "r"(barrier)
                 : "memory");
}
__device__ __forceinline__ void give_one(u32 to, cdouble v, u32 barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f64 [%0], {%1, %2}, [%3];" ::"r"(to),
                 "d"(v.re), "d"(v.im), "r"(barrier)
                 : "memory");
}
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
#endif

template <bool WIDE> struct Number { typedef u16 type; };
template <> struct Number<true> { typedef u32 type; };

template <class T, class W, int BR, int BC, int LANES, int HS, int HW, int NB, int THREADS, int MODE, bool STREAM,
          bool STAGED, bool LISTED, bool VALUES_ALONE, bool DEEP>
struct Parts {
    static constexpr int E = BR * BC, ROWS = 32 / LANES, WARPS = THREADS / 32, PER = BC / BR;
    // Slots of a slice whose values are asked for before any of them is used.
    static constexpr int AHEAD = !STREAM ? 1 : (E >= 12 ? 1 : (E >= 6 ? 2 : (E >= 3 ? 4 : 8)));
    // Entries of the halo that a thread asks for at a time.
    static constexpr int BATCH = NB > 1 ? 1 : 2;
    static constexpr u32 NONE = 0xffffffffu;
    // Entries of the first x that a thread asks for at a time.
    static constexpr int FIRSTS = NB > 1 ? 1 : THREADS > 768 ? 2 : 4;
    // Nodes of held slices are in registers too, where there are few.
    static constexpr bool KNOWN = HS <= 2;
    // The column is in the same word as where the value is.
    static constexpr bool ONE_WORD = is_offset<W>;
    static_assert(!ONE_WORD || (E == 1 && sizeof(W) == 4), "a word has one value and one column");
    // Steps whose results are in the stage at a time.
    static constexpr u32 SLABS = 4;
    static_assert(!STAGED || MODE == SHARED, "results are staged where x is in shared memory");
    // What others need is published in a ring of places; else a flag says that results are there.
    static constexpr bool RINGED = MODE == SHARED && !STAGED && VALUES_ALONE;
    // Words of a node in `node_of`, those that a block row needs, and rows that have their place in results together.
    static constexpr int WORDS = LISTED ? BC : 1, NAMES = LISTED ? BR : 1, TOGETHER = LISTED ? 1 : BC;
    // Where rows of a chunk are, in the stage or in the chunk.
    typedef typename Number<LISTED>::type From;

    // Row e of the nodes of a part, NONE for what fills a node up.
    static __device__ __forceinline__ u32 row_at(const u32 *node_of, u32 e) {
        return LISTED ? node_of[e] : node_of[e / BC] * BC + e % BC;
    }
    static __device__ __forceinline__ void names_at(const u32 *node_of, u32 block_row, u32 (&name)[NAMES]) {
#pragma unroll
        for (int r = 0; r < NAMES; ++r) name[r] = node_of[LISTED ? block_row * BR + r : block_row / PER];
    }

    struct Asked {
        W value[AHEAD][E];
        u16 column[AHEAD];
    };

    // Where the columns of a slice point.
    struct Source {
        const T *x, *table;
        i64 stride;
    };

    static __device__ __forceinline__ void block(T (&sum)[NB][BR], const W (&stored)[E], const Source &from, u32 column) {
        T x[NB][BC], value[E];
#pragma unroll
        for (int e = 0; e < E; ++e) value[e] = widened(from.table, stored[e]);
        if constexpr (ONE_WORD) column = stored[0] >> 16;
        if (MODE == GLOBAL) {
            const T *p = from.x + i64(column) * TOGETHER;
#pragma unroll
            for (int v = 0; v < NB; ++v)
#pragma unroll
                for (int c = 0; c < BC; ++c) x[v][c] = p[v * from.stride + c];
        } else {
            const T *p = from.x + column * (BC * NB);
#pragma unroll
            for (int c = 0; c < BC; ++c)
#pragma unroll
                for (int v = 0; v < NB; ++v) x[v][c] = p[c * NB + v];
        }
#pragma unroll
        for (int v = 0; v < NB; ++v)
#pragma unroll
            for (int r = 0; r < BR; ++r)
#pragma unroll
                for (int c = 0; c < BC; ++c) sum[v][r] = mad(value[r * BC + c], x[v][c], sum[v][r]);
    }

    // What the slices of a part share in a step.
    struct Step {
        const Slice *slices;
        const W *values, *near_value;
        const u16 *columns, *near_column;
        const u32 *node_of;
        Source from;
        const T *x, *coefficient;
        T *out, *cur, *next, *y;  // cur, next: x in shared memory
        u32 step, vectors, first;
        bool own_term, older_term;
        i64 n;
        T *ring;
        u32 given, older, pitch;  // RINGED: where own rows are published, or NONE, and v_j; from one vector to the next

        // v_j of the first of the start vectors at hand.
        __device__ __forceinline__ T *result(u32 j) const { return out + (i64(j) * vectors + first) * n; }
        __device__ __forceinline__ const T *vector(u32 j) const { return j == 0 ? x + first * n : result(j); }

        u32 lane, rows, own_first, own_rows;  // rows: block rows computed
        u64 kept, passing;
        u32 share;

        // Slice s, with `tile` of its slots in registers where HOLDS, and what `known` names in this lane. The first far
        // slots of the slice have been asked for; those of slice `after` are when it is through.
        template <bool HOLDS>
        __device__ __forceinline__ void compute(u32 s, u32 after, Asked &ahead, const u32 (&known)[NAMES],
                                                const W (&tile)[HW > 0 ? HW : 1][E],
                                                const u32 (&tile_column)[HW > 0 ? (HW + 1) / 2 : 1]) const {
            const Slice slice = slices[s];
            Source here = from;
            if (MODE == GLOBAL) here.x += i64(slice.base) * TOGETHER;
            T sum[NB][BR];
#pragma unroll
            for (int v = 0; v < NB; ++v)
#pragma unroll
                for (int r = 0; r < BR; ++r) sum[v][r] = zero<T>();
            const u32 block_row = s * ROWS + lane % ROWS;
            const bool mine = lane < ROWS && block_row < rows;
            u32 name[NAMES];
#pragma unroll
            for (int r = 0; r < NAMES; ++r) name[r] = known[r];
            if (!(HOLDS && KNOWN) && mine) names_at(node_of, block_row, name);
            if (HOLDS) {
#pragma unroll
                for (int q = 0; q < HW; ++q) {
                    W dense[E];
#pragma unroll
                    for (int e = 0; e < E; ++e) dense[e] = tile[q][e], as_stored<T>(dense[e]);
                    block(sum, dense, here, (tile_column[q / 2] >> (q % 2 * 16)) & 0xffffu);
                }
            }
            const W *value = near_value + slice.near * (32 * E) + lane;
            const u16 *column = near_column + slice.near * 32 + lane;
#pragma unroll(E == 1 ? 4 : 1)
            for (u32 q = 0; q < slice.nears; ++q) {
                W dense[E];
#pragma unroll
                for (int e = 0; e < E; ++e) dense[e] = value[(q * E + e) * 32];
                block(sum, dense, here, ONE_WORD ? 0u : column[q * 32]);
            }
            if (STREAM) {
                for (u32 f = 0; f < slice.fars;) {
#pragma unroll
                    for (int u = 0; u < AHEAD; ++u)
                        if (f + u < slice.fars) block(sum, ahead.value[u], here, ahead.column[u]);
                    f += AHEAD;
                    if (f < slice.fars) ask(s, slice, f, ahead);
                }
                ask(after, slices[after], 0, ahead);
            }
#pragma unroll
            for (int offset = ROWS; offset < 32; offset *= 2)
#pragma unroll
                for (int v = 0; v < NB; ++v)
#pragma unroll
                    for (int r = 0; r < BR; ++r) sum[v][r] = add(sum[v][r], across(sum[v][r], offset));
            if (mine) finish_rows(block_row, name, sum);
        }

        __device__ __forceinline__ void ask(u32 s, const Slice &slice, u32 f, Asked &ahead) const {
            const u64 policy = s % 16 < share ? kept : passing;
            const W *value = values + (u64(slice.far) + f) * (32 * E) + lane;
            const u16 *column = columns + (u64(slice.far) + f) * 32 + lane;
#pragma unroll
            for (int u = 0; u < AHEAD; ++u)
                if (f + u < slice.fars) {
#pragma unroll
                    for (int e = 0; e < E; ++e) ahead.value[u][e] = load_kept(value + (u * E + e) * 32, policy);
                    if (!ONE_WORD) ahead.column[u] = load_kept(column + u * 32, policy);
                }
        }

        __device__ __forceinline__ void finish_rows(u32 block_row, const u32 (&name)[NAMES],
                                                    const T (&sum)[NB][BR]) const {
            const u32 sub = PER == 1 ? 0 : block_row % PER * BR;
            const T *c = coefficient + 3 * step;
#pragma unroll
            for (int r = 0; r < BR; ++r) {
                if (LISTED && name[r % NAMES] == NONE) continue;
                const i64 row = LISTED ? i64(name[r % NAMES]) : i64(name[0]) * BC + sub + r;
#pragma unroll
                for (int v = 0; v < NB; ++v) {
                    const u32 at = (block_row * BR + r) * NB + v;
                    const i64 place = v * n + row;
                    T value = mad(c[0], sum[v][r], zero<T>());
                    if (own_term) value = mad(c[1], MODE == GLOBAL ? vector(step)[place] : cur[at], value);
                    if (older_term) {
                        T before = zero<T>();
                        if (MODE != GLOBAL) before = next[at];
                        else if (step > 0) before = vector(step - 1)[place];
                        value = mad(c[2], before, value);
                    }
                    if (MODE != GLOBAL) next[at] = value;
                    const u32 own_row = MODE == CLUSTER ? block_row - own_first : block_row;
                    if (MODE != GLOBAL && own_row >= own_rows) continue;
                    if (RINGED && given != NONE) {
                        const u32 there = v * pitch + block_row * BR + r;
                        publish(ring + (given + there), value);
                        if (DEEP && older != NONE) publish(ring + (older + there), cur[at]);
                    }
                    if (STAGED) y[place] = value;  // to stay in L2
                    else store_passing(y + place, value, passing);
                }
            }
        }
    };

    // The first slice that a warp takes, none of those before `begin`; begin <= dealt.
    static __device__ __forceinline__ u32 first_slice(u32 begin, u32 dealt, u32 warp) {
        u32 s = warp;
        if (MODE == CLUSTER && begin > warp) s += (begin - warp + WARPS - 1) / WARPS * WARPS;
        return s < dealt ? s : dealt + warp;
    }

    // A warp waits until all neighbours have done this many steps.
    static __device__ __forceinline__ void wait(const Part &part, const u32 *neighbour_of, const u32 *flags, u32 number,
                                                u32 lane) {
        for (u32 q = lane; q < part.neighbours; q += 32) {
            const u32 *flag = flags + neighbour_of[part.neighbour + q];
            while (int(flag_of(flag) - number) < 0) {}
        }
        __syncwarp();
    }

    // STAGED: what all parts count together, in a line of its own. Nobody comes again before all have come.
    static __device__ __forceinline__ u32 *counter_of(u32 *flags) { return flags + (gridDim.x + 31) / 32 * 32; }
    static __device__ __forceinline__ void wait_for_all(const u32 *counter, u32 number) {
        while (int(flag_of(counter) - gridDim.x * number) < 0) {}
    }

    // This part's chunk of the results of a step, for the start vectors at hand, into shared memory; then, in the order of
    // rows, to where they belong. All threads.
    static __device__ __forceinline__ void bring(T *here, const T *stage, const From *from, u32 chunk, u32 begin, u32 rows,
                                                 i64 n, u32 thread) {
#pragma unroll 1
        for (int v = 0; v < NB; ++v)
            for (u32 e = thread; e < rows; e += THREADS)
                copy_value(here + v * chunk + e, stage + v * n + (LISTED ? from[e] : begin + e), true);
    }
    static __device__ __forceinline__ void put(T *y, const T *here, const From *from, u32 chunk, u32 rows, i64 n,
                                               u64 policy, u32 thread) {
#pragma unroll 1
        for (int v = 0; v < NB; ++v)
            for (u32 e = thread; e < rows; e += THREADS)
                store_passing(y + v * n + e, here[v * chunk + (LISTED ? e : from[e / BC] * BC + e % BC)], policy);
    }

    // Where some entries of x of others are, from `first` on.
    static __device__ __forceinline__ void find(const Part &part, const Step &at, u32 first, u32 (&place)[BATCH]) {
#pragma unroll
        for (int u = 0; u < BATCH; ++u) {
            const u32 e = first + u * THREADS;
            place[u] = e < part.nodes * BC ? row_at(at.node_of, e) : NONE;
        }
    }

    // v_{j+1} of the nodes of others, and v_j too where they are computed along and the recurrence asks for it. Where
    // the first of them are has been found.
    static __device__ __forceinline__ void fetch(const Part &part, const Step &at, u32 thread, u32 (&place)[BATCH]) {
        const u32 begin = part.own * BC, end = part.nodes * BC;
        const bool both = part.computed > part.own && !is_zero(at.coefficient[3 * at.step + 5]);
        for (u32 first = begin + thread; first < end; first += BATCH * THREADS) {
            T value[BATCH][NB];
            if (first > begin + thread) find(part, at, first, place);
#pragma unroll
            for (int u = 0; u < BATCH; ++u)
                if (place[u] != NONE)
#pragma unroll
                    for (int v = 0; v < NB; ++v) value[u][v] = load_foreign(at.y + v * at.n + place[u]);
#pragma unroll
            for (int u = 0; u < BATCH; ++u)
                if (place[u] != NONE) {
                    const u32 e = first + u * THREADS;
#pragma unroll
                    for (int v = 0; v < NB; ++v) {
                        at.next[e * NB + v] = value[u][v];
                        if (both) at.cur[e * NB + v] = load_foreign(at.vector(at.step) + v * at.n + place[u]);
                    }
                }
        }
    }

    // The same of what others publish: `halo_of` says where.
    static __device__ __forceinline__ void find_published(const Part &part, const u32 *halo_of, u32 first,
                                                          u32 (&place)[BATCH]) {
#pragma unroll
        for (int u = 0; u < BATCH; ++u) {
            const u32 i = first + u * THREADS;
            place[u] = i < part.halos ? halo_of[part.halo + i] : NONE;
        }
    }
    static __device__ __forceinline__ void take_published(T *x, const T *from, u32 pitch, u32 first, u32 foreign,
                                                          const u32 (&place)[BATCH]) {
        T value[BATCH][NB];
        bool late = true;
        while (late) {
            late = false;
#pragma unroll
            for (int u = 0; u < BATCH; ++u)
                if (place[u] != NONE)
#pragma unroll
                    for (int v = 0; v < NB; ++v) value[u][v] = published(from + v * pitch + place[u]);
#pragma unroll
            for (int u = 0; u < BATCH; ++u)
                if (place[u] != NONE)
#pragma unroll
                    for (int v = 0; v < NB; ++v) late |= is_absent(value[u][v]);
        }
#pragma unroll
        for (int u = 0; u < BATCH; ++u)
            if (place[u] != NONE && first + u * THREADS < foreign)
#pragma unroll
                for (int v = 0; v < NB; ++v) x[(first + u * THREADS) * NB + v] = value[u][v];
    }
    static __device__ __forceinline__ void fetch_published(const Part &part, const Step &at, const u32 *halo_of,
                                                           const T *from, const T *older, u32 thread,
                                                           u32 (&place)[BATCH]) {
        const u32 own = part.own * BC, foreign = part.nodes * BC - own;
        const bool both = DEEP && part.computed > part.own && older != nullptr;
        for (u32 first = thread; first < part.halos; first += BATCH * THREADS) {
            if (first > thread) find_published(part, halo_of, first, place);
            take_published(at.next + own * NB, from, at.pitch, first, foreign, place);
            if (both) take_published(at.cur + own * NB, older, at.pitch, first, foreign, place);
        }
    }

    // v_{j+1} of border nodes, into the shared memory of the blocks of the cluster that need them.
    static __device__ __forceinline__ void give(const Part &part, const Step &at, const u32 *neighbour_of, u32 barrier,
                                                u32 thread) {
        const u64 *sends = reinterpret_cast<const u64 *>(neighbour_of) + part.neighbour / 2;
        const u32 place = shared_address(at.next);
        for (u32 i = thread; i < part.neighbours / 2 * BC; i += THREADS) {
            const u64 send = __ldg(sends + i / BC);
            const u32 from = u32(send) * BC + i % BC, to = u32(send >> 32 & 0xffffu) * BC + i % BC;
            const u32 rank = u32(send >> 48), there = address_in(place, rank) + to * u32(NB * sizeof(T));
#pragma unroll
            for (int v = 0; v < NB; ++v)
                give_one(there + v * u32(sizeof(T)), at.next[from * NB + v], address_in(barrier, rank));
        }
    }

    static __device__ __forceinline__ void run(const Part *parts, const Slice *slice_of, const u32 *node_of,
                                               const u32 *neighbour_of, const u32 *active, const W *values,
                                               const u16 *columns, const T *table, u32 tabled, const T *coefficients,
                                               u32 *flags, const T *x, T *out, u32 k, u32 vectors, u32 from_vector,
                                               u32 to_vector, i64 n, u32 from_step, u32 steps, u32 depth, u32 share,
                                               T *stage, const u32 *place_of, const void *from, u32 chunk,
                                               const u32 *halo_of, T *ring, u32 ringed, u32 pitch) {
        AKX_DYNAMIC_SHARED(memory);
        const u32 me = blockIdx.x, thread = threadIdx.x, lane = thread & 31, warp = thread / 32;
        __shared__ Part part;
        __shared__ u64 barriers[MODE == CLUSTER ? 2 : 1];  // of even and of odd exchanges
        u32 exchanges = 0;
        if (thread == 0) {
            part = parts[me];
            if (MODE == CLUSTER)
                for (u64 &one : barriers) make_barrier(shared_address(&one)), barriers_made();
        }
        __syncthreads();
        if (MODE == CLUSTER) cluster_arrive();
        const u64 kept = keep_policy(), passing = pass_policy(), once = !STREAM && share > 0 ? kept : passing;
        node_of += u64(part.node) * WORDS;
        // Where results of nodes are, those of others too.
        const u32 *target_of = STAGED ? place_of + u64(part.node) * WORDS : node_of;

        // Shared memory: coefficients, active slices (depth <= k of them), the table, a chunk of results and where they are
        // in it (STAGED), slices, values, columns, x; in clusters x comes before the slices, at the same place in all blocks.
        const u32 span = (MODE == CLUSTER ? part.span : part.nodes) * (BC * NB);
        T *coefficient = reinterpret_cast<T *>(memory);
        T *table_here = reinterpret_cast<T *>(memory + (k * (3 * sizeof(T) + 4) + 15) / 16 * 16);
        T *chunk_here = table_here + tabled;
        From *from_here = reinterpret_cast<From *>(chunk_here + (STAGED ? NB * chunk : 0u));
        unsigned char *after = reinterpret_cast<unsigned char *>(from_here + (STAGED ? (chunk / TOGETHER + 7) / 8 * 8 : 0u));
        Slice *slices = reinterpret_cast<Slice *>(MODE == CLUSTER ? after + 2 * span * sizeof(T) : after);
        u32 *lasts = reinterpret_cast<u32 *>(coefficient + 3 * k);
        W *near_value = reinterpret_cast<W *>(slices + part.slices);
        u16 *near_column = reinterpret_cast<u16 *>(near_value + size_t(part.nears) * (32 * E));
        T *xs = MODE == CLUSTER ? reinterpret_cast<T *>(after)
                                : reinterpret_cast<T *>(near_column + size_t(part.nears) * (ONE_WORD ? 0 : 32));

        {
            const char *source = reinterpret_cast<const char *>(values + u64(part.near) * (32 * E));
            char *target = reinterpret_cast<char *>(near_value);
            for (u32 i = thread; i < part.nears * (2 * E * u32(sizeof(W))); i += THREADS)
                copy16(target + 16 * i, source + 16 * u64(i), once);
            if constexpr (!ONE_WORD) {
                source = reinterpret_cast<const char *>(columns + u64(part.near) * 32);
                target = reinterpret_cast<char *>(near_column);
                for (u32 i = thread; i < part.nears * 4; i += THREADS)
                    copy16(target + 16 * i, source + 16 * u64(i), once);
            }
            source = reinterpret_cast<const char *>(slice_of + part.slice);
            target = reinterpret_cast<char *>(slices);
            for (u32 i = thread; i < part.slices * u32(sizeof(Slice) / 16); i += THREADS)
                copy16(target + 16 * i, source + 16 * u64(i), once);
        }
        for (u32 i = thread; i < 3 * k; i += THREADS) coefficient[i] = coefficients[i];
        for (u32 i = thread; i < tabled; i += THREADS) table_here[i] = table[i];
        for (u32 i = thread; i < depth; i += THREADS)
            lasts[i] = MODE == GLOBAL || (MODE == SHARED && depth == 1) ? part.slices : active[me * depth + i];
        W held[HS > 0 ? HS : 1][HW > 0 ? HW : 1][E];
        u32 held_column[HS > 0 ? HS : 1][HW > 0 ? (HW + 1) / 2 : 1];
        u32 held_name[HS > 0 ? HS : 1][NAMES] = {};
#pragma unroll
        for (int t = 0; t < HS; ++t) {
            const u32 s = warp + t * WARPS, row = s * ROWS + lane % ROWS;
            if (KNOWN && row < part.computed * PER) names_at(target_of, row, held_name[t]);
            if (s < part.slices) {
#pragma unroll
                for (int q = 0; q < HW; ++q) {
                    const u64 slot = u64(part.held) + s * HW + q;
#pragma unroll
                    for (int e = 0; e < E; ++e) held[t][q][e] = load_kept(values + (slot * E + e) * 32 + lane, once);
                    if (ONE_WORD) continue;
                    const u32 column = load_kept(columns + slot * 32 + lane, once);
                    if (q % 2 == 0) held_column[t][q / 2] = column;
                    else held_column[t][q / 2] |= column << 16;
                }
            }
        }
        // All parts have done the same number of steps so far, or published as often.
        u32 count = MODE == ALONE || MODE == CLUSTER ? 0 : flag_of(flags + me);
        u32 *counter = counter_of(flags), slab_first = 0;  // the stage of the first step
        const i64 chunk_begin = i64(me) * chunk;
        const u32 chunk_rows = u32(max(i64(0), min(i64(chunk), n - chunk_begin)));
        if (STAGED)
            for (u32 i = thread; i < chunk_rows / TOGETHER; i += THREADS)
                from_here[i] = static_cast<const From *>(from)[chunk_begin / TOGETHER + i];
        // Where what is published begins, of all parts; v_j, where ghosts need it, comes behind v_{j+1}. What was published
        // last has been read: it is taken back.
        constexpr u32 HALVES = DEEP ? 2 : 1;
        auto turn_of = [&](u32 number) { return number % TURNS * HALVES * ringed * pitch; };
        auto take_all_back = [&](u32 number, u32 many) {
            T *own = ring + (turn_of(number) + part.given);
            for (u32 half = 0; half < HALVES; ++half)
                for (u32 v = 0; v < many; ++v)
                    for (u32 i = thread; i < part.givens; i += THREADS) take_back(own + (half * ringed + v) * pitch + i);
        };
        bool has_read = false, to_fence = true;
        if (RINGED) take_all_back(count, ringed);
        Asked ahead;
        const i64 step_stride = i64(vectors) * n;

        for (u32 first = from_vector; first < to_vector; first += NB) {
            // out[0], in the order of rows: part by part, rows that lie apart would take longer than what a step computes.
            if (from_step == 0)
                for (i64 i = i64(me) * THREADS + thread; i < n; i += i64(gridDim.x) * THREADS)
#pragma unroll
                    for (int v = 0; v < NB; ++v) out[i64(first + v) * n + i] = x[i64(first + v) * n + i];
            // v_{from_step} (and v_{from_step - 1}) of own, computed and fetched nodes.
            const T *start = from_step == 0 ? x : out + from_step * step_stride;
            const T *older = from_step == 0 ? nullptr : out + (from_step - 1) * step_stride;
            if (MODE != GLOBAL) {
                for (u32 begin = thread; begin < part.nodes * BC; begin += FIRSTS * THREADS) {
                    u32 place[FIRSTS];
                    T value[FIRSTS][NB], before[FIRSTS][NB];
#pragma unroll
                    for (int u = 0; u < FIRSTS; ++u) {
                        const u32 i = begin + u * THREADS;
                        place[u] = i < part.nodes * BC ? row_at(node_of, i) : NONE;
                    }
#pragma unroll
                    for (int u = 0; u < FIRSTS; ++u)
#pragma unroll
                        for (int v = 0; v < NB; ++v) {
                            const bool there = place[u] != NONE, known = older != nullptr && there;
                            const bool computed = begin + u * THREADS < part.computed * BC;
                            value[u][v] = there ? start[i64(first + v) * n + place[u]] : zero<T>();
                            before[u][v] = known && computed ? older[i64(first + v) * n + place[u]] : zero<T>();
                        }
#pragma unroll
                    for (int u = 0; u < FIRSTS; ++u) {
                        const u32 i = begin + u * THREADS;
                        if (i < part.nodes * BC)
#pragma unroll
                            for (int v = 0; v < NB; ++v) {
                                xs[i * NB + v] = value[u][v];
                                // What others of a cluster give may be here already.
                                if (i < part.computed * BC || (LISTED && place[u] == NONE))
                                    xs[span + i * NB + v] = before[u][v];
                            }
                    }
                }
            }
            copies_done();
            if (MODE == CLUSTER) cluster_wait();  // the others are there, and through with what was before
            __syncthreads();

            u32 turn = 0;
            // A stage is written again four steps later, when all have brought from it.
            auto slab = [&](u32 j) { return stage + i64((slab_first + j) % SLABS) * NB * n; };
            auto bring_results = [&](u32 j) {
                bring(chunk_here, slab(j), from_here, chunk, u32(chunk_begin), chunk_rows, n, thread);
            };
            auto put_results = [&](u32 j) {
                T *there = out + (i64(j + 1) * vectors + first) * n + chunk_begin;
                put(there, chunk_here, from_here, chunk, chunk_rows, n, passing, thread);
            };
            for (u32 j = 0; j < steps; ++j) {
                const u32 step = from_step + j;
                const u32 odd = j & 1;
                Step at;
                at.slices = slices;
                at.values = values, at.columns = columns;
                at.near_value = near_value, at.near_column = near_column;
                at.node_of = target_of;
                at.x = x, at.out = out, at.n = n, at.coefficient = coefficient;
                at.step = step, at.vectors = vectors, at.first = first;
                at.cur = xs + (odd ? span : 0u);
                at.next = xs + (odd ? 0u : span);
                at.y = STAGED ? slab(j) : at.result(step + 1);
                at.own_term = !is_zero(coefficient[3 * step + 1]);
                at.older_term = !is_zero(coefficient[3 * step + 2]);
                at.from = {MODE == GLOBAL ? at.vector(step) : at.cur, table_here, n};
                at.lane = lane, at.rows = part.computed * PER, at.own_rows = part.own * PER;
                if (MODE == CLUSTER) at.own_first = part.before * PER;
                at.kept = kept, at.passing = passing;
                at.share = share;
                const u32 number = RINGED ? count + 1 : count + j + 1;
                if (RINGED) {
                    if (to_fence && warp == WARPS - 1) fence();
                    if (has_read) take_all_back(count - 1, NB);
                    to_fence = has_read, has_read = false;
                    at.ring = ring, at.pitch = pitch;
                }
                const bool needs_older = RINGED && DEEP && j + 1 < steps && !is_zero(coefficient[3 * step + 5]);
                const u32 barrier = MODE == CLUSTER ? shared_address(barriers + (exchanges & 1)) : 0u;
                // Between two exchanges there is one phase, on own nodes and ghosts; before one the border comes first.
                const bool exchange =
                    MODE == GLOBAL || MODE == CLUSTER || (MODE == SHARED && (turn == depth - 1 || j + 1 == steps));
                const u32 begin = MODE == CLUSTER ? lasts[turn] >> 16 : 0u;
                const u32 last = MODE == CLUSTER ? lasts[turn] & 0xffffu : lasts[turn];
                const u32 border = exchange ? part.border : 0u;
                // Slices of this warp: every WARPS-th one below `dealt`, and every WARPS-th one from there on.
                const u32 dealt = max(u32(HS) * WARPS, border), start_slice = first_slice(begin, dealt, warp);
                auto following = [&](u32 s) {
                    const u32 next = s < dealt && s + WARPS >= dealt ? dealt + warp : s + WARPS;
                    return next < last ? next : start_slice;
                };
                if (STAGED && j > 1) bring_results(j - 2);
                if (STREAM && start_slice < last && (j == 0 || (MODE != GLOBAL && depth > 1)))
                    at.ask(start_slice, slices[start_slice], 0, ahead);
#pragma unroll 1
                for (int inner = exchange ? 0 : 1; inner < 2; ++inner) {
                    const u32 low = inner ? border : begin, high = inner ? last : border;
                    if (RINGED) {
                        const bool given = !inner && j + 1 < steps;
                        at.given = given ? turn_of(number) + part.given : NONE;
                        if (DEEP) at.older = given && needs_older ? at.given + ringed * pitch : NONE;
                    }
#pragma unroll
                    for (int t = 0; t < HS; ++t) {
                        const u32 s = warp + t * WARPS;
                        if (s >= low && s < high)
                            at.template compute<true>(s, following(s), ahead, held_name[t], held[t], held_column[t]);
                    }
                    for (u32 s = inner ? dealt + warp : max(start_slice, warp + HS * WARPS); s < high; s += WARPS)
                        at.template compute<false>(s, following(s), ahead, held_name[0], held[0], held_column[0]);
                    if (!inner && !RINGED) {
                        __syncthreads();
                        if (MODE == CLUSTER) {
                            if (j + 1 < steps) {
                                if (thread == 0) expect_bytes(barrier, part.taken * u32(BC * NB * sizeof(T)));
                                give(part, at, neighbour_of, barrier, thread);
                            }
                        } else if (STAGED) {
                            if (thread == 0 && j + 1 < steps) arrive(counter);
                        } else if (thread == 0) raise(flags + me, number);
                    }
                }
                if (MODE == CLUSTER) {
                    if (j + 1 < steps) {
                        if (warp == 0) wait_for_bytes(barrier, exchanges >> 1 & 1);
                        ++exchanges;
                    }
                } else if (exchange && j + 1 < steps) {
                    u32 place[BATCH];
                    if (RINGED) {
                        find_published(part, halo_of, thread, place);
                        // Of ghosts too, which some may still compute with, or compute.
                        if (DEEP) __syncthreads();
                        const T *given = ring + turn_of(number), *older = needs_older ? given + ringed * pitch : nullptr;
                        fetch_published(part, at, halo_of, given, older, thread, place);
                        ++count, has_read = true;
                    } else {
                        if (MODE == SHARED) find(part, at, part.own * BC + thread, place);
                        if (STAGED) {
                            // Who has published the border of this step has ended the one before.
                            if (thread == 0) wait_for_all(counter, number);
                            copies_done();
                        } else if (warp == 0) {
                            wait(part, neighbour_of, flags, number, lane);
                        }
                        __syncthreads();
                        if (MODE == SHARED) fetch(part, at, thread, place);
                        if (STAGED && j > 1) put_results(j - 2);
                    }
                }
                if (MODE != GLOBAL) __syncthreads();
                turn = turn + 1 == depth ? 0 : turn + 1;
            }
            if (!RINGED) count += steps;
            if (RINGED && thread == 0) flags[me] = count % TURNS;  // not beyond what 32 bits count
            if (STAGED) {
                if (thread == 0) arrive(counter), flags[me] = count;
                if (steps > 2) {  // of the third from last they have been asked for
                    copies_done();
                    __syncthreads();
                    put_results(steps - 3);
                }
                if (thread == 0) wait_for_all(counter, count);
                __syncthreads();
                for (u32 j = steps > 2 ? steps - 2 : 0; j < steps; ++j) {
                    bring_results(j);
                    copies_done();
                    __syncthreads();
                    put_results(j);
                    __syncthreads();
                }
                slab_first += steps;
            }
            if (MODE == CLUSTER && first + NB < to_vector) cluster_arrive();
        }
    }
};
