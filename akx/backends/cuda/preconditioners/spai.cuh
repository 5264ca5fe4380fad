// The sparse approximate inverse: the pattern of M, and one small least-squares problem for each of its columns,
//
//     min ||A(I, J) m - e_k(I)||,   J = rows that the pattern allows column k, I = rows that the columns J of A reach.
//
// A team of threads (team.cuh) solves one: a warp where the problem is small, a block where it is not, in shared memory
// or, where that is too small, in a place of its own in device memory that it uses again for its next problem. I is
// found by sorting the rows of the columns J; A(I, J) | e_k(I) is dense, n1 x (n2 + 1), its columns contiguous, and
// factorised by Householder reflections, each warp of the team applying them to other columns. All arithmetic is in
// double precision, in a fixed order, whoever solves what and when.
//
// A is in CSC: `start`, `row`, `value`. So is the pattern of M: `kept_start`, `kept`.
#pragma once
#include "include/team.cuh"

__device__ __forceinline__ double widen(float a) { return double(a); }
__device__ __forceinline__ double widen(double a) { return a; }
__device__ __forceinline__ cdouble widen(cfloat a) { return {double(a.re), double(a.im)}; }
__device__ __forceinline__ cdouble widen(cdouble a) { return a; }
__device__ __forceinline__ void narrow(double a, float &to) { to = float(a); }
__device__ __forceinline__ void narrow(double a, double &to) { to = a; }
__device__ __forceinline__ void narrow(cdouble a, cfloat &to) { to = {float(a.re), float(a.im)}; }
__device__ __forceinline__ void narrow(cdouble a, cdouble &to) { to = a; }
template <class T> using Wide = decltype(widen(T()));

__device__ __forceinline__ double one(double) { return 1.0; }
__device__ __forceinline__ cdouble one(cdouble) { return {1.0, 0.0}; }
__device__ __forceinline__ double conjugate(double a) { return a; }
__device__ __forceinline__ cdouble conjugate(cdouble a) { return {a.re, -a.im}; }
__device__ __forceinline__ double times(double a, double b) { return a * b; }
__device__ __forceinline__ cdouble times(double a, cdouble b) { return {a * b.re, a * b.im}; }
__device__ __forceinline__ double square(double a) { return a * a; }
__device__ __forceinline__ double square(cdouble a) { return a.re * a.re + a.im * a.im; }
// The parts of the matrix are at most 1 and of a norm that is not tiny: nothing here overflows, or matters where it
// underflows.
__device__ __forceinline__ double quotient(double a, double b) { return a / b; }
__device__ __forceinline__ cdouble quotient(cdouble a, cdouble b) {
    const double size = square(b);
    return {(a.re * b.re + a.im * b.im) / size, (a.im * b.re - a.re * b.im) / size};
}
__device__ __forceinline__ bool is_number(float a) { return fabsf(a) <= 3.402823466e+38f; }
__device__ __forceinline__ bool is_number(double a) { return fabs(a) <= 1.7976931348623157e+308; }
__device__ __forceinline__ bool is_number(cfloat a) { return is_number(a.re) && is_number(a.im); }
__device__ __forceinline__ bool is_number(cdouble a) { return is_number(a.re) && is_number(a.im); }

// |a|. Of complex numbers only where `sizes` gives them, so that they are the host's to the bit.
template <class T> __device__ __forceinline__ double size_of(const T *values, const double *sizes, u64 p) {
    return load(sizes + p);
}
template <> __device__ __forceinline__ double size_of<float>(const float *values, const double *, u64 p) {
    return fabs(double(load(values + p)));
}
template <> __device__ __forceinline__ double size_of<double>(const double *values, const double *, u64 p) {
    return fabs(load(values + p));
}

__device__ __forceinline__ double warp_most(double a) {
    for (int offset = WARP / 2; offset > 0; offset >>= 1) a = fmax(a, across(a, offset));
    return a;
}

// ------------------------------------------------------------------------------------------------------------ pattern

// The largest size in each row of CSR, or each column of CSC: a warp each. Where `scale` is given, the power of two
// that makes it 1/2 to 1 instead.
template <class T>
__device__ __forceinline__ void largest(u32 rows, const u32 *start, const T *values, const double *sizes, double *most,
                                        double *scale) {
    const u64 row = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / WARP;
    if (row >= rows) return;
    const u32 lane = threadIdx.x % WARP, end = load(start + row + 1);
    double found = 0.0;
    for (u32 p = load(start + row) + lane; p < end; p += WARP) found = fmax(found, size_of(values, sizes, p));
    found = warp_most(found);
    if (lane != 0) return;
    if (scale == nullptr) {
        most[row] = found;
    } else {
        const int raise = found > 0.0 ? -1 - ilogb(found) : 0;
        scale[row] = ldexp(1.0, raise < 1022 ? raise : 1022);
    }
}

