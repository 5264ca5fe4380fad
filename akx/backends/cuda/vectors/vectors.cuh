// Dense work of solvers on rows of vectors: W (m, n), contiguous, row i at W + i n. One pass over memory each.
//
// Sums are kept in double precision (complex: pairs), by thread in the order of its columns, then over lanes, warps and
// blocks in a fixed order: the same launch gives the same bits. The last block to end, told by an integer counter, adds
// up the sums of the blocks: nothing waits, and no number is added atomically.
//
//   products   sums of conj(w_i) w_j by tiles of 8 x 8 pairs on the tensor cores: a warp has all tiles and columns of its
//              own, which come straight from memory to where they are multiplied, once for all tiles
//   mix        Q combinations of the rows in one pass; x += the first, the others replace rows, which may be W's own
//   dot        <a, b>
//   descend    r -= alpha w, <r, r>         turn      x += alpha p, then p = u + beta p
//   remain     w = b - w, <w, w>
#pragma once
#include "include/common.cuh"


template <class T> struct Wide { typedef double type; };
template <> struct Wide<cfloat> { typedef cdouble type; };
template <> struct Wide<cdouble> { typedef cdouble type; };

// conj(a) b + c, in double precision.
__device__ __forceinline__ double gather(float a, float b, double c) { return fma(double(a), double(b), c); }
__device__ __forceinline__ double gather(double a, double b, double c) { return fma(a, b, c); }
template <class T> __device__ __forceinline__ cdouble gather(T a, T b, cdouble c) {
    return {fma(double(a.im), double(b.im), fma(double(a.re), double(b.re), c.re)),
            fma(-double(a.im), double(b.re), fma(double(a.re), double(b.im), c.im))};
}

__device__ __forceinline__ void narrow(double a, float &to) { to = float(a); }
__device__ __forceinline__ void narrow(double a, double &to) { to = a; }
__device__ __forceinline__ void narrow(cdouble a, cfloat &to) { to = {float(a.re), float(a.im)}; }
__device__ __forceinline__ void narrow(cdouble a, cdouble &to) { to = a; }
// A real factor.
__device__ __forceinline__ void narrow(double a, cfloat &to) { to = {float(a), 0.0f}; }
__device__ __forceinline__ void narrow(double a, cdouble &to) { to = {a, 0.0}; }

__device__ __forceinline__ double real_of(double a) { return a; }
__device__ __forceinline__ double real_of(cdouble a) { return a.re; }
__device__ __forceinline__ double modulus(double a) { return fabs(a); }
__device__ __forceinline__ double modulus(cdouble a) { return hypot(a.re, a.im); }
__device__ __forceinline__ double conjugate(double a) { return a; }
__device__ __forceinline__ cdouble conjugate(cdouble a) { return {a.re, -a.im}; }
__device__ __forceinline__ double minus(double a, double b) { return a - b; }
__device__ __forceinline__ float minus(float a, float b) { return a - b; }
template <class T> __device__ __forceinline__ T minus(T a, T b) { return {a.re - b.re, a.im - b.im}; }

// What other blocks of the same launch have written: not by way of the first-level cache.
__device__ __forceinline__ double load_shared_by_all(const double *p) { return __ldcg(p); }
__device__ __forceinline__ cdouble load_shared_by_all(const cdouble *p) {
    const double2 v = __ldcg(reinterpret_cast<const double2 *>(p));
    return {v.x, v.y};
}

// The sum over a warp, in every lane.
template <class S> __device__ __forceinline__ S over_warp(S a) {
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) a = add(a, across(a, offset));
    return a;
}

// The sum over a block, in thread 0. All threads must come; `room` has a place per warp and is free again afterwards.
template <class S> __device__ __forceinline__ S over_block(S a, S *room) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    a = over_warp(a);
    if (lane == 0) room[warp] = a;
    __syncthreads();
    if (warp == 0) a = over_warp(lane < warps ? room[lane] : zero<S>());
    __syncthreads();
    return a;
}

