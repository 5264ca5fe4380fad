// Block Gram-Schmidt by Cholesky's factorisation (akx/krylov/orthogonalize.py) without a word to the host.
//
// W has k orthonormal rows Q and s rows V behind them, to become V^T = Q^T C + Q_new^T R. Twice the same two kernels:
// products and, in their last block, the small factors; then `mix` replaces V. The second round is for a block that has
// lost more than is allowed, as a bound says: its products measure the loss, and where that is small nothing is done.
//
// The bound is of what the rows before have lost, in the Frobenius norm of Q Q^H - I. That of single rows is measured by
// the way, one step later (`lag`; as in Swirydowicz, Langou, Ananthan, Yang, Thomas 2021): the products of the first
// round are those of the row before too, which is read anyway and has room in the same tiles.
//
// state, in double precision:  0 loss of the rows before the last block   1 allowed   2 whether the first round is done
//                              3 whether the second is looked at   4 whether it is done   5 records so far
//                              6 rounding of the vectors   7 loss of the last block, as its record has it
//                              8 rows of it
//
// A record:  0 whether the rows are good   1 loss   2 kappa; norms (s); C (k, s) and R (s, s) by rows
#pragma once
#include "vectors/vectors.cuh"

enum { LOSS, ALLOWED, FIRST, MEASURE, SECOND, RECORDS, EPS, LAST, ROWS };
//: Most that rounding errors may be of the least eigenvalue of what is factorised.
#define AKX_SAFE 1e-2