// Rows i of each column k with |a_ik| > factor max_j |a_ij|, and k itself, ascending: counted where `kept` is null,
// else written. A warp for each column.
template <class T>
__device__ __forceinline__ void keep(u32 n, const u32 *start, const u32 *row, const T *values, const double *sizes,
                                     const double *most, double factor, u32 *kept_start, u32 *kept) {
    const u64 k = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / WARP;
    if (k >= n) return;
    const u32 lane = threadIdx.x % WARP, begin = load(start + k), end = load(start + k + 1);
    bool met = false;
    for (u32 base = begin; base < end; base += WARP) {
        const u32 p = base + lane;
        met = met || __ballot_sync(ALL, p < end && load(row + p) == k) != 0;
    }
    const u32 place = kept == nullptr ? 0 : kept_start[k];
    u32 before = 0, ahead = 0; // those kept so far, and those of them above the diagonal
    for (u32 base = begin; base < end; base += WARP) {
        const u32 p = base + lane, i = p < end ? load(row + p) : 0;
        const bool wanted = p < end && (i == k || size_of(values, sizes, p) > factor * load(most + i));
        const u32 those = __ballot_sync(ALL, wanted), above = __ballot_sync(ALL, wanted && i < k);
        if (kept != nullptr && wanted) {
            const u32 rank = before + u32(__popc(those & ((1u << lane) - 1)));
            kept[place + rank + (!met && i > k ? 1 : 0)] = i;
        }
        before += u32(__popc(those)), ahead += u32(__popc(above));
    }
    if (lane != 0) return;
    if (kept == nullptr) kept_start[k] = before + (met ? 0 : 1);
    else if (!met) kept[place + ahead] = u32(k);
}

// ------------------------------------------------------------------------------------------------------------ classes

// Bytes that a team needs for a local problem: `from`, `first` and the rows, then what is sorted, or the dense matrix.
__device__ __forceinline__ u64 head_bytes(u64 n1, u64 n2) { return (4 * (2 * n2 + 1 + n1) + 15) / 16 * 16; }
__device__ __forceinline__ u64 sort_bytes(u64 reached, u64 n2) { return head_bytes(0, n2) + 4 * reached; }
template <class W> __device__ __forceinline__ u64 solve_bytes(u64 n1, u64 n2) {
    return head_bytes(n1, n2) + sizeof(W) * n1 * (n2 + 1);
}

// How many entries the columns J have: a warp for each column of M. Numbers of 2^31 and more cannot be sorted.
__device__ __forceinline__ void reached_entries(u32 n, const u32 *start, const u32 *kept_start, const u32 *kept,
                                                u64 *need) {
    const u64 k = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / WARP;
    if (k >= n) return;
    const u32 lane = threadIdx.x % WARP, begin = load(kept_start + k), end = load(kept_start + k + 1);
    double count = 0.0; // exact
    for (u32 q = begin + lane; q < end; q += WARP) {
        const u32 j = load(kept + q);
        count += double(load(start + j + 1) - load(start + j));
    }
    count = warp_sum(count);
    if (lane == 0) need[k] = count < 2147483648.0 ? sort_bytes(u64(count), end - begin) : ~0ull;
}

__device__ __forceinline__ u32 class_of(u64 need, u32 classes, const u64 *limits) {
    u32 found = 0;
    while (found + 1 < classes && load(limits + found) < need) ++found;
    return found;
}

// How many columns are in each class, and the most that one of them needs. `shared` is 16 numbers for each class.
__device__ __forceinline__ void count_classes(u32 n, const u64 *need, u32 classes, const u64 *limits, u32 *count,
                                              u64 *most, u8 *shared) {
    u64 *largest_here = reinterpret_cast<u64 *>(shared);
    u32 *here = reinterpret_cast<u32 *>(largest_here + classes);
    if (threadIdx.x < classes) here[threadIdx.x] = 0, largest_here[threadIdx.x] = 0;
    __syncthreads();
    const u64 k = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (k < n) {
        const u32 own = class_of(load(need + k), classes, limits);
        atomicAdd(here + own, 1u);
        atomicMax(largest_here + own, load(need + k));
    }
    __syncthreads();
    if (threadIdx.x < classes && here[threadIdx.x] > 0) {
        atomicAdd(count + threadIdx.x, here[threadIdx.x]);
        atomicMax(most + threadIdx.x, largest_here[threadIdx.x]);
    }
}