// Whether this block is the last of the launch to come here; what the others wrote before is visible to it then.
__device__ __forceinline__ bool is_last(u32 *counter) {
    __shared__ u32 place;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        place = atomicAdd(counter, 1u);
        if (place == gridDim.x - 1) *counter = 0; // for the next launch
    }
    __syncthreads();
    __threadfence();
    return place == gridDim.x - 1;
}

// The sum of every thread of the launch, in thread 0 of the last block, which is told so.
template <class S> __device__ __forceinline__ bool over_grid(S a, S *partial, u32 *counter, S &total) {
    __shared__ S room[32];
    a = over_block(a, room);
    if (threadIdx.x == 0) partial[blockIdx.x] = a;
    if (!is_last(counter)) return false;
    S sum = zero<S>();
    for (u32 i = threadIdx.x; i < gridDim.x; i += blockDim.x) sum = add(sum, load_shared_by_all(partial + i));
    total = over_block(sum, room);
    return threadIdx.x == 0;
}

// ------------------------------------------------------------------------------------------------------- products

// Which pairs there are: rows 0 .. m-1 with rows m-s .. m-1, or (triangular, s = m) every two of m rows once.
struct Pairs {
    u32 m, s;
    bool triangular;

    __device__ __forceinline__ u32 count() const { return triangular ? m * (m + 1) / 2 : m * s; }
    // Where the sum for rows i and m - s + j is; for a triangular one i <= j.
    __device__ __forceinline__ u32 place(u32 i, u32 j) const { return triangular ? j * (j + 1) / 2 + i : i * s + j; }
    // <w_i, w_{m-s+j}>, exactly Hermitian where it is triangular.
    template <class S> __device__ __forceinline__ S of(const S *sums, u32 i, u32 j) const {
        if (!triangular) return sums[place(i, j)];
        if (i == j) return wide_real<S>(real_of(sums[place(i, j)]));
        return i < j ? sums[place(i, j)] : conjugate(sums[place(j, i)]);
    }
    template <class S> static __device__ __forceinline__ S wide_real(double a) {
        S found;
        narrow(a, found);
        return found;
    }
};

#ifndef AKX_ON_HOST
// By the tensor cores, in double precision, a warp's D (8, 8) += A (8, 4) B (4, 8). Lane 4 r + q has A[r][q], B[q][r],
// and D[r][2 q], D[r][2 q + 1]: what is A for one tile is B for another, as it is.
__device__ __forceinline__ void multiply_add(double (&d)[2], double a, double b) {
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(d[0]), "+d"(d[1])
        : "d"(a), "d"(b));
}
#endif

// A lane's share of a tile of 8 x 8 sums conj(x) y.
template <class S> struct Tile;
template <> struct Tile<double> {
    static constexpr int WORDS = 2;
    double sum[2];
    __device__ __forceinline__ void clear() { sum[0] = sum[1] = 0.0; }
    template <class T> __device__ __forceinline__ void gather(T x, T y) { multiply_add(sum, double(x), double(y)); }
    __device__ __forceinline__ double at(int i) const { return sum[i]; }
    __device__ __forceinline__ double &word(int i) { return sum[i]; }
};
template <> struct Tile<cdouble> {
    static constexpr int WORDS = 4;
    double re[2], im[2];
    __device__ __forceinline__ void clear() { re[0] = re[1] = im[0] = im[1] = 0.0; }
    template <class T> __device__ __forceinline__ void gather(T x, T y) {
        multiply_add(re, double(x.re), double(y.re));
        multiply_add(im, double(x.re), double(y.im));
        multiply_add(re, double(x.im), double(y.im));
        multiply_add(im, -double(x.im), double(y.re));
    }
    __device__ __forceinline__ cdouble at(int i) const { return {re[i], im[i]}; }
    __device__ __forceinline__ double &word(int i) { return i < 2 ? re[i] : im[i - 2]; }
};

