// Conjugate gradients without a word to the host: coefficients stay in device memory, and what every step came to is
// written to a ring of records that the host reads while further steps are under way.
//
// state, in double precision:  0 <r, r>   1 goal: the square of the norm to be reached   2 steps left
//                              3 alpha    4 beta    5 whether the step at hand is done    6 records so far    7 trust
//
// A step is not done where <r, r> is at its goal, no steps are left, or an inner product cannot be used; vectors stay
// as they are, and so do all further steps that were queued: the host may always be ahead.
//
// Records of a step (8 numbers):  0 whether it was done   1 <p, A p>   2 <r, r> after it   3 alpha   4 beta
// Records of a block of s steps:  0 steps done  1 <r, r> before  2.. <r, r>, alpha, beta of each step; then C (3, m),
//                                 the coordinates of the change of x, of p and of r, and G's diagonal (m).
#pragma once
#include "vectors.cuh"

enum { GAMMA, GOAL, LEFT, ALPHA, BETA, DONE, RECORDS, TRUST };
#define AKX_STEP_RECORD 8
#define AKX_LARGEST 1.7976931348623157e+308

__device__ __forceinline__ double *record_at(double *ring, const double *state, u32 slots, u32 size) {
    return ring + u64(state[RECORDS]) % slots * size;
}

// alpha = <r, r> / <p, w>, w = A p.
template <class T>
__device__ __forceinline__ void curvature_step(u64 n, const T *p, const T *w, typename Wide<T>::type *partial,
                                               u32 *counter, double *state, double *ring, u32 slots) {
    typename Wide<T>::type total;
    if (!over_grid(dot_part(n, p, w), partial, counter, total)) return;
    const double curvature = real_of(total), gamma = state[GAMMA];
    const bool done = state[LEFT] > 0 && gamma > state[GOAL] && curvature > 0 && curvature <= AKX_LARGEST;
    state[DONE] = done;
    double *record = record_at(ring, state, slots, AKX_STEP_RECORD);
    record[0] = done;
    record[1] = curvature;
    if (done) {
        state[ALPHA] = gamma / curvature;
        state[LEFT] -= 1;
    } else {
        state[RECORDS] += 1;
    }
}

// r -= alpha w, beta = <r, r> / <r, r> before.
template <class T>
__device__ __forceinline__ void descend_step(u64 n, const T *w, T *r, typename Wide<T>::type *partial, u32 *counter,
                                             double *state, double *ring, u32 slots) {
    if (state[DONE] == 0) return;
    T factor;
    narrow(-state[ALPHA], factor);
    typename Wide<T>::type total;
    if (!over_grid(descend_part(n, factor, w, r), partial, counter, total)) return;
    const double gamma = real_of(total), beta = gamma / state[GAMMA];
    double *record = record_at(ring, state, slots, AKX_STEP_RECORD);
    record[2] = gamma;
    record[3] = state[ALPHA];
    record[4] = beta;
    state[BETA] = beta;
    state[GAMMA] = gamma;
    state[RECORDS] += 1;
}

// x += alpha p, p = r + beta p.
template <class T> __device__ __forceinline__ void turn_step(u64 n, T *p, const T *r, T *x, const double *state) {
    if (state[DONE] == 0) return;
    T alpha, beta;
    narrow(state[ALPHA], alpha);
    narrow(state[BETA], beta);
    turn_part(n, alpha, beta, p, r, x);
}

// ------------------------------------------------------------------------------- s steps in coordinates (ca_cg.py)

// a f + c for a real factor; a coefficient of the basis, which is real for Hermitian matrices.
__device__ __forceinline__ double scaled(double a, double f, double c) { return fma(a, f, c); }
__device__ __forceinline__ cdouble scaled(cdouble a, double f, cdouble c) {
    return {fma(a.re, f, c.re), fma(a.im, f, c.im)};
}
__device__ __forceinline__ double coefficient(const float *basis, u32 d, u32 which) { return basis[3 * d + which]; }
__device__ __forceinline__ double coefficient(const double *basis, u32 d, u32 which) { return basis[3 * d + which]; }
template <class T> __device__ __forceinline__ double coefficient(const T *basis, u32 d, u32 which) {
    return basis[3 * d + which].re;
}

// The real part of <a, b>_G and the sum of its terms' moduli, in every lane of a warp. Lanes have coordinates
// lane, lane + 32 of a; b (m) is in shared memory; G (m, m) is stored so that G[j m + i] = <w_i, w_j>.
template <class S>
__device__ __forceinline__ void form(u32 m, const S *G, const S *a, const S *b, double &value, double &size) {
    const u32 lane = threadIdx.x % 32;
    value = size = 0.0;
    for (u32 i = lane; i < m; i += 32) {
        const S own = conjugate(a[i]);
        S sum = zero<S>();
        double moduli = 0.0;
        for (u32 j = 0; j < m; ++j) {
            sum = mad(G[j * m + i], b[j], sum);
            moduli = fma(modulus(G[j * m + i]), modulus(b[j]), moduli);
        }
        value += real_of(mad(own, sum, zero<S>()));
        size = fma(modulus(own), moduli, size);
    }
    value = over_warp(value);
    size = over_warp(size);
}

