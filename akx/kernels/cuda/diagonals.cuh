// Diagonals: contiguous rows in a part, one thread block each, that keeps its share of the matrix for all steps.
//
//     v_{j+1} = a_j A v_j + b_j v_j + c_j v_{j-1}
//
// A slice is 32 consecutive rows, a row per lane. Its slots are uniform (one offset for all lanes) or scattered (a
// 16-bit row of the window per lane); they are in registers (HS slices per warp, HW uniform slots each), in shared
// memory, and in global memory (the rest, read again in each step; STREAM says that there are any). x lies in shared
// memory, once for even steps and once for odd ones, in a window of consecutive rows; it has zeros before the first and
// behind the last row of the matrix. A warp takes every WARPS-th slice; the first rounds hold those that other windows
// reach into and are published before the others are computed. See akx/formats/diagonals.py for the layout.
#pragma once
#include "parts.cuh"

struct Band {
    int low;                    // first row of the window; may lie before the matrix
    u32 span;                   // rows of the window
    u32 row, rows;              // own rows
    u32 slices, above, below;   // slices, and how many of them at the beginning and at the end others read
    u32 slice;                  // first in `slice_of`
    u32 offset, offsets;        // first in `offset_of`, number: a multiple of 4
    u32 held, near, nears;      // first slot in registers, in shared memory, number of the latter
    u32 column, columns;        // first scattered slot, number of those in shared memory
    u32 neighbour, neighbours;  // first in `neighbour_of`, number
};

struct alignas(16) BandSlice {
    u32 near, far;              // first slot in shared memory (of the part), and in global memory (of all)
    u32 offset;                 // of the first uniform slot that is not held (of the part)
    u32 column, far_column;     // first scattered slot in shared memory (of the part), and in global memory (of all)
    u16 nears, near_scattered;  // numbers
    u16 fars, far_scattered;
    u32 spare;
};

// cp.async of 4, 8 or 16 bytes.
template <int BYTES> __device__ __forceinline__ void copy_some(void *to, const void *from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(to)), "l"(from), "n"(BYTES)
                 : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT> __device__ __forceinline__ void copies_done_but() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

// All warps announce that their border is stored; the one that publishes waits for that, the others go on.
template <int THREADS> __device__ __forceinline__ void announce() {
    asm volatile("barrier.cta.arrive 1, %0;" ::"n"(THREADS) : "memory");
}
template <int THREADS> __device__ __forceinline__ void await_announcements() {
    asm volatile("barrier.cta.sync 1, %0;" ::"n"(THREADS) : "memory");
}

