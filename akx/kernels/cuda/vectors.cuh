// Dense work of solvers on rows of vectors: W (m, n), contiguous, row i at W + i n. One pass over memory each.
//
// Sums are kept in double precision (complex: pairs), by thread in the order of its columns, then over lanes, warps and
// blocks in a fixed order: the same launch gives the same bits. The last block to end, told by an integer counter, adds
// up the sums of the blocks: nothing waits, and no number is added atomically.
//
//   products   sums of conj(w_i) w_j by tiles of TI x TJ pairs: a warp has a tile of pairs, and all warps read the same
//              columns from shared memory, where they come once
//   mix        Q combinations of the rows in one pass; x += the first, the others replace rows, which may be W's own
//   dot        <a, b>
//   descend    r -= alpha w, <r, r>         turn      x += alpha p, then p = u + beta p
//   remain     w = b - w, <w, w>
#pragma once
#include "common.cuh"


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

// Which pairs there are: rows 0 .. m-1 with rows first .. first+s-1, or (triangular) every two of m rows once.
template <int TI, int TJ> struct Pairs {
    u32 m, first, s;
    bool triangular;

    __device__ __forceinline__ u32 tiles() const {
        const u32 across = (s + TJ - 1) / TJ, down = (m + TI - 1) / TI;
        return triangular ? across * (across + 1) / 2 : down * across;
    }
    __device__ __forceinline__ void tile(u32 p, u32 &i, u32 &j) const {
        if (triangular) {
            j = 0;
            while (p > j) p -= ++j;
            i = p;
        } else {
            const u32 across = (s + TJ - 1) / TJ;
            i = p / across, j = p % across;
        }
    }
    // Where the sum for rows i and first + j is; for a triangular one i <= j.
    __device__ __forceinline__ u32 place(u32 i, u32 j) const {
        const u32 a = i / TI, b = j / TJ;
        const u32 p = triangular ? b * (b + 1) / 2 + a : a * ((s + TJ - 1) / TJ) + b;
        return (p * TI + i % TI) * TJ + j % TJ;
    }
    // <w_i, w_j>, exactly Hermitian where it is triangular.
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

// Where tiles have several columns, rows come to shared memory in chunks of 2^shift columns, one chunk after another in
// a ring of STAGES, so that some are on their way while one is worked on.
#define AKX_STAGES 4
// Blocks whose sums a lane of the last one reads at a time: all of them, where there are 160 or less.
#define AKX_PARTIALS 5

#ifndef AKX_ON_HOST
// Queue a copy of one number from global to shared memory; both addresses are multiples of its size.
template <class T> __device__ __forceinline__ void bring(T *to, const T *from) {
    const u32 place = u32(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(place), "l"(from), "n"(int(sizeof(T))) : "memory");
}
// 16 bytes, at multiples of 16.
__device__ __forceinline__ void bring_16(void *to, const void *from) {
    const u32 place = u32(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place), "l"(from) : "memory");
}
__device__ __forceinline__ void end_of_chunk() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Wait until no more than so many of the newest chunks are on their way.
template <int LEFT> __device__ __forceinline__ void wait_for_chunk() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}
#endif

// One column: sum += conj(x) y of TI rows with TJ others, `pitch` apart; GLOBAL: from memory that nobody writes to.
template <int TI, int TJ, bool GLOBAL, class T>
__device__ __forceinline__ void meet(const T *from, u64 pitch, const u32 (&row)[TI], const u32 (&column)[TJ],
                                     typename Wide<T>::type (&sum)[TI][TJ]) {
    T x[TI], y[TJ];
#pragma unroll
    for (int a = 0; a < TI; ++a) x[a] = GLOBAL ? load(from + row[a] * pitch) : from[row[a] * pitch];
#pragma unroll
    for (int b = 0; b < TJ; ++b) y[b] = GLOBAL ? load(from + column[b] * pitch) : from[column[b] * pitch];
#pragma unroll
    for (int a = 0; a < TI; ++a)
#pragma unroll
        for (int b = 0; b < TJ; ++b) sum[a][b] = gather(x[a], y[b], sum[a][b]);
}