// Rows come in groups of eight. DOWN groups of rows meet ACROSS groups of columns, which are the first of them: where not
// all pairs are wanted, the last s rows come before the others. Column groups FROM .. TO-1 of a round have as many tiles
// as registers allow; the vectors are gone through once for each round.
template <class S, int DOWN, int ACROSS, bool TRIANGULAR> struct Rounds {
    static constexpr int MOST = 32 / Tile<S>::WORDS;
    static __device__ constexpr int before(int column) {
        return TRIANGULAR ? column * (column + 1) / 2 : column * DOWN;
    }
    static __device__ constexpr int end(int from) {
        int to = from + 1;
        while (to < ACROSS && before(to + 1) - before(from) <= MOST) ++to;
        return to;
    }
};

// What is read at once: WIDE values of a row.
template <class T, int WIDE> struct Together { T at[WIDE]; };
template <int WIDE, class T> __device__ __forceinline__ Together<T, WIDE> load_together(const T *p) {
    if constexpr (WIDE == 1) {
        return {load(p)};
    } else {
        const float2 v = __ldg(reinterpret_cast<const float2 *>(p));
        return {v.x, v.y};
    }
}
// Whether values of four bytes can be read two at a time in all rows of n.
template <class T> __device__ __forceinline__ bool is_even(u64 n, const T *p) {
    return (n | reinterpret_cast<u64>(p) / sizeof(T)) % 2 == 0;
}

// The tiles of a round get the columns that are this warp's.
template <class Plan, int WIDE, int TURNS, int DOWN, bool TRIANGULAR, int FROM, int TO, class T, int GROUPS, class S,
          int TILES>
__device__ __forceinline__ void add_columns(u64 n, const T *const (&from)[GROUPS], Tile<S> (&tile)[TILES]) {
    const u32 q = threadIdx.x % 4, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    constexpr int COLUMNS = 4 * WIDE;
    const u64 step = u64(gridDim.x) * warps * (COLUMNS * TURNS);
    for (u64 t = (u64(blockIdx.x) * warps + warp) * (COLUMNS * TURNS); t < n; t += step) {
        Together<T, WIDE> x[GROUPS][TURNS];
#pragma unroll
        for (int g = 0; g < GROUPS; ++g)
#pragma unroll
            for (int u = 0; u < TURNS; ++u) {
                const u64 column = t + COLUMNS * u + WIDE * q;
                if (column < n)
                    x[g][u] = load_together<WIDE>(from[g] + column);
                else
#pragma unroll
                    for (int w = 0; w < WIDE; ++w) x[g][u].at[w] = zero<T>();
            }
#pragma unroll
        for (int u = 0; u < TURNS; ++u)
#pragma unroll
            for (int w = 0; w < WIDE; ++w)
#pragma unroll
                for (int j = FROM; j < TO; ++j)
#pragma unroll
                    for (int i = 0; i < (TRIANGULAR ? j + 1 : DOWN); ++i)
                        tile[Plan::before(j) - Plan::before(FROM) + i].gather(x[i][u].at[w], x[j][u].at[w]);
    }
}