// The columns of each class, in any order; `next` is where the next of each goes in `list`.
__device__ __forceinline__ void list_classes(u32 n, const u64 *need, u32 classes, const u64 *limits, u32 *next,
                                             u32 *list, u8 *shared) {
    u32 *here = reinterpret_cast<u32 *>(shared), *place = here + classes;
    if (threadIdx.x < classes) here[threadIdx.x] = 0;
    __syncthreads();
    const u64 k = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    u32 own = 0, rank = 0;
    if (k < n) {
        own = class_of(load(need + k), classes, limits);
        rank = atomicAdd(here + own, 1u);
    }
    __syncthreads();
    if (threadIdx.x < classes && here[threadIdx.x] > 0)
        place[threadIdx.x] = atomicAdd(next + threadIdx.x, here[threadIdx.x]);
    __syncthreads();
    if (k < n) list[place[own] + rank] = u32(k);
}

// ------------------------------------------------------------------------------------------------------ local problems

// The columns J of A: first[q] entries are in those before column q of them, from[q] is its first. How many in all.
template <int TEAM>
__device__ __forceinline__ u32 find_columns(const Team<TEAM> &team, const u32 *start, const u32 *kept, u32 n2,
                                            u32 *from, u32 *first) {
    if (team.warp == 0) {
        u32 before = 0;
        for (u32 base = 0; base < n2; base += WARP) {
            const u32 q = base + u32(team.lane);
            u32 count = 0;
            if (q < n2) {
                const u32 j = load(kept + q);
                from[q] = load(start + j);
                count = load(start + j + 1) - from[q];
            }
            const u32 upto = warp_scan(count, team.lane);
            if (q < n2) first[q] = before + upto - count;
            before += __shfl_sync(ALL, upto, WARP - 1);
        }
        if (team.lane == 0) first[n2] = before;
    }
    team.sync();
    return first[n2];
}

// I, ascending, into `rows`, or only how many they are where that is null.
template <int TEAM>
__device__ __forceinline__ u32 find_rows_of(const Team<TEAM> &team, const u32 *row, u32 n2, const u32 *from,
                                            const u32 *first, u32 *sorted, u32 *rows) {
    const u32 reached = first[n2];
    for (u32 e = team.rank; e < reached; e += TEAM) {
        const u32 q = place_of(first, n2, e);
        sorted[e] = load(row + from[q] + (e - first[q]));
    }
    team.sync();
    sort_items(team, sorted, reached);
    u32 found = 0;
    if (team.warp == 0) {
        for (u32 base = 0; base < reached; base += WARP) {
            const u32 e = base + u32(team.lane);
            const bool fresh = e < reached && (e == 0 || sorted[e] != sorted[e - 1]);
            const u32 those = __ballot_sync(ALL, fresh);
            if (fresh && rows != nullptr) rows[found + u32(__popc(those & ((1u << team.lane) - 1)))] = sorted[e];
            found += u32(__popc(those));
        }
    }
    team.sync();
    return team.share(found);
}

// n1, and with it what the local problem needs.
template <class T> struct Measure {
    const u32 *start, *row, *kept_start, *kept;
    u32 *n1;
    u64 *need;

    template <int TEAM> __device__ __forceinline__ void operator()(const Team<TEAM> &team, u32 k, u8 *room) const {
        const u32 begin = load(kept_start + k), n2 = load(kept_start + k + 1) - begin;
        u32 *from = reinterpret_cast<u32 *>(room), *first = from + n2;
        u32 *sorted = reinterpret_cast<u32 *>(room + head_bytes(0, n2));
        find_columns(team, start, kept + begin, n2, from, first);
        const u32 found = find_rows_of(team, row, n2, from, first, sorted, static_cast<u32 *>(nullptr));
        if (team.rank == 0) n1[k] = found, need[k] = solve_bytes<Wide<T>>(found, n2);
        team.sync();
    }
};

// R and Q^H e_k in the place of A(I, J) and e_k; column pivot[t] is the one with row t of R as its last. Columns whose
// part orthogonal to those before is smaller than `tolerance`, relative to themselves, are left out. The rows of R.
template <class W, int TEAM>
__device__ __forceinline__ u32 factorise(const Team<TEAM> &team, u32 n1, u32 n2, double tolerance, W *dense,
                                         u32 *pivot) {
    u32 r = 0;
    for (u32 q = 0; q < n2 && r < n1; ++q) {
        W *x = dense + u64(q) * n1;
        double above = 0.0, below = 0.0;
        for (u32 i = team.rank; i < n1; i += TEAM) {
            const double size = square(x[i]);
            if (i < r) above += size;
            else below += size;
        }
        team.sum(above, below);
        if (below <= tolerance * tolerance * (above + below)) continue;
        // The reflection I - v v^H / beta takes x to alpha e_r; v is x but for its first entry.
        const W head = x[r];
        const double norm = sqrt(below), size = sqrt(square(head)), beta = below + norm * size;
        const W alpha = size > 0.0 ? times(-norm / size, head) : times(-norm, one(head));
        const W top = add(head, times(-1.0, alpha));
        for (u32 c = q + 1 + team.warp; c <= n2; c += Team<TEAM>::WARPS) {
            W *y = dense + u64(c) * n1;
            W total = zero<W>();
            for (u32 i = r + u32(team.lane); i < n1; i += WARP)
                total = mad(conjugate(i == r ? top : x[i]), y[i], total);
            total = times(-1.0 / beta, warp_sum(total));
            for (u32 i = r + u32(team.lane); i < n1; i += WARP) y[i] = mad(i == r ? top : x[i], total, y[i]);
        }
        team.sync();
        if (team.rank == 0) x[r] = alpha, pivot[r] = q;
        ++r;
    }
    team.sync();
    return r;
}