template <class T, int HS, int HW, int NB, int THREADS, bool STREAM> struct Diagonals {
    static constexpr int WARPS = THREADS / 32, STRIDE = NB * int(sizeof(T));
    // Offsets of a slice with held slots, read four at a time.
    static constexpr int FOURS = (HW + 3) / 4;
    // Slices with held slots that a warp does at once.
    static constexpr int PAIR = HS > 1 && NB == 1 && sizeof(T) <= 8 ? 2 : 1;
    static constexpr int AHEAD = !STREAM ? 1 : (sizeof(T) > 8 ? 4 : 8);
    static constexpr int BATCH = NB > 1 || sizeof(T) > 8 ? 1 : 4;

    struct alignas(STRIDE < 16 ? STRIDE : 16) Pack {
        T of[NB];
    };
    struct Asked {
        T value[AHEAD];
        u16 column[AHEAD];
    };

    static __device__ __forceinline__ void take(T (&sum)[NB], T value, const char *at) {
        const Pack x = *reinterpret_cast<const Pack *>(at);
#pragma unroll
        for (int v = 0; v < NB; ++v) sum[v] = mad(value, x.of[v], sum[v]);
    }

    struct Step {
        const BandSlice *slices;
        const T *values, *near_value, *coefficient;
        const u16 *columns, *near_column;
        const int *offset;
        const char *cur;  // x in shared memory, from the window's first row
        char *next;
        T *y;             // the result of the first own row
        u32 count, above, border, own, rows;
        bool own_term, older_term;
        i64 n;
        u32 lane, share;
        u64 kept, passing;

        // Row of the part that this lane has in slice s.
        __device__ __forceinline__ u32 row_of(u32 s) const {
            const u32 place = s < above ? s : (s < border ? s + (count - border) : s - (border - above));
            return place * 32 + lane;
        }

        __device__ __forceinline__ void finish(u32 row, const T (&sum)[NB]) const {
            if (row >= rows) return;
            const u32 at = (own + row) * STRIDE;
            Pack made, now, before;
            if (own_term) now = *reinterpret_cast<const Pack *>(cur + at);
            if (older_term) before = *reinterpret_cast<const Pack *>(next + at);
#pragma unroll
            for (int v = 0; v < NB; ++v) {
                T value = mad(coefficient[0], sum[v], zero<T>());
                if (own_term) value = mad(coefficient[1], now.of[v], value);
                if (older_term) value = mad(coefficient[2], before.of[v], value);
                made.of[v] = value;
                store_passing(y + (v * n + row), value, passing);
            }
            *reinterpret_cast<Pack *>(next + at) = made;
        }

        // What of slice s is not in registers.
        __device__ __forceinline__ void others(u32 s, u32 row, T (&sum)[NB], u32 after, Asked &ahead) const {
            const BandSlice slice = slices[s];
            const char *here = cur + (own + row) * STRIDE;
            const T *value = near_value + slice.near * 32 + lane;
            const int *off = offset + slice.offset;
#pragma unroll 4
            for (u32 q = 0; q < slice.nears; ++q) take(sum, value[q * 32], here + off[q]);
            value += slice.nears * 32;
            const u16 *column = near_column + slice.column * 32 + lane;
#pragma unroll 2
            for (u32 q = 0; q < slice.near_scattered; ++q) take(sum, value[q * 32], cur + u32(column[q * 32]) * STRIDE);
            if (STREAM) {
                off += slice.nears;
                const u32 all = u32(slice.fars) + slice.far_scattered;
                for (u32 f = 0; f < all;) {
#pragma unroll
                    for (int u = 0; u < AHEAD; ++u)
                        if (f + u < all)
                            take(sum, ahead.value[u],
                                 f + u < slice.fars ? here + off[f + u] : cur + u32(ahead.column[u]) * STRIDE);
                    f += AHEAD;
                    if (f < all) ask(s, slice, f, ahead);
                }
                ask(after, slices[after], 0, ahead);
            }
        }

        __device__ __forceinline__ void ask(u32 s, const BandSlice &slice, u32 f, Asked &ahead) const {
            const u64 policy = s % 16 < share ? kept : passing;
            const u32 all = u32(slice.fars) + slice.far_scattered;
            const T *value = values + (u64(slice.far) + f) * 32 + lane;
#pragma unroll
            for (int u = 0; u < AHEAD; ++u)
                if (f + u < all) {
                    ahead.value[u] = load_kept(value + u * 32, policy);
                    if (f + u >= slice.fars)
                        ahead.column[u] = load_kept(columns + (u64(slice.far_column) + (f + u - slice.fars)) * 32 + lane,
                                                    policy);
                }
        }
    };

    // x of a step on the rows of others: wait for their flags, then two contiguous ranges.
    static __device__ __forceinline__ void fetch(const Band &band, const u32 *neighbour_of, const u32 *flags, u32 number,
                                                 const T *from, i64 n, char *next, u32 thread) {
        for (u32 q = thread & 31; q < band.neighbours; q += 32) {
            const u32 *flag = flags + neighbour_of[band.neighbour + q];
            while (int(flag_of(flag) - number) < 0) {}
        }
        __syncwarp();
        const u32 before = band.low < 0 ? u32(-band.low) : 0u, own = u32(int(band.row) - band.low);
        const u32 behind = min(band.span, u32(int(n) - band.low)), upper = own - before;
        const u32 halo = upper + (behind > own + band.rows ? behind - (own + band.rows) : 0u);
        for (u32 first = thread; first < halo; first += BATCH * THREADS) {
            T value[BATCH][NB];
#pragma unroll
            for (int u = 0; u < BATCH; ++u) {
                const u32 e = first + u * THREADS;
                if (e < halo)
#pragma unroll
                    for (int v = 0; v < NB; ++v)
                        value[u][v] = load_foreign(
                            from + v * n + (band.low + int(e < upper ? before + e : e - upper + own + band.rows)));
            }
#pragma unroll
            for (int u = 0; u < BATCH; ++u) {
                const u32 e = first + u * THREADS;
                if (e < halo) {
                    Pack made;
#pragma unroll
                    for (int v = 0; v < NB; ++v) made.of[v] = value[u][v];
                    *reinterpret_cast<Pack *>(next + (e < upper ? before + e : e - upper + own + band.rows) * STRIDE) =
                        made;
                }
            }
        }
    }

    static __device__ __forceinline__ void run(const Band *bands, const BandSlice *slice_of, const int *offset_of,
                                               const u32 *neighbour_of, const T *values, const u16 *columns,
                                               const T *coefficients, u32 *flags, const T *x, T *out, u32 k,
                                               u32 vectors, u32 from_vector, u32 to_vector, i64 n, u32 share) {
        extern __shared__ __align__(16) unsigned char memory[];
        const u32 me = blockIdx.x, thread = threadIdx.x, lane = thread & 31, warp = thread / 32;
        __shared__ Band band;
        if (thread == 0) band = bands[me];
        u32 done = flag_of(flags + me);  // all parts have done the same number of steps so far
        __syncthreads();
        const u64 kept = keep_policy(), passing = pass_policy(), once = STREAM ? passing : kept;

        // Shared memory: coefficients, slices, offsets, values, columns, x.
        T *coefficient = reinterpret_cast<T *>(memory);
        BandSlice *slices = reinterpret_cast<BandSlice *>(memory + (k * 3 * sizeof(T) + 15) / 16 * 16);
        int *offset = reinterpret_cast<int *>(slices + band.slices);
        T *near_value = reinterpret_cast<T *>(offset + band.offsets);
        u16 *near_column = reinterpret_cast<u16 *>(near_value + size_t(band.nears) * 32);
        char *xs = reinterpret_cast<char *>(near_column + size_t(band.columns) * 32);
        const u32 bytes = (band.span * STRIDE + 15) / 16 * 16;

        // x of the first vectors, then what the part keeps: all on its way at once.
        auto ask_x = [&](u32 first) {
            const T *start = x + i64(first) * n;
            for (u32 i = thread; i < band.span; i += THREADS) {
                const i64 row = i64(band.low) + i;
                const bool inside = row >= 0 && row < n;
#pragma unroll
                for (int v = 0; v < NB; ++v) {
                    T *target = reinterpret_cast<T *>(xs + i * STRIDE) + v;
                    if (inside) copy_some<sizeof(T)>(target, start + v * n + row);
                    else *target = zero<T>(), *reinterpret_cast<T *>(reinterpret_cast<char *>(target) + bytes) = zero<T>();
                }
            }
            commit_copies();
        };
        ask_x(from_vector);
        {
            const char *source = reinterpret_cast<const char *>(slice_of + band.slice);
            char *target = reinterpret_cast<char *>(slices);
            for (u32 i = thread; i < band.slices * u32(sizeof(BandSlice) / 16); i += THREADS)
                copy16(target + 16 * i, source + 16 * u64(i), once);
            source = reinterpret_cast<const char *>(values + u64(band.near) * 32);
            target = reinterpret_cast<char *>(near_value);
            for (u32 i = thread; i < band.nears * (2 * u32(sizeof(T))); i += THREADS)
                copy16(target + 16 * i, source + 16 * u64(i), once);
            source = reinterpret_cast<const char *>(columns + u64(band.column) * 32);
            target = reinterpret_cast<char *>(near_column);
            for (u32 i = thread; i < band.columns * 4; i += THREADS) copy16(target + 16 * i, source + 16 * u64(i), once);
            commit_copies();
        }
        T held[HS > 0 ? HS : 1][HW > 0 ? HW : 1];
#pragma unroll
        for (int t = 0; t < HS; ++t) {
            const u32 s = warp + t * WARPS;
#pragma unroll
            for (int q = 0; q < HW; ++q)
                held[t][q] = s < band.slices
                                 ? load_kept(values + (u64(band.held) + s * HW + q) * 32 + lane, once) : zero<T>();
        }
        for (u32 i = thread; i < 3 * k; i += THREADS) coefficient[i] = coefficients[i];
        for (u32 i = thread; i < band.offsets; i += THREADS) offset[i] = offset_of[band.offset + i] * STRIDE;

        const u32 rounds = (band.slices + WARPS - 1) / WARPS, border = band.above + band.below;
        u32 early = (border + WARPS - 1) / WARPS;  // rounds before the others are told
        if (early < HS) early = (early + PAIR - 1) / PAIR * PAIR;
        u32 more = 0;  // a bit for each slice that has other slots than those in registers
        Asked ahead;

        for (u32 first = from_vector; first < to_vector; first += NB) {
            if (first > from_vector) ask_x(first);
            if (first == from_vector) copies_done_but<1>();
            else copies_done();
            // Each thread has what it copied itself.
            for (u32 i = thread; i < band.span; i += THREADS) {
                const u32 row = u32(i + band.low - int(band.row));
                if (row < band.rows)
#pragma unroll
                    for (int v = 0; v < NB; ++v)
                        store_passing(out + (i64(first + v) * n + band.row + row),
                                      reinterpret_cast<const T *>(xs + i * STRIDE)[v], passing);
            }
            copies_done();
            __syncthreads();
            if (first == from_vector)
                for (int t = 0; t < HS; ++t) {
                    const u32 s = warp + t * WARPS;
                    const BandSlice slice = slices[s < band.slices ? s : 0];
                    const bool any = slice.nears + slice.near_scattered + slice.fars + slice.far_scattered > 0;
                    if (s < band.slices && any) more |= 1u << t;
                }
            // The slice after s among those of this warp that have slots elsewhere; the first one after the last.
            auto following = [&](u32 s) {
                u32 t = s / WARPS + 1;
                if (t < HS) t = (more >> t) ? t + u32(__ffs(int(more >> t))) - 1 : HS;
                if (warp + t * WARPS < band.slices) return warp + t * WARPS;
                t = more ? u32(__ffs(int(more))) - 1 : HS;
                return warp + t * WARPS < band.slices ? warp + t * WARPS : 0xffffffffu;
            };
            if (STREAM) {
                const u32 begin = HS > 0 ? (more ? warp + u32(__ffs(int(more)) - 1) * WARPS : warp + HS * WARPS) : warp;
                Step at;
                at.values = values, at.columns = columns, at.lane = lane, at.share = share;
                at.kept = kept, at.passing = passing;
                if (begin < band.slices) at.ask(begin, slices[begin], 0, ahead);
            }
            for (u32 j = 0; j < k; ++j) {
                Step at;
                at.slices = slices, at.values = values, at.columns = columns;
                at.near_value = near_value, at.near_column = near_column, at.offset = offset;
                at.coefficient = coefficient + 3 * j;
                at.cur = xs + (j & 1 ? bytes : 0u);
                at.next = xs + (j & 1 ? 0u : bytes);
                T *result = out + (i64(j + 1) * vectors + first) * n;
                at.y = result + band.row;
                at.count = band.slices, at.above = band.above, at.border = border;
                at.own = u32(int(band.row) - band.low), at.rows = band.rows;
                at.own_term = !is_zero(at.coefficient[1]);
                at.older_term = j > 0 && !is_zero(at.coefficient[2]);
                at.n = n, at.lane = lane, at.share = share, at.kept = kept, at.passing = passing;
                const u32 number = done + j + 1;
#pragma unroll 1
                for (int inner = 0; inner < 2; ++inner) {
                    const u32 begin = inner ? early : 0u, end = inner ? rounds : early;
#pragma unroll
                    for (int t = 0; t < HS; t += PAIR)
                        if (t >= begin && t < end) {
                            T sum[PAIR][NB];
                            u32 row[PAIR];
#pragma unroll
                            for (int p = 0; p < PAIR; ++p) {
                                const u32 s = warp + (t + p) * WARPS;
                                const bool there = t + p < HS && s < band.slices;
                                row[p] = there ? at.row_of(s) : 0xffffffffu;
                                const char *here = at.cur + (at.own + (there ? row[p] : 0u)) * STRIDE;
                                const int4 *table = reinterpret_cast<const int4 *>(offset) + (there ? s : 0u) * FOURS;
#pragma unroll
                                for (int v = 0; v < NB; ++v) sum[p][v] = zero<T>();
#pragma unroll
                                for (int f = 0; f < FOURS; ++f) {
                                    const int4 off = table[f];
#pragma unroll
                                    for (int q = 4 * f; q < HW && q < 4 * f + 4; ++q)
                                        take(sum[p], held[t + p < HS ? t + p : t][q],
                                             here + (q % 4 == 0 ? off.x : q % 4 == 1 ? off.y : q % 4 == 2 ? off.z : off.w));
                                }
                            }
#pragma unroll
                            for (int p = 0; p < PAIR; ++p) {
                                const u32 s = warp + (t + p) * WARPS;
                                if (t + p < HS && more >> (t + p) & 1)
                                    at.others(s, row[p], sum[p], STREAM ? following(s) : 0u, ahead);
                                if (t + p < HS) at.finish(row[p], sum[p]);
                            }
                        }
#pragma unroll 1
                    for (u32 t = max(begin, u32(HS)); t < end; ++t) {
                        const u32 s = warp + t * WARPS;
                        if (s < band.slices) {
                            T sum[NB];
#pragma unroll
                            for (int v = 0; v < NB; ++v) sum[v] = zero<T>();
                            const u32 row = at.row_of(s);
                            at.others(s, row, sum, STREAM ? following(s) : 0u, ahead);
                            at.finish(row, sum);
                        }
                    }
                    if (!inner) {
                        if (warp == WARPS - 1) {
                            await_announcements<THREADS>();
                            if (lane == 0) raise(flags + me, number);
                        } else announce<THREADS>();
                    }
                }
                if (j + 1 < k) fetch(band, neighbour_of, flags, number, result, n, at.next, thread);
                __syncthreads();
            }
            done += k;
        }
    }
};