// One round, for the columns that are this warp's; the sums of the block are in its first warp, which puts them where
// they belong. `room` (shared memory): 32 x WORDS x tiles numbers for half of the warps, rounded up.
template <class T, int DOWN, int ACROSS, bool TRIANGULAR, int FROM>
__device__ __forceinline__ void rounds_from(u64 n, const T *W, Pairs pairs, double *room,
                                            typename Wide<T>::type *partial) {
    typedef typename Wide<T>::type S;
    typedef Rounds<S, DOWN, ACROSS, TRIANGULAR> Plan;
    constexpr int TO = Plan::end(FROM), TILES = Plan::before(TO) - Plan::before(FROM), GROUPS = TRIANGULAR ? TO : DOWN;
    constexpr int WORDS = TILES * Tile<S>::WORDS;
    constexpr int TURNS = (GROUPS <= 2 ? 8 : GROUPS <= 5 ? 4 : 2) / (Tile<S>::WORDS / 2); // loads under way at once
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, r = lane / 4, q = lane % 4;
    const u32 m = pairs.m, s = pairs.s;
    const T *from[GROUPS];
#pragma unroll
    for (int g = 0; g < GROUPS; ++g) {
        const u32 p = min(u32(8 * g) + r, m - 1); // rows beyond the last are the last one again
        from[g] = W + u64(p < s ? m - s + p : p - s) * n;
    }
    Tile<S> tile[TILES];
#pragma unroll
    for (int i = 0; i < TILES; ++i) tile[i].clear();
    const bool in_pairs = sizeof(T) == 4 && is_even(n, W);
    if (in_pairs)
        add_columns<Plan, sizeof(T) == 4 ? 2 : 1, TURNS, DOWN, TRIANGULAR, FROM, TO>(n, from, tile);
    else
        add_columns<Plan, 1, TURNS, DOWN, TRIANGULAR, FROM, TO>(n, from, tile);
    for (u32 left = warps; left > 1;) { // the upper half to the lower one
        const u32 half = (left + 1) / 2;
        if (warp >= half && warp < left)
#pragma unroll
            for (int i = 0; i < WORDS; ++i)
                room[((warp - half) * WORDS + i) * 32 + lane] = tile[i / Tile<S>::WORDS].word(i % Tile<S>::WORDS);
        __syncthreads();
        if (warp < left - half)
#pragma unroll
            for (int i = 0; i < WORDS; ++i)
                tile[i / Tile<S>::WORDS].word(i % Tile<S>::WORDS) += room[(warp * WORDS + i) * 32 + lane];
        __syncthreads();
        left = half;
    }
    if (warp == 0)
#pragma unroll
        for (int j = FROM; j < TO; ++j)
#pragma unroll
            for (int i = 0; i < (TRIANGULAR ? j + 1 : DOWN); ++i)
#pragma unroll
                for (int c = 0; c < 2; ++c) {
                    const u32 p = 8 * i + r, column = 8 * j + 2 * q + c;
                    if (p >= m || column >= s || (TRIANGULAR && p > column)) continue;
                    const u32 row = p < s ? m - s + p : p - s;
                    partial[u64(pairs.place(row, column)) * gridDim.x + blockIdx.x] =
                        tile[Plan::before(j) - Plan::before(FROM) + i].at(c);
                }
    if constexpr (TO < ACROSS) rounds_from<T, DOWN, ACROSS, TRIANGULAR, TO>(n, W, pairs, room, partial);
}

// Blocks whose sums a lane of the last one reads at a time: all of them, where there are 160 or less.
#define AKX_PARTIALS 5

// The sums of all pairs in `sums` (shared memory), in the last block of the launch only, which is told so. DOWN and
// ACROSS: m and s over 8, rounded up. `sums` may be where `room` is. partial: (pairs, blocks).
template <class T, int DOWN, int ACROSS, bool TRIANGULAR>
__device__ __forceinline__ bool products(u64 n, const T *W, Pairs pairs, typename Wide<T>::type *sums, double *room,
                                         typename Wide<T>::type *partial, u32 *counter) {
    typedef typename Wide<T>::type S;
    rounds_from<T, DOWN, ACROSS, TRIANGULAR, 0>(n, W, pairs, room, partial);
    if (!is_last(counter)) return false;
    // Some sums of a warp at a time, and all that its lanes add to them under way at once: what one takes is the way to
    // the second-level cache and back.
    constexpr u32 AT_ONCE = 12 / Tile<S>::WORDS;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, count = pairs.count();
    for (u32 first = warp * AT_ONCE; first < count; first += warps * AT_ONCE) {
        S total[AT_ONCE];
#pragma unroll
        for (u32 u = 0; u < AT_ONCE; ++u) total[u] = zero<S>();
        for (u32 base = lane; base < gridDim.x; base += 32 * AKX_PARTIALS) {
            S part[AKX_PARTIALS][AT_ONCE];
#pragma unroll
            for (int v = 0; v < AKX_PARTIALS; ++v)
#pragma unroll
                for (u32 u = 0; u < AT_ONCE; ++u) {
                    const u32 i = base + 32 * v;
                    part[v][u] = i < gridDim.x && first + u < count
                                     ? load_shared_by_all(partial + u64(first + u) * gridDim.x + i)
                                     : zero<S>();
                }
#pragma unroll
            for (int v = 0; v < AKX_PARTIALS; ++v)
#pragma unroll
                for (u32 u = 0; u < AT_ONCE; ++u) total[u] = add(total[u], part[v][u]);
        }
#pragma unroll
        for (u32 u = 0; u < AT_ONCE; ++u) {
            total[u] = over_warp(total[u]);
            if (lane == 0 && first + u < count) sums[first + u] = total[u];
        }
    }
    __syncthreads();
    return true;
}