// All threads queue copies of a chunk of m rows; columns beyond the last are zero. 16 bytes at a time where all rows are
// at multiples of that.
template <class T>
__device__ __forceinline__ void bring_chunk(u64 n, const T *W, u32 m, u32 chunk, u32 shift, T *to) {
    constexpr u32 AT_ONCE = 16 / sizeof(T), LOG = AT_ONCE == 4 ? 2 : AT_ONCE == 2 ? 1 : 0;
    const u32 columns = 1u << shift;
    const u64 first = u64(chunk) << shift;
    if (AT_ONCE > 1 && shift >= LOG && n % AT_ONCE == 0 && reinterpret_cast<u64>(W) % 16 == 0) {
        for (u32 e = threadIdx.x; e < m << (shift - LOG); e += blockDim.x) {
            const u32 row = e >> (shift - LOG), c = (e & ((columns >> LOG) - 1)) << LOG;
            T *there = to + (u64(row) << shift) + c;
            if (first + c < n)
                bring_16(there, W + row * n + first + c);
            else
#pragma unroll
                for (u32 i = 0; i < AT_ONCE; ++i) there[i] = zero<T>();
        }
        return;
    }
    for (u32 e = threadIdx.x; e < m << shift; e += blockDim.x) {
        const u64 t = first + (e & (columns - 1));
        if (t < n)
            bring(to + e, W + u64(e >> shift) * n + t);
        else
            to[e] = zero<T>();
    }
}

// The sums of all tiles of the launch in `sums` (shared memory, groups x tiles x TI x TJ), in the last block only,
// which is told so. The block has `width` x groups warps, width being the number of tiles, or less where there are many
// of them and one group. `ring` (shared memory): STAGES x m x 2^shift numbers; it may be where `sums` is.
// partial: (tiles TI TJ, blocks). Where there are more tiles than warps, the columns are gone through again for them.
template <class T, int TI, int TJ>
__device__ __forceinline__ bool products(u64 n, const T *W, Pairs<TI, TJ> pairs, u32 width, u32 shift,
                                         typename Wide<T>::type *sums, T *ring, typename Wide<T>::type *partial,
                                         u32 *counter) {
    typedef typename Wide<T>::type S;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const u32 group = warp / width, groups = warps / width, tiles = pairs.tiles(), entries = tiles * TI * TJ;
    const u32 m = pairs.m;
    for (u32 round = 0; round * width < tiles; ++round) {
        const u32 p = round * width + warp % width;
        u32 ti = 0, tj = 0;
        if (p < tiles) pairs.tile(p, ti, tj);
        u32 row[TI], column[TJ];
#pragma unroll
        for (int a = 0; a < TI; ++a) row[a] = min(ti * TI + a, m - 1);
#pragma unroll
        for (int b = 0; b < TJ; ++b) column[b] = pairs.first + min(tj * TJ + b, pairs.s - 1);
        S sum[TI][TJ];
#pragma unroll
        for (int a = 0; a < TI; ++a)
#pragma unroll
            for (int b = 0; b < TJ; ++b) sum[a][b] = zero<S>();
        if constexpr (TJ == 1) {
            if (p < tiles)
                for (u64 t = (u64(blockIdx.x) * groups + group) * 32 + lane; t < n; t += u64(gridDim.x) * groups * 32)
                    meet<TI, TJ, true>(W + t, n, row, column, sum);
        } else {
            const u32 columns = 1u << shift, chunks = u32((n + columns - 1) >> shift);
            for (u32 ahead = 0; ahead < AKX_STAGES - 1; ++ahead) {
                const u32 chunk = blockIdx.x + ahead * gridDim.x;
                if (chunk < chunks) bring_chunk(n, W, m, chunk, shift, ring + u64(ahead * m) * columns);
                end_of_chunk();
            }
            u32 stage = 0;
            for (u32 chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
                wait_for_chunk<AKX_STAGES - 2>();
                __syncthreads(); // the chunk is there for all, and all are done with the one before
                const u32 next = chunk + (AKX_STAGES - 1) * gridDim.x, there = (stage + AKX_STAGES - 1) % AKX_STAGES;
                if (next < chunks) bring_chunk(n, W, m, next, shift, ring + u64(there * m) * columns);
                end_of_chunk();
                const T *here = ring + u64(stage * m) * columns;
                if (p < tiles)
                    for (u32 c = group * 32 + lane; c < columns; c += groups * 32)
                        meet<TI, TJ, false>(here + c, columns, row, column, sum);
                stage = (stage + 1) % AKX_STAGES;
            }
        }
        wait_for_chunk<0>();
        __syncthreads(); // `sums` may be where the ring is
        if (p < tiles)
#pragma unroll
            for (int a = 0; a < TI; ++a)
#pragma unroll
                for (int b = 0; b < TJ; ++b) {
                    const S total = over_warp(sum[a][b]);
                    if (lane == 0) sums[group * entries + (p * TI + a) * TJ + b] = total;
                }
        __syncthreads();
        if (groups == 1 && p < tiles) // this round's, which the ring of the next may overwrite
            for (u32 e = lane; e < TI * TJ; e += 32)
                partial[u64(p * TI * TJ + e) * gridDim.x + blockIdx.x] = sums[p * TI * TJ + e];
        __syncthreads();
    }
    if (groups > 1)
        for (u32 e = threadIdx.x; e < entries; e += blockDim.x) {
            S total = sums[e];
            for (u32 g = 1; g < groups; ++g) total = add(total, sums[g * entries + e]);
            partial[u64(e) * gridDim.x + blockIdx.x] = total;
        }
    if (!is_last(counter)) return false;
    // Four sums of a warp at a time, and all that its lanes add to them under way at once: what one takes is the way to
    // the second-level cache and back.
    for (u32 first = warp * 4; first < entries; first += warps * 4) {
        S total[4];
#pragma unroll
        for (int u = 0; u < 4; ++u) total[u] = zero<S>();
        for (u32 base = lane; base < gridDim.x; base += 32 * AKX_PARTIALS) {
            S part[AKX_PARTIALS][4];
#pragma unroll
            for (int v = 0; v < AKX_PARTIALS; ++v)
#pragma unroll
                for (int u = 0; u < 4; ++u) {
                    const u32 i = base + 32 * v;
                    part[v][u] = i < gridDim.x && first + u < entries
                                     ? load_shared_by_all(partial + u64(first + u) * gridDim.x + i)
                                     : zero<S>();
                }
#pragma unroll
            for (int v = 0; v < AKX_PARTIALS; ++v)
#pragma unroll
                for (int u = 0; u < 4; ++u) total[u] = add(total[u], part[v][u]);
        }
#pragma unroll
        for (int u = 0; u < 4; ++u) {
            total[u] = over_warp(total[u]);
            if (lane == 0 && first + u < entries) sums[first + u] = total[u];
        }
    }
    __syncthreads();
    return true;
}

