// Conjugate gradients without a word to the host: coefficients stay in device memory, and what every step came to is
// written to a ring of records that the host reads while further steps are under way.
//
// u = D r with a diagonal preconditioner D, which is nowhere stored, and r without one.
//
// state, in double precision:  0 <r, u>   1 goal: the square of the norm to be reached   2 steps left
//                              3 alpha    4 beta    5 whether the step at hand is done    6 records so far
//                             10 <r, r>
// of blocks of s steps, too:   7 pivot    8 trust   9 by how much images of directions were last found to be wrong
//
// A step is not done where <r, r> is at its goal, no steps are left, or an inner product cannot be used; vectors stay
// as they are, and so do all further steps that were queued: the host may always be ahead.
//
// Records of a step (8 numbers):  0 whether it was done   1 <p, A p>   2 <r, u> after it   3 alpha   4 beta
//                                 5 <r, r> after it
// Records of a block of s steps:  0 steps done   1, 2 the moduli of all that is added up to the change of x (without the
//                                 directions' share) and to the new r   3 state 9   4 <r, r> before
//                                 5.. what x moved along the direction of each step, and <r, r> after it
#pragma once
#include "vectors/vectors.cuh"

enum { GAMMA, GOAL, LEFT, ALPHA, BETA, DONE, RECORDS, PIVOT, TRUST, WRONG, SQUARE };
#define AKX_STEP_RECORD 8
#define AKX_BLOCK_RECORD 5 // and two numbers for each of the s steps
#define AKX_LARGEST 1.7976931348623157e+308

__device__ __forceinline__ double *record_at(double *ring, const double *state, u32 slots, u32 size) {
    return ring + u64(state[RECORDS]) % slots * size;
}