// found (m, s) of all pairs.
template <class T, int DOWN, int ACROSS, bool TRIANGULAR>
__device__ __forceinline__ void all_products(u64 n, const T *W, Pairs pairs, typename Wide<T>::type *partial,
                                             u32 *counter, typename Wide<T>::type *found) {
    typedef typename Wide<T>::type S;
    AKX_DYNAMIC_SHARED(room);
    S *sums = reinterpret_cast<S *>(room);
    double *half = reinterpret_cast<double *>(room);
    if (!products<T, DOWN, ACROSS, TRIANGULAR>(n, W, pairs, sums, half, partial, counter)) return;
    for (u32 e = threadIdx.x; e < pairs.m * pairs.s; e += blockDim.x)
        found[e] = pairs.of<S>(sums, e / pairs.s, e % pairs.s);
}

// ------------------------------------------------------------------------------------------------------------ mix

template <int WIDE, class T> __device__ __forceinline__ Together<T, WIDE> read_together(const T *p) {
    if constexpr (WIDE == 1) {
        return {*p};
    } else {
        const float2 v = *reinterpret_cast<const float2 *>(p);
        return {v.x, v.y};
    }
}
template <int WIDE, class T> __device__ __forceinline__ void write_together(T *p, Together<T, WIDE> v) {
    if constexpr (WIDE == 1)
        *p = v.at[0];
    else
        *reinterpret_cast<float2 *>(p) = make_float2(v.at[0], v.at[1]);
}

template <int WIDE, class T, int Q>
__device__ __forceinline__ void mix_columns(u64 n, const T *W, u32 m, const T *factor, T *x, T *y, u32 added) {
    for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < n / WIDE; i += u64(gridDim.x) * blockDim.x) {
        const u64 t = WIDE * i;
        Together<T, WIDE> sum[Q];
#pragma unroll
        for (int q = 0; q < Q; ++q)
#pragma unroll
            for (int w = 0; w < WIDE; ++w) sum[q].at[w] = zero<T>();
#pragma unroll 8
        for (u32 j = 0; j < m; ++j) {
            const Together<T, WIDE> own = read_together<WIDE>(W + u64(j) * n + t);
#pragma unroll
            for (int q = 0; q < Q; ++q)
#pragma unroll
                for (int w = 0; w < WIDE; ++w) sum[q].at[w] = mad(factor[j * Q + q], own.at[w], sum[q].at[w]);
        }
        int q0 = 0;
        if (x != nullptr) {
            Together<T, WIDE> moved = read_together<WIDE>(x + t);
#pragma unroll
            for (int w = 0; w < WIDE; ++w) moved.at[w] = add(moved.at[w], sum[0].at[w]);
            write_together<WIDE>(x + t, moved);
            q0 = 1;
        }
#pragma unroll
        for (int q = 0; q < Q; ++q)
            if (q >= q0) {
                T *to = y + u64(q - q0) * n + t;
                if (added) {
                    const Together<T, WIDE> before = read_together<WIDE>(to);
#pragma unroll
                    for (int w = 0; w < WIDE; ++w) sum[q].at[w] = add(before.at[w], sum[q].at[w]);
                }
                write_together<WIDE>(to, sum[q]);
            }
    }
}