// Up to s steps by one warp; vectors of coordinates in `room` (4 m): x, p, r, q. The number of steps done.
template <class T>
__device__ __forceinline__ u32 coordinate_steps(u32 s, const typename Wide<T>::type *G, const T *basis,
                                                typename Wide<T>::type *room, const double *state, double *steps) {
    typedef typename Wide<T>::type S;
    const u32 m = 2 * s + 1, lane = threadIdx.x % 32;
    S *x = room, *p = room + m, *r = room + 2 * m, *q = room + 3 * m;
    S one = zero<S>();
    narrow(1.0, one);
    for (u32 i = lane; i < m; i += 32) {
        x[i] = q[i] = zero<S>();
        p[i] = i == 0 ? one : zero<S>();
        r[i] = i == 1 ? one : zero<S>();
    }
    __syncwarp();
    const double trust = state[TRUST], goal = state[GOAL];
    double gamma = real_of(G[m + 1]);
    const u32 most = state[LEFT] < double(s) ? u32(state[LEFT]) : s;
    if (!(gamma > goal)) return 0;
    for (u32 step = 0; step < most; ++step) {
        // q = T p: A v_d = (v_{d+1} - b_d v_d - c_d v_{d-1}) / a_d, v_d being rows 2 d of p and 2 d + 1 of r
        for (u32 i = lane; i < m; i += 32) {
            const u32 d = i / 2, last = i % 2 ? s - 1 : s; // the highest degree, whose product nobody asks for
            S sum = zero<S>();
            if (d > 0) sum = scaled(p[i - 2], 1.0 / coefficient(basis, d - 1, 0), sum);
            if (d < last) sum = scaled(p[i], -coefficient(basis, d, 1) / coefficient(basis, d, 0), sum);
            if (d + 1 < last) sum = scaled(p[i + 2], -coefficient(basis, d + 1, 2) / coefficient(basis, d + 1, 0), sum);
            q[i] = sum;
        }
        __syncwarp();
        double curvature, size, after;
        form(m, G, p, q, curvature, size);
        if (!(curvature > trust * size)) return step;
        const double alpha = gamma / curvature;
        __syncwarp();
        for (u32 i = lane; i < m; i += 32) q[i] = scaled(q[i], -alpha, r[i]);
        __syncwarp();
        form(m, G, q, q, after, size);
        if (!(after > trust * size)) return step;
        const double beta = after / gamma;
        __syncwarp();
        for (u32 i = lane; i < m; i += 32) {
            x[i] = scaled(p[i], alpha, x[i]);
            r[i] = q[i];
            p[i] = scaled(p[i], beta, q[i]);
        }
        __syncwarp();
        if (lane == 0) steps[3 * step] = after, steps[3 * step + 1] = alpha, steps[3 * step + 2] = beta;
        gamma = after;
        if (gamma <= goal) return step + 1;
    }
    return most;
}

// The Gram matrix of W (2 s + 1, n), then the steps, in the last block. F (3, m): what `mix` is to do with the rows.
template <class T, int TILE>
__device__ __forceinline__ void block_of_steps(u64 n, const T *W, u32 s, const T *basis, u32 width, u32 shift,
                                               typename Wide<T>::type *partial, u32 *counter, double *state,
                                               typename Wide<T>::type *F, double *ring, u32 slots, u32 size) {
    typedef typename Wide<T>::type S;
    AKX_DYNAMIC_SHARED(raw);
    const u32 m = 2 * s + 1;
    const Pairs<TILE, TILE> pairs = {m, 0, m, true};
    S *sums = reinterpret_cast<S *>(raw);
    if (!products<T, TILE, TILE>(n, W, pairs, width, shift, sums, reinterpret_cast<T *>(raw), partial, counter)) return;
    S *G = sums + pairs.tiles() * TILE * TILE, *room = G + m * m;
    for (u32 e = threadIdx.x; e < m * m; e += blockDim.x) G[e] = pairs.template of<S>(sums, e % m, e / m);
    __syncthreads();
    if (threadIdx.x >= 32) return;
    double *record = record_at(ring, state, slots, size);
    const u32 done = coordinate_steps<T>(s, G, basis, room, state, record + 2);
    double *behind = record + 2 + 3 * s;
    const u32 words = sizeof(S) / sizeof(double);
    for (u32 e = threadIdx.x; e < 3 * m; e += 32) {
        F[e] = room[e];
        for (u32 w = 0; w < words; ++w) behind[e * words + w] = reinterpret_cast<double *>(room)[e * words + w];
    }
    for (u32 i = threadIdx.x; i < m; i += 32) behind[3 * m * words + i] = real_of(G[i * m + i]);
    if (threadIdx.x == 0) {
        record[0] = done;
        record[1] = real_of(G[m + 1]);
        state[DONE] = done;
        state[LEFT] -= done;
        state[RECORDS] += 1;
    }
}