// alpha = <r, u> / <p, w>, w = A p.
template <class T>
__device__ __forceinline__ void curvature_step(u64 n, const T *p, const T *w, typename Wide<T>::type *partial,
                                               u32 *counter, double *state, double *ring, u32 slots) {
    typename Wide<T>::type total;
    if (!over_grid(dot_part(n, p, w), partial, counter, total)) return;
    const double curvature = real_of(total), gamma = state[GAMMA];
    const bool wanted = state[LEFT] > 0 && state[SQUARE] > state[GOAL];
    const bool done = wanted && gamma > 0 && curvature > 0 && curvature <= AKX_LARGEST;
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

// What the step at hand came to: the new <r, u> and <r, r>.
__device__ __forceinline__ void end_of_step(double gamma, double square, double *state, double *ring, u32 slots) {
    const double beta = gamma / state[GAMMA];
    double *record = record_at(ring, state, slots, AKX_STEP_RECORD);
    record[2] = gamma;
    record[3] = state[ALPHA];
    record[4] = beta;
    record[5] = square;
    state[BETA] = beta;
    state[GAMMA] = gamma;
    state[SQUARE] = square;
    state[RECORDS] += 1;
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
    end_of_step(real_of(total), real_of(total), state, ring, slots);
}

// x += alpha p, p = r + beta p.
template <class T> __device__ __forceinline__ void turn_step(u64 n, T *p, const T *r, T *x, const double *state) {
    if (state[DONE] == 0) return;
    T alpha, beta;
    narrow(state[ALPHA], alpha);
    narrow(state[BETA], beta);
    turn_part(n, alpha, beta, p, r, x);
}

// ------------------------------------------------------------------------------- the same with u = D r, D a diagonal

// r += factor w; the thread's shares of <r, r> and <r, D r>.
template <class T> __device__ __forceinline__ cdouble descend_by_part(u64 n, T factor, const T *w, T *r, const T *d) {
    typedef typename Wide<T>::type S;
    S square = zero<S>(), gamma = zero<S>();
    const u64 step = u64(gridDim.x) * blockDim.x;
    u64 t = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    for (; t + 3 * step < n; t += 4 * step) {
        T x[4], y[4], z[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = w[t + i * step], y[i] = r[t + i * step], z[i] = load(d + t + i * step);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const T value = mad(factor, x[i], y[i]);
            r[t + i * step] = value;
            square = gather(value, value, square);
            gamma = gather(value, mad(z[i], value, zero<T>()), gamma);
        }
    }
    for (; t < n; t += step) {
        const T value = mad(factor, w[t], r[t]);
        r[t] = value;
        square = gather(value, value, square);
        gamma = gather(value, mad(load(d + t), value, zero<T>()), gamma);
    }
    return {real_of(square), real_of(gamma)};
}

// r -= alpha w, beta = <r, D r> / <r, D r> before. `partial` has room for two numbers of each block.
template <class T>
__device__ __forceinline__ void descend_step_by(u64 n, const T *w, T *r, const T *d, cdouble *partial, u32 *counter,
                                                double *state, double *ring, u32 slots) {
    if (state[DONE] == 0) return;
    T factor;
    narrow(-state[ALPHA], factor);
    cdouble total;
    if (!over_grid(descend_by_part(n, factor, w, r, d), partial, counter, total)) return;
    end_of_step(total.im, total.re, state, ring, slots);
}

// x += alpha p, p = D r + beta p.
template <class T>
__device__ __forceinline__ void turn_step_by(u64 n, T *p, const T *r, const T *d, T *x, const double *state) {
    if (state[DONE] == 0) return;
    T alpha, beta;
    narrow(state[ALPHA], alpha);
    narrow(state[BETA], beta);
    const u64 step = u64(gridDim.x) * blockDim.x;
    u64 t = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    for (; t + step < n; t += 2 * step) {
        T a[2], b[2], c[2], f[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            a[i] = p[t + i * step], b[i] = x[t + i * step];
            c[i] = r[t + i * step], f[i] = load(d + t + i * step);
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            x[t + i * step] = mad(alpha, a[i], b[i]);
            p[t + i * step] = mad(beta, a[i], mad(f[i], c[i], zero<T>()));
        }
    }
    for (; t < n; t += step) {
        const T own = p[t];
        x[t] = mad(alpha, own, x[t]);
        p[t] = mad(beta, own, mad(load(d + t), r[t], zero<T>()));
    }
}

// ------------------------------------------------------------------------------- s steps in coordinates (ca_cg.py)
//
// W = [p_1 .. p_s, A p_1 .. A p_s, v_0 .. v_s] (3 s + 1, n), the newest direction last, directions A-orthonormal. With
// d = <A p_i, v_j> and  T = V_s^H A V_s - d^H d = L D L^H  the new ones are  (V_s - P d) L^-H D^-1/2: what the host does
// one step after another (ca_cg_block.py), in few stages that all threads have a part in.

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

// The real part of <a, a>_G and the sum of its terms' moduli, in every lane of a warp. a (m) is in shared memory;
// G (m, m) is stored so that G[j m + i] = <u_i, u_j>.
template <class S>
__device__ __forceinline__ void square(u32 m, const S *G, const S *a, double &value, double &size) {
    const u32 lane = threadIdx.x % 32;
    value = size = 0.0;
    for (u32 i = lane; i < m; i += 32) {
        const S own = conjugate(a[i]);
        S sum = zero<S>();
        double moduli = 0.0;
#pragma unroll 4
        for (u32 j = 0; j < m; ++j) {
            sum = mad(G[j * m + i], a[j], sum);
            moduli = fma(modulus(G[j * m + i]), modulus(a[j]), moduli);
        }
        value += real_of(mad(own, sum, zero<S>()));
        size = fma(modulus(own), moduli, size);
    }
    value = over_warp(value);
    size = over_warp(size);
}

// Numbers of which pairs are read: compilers load two at a time, past an odd end too.
__device__ constexpr u32 in_pairs(u32 count) { return count + count % 2; }

// Where everything is, behind G (m, m) in shared memory. Matrices are stored by columns: one for each new direction.
template <class S, int STEPS> struct Room {
    static constexpr u32 s = STEPS, m = 2 * STEPS + 1;
    S *G, *R, *fresh, *old, *images, *lengths, *trial;
    double *B, *whole, *norms, *sizes;
    u32 *counts; // directions that are independent; steps done

    __device__ __forceinline__ explicit Room(S *room) : G(room) {
        R = G + in_pairs(m * m);
        fresh = R + in_pairs(s * s);
        old = fresh + in_pairs(s * s);
        images = old + in_pairs(s * s);
        lengths = images + s * (s + 1);
        trial = lengths + in_pairs(s);
        B = reinterpret_cast<double *>(trial + in_pairs(s * m));
        whole = B + in_pairs(3 * s);
        norms = whole + in_pairs(s);
        sizes = norms + in_pairs(s);
        counts = reinterpret_cast<u32 *>(sizes + in_pairs(s));
    }
    // <u_i, u_j>, u being images of directions (s), then the basis (s + 1).
    __device__ __forceinline__ S of(u32 i, u32 j) const { return G[j * m + i]; }
    // A v_j = sum_i of up to three v_i, i = j - 1 .. j + 1.
    __device__ __forceinline__ double image(u32 i, u32 j) const { return B[3 * j + (i + 1 - j)]; }
};

// T = L D L^H by one warp, D in place of T's diagonal; L^-1, without the diagonal's ones, in `fresh`, so that
// fresh[i s + k] = (L^-1)_ik. How many of its vectors are independent: the first of them that are.
template <class S, int STEPS>
__device__ __forceinline__ u32 factor_of_directions(const Room<S, STEPS> &at, double pivot) {
    constexpr u32 s = STEPS;
    const u32 lane = threadIdx.x % 32;
    u32 count = 0;
    for (; count < s; ++count) {
        const double left = real_of(at.R[count * s + count]), whole = at.whole[count];
        if (!(left > pivot * whole && left <= AKX_LARGEST)) break;
        const double inverse = 1.0 / left;
        const u32 rest = s - count - 1;
        // Row i below, of T (columns i .. s-1) and of L^-1 (columns 0 .. count): all of them at once.
        for (u32 e = lane; e < rest * s; e += 32) {
            const u32 i = count + 1 + e / s, k = e % s;
            const S factor = scaled(conjugate(at.R[i * s + count]), -inverse, zero<S>());
            if (k >= i)
                at.R[k * s + i] = mad(factor, at.R[k * s + count], at.R[k * s + i]);
            else if (k == count)
                at.fresh[i * s + k] = factor;
            else if (k < count)
                at.fresh[i * s + k] = mad(factor, at.fresh[count * s + k], at.fresh[i * s + k]);
        }
        __syncwarp();
    }
    return count;
}

// All of a block in coordinates, by all threads; `at.G` is there. What came of it is in `at`, the record and the state.
template <class T, int STEPS>
__device__ __forceinline__ void coordinate_steps(const Room<typename Wide<T>::type, STEPS> &at, const T *basis,
                                                 double *state, double *record) {
    typedef typename Wide<T>::type S;
    constexpr u32 s = STEPS, m = 2 * STEPS + 1;
    const u32 me = threadIdx.x, threads = blockDim.x, lane = me % 32;
    for (u32 j = me; j < s; j += threads) { // A v_j = (v_{j+1} - b_j v_j - c_j v_{j-1}) / a_j
        const double a = 1.0 / coefficient(basis, j, 0);
        at.B[3 * j] = j > 0 ? -coefficient(basis, j, 2) * a : 0.0;
        at.B[3 * j + 1] = -coefficient(basis, j, 1) * a;
        at.B[3 * j + 2] = a;
    }
    __syncthreads();
    for (u32 e = me; e < s * s; e += threads) { // T, above its diagonal
        const u32 i = e % s, j = e / s;
        if (i > j) continue;
        S sum = zero<S>();
        for (u32 k = i > 0 ? i - 1 : 0; k <= i + 1; ++k) sum = scaled(at.of(s + k, s + j), at.image(k, i), sum);
        if (i == j) at.whole[i] = real_of(sum);
        S known = zero<S>();
        for (u32 k = 0; k < s; ++k) known = mad(conjugate(at.of(k, s + i)), at.of(k, s + j), known);
        at.R[e] = minus(sum, known);
    }
    __syncthreads();
    if (me < 32) {
        const u32 count = factor_of_directions(at, state[PIVOT]);
        if (lane == 0) at.counts[0] = count;
    }
    __syncthreads();
    const u32 count = at.counts[0];
    for (u32 e = me; e < count * s; e += threads) { // a unit vector in the norm of A
        const u32 j = e / s, i = e % s;
        const double scale = 1.0 / sqrt(real_of(at.R[j * s + j]));
        S one = zero<S>();
        if (i == j) narrow(1.0, one);
        at.fresh[e] = scaled(i < j ? conjugate(at.fresh[e]) : one, scale, zero<S>());
    }
    __syncthreads();
    for (u32 e = me; e < count * (2 * s + 2); e += threads) {
        const u32 j = e / (2 * s + 2), i = e % (2 * s + 2);
        const S *own = at.fresh + j * s;
        S sum = zero<S>();
        if (i < s) { // what is taken out of the directions before
            for (u32 k = 0; k <= j; ++k) sum = mad(at.of(i, s + k), own[k], sum);
            at.old[j * s + i] = minus(zero<S>(), sum);
        } else if (i < 2 * s + 1) { // the image
            const u32 l = i - s, last = min(l + 1, j);
            for (u32 k = l > 0 ? l - 1 : 0; k <= last; ++k) sum = scaled(own[k], at.image(l, k), sum);
            at.images[j * (s + 1) + l] = sum;
        } else { // <p_j, r>
            for (u32 k = 0; k <= j; ++k) sum = mad(conjugate(own[k]), at.of(s + k, s), sum);
            at.lengths[j] = sum;
        }
    }
    __syncthreads();
    for (u32 e = me; e < count * m; e += threads) { // the residual after each step
        const u32 j = e / m, i = e % m;
        S sum = zero<S>();
        for (u32 k = 0; k <= j; ++k)
            sum = mad(at.lengths[k], i < s ? at.old[k * s + i] : at.images[k * (s + 1) + i - s], sum);
        S first = zero<S>();
        if (i == s) narrow(1.0, first);
        at.trial[e] = minus(first, sum);
    }
    __syncthreads();
    for (u32 j = me / 32; j < count; j += threads / 32) {
        double value, size;
        square(m, at.G, at.trial + j * m, value, size);
        if (lane == 0) at.norms[j] = value, at.sizes[j] = size;
    }
    __syncthreads();
    if (me == 0) {
        const double goal = state[GOAL], trust = state[TRUST];
        const u32 most = state[LEFT] < double(count) ? u32(state[LEFT]) : count;
        double gamma = record[4] = real_of(at.of(s, s));
        u32 done = 0;
        while (done < most && gamma > goal && at.norms[done] > trust * at.sizes[done]) {
            gamma = at.norms[done];
            record[AKX_BLOCK_RECORD + 2 * done] = real_of(at.lengths[done]);
            record[AKX_BLOCK_RECORD + 2 * done + 1] = gamma;
            ++done;
        }
        at.counts[1] = done;
        record[0] = done;
        record[1] = record[2] = 0.0;
        record[3] = state[WRONG];
        state[DONE] = done;
        state[LEFT] -= done;
        state[RECORDS] += 1;
    }
    __syncthreads();
}

// What the new rows are made of, for advance_block: for each of the s directions that will be there its coordinates in
// the directions before (s) and in v_0 .. v_{s-1} (s), and those of its image in v_0 .. v_s (s + 1); what x moves along
// each (s). Directions that stay are themselves.
template <class S, int STEPS> __device__ __forceinline__ void factors_of_block(const Room<S, STEPS> &at, S *F) {
    constexpr u32 s = STEPS, wide = 3 * STEPS + 1;
    const u32 done = at.counts[1], stay = s - done;
    for (u32 e = threadIdx.x; e < s * wide + s; e += blockDim.x) {
        S found = zero<S>();
        if (e >= s * wide) {
            const u32 t = e - s * wide;
            if (t >= stay) found = at.lengths[t - stay];
        } else {
            const u32 t = e / wide, i = e % wide;
            if (t < stay) {
                if (i == t + done) narrow(1.0, found);
            } else {
                const u32 j = t - stay;
                found = i < s ? at.old[j * s + i] : i < 2 * s ? at.fresh[j * s + i - s] : at.images[j * (s + 1) + i - 2 * s];
            }
        }
        F[e] = found;
    }
}

// The Gram matrix of [A p_1 .. A p_s, v_0 .. v_s], which W (2 s + 1, n) is here, then the steps, in the last block.
template <class T, int STEPS>
__device__ __forceinline__ void block_of_steps(u64 n, const T *W, const T *basis, typename Wide<T>::type *partial,
                                               u32 *counter, double *state, typename Wide<T>::type *F, double *ring,
                                               u32 slots) {
    typedef typename Wide<T>::type S;
    AKX_DYNAMIC_SHARED(raw);
    constexpr u32 s = STEPS, m = 2 * STEPS + 1;
    constexpr int GROUPS = (m + 7) / 8;
    const Pairs pairs = {m, m, true};
    S *sums = reinterpret_cast<S *>(raw);
    if (!products<T, GROUPS, GROUPS, true>(n, W, pairs, sums, reinterpret_cast<double *>(raw), partial, counter)) return;
    const Room<S, STEPS> at(sums + in_pairs(pairs.count()));
    for (u32 e = threadIdx.x; e < m * m; e += blockDim.x) at.G[e] = pairs.of<S>(sums, e % m, e / m);
    double *record = record_at(ring, state, slots, AKX_BLOCK_RECORD + 2 * s);
    __syncthreads(); // the place of the record is known to all before the state goes on
    coordinate_steps<T, STEPS>(at, basis, state, record);
    factors_of_block(at, F);
    const u32 done = at.counts[1];
    if (threadIdx.x >= 32 || done == 0) return;
    double of_x = 0.0, of_r = 0.0;
    for (u32 i = threadIdx.x; i < m; i += 32) {
        const double length = sqrt(fabs(real_of(at.of(i, i))));
        of_r = fma(modulus(at.trial[(done - 1) * m + i]), length, of_r);
        if (i >= s && i < 2 * s) {
            S sum = zero<S>();
            for (u32 k = 0; k < done; ++k) sum = mad(at.lengths[k], at.fresh[k * s + i - s], sum);
            of_x = fma(modulus(sum), length, of_x);
        }
    }
    of_x = over_warp(of_x);
    of_r = over_warp(of_r);
    if (threadIdx.x == 0) record[1] = of_x, record[2] = of_r;
}

// The end of a block: new directions and images, x moved along the directions, r against the images, in one pass over
// W (3 s + 1, n), r being v_0. Nothing is done where `active` is zero.
template <class T, int STEPS>
__device__ __forceinline__ void advance_block(u64 n, T *W, T *x, const typename Wide<T>::type *F, const double *active) {
    const u32 wide = 3 * STEPS + 1;
    __shared__ T factor[STEPS * (wide + 1)];
    if (active != nullptr && *active == 0.0) return;
    for (u32 e = threadIdx.x; e < STEPS * (wide + 1); e += blockDim.x) narrow(F[e], factor[e]);
    __syncthreads();
    T *P = W, *Q = W + STEPS * n, *V = W + 2 * STEPS * n;
    for (u64 t = u64(blockIdx.x) * blockDim.x + threadIdx.x; t < n; t += u64(gridDim.x) * blockDim.x) {
        T p[STEPS], q[STEPS], v[STEPS + 1];
#pragma unroll
        for (int i = 0; i <= STEPS; ++i) v[i] = V[i * n + t];
#pragma unroll
        for (int i = 0; i < STEPS; ++i) p[i] = P[i * n + t], q[i] = Q[i * n + t];
        T moved = x[t], left = v[0];
#pragma unroll 1
        for (u32 j = 0; j < STEPS; ++j) {
            const T *f = factor + j * wide, length = factor[STEPS * wide + j];
            T direction = zero<T>(), image = zero<T>();
#pragma unroll
            for (int i = 0; i < STEPS; ++i) {
                direction = mad(f[i], p[i], direction);
                image = mad(f[i], q[i], image);
            }
#pragma unroll
            for (int i = 0; i < STEPS; ++i) direction = mad(f[STEPS + i], v[i], direction);
#pragma unroll
            for (int i = 0; i <= STEPS; ++i) image = mad(f[2 * STEPS + i], v[i], image);
            P[j * n + t] = direction;
            Q[j * n + t] = image;
            moved = mad(length, direction, moved);
            left = minus(left, mad(length, image, zero<T>()));
        }
        x[t] = moved;
        V[t] = left;
    }
}

// By how much <p_i, A p_j> is not 1 for i = j and 0 else, at most, of W = [p_1 .. p_s, A p_1 .. A p_s]; directions that
// are zero are not there yet. It goes into the state.
template <class T, int STEPS>
__device__ __forceinline__ void look_at_images(u64 n, const T *W, typename Wide<T>::type *partial, u32 *counter,
                                               double *state) {
    typedef typename Wide<T>::type S;
    AKX_DYNAMIC_SHARED(raw);
    constexpr u32 s = STEPS;
    const Pairs pairs = {2 * s, s, false};
    S *sums = reinterpret_cast<S *>(raw);
    double *half = reinterpret_cast<double *>(raw);
    if (!products<T, (2 * STEPS + 7) / 8, (STEPS + 7) / 8, false>(n, W, pairs, sums, half, partial, counter)) return;
    if (threadIdx.x >= 32) return;
    double wrong = 0.0;
    for (u32 e = threadIdx.x; e < s * s; e += 32) {
        const u32 i = e % s, j = e / s;
        const S found = sums[pairs.place(i, j)];
        S wanted = zero<S>();
        if (i == j && real_of(found) != 0.0) narrow(1.0, wanted);
        const double off = modulus(minus(found, wanted));
        if (wrong == wrong && !(off <= wrong)) wrong = off; // NaN stays
    }
    for (int offset = 16; offset > 0; offset >>= 1) {
        const double other = across(wrong, offset);
        if (wrong == wrong && !(other <= wrong)) wrong = other;
    }
    if (threadIdx.x == 0) state[WRONG] = wrong;
}