// With F (Q, m): x += F_0 W where x is given, and the next rows of y become the next F_q W, or `added` has them added.
// Nothing is done where `active` is given and zero. Shared memory: Q values for m rows rounded up to 8, since factors
// of rows beyond the last are read ahead, though not used.
template <class T, int Q>
__device__ __forceinline__ void mix(u64 n, const T *W, u32 m, const typename Wide<T>::type *F, T *x, T *y, u32 added,
                                    const double *active) {
    AKX_DYNAMIC_SHARED(room);
    T *factor = reinterpret_cast<T *>(room);
    if (active != nullptr && *active == 0.0) return;
    for (u32 e = threadIdx.x; e < (m + 7) / 8 * 8 * Q; e += blockDim.x) {
        if (e < m * Q)
            narrow(F[(e % Q) * m + e / Q], factor[e]);
        else
            factor[e] = zero<T>();
    }
    __syncthreads();
    if (sizeof(T) == 4 && Q <= 4 && is_even(n, W) && is_even(n, x) && is_even(n, y))
        mix_columns<sizeof(T) == 4 ? 2 : 1, T, Q>(n, W, m, factor, x, y, added);
    else
        mix_columns<1, T, Q>(n, W, m, factor, x, y, added);
}

// ------------------------------------------------------------------------------------------- single vectors, for CG

// Four columns of a thread at a time, so that so many loads are under way.
template <class T>
__device__ __forceinline__ typename Wide<T>::type dot_part(u64 n, const T *a, const T *b) {
    typedef typename Wide<T>::type S;
    S sum = zero<S>();
    const u64 step = u64(gridDim.x) * blockDim.x;
    u64 t = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    for (; t + 3 * step < n; t += 4 * step) {
        T x[4], y[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = a[t + i * step], y[i] = b[t + i * step];
#pragma unroll
        for (int i = 0; i < 4; ++i) sum = gather(x[i], y[i], sum);
    }
    for (; t < n; t += step) sum = gather(a[t], b[t], sum);
    return sum;
}

// r += factor w; the thread's share of <r, r>.
template <class T>
__device__ __forceinline__ typename Wide<T>::type descend_part(u64 n, T factor, const T *w, T *r) {
    typedef typename Wide<T>::type S;
    S sum = zero<S>();
    const u64 step = u64(gridDim.x) * blockDim.x;
    u64 t = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    for (; t + 3 * step < n; t += 4 * step) {
        T x[4], y[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = w[t + i * step], y[i] = r[t + i * step];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const T value = mad(factor, x[i], y[i]);
            r[t + i * step] = value;
            sum = gather(value, value, sum);
        }
    }
    for (; t < n; t += step) {
        const T value = mad(factor, w[t], r[t]);
        r[t] = value;
        sum = gather(value, value, sum);
    }
    return sum;
}

template <class T> __device__ __forceinline__ void turn_part(u64 n, T alpha, T beta, T *p, const T *u, T *x) {
    const u64 step = u64(gridDim.x) * blockDim.x;
    u64 t = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    for (; t + step < n; t += 2 * step) {
        T a[2], b[2], c[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) a[i] = p[t + i * step], b[i] = x[t + i * step], c[i] = u[t + i * step];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            x[t + i * step] = mad(alpha, a[i], b[i]);
            p[t + i * step] = mad(beta, a[i], c[i]);
        }
    }
    for (; t < n; t += step) {
        const T own = p[t];
        x[t] = mad(alpha, own, x[t]);
        p[t] = mad(beta, own, u[t]);
    }
}

// w = b - w; the thread's share of <w, w>.
template <class T> __device__ __forceinline__ typename Wide<T>::type remain_part(u64 n, const T *b, T *w) {
    typedef typename Wide<T>::type S;
    S sum = zero<S>();
    const u64 step = u64(gridDim.x) * blockDim.x;
    for (u64 t = u64(blockIdx.x) * blockDim.x + threadIdx.x; t < n; t += step) {
        const T value = minus(b[t], w[t]);
        w[t] = value;
        sum = gather(value, value, sum);
    }
    return sum;
}