// found (m, s) of all pairs.
template <class T, int TI, int TJ>
__device__ __forceinline__ void all_products(u64 n, const T *W, Pairs<TI, TJ> pairs, u32 width,
                                             u32 shift, typename Wide<T>::type *partial, u32 *counter,
                                             typename Wide<T>::type *found) {
    typedef typename Wide<T>::type S;
    AKX_DYNAMIC_SHARED(room);
    S *sums = reinterpret_cast<S *>(room);
    if (!products<T, TI, TJ>(n, W, pairs, width, shift, sums, reinterpret_cast<T *>(room), partial, counter)) return;
    for (u32 e = threadIdx.x; e < pairs.m * pairs.s; e += blockDim.x)
        found[e] = pairs.template of<S>(sums, e / pairs.s, e % pairs.s);
}

// ------------------------------------------------------------------------------------------------------------ mix

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
    for (u64 t = u64(blockIdx.x) * blockDim.x + threadIdx.x; t < n; t += u64(gridDim.x) * blockDim.x) {
        T sum[Q];
#pragma unroll
        for (int q = 0; q < Q; ++q) sum[q] = zero<T>();
#pragma unroll 8
        for (u32 j = 0; j < m; ++j) {
            const T w = W[u64(j) * n + t];
#pragma unroll
            for (int q = 0; q < Q; ++q) sum[q] = mad(factor[j * Q + q], w, sum[q]);
        }
        int q0 = 0;
        if (x != nullptr) {
            x[t] = add(x[t], sum[0]);
            q0 = 1;
        }
#pragma unroll
        for (int q = 0; q < Q; ++q)
            if (q >= q0) {
                T *to = y + u64(q - q0) * n + t;
                *to = added ? add(*to, sum[q]) : sum[q];
            }
    }
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