__device__ __forceinline__ double times(double a, double b) { return a * b; }
__device__ __forceinline__ cdouble times(cdouble a, cdouble b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
__device__ __forceinline__ double scaled(double a, double f) { return a * f; }
__device__ __forceinline__ cdouble scaled(cdouble a, double f) { return {a.re * f, a.im * f}; }
__device__ __forceinline__ double square(double a) { return a * a; }
__device__ __forceinline__ double square(cdouble a) { return a.re * a.re + a.im * a.im; }

// In shared memory, for a block of s rows behind k.
template <class S> struct Factors {
    S *both;      // (k + s, s), rows of `stride`: conj(W) V^T, and in the column before it, if any, conj(W) W[k - 1]
    S *upper;     // (s, s): R of this round, row by row
    S *inverse;   // (s, s): its inverse
    double *size; // (s): lengths of the rows
    u32 k, s, stride;

    __device__ __forceinline__ S &of(u32 i, u32 j) const { return both[i * stride + j]; }
};

template <class S> __device__ __forceinline__ S one_of() {
    S found;
    narrow(1.0, found);
    return found;
}

// R and its inverse from `both`; kappa, or a negative number where it is not safe. All threads of the block come.
template <class S> __device__ __forceinline__ double factorise(const Factors<S> &f, double eps) {
    const u32 k = f.k, s = f.s;
    __shared__ double kappa;
    for (u32 j = threadIdx.x; j < s; j += blockDim.x) f.size[j] = sqrt(real_of(f.of(k + j, j)));
    __syncthreads();
    // G - C^H C, scaled by the lengths, its upper triangle
    for (u32 e = threadIdx.x; e < s * s; e += blockDim.x) {
        const u32 i = e / s, j = e % s;
        S sum = f.of(k + i, j);
        for (u32 q = 0; q < k; ++q)
            sum = minus(sum, times(conjugate(f.of(q, i)), f.of(q, j)));
        f.upper[e] = i <= j ? scaled(sum, 1.0 / (f.size[i] * f.size[j])) : zero<S>();
        f.inverse[e] = zero<S>();
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        const u32 lane = threadIdx.x;
        bool good = true;
        for (u32 i = 0; i < s && good; ++i) { // row i of R: its diagonal, what is right of it, and what that takes away
            const double pivot = real_of(f.upper[i * s + i]);
            good = pivot > 0 && pivot <= 2.0;
            const double root = sqrt(pivot), by = 1.0 / root;
            __syncwarp();
            for (u32 j = i + lane; j < s; j += 32) {
                S value = scaled(f.upper[i * s + j], by);
                if (j == i) narrow(root, value);
                f.upper[i * s + j] = value;
            }
            __syncwarp();
            const u32 left = s - i - 1;
            for (u32 e = lane; e < left * left; e += 32) {
                const u32 a = i + 1 + e / left, b = i + 1 + e % left;
                if (a > b) continue;
                S &rest = f.upper[a * s + b];
                rest = minus(rest, times(conjugate(f.upper[i * s + a]), f.upper[i * s + b]));
            }
            __syncwarp();
        }
        double squares = 0.0;
        for (u32 j = lane; j < s && good; j += 32) { // column j of the inverse, from its end upwards
            for (u32 up = 0; up <= j; ++up) {
                const u32 i = j - up;
                S sum = up == 0 ? one_of<S>() : zero<S>();
                for (u32 q = i + 1; q <= j; ++q) sum = minus(sum, times(f.upper[i * s + q], f.inverse[q * s + j]));
                sum = scaled(sum, 1.0 / real_of(f.upper[i * s + i]));
                f.inverse[i * s + j] = sum;
                squares += square(sum);
            }
        }
        squares = over_warp(squares);
        good = good && eps * squares < AKX_SAFE; // false for a NaN
        if (lane == 0) kappa = good ? sqrt(squares) : -1.0;
    }
    __syncthreads();
    if (kappa >= 0) // back to rows that are not scaled: R D and D^-1 R^-1
        for (u32 e = threadIdx.x; e < s * s; e += blockDim.x) {
            f.upper[e] = scaled(f.upper[e], f.size[e % s]);
            f.inverse[e] = scaled(f.inverse[e], 1.0 / f.size[e / s]);
        }
    __syncthreads();
    return kappa;
}

// F (s, k + s) for `mix`: the new rows are F W = R^-T (V - C^T Q).
template <class S> __device__ __forceinline__ void factors_of_mix(const Factors<S> &f, S *F) {
    const u32 k = f.k, s = f.s, m = k + s;
    for (u32 e = threadIdx.x; e < m * s; e += blockDim.x) {
        const u32 q = e / m, i = e % m;
        S sum = zero<S>();
        if (i >= k) {
            sum = f.inverse[(i - k) * s + q];
        } else {
            for (u32 a = 0; a <= q; ++a) sum = minus(sum, times(f.of(i, a), f.inverse[a * s + q]));
        }
        F[e] = sum;
    }
}

__device__ __forceinline__ double *row_record(double *ring, const double *state, u32 slots, u32 size) {
    return ring + u64(state[RECORDS]) % slots * size;
}

// Products of the block, and of the row before it where `lag` is 1, with all rows; `f` with room behind them in shared
// memory; in the last block alone, true.
template <class T, int DOWN, int ACROSS>
__device__ __forceinline__ bool products_for(u64 n, const T *W, u32 k, u32 s, u32 lag, typename Wide<T>::type *partial,
                                             u32 *counter, Factors<typename Wide<T>::type> &f) {
    typedef typename Wide<T>::type S;
    AKX_DYNAMIC_SHARED(raw);
    S *sums = reinterpret_cast<S *>(raw);
    const Pairs pairs = {k + s, s + lag, false};
    double *half = reinterpret_cast<double *>(raw);
    if (!products<T, DOWN, ACROSS, false>(n, W, pairs, sums, half, partial, counter)) return false;
    f.both = sums + lag;
    f.upper = sums + (k + s) * (s + lag);
    f.inverse = f.upper + s * s;
    f.size = reinterpret_cast<double *>(f.inverse + s * s);
    f.k = k, f.s = s, f.stride = s + lag;
    return true;
}

// The sum of what threads bring, or the largest, in all of them. Called once in a kernel for each `room`.
template <class Merge> __device__ __forceinline__ double in_block(double mine, double *room, Merge merge) {
    for (int offset = 16; offset > 0; offset >>= 1) mine = merge(mine, across(mine, offset));
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = mine;
    __syncthreads();
    mine = room[0];
    for (u32 w = 1; w < blockDim.x / 32; ++w) mine = merge(mine, room[w]);
    return mine;
}

// The loss of the rows before the block: of the last `rows` of them `own`, by a bound, of those before `others`. That of
// a single row can be measured.
template <class S>
__device__ __forceinline__ double loss_before(const Factors<S> &f, u32 lag, double rows, double own, double others) {
    __shared__ double room[32];
    if (lag == 0 || rows != 1.0) return fmax(others, own);
    double squares = 0.0;
    for (u32 i = threadIdx.x; i < f.k; i += blockDim.x) {
        const S value = (f.both - 1)[i * f.stride];
        squares += i + 1 < f.k ? 2.0 * square(value) : square(minus(value, one_of<S>()));
    }
    squares = in_block(squares, room, [](double a, double b) { return a + b; });
    return sqrt(square(others) + squares);
}

template <class T, int DOWN, int ACROSS>
__device__ __forceinline__ void first_round(u64 n, const T *W, u32 k, u32 s, u32 lag,
                                            typename Wide<T>::type *partial, u32 *counter, double *state,
                                            typename Wide<T>::type *F, double *ring, u32 slots, u32 size) {
    typedef typename Wide<T>::type S;
    Factors<S> f;
    const double eps = state[EPS], own = state[LAST], others = state[LOSS], rows = state[ROWS]; // on their way meanwhile
    if (!products_for<T, DOWN, ACROSS>(n, W, k, s, lag, partial, counter, f)) return;
    const double before = loss_before(f, lag, rows, own, others), kappa = factorise(f, eps);
    const bool good = kappa >= 0;
    const double loss = kappa * before + eps * kappa * kappa;
    double *record = row_record(ring, state, slots, size);
    S *C = reinterpret_cast<S *>(record + 3 + s + (3 + s) % 2), *R = C + k * s;
    if (good) factors_of_mix(f, F);
    for (u32 j = threadIdx.x; j < s; j += blockDim.x) record[3 + j] = f.size[j];
    for (u32 e = threadIdx.x; e < k * s; e += blockDim.x) C[e] = f.of(e / s, e % s);
    for (u32 e = threadIdx.x; e < s * s; e += blockDim.x) R[e] = f.upper[e];
    __syncthreads(); // all have read the state
    if (threadIdx.x == 0) {
        record[0] = good;
        record[1] = loss;
        record[2] = kappa;
        state[FIRST] = good;
        state[SECOND] = 0;
        state[MEASURE] = good && !(loss <= state[ALLOWED]);
        if (state[MEASURE] == 0) state[RECORDS] += 1;
        state[LOSS] = before;
        state[LAST] = loss;
        state[ROWS] = s;
    }
}

template <class T, int DOWN, int ACROSS>
__device__ __forceinline__ void second_round(u64 n, const T *W, u32 k, u32 s, u32,
                                             typename Wide<T>::type *partial, u32 *counter, double *state,
                                             typename Wide<T>::type *F, double *ring, u32 slots, u32 size) {
    typedef typename Wide<T>::type S;
    if (state[MEASURE] == 0) return;
    Factors<S> f;
    if (!products_for<T, DOWN, ACROSS>(n, W, k, s, 0, partial, counter, f)) return;
    __shared__ double worst[32];
    double *record = row_record(ring, state, slots, size);
    S *C = reinterpret_cast<S *>(record + 3 + s + (3 + s) % 2), *R = C + k * s;
    double loss = 0.0;
    bool finite = true;
    for (u32 e = threadIdx.x; e < (k + s) * s; e += blockDim.x) {
        const u32 i = e / s, j = e % s;
        const S value = i == k + j ? minus(f.of(i, j), one_of<S>()) : f.of(i, j);
        const double off = sqrt(square(value));
        finite = finite && off <= 1e300;
        loss = fmax(loss, off);
    }
    if (!finite) loss = 1e300;
    loss = in_block(loss, worst, [](double a, double b) { return fmax(a, b); });
    const double eps = state[EPS], before = state[LOSS], allowed = state[ALLOWED];
    bool good = true, again = loss > allowed;
    double kappa = 0.0;
    if (again) {
        kappa = factorise(f, eps);
        // What rows before lose against each other acts on the projection alone: as small as what was measured.
        loss = kappa * before * fmin(loss, 1.0) + eps * kappa * kappa;
        good = kappa >= 0 && loss <= allowed;
        if (good) {
            factors_of_mix(f, F);
            for (u32 e = threadIdx.x; e < k * s; e += blockDim.x) { // C += C' R
                const u32 i = e / s, j = e % s;
                S sum = C[e];
                for (u32 q = 0; q <= j; ++q) sum = mad(f.of(i, q), R[q * s + j], sum);
                C[e] = sum;
            }
            S *kept = f.both + k * s; // the Gram matrix is no longer needed
            __syncthreads();
            for (u32 e = threadIdx.x; e < s * s; e += blockDim.x) { // R = R' R
                const u32 i = e / s, j = e % s;
                S sum = zero<S>();
                for (u32 q = i; q <= j; ++q) sum = mad(f.upper[i * s + q], R[q * s + j], sum);
                kept[e] = sum;
            }
            __syncthreads();
            for (u32 e = threadIdx.x; e < s * s; e += blockDim.x) R[e] = kept[e];
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        record[0] = good;
        record[1] = loss;
        state[SECOND] = good && again;
        state[RECORDS] += 1;
        state[LAST] = loss;
    }
}