// Column k of M and ||A m_k - e_k||^2; how many of its entries are beyond the numbers, and whether all are zero.
template <class T> struct Solve {
    const u32 *start, *row;
    const T *value;
    const double *scale;
    const u32 *kept_start, *kept, *sizes;
    double tolerance;
    T *result;
    double *misfit;
    u32 *odd;

    template <int TEAM> __device__ __forceinline__ void operator()(const Team<TEAM> &team, u32 k, u8 *room) const {
        typedef Wide<T> W;
        const u32 begin = load(kept_start + k), n2 = load(kept_start + k + 1) - begin, n1 = load(sizes + k);
        const u32 *columns = kept + begin;
        u32 *from = reinterpret_cast<u32 *>(room), *first = from + n2, *rows = first + n2 + 1, *pivot = from;
        W *dense = reinterpret_cast<W *>(room + head_bytes(n1, n2)), *right = dense + u64(n1) * n2;
        const u32 reached = find_columns(team, start, columns, n2, from, first);
        find_rows_of(team, row, n2, from, first, reinterpret_cast<u32 *>(dense), rows);
        for (u64 at = team.rank; at < u64(n1) * (n2 + 1); at += TEAM) dense[at] = zero<W>();
        team.sync();
        for (u32 e = team.rank; e < reached; e += TEAM) {
            const u32 q = place_of(first, n2, e), p = from[q] + (e - first[q]);
            dense[u64(q) * n1 + place_of(rows, n1, load(row + p))] =
                times(load(scale + load(columns + q)), widen(load(value + p)));
        }
        const u32 own = n1 == 0 ? 0 : place_of(rows, n1, k);
        const bool among = n1 > 0 && rows[own] == k;
        if (among && team.rank == 0) right[own] = one(zero<W>());
        team.sync();
        const u32 r = factorise(team, n1, n2, tolerance, dense, pivot);
        double rest = 0.0, nothing = 0.0;
        for (u32 i = r + team.rank; i < n1; i += TEAM) rest += square(right[i]);
        team.sum(rest, nothing);
        if (team.warp == 0) {
            T *m = result + begin;
            for (u32 q = u32(team.lane); q < n2; q += WARP) m[q] = zero<T>();
            __syncwarp();
            u32 lost = 0, there = 0;
            for (u32 t = r; t-- > 0;) {
                const u32 q = pivot[t];
                const W *x = dense + u64(q) * n1;
                const W found = quotient(right[t], x[t]), back = times(-1.0, found);
                for (u32 i = u32(team.lane); i < t; i += WARP) right[i] = mad(back, x[i], right[i]);
                __syncwarp();
                if (team.lane == 0) {
                    const W wide = times(load(scale + load(columns + q)), found);
                    T entry;
                    narrow(wide, entry);
                    if (is_number(entry)) m[q] = entry, there += !is_zero(wide);
                    else ++lost;
                }
            }
            if (team.lane == 0) {
                misfit[k] = among ? rest : 1.0;
                if (lost > 0) atomicAdd(odd, lost);
                if (there == 0) atomicAdd(odd + 1, 1u);
            }
        }
        team.sync();
    }
};

// `work` on each column of a list: by team `blockIdx.x` in shared memory, or where `queue` counts those that are taken,
// by blocks that take the next as they come, each in `bytes` of device memory of its own.
template <int TEAM, class Work>
__device__ __forceinline__ void each_column(u32 count, const u32 *list, u64 bytes, u8 *places, u32 *queue, u8 *shared,
                                            const Work &work) {
    const Team<TEAM> team(shared);
    if (queue == nullptr) {
        const u32 teams = blockDim.x / TEAM, own = threadIdx.x / TEAM;
        const u64 number = u64(blockIdx.x) * teams + own;
        if (number < count) work(team, load(list + number), shared + (TEAM > WARP ? TEAM_BYTES : 0) + own * bytes);
        return;
    }
    for (;;) {
        const u32 number = team.share(team.rank == 0 ? atomicAdd(queue, 1u) : 0);
        if (number >= count) return;
        work(team, load(list + number), places + blockIdx.x * bytes);
    }
}
