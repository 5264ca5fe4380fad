// Diagonals: contiguous rows in a part, one thread block each, that keeps its share of the matrix for all steps.
//
//     v_{j+1} = a_j A v_j + b_j v_j + c_j v_{j-1}
//
// A slice is 32 consecutive rows, a row per lane. Its slots are uniform (one offset for the lanes before the slice's
// cut, one for the others) or scattered (a 16-bit row of the window per lane); they are in registers (HS slices per
// warp, HW uniform slots each), in shared memory, and in global memory (the rest, read again in each step; STREAM says
// that there are any). x lies in shared memory, once for even steps and once for odd ones, in a window of consecutive
// rows; it has zeros before the first and behind the last row of the matrix. A warp takes every WORKERS-th slice; first
// come those that other windows reach into. When all of these are stored the last warp publishes them and waits for
// the neighbours, while the others compute the rest: from there on slices that would be its are not there. See
// akx/formats/banded.py for the layout.
#pragma once
#include "variants/block_local/parts.cuh"

struct Band {
    int low;                    // first row of the window; may lie before the matrix
    u32 span;                   // rows of the window
    u32 row, rows;              // own rows
    u32 slices, border;         // places of slices, empty ones too; the first ones others read
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
    u16 cut;                    // rows from here on have offsets of their own, behind those of the others
    u16 number;                 // of the slices of the part in the order of rows
};

__device__ __forceinline__ int one_of(const int4 &four, int i) {
    return i == 0 ? four.x : (i == 1 ? four.y : (i == 2 ? four.z : four.w));
}

#ifndef AKX_ON_HOST
// cp.async of 4, 8 or 16 bytes.
template <int BYTES> __device__ __forceinline__ void copy_some(void *to, const void *from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(to)), "l"(from), "n"(BYTES)
                 : "memory");
}
// All warps announce that their border is stored; the one that publishes waits for that, the others go on.
template <int THREADS> __device__ __forceinline__ void announce() {
    asm volatile("barrier.cta.arrive 1, %0;" ::"n"(THREADS) : "memory");
}
template <int THREADS> __device__ __forceinline__ void await_announcements() {
    asm volatile("barrier.cta.sync 1, %0;" ::"n"(THREADS) : "memory");
}
#endif

// Results are not read again but for the border: the first to leave L2.
__device__ __forceinline__ void store_once(double *p, double v) { __stcs(p, v); }
__device__ __forceinline__ void store_once(float *p, float v) { __stcs(p, v); }
__device__ __forceinline__ void store_once(cfloat *p, cfloat v) {
    __stcs(reinterpret_cast<float2 *>(p), make_float2(v.re, v.im));
}
__device__ __forceinline__ void store_once(cdouble *p, cdouble v) {
    __stcs(reinterpret_cast<double2 *>(p), make_double2(v.re, v.im));
}

template <class T, int HS, int HW, int NB, int THREADS, bool STREAM> struct Diagonals {
    // The last warp publishes the border, and waits for that of others, while the rest is computed.
    static constexpr int WORKERS = THREADS / 32, EXCHANGES = WORKERS - 1, STRIDE = NB * int(sizeof(T));
    // Offsets of a slice with held slots, before its cut or behind it, and of all such slices: they come first, and
    // stay in global memory. A lane makes of them what its slots multiply, a row of the window in 16 bits each.
    static constexpr int ROUNDED = (HW + 3) / 4 * 4, WORDS = (HW + 1) / 2;
    static constexpr u32 HELD_OFFSETS = 2 * HS * WORKERS * ROUNDED;
    // Slices with held slots that a warp does at once.
    static constexpr int PAIR = HS % 2 == 0 && HS > 0 && NB == 1 && sizeof(T) <= 8 ? 2 : 1;
    // Entries of the halo that a thread asks for at a time.
    static constexpr int BATCH = NB > 1 || sizeof(T) > 8 ? 1 : 4;
    static constexpr int AHEAD = !STREAM ? 1 : (sizeof(T) > 8 ? 4 : 8);

    static constexpr u32 NONE = 0xffffffffu;
    // Words from one flag to the next: each has a line of its own.
    static constexpr u32 FLAG = 32;

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

    // x of a step on the rows of others, which have been published: two contiguous ranges. A thread's entries of it are
    // those from `e` on, every THREADS-th one; BATCH of them are found at a time, NONE where there are no more.
    struct alignas(16) Halo {
        u32 upper, rows;    // entries above the own rows, and all
        u32 begin, behind;  // places in the window: of the first one, and of entry 0 if those below came first
    };

    // What is the same for all slices of a part, in shared memory: registers are for the matrix.
    struct Shared {
        Band band;
        Halo halo;
        u32 first, coefficient, slices, values, columns, x;  // bytes from the beginning
        u32 bytes, end;                                              // of x once, of the place behind the last own row
    };

    static __device__ __forceinline__ unsigned char *memory() {
        AKX_DYNAMIC_SHARED(dynamic);
        return dynamic;
    }

    // A step of a part. A place is the byte, in the window of x, that belongs to this lane's row of a slice.
    struct Step {
        const Shared &common;
        const T *values, *coefficient;
        const u16 *columns;
        const char *cur;  // x in shared memory
        char *next;
        char *y;          // the result at the window's first row, which may lie before the matrix
        u32 terms, end;   // 1: b_j is not zero, 2: c_j is not; the place behind the last own row
        T first_term;     // a_j
        i64 n;
        u32 lane, share;
        u64 kept, passing;

        // MORE: the rest of a slice that has been finished without it.
        template <int COUNT, bool MORE>
        __device__ __forceinline__ void finish(const u32 (&place)[COUNT], const T (&sum)[COUNT][NB]) const {
            Pack made[COUNT];
#pragma unroll
            for (int p = 0; p < COUNT; ++p) {
                made[p] = {};
                if (MORE) made[p] = *reinterpret_cast<const Pack *>(next + place[p]);
#pragma unroll
                for (int v = 0; v < NB; ++v) made[p].of[v] = mad(first_term, sum[p][v], made[p].of[v]);
            }
            // Asked anew each time: the compiler would make a copy of the whole step for each case.
            u32 asked = MORE ? 0u : terms;
            if (!MORE) asm volatile("" : "+r"(asked));
            if (asked != 0) {
#pragma unroll
                for (int p = 0; p < COUNT; ++p) {
                    if (asked & 1) {
                        const Pack now = *reinterpret_cast<const Pack *>(cur + place[p]);
#pragma unroll
                        for (int v = 0; v < NB; ++v) made[p].of[v] = mad(coefficient[1], now.of[v], made[p].of[v]);
                    }
                    if (asked & 2) {
                        const Pack before = *reinterpret_cast<const Pack *>(next + place[p]);
#pragma unroll
                        for (int v = 0; v < NB; ++v) made[p].of[v] = mad(coefficient[2], before.of[v], made[p].of[v]);
                    }
                }
            }
#pragma unroll
            for (int p = 0; p < COUNT; ++p)
                if (place[p] < end) {
#pragma unroll
                    for (int v = 0; v < NB; ++v)
                        store_once(reinterpret_cast<T *>(y + place[p] / NB) + v * n, made[p].of[v]);
                    *reinterpret_cast<Pack *>(next + place[p]) = made[p];
                }
        }

        // The slots in registers of so many slices.
        template <int COUNT>
        __device__ __forceinline__ void held_slices(const T (*held)[HW > 0 ? HW : 1], u32 (*places)[WORDS > 0 ? WORDS : 1],
                                                    const u32 *firsts) const {
            T sum[COUNT][NB];
            u32 place[COUNT];  // asked for first: to be there when it is needed
#pragma unroll
            for (int p = 0; p < COUNT; ++p) {
                place[p] = firsts[p * WORKERS];
                settle(place[p]);
#pragma unroll
                for (int v = 0; v < NB; ++v) sum[p][v] = zero<T>();
            }
#pragma unroll
            for (int w = 0; w < WORDS; ++w)
#pragma unroll
                for (int p = 0; p < COUNT; ++p) {
                    u32 &two = places[p][w];
                    settle(two);  // unpacked in each step: once takes twice the registers
                    take(sum[p], held[p][2 * w], cur + (two & 0xffff) * STRIDE);
                    if (2 * w + 1 < HW) take(sum[p], held[p][2 * w + 1], cur + (two >> 16) * STRIDE);
                }
#pragma unroll
            for (int p = 0; p < COUNT; ++p) place[p] += lane * STRIDE;
            finish<COUNT, false>(place, sum);
        }

        // What of slice s is not in registers.
        __device__ __forceinline__ void others(u32 s, u32 place, T (&sum)[NB], u32 after, Asked &ahead) const {
            const BandSlice slice = reinterpret_cast<const BandSlice *>(memory() + common.slices)[s];
            const char *here = cur + place;
            const T *value = reinterpret_cast<const T *>(memory() + common.values) + slice.near * 32 + lane;
            const int *off = reinterpret_cast<const int *>(memory()) + slice.offset - HELD_OFFSETS;
            if (lane >= slice.cut) off += u32(slice.nears) + slice.fars;
#pragma unroll 4
            for (u32 q = 0; q < slice.nears; ++q) take(sum, value[q * 32], here + off[q] * STRIDE);
            value += slice.nears * 32;
            const u16 *column = reinterpret_cast<const u16 *>(memory() + common.columns) + slice.column * 32 + lane;
#pragma unroll 1
            for (u32 q = 0; q < slice.near_scattered; ++q) take(sum, value[q * 32], cur + u32(column[q * 32]) * STRIDE);
            if (STREAM) {
                off += slice.nears;
                const u32 all = u32(slice.fars) + slice.far_scattered;
                for (u32 f = 0; f < all;) {
#pragma unroll
                    for (int u = 0; u < AHEAD; ++u)
                        if (f + u < all)
                            take(sum, ahead.value[u],
                                 f + u < slice.fars ? here + off[f + u] * STRIDE
                                                    : cur + u32(ahead.column[u]) * STRIDE);
                    f += AHEAD;
                    if (f < all) ask(slice, f, ahead);
                }
                if (after != NONE)
                    ask(reinterpret_cast<const BandSlice *>(memory() + common.slices)[after], 0, ahead);
            }
        }

        __device__ __forceinline__ void ask(const BandSlice &slice, u32 f, Asked &ahead) const {
            const u64 policy = slice.number % 16 < share ? kept : passing;
            const u32 all = u32(slice.fars) + slice.far_scattered;
            const T *value = values + (u64(slice.far) + f) * 32 + lane;
#pragma unroll
            for (int u = 0; u < AHEAD; ++u)
                if (f + u < all) {
                    ahead.value[u] = load_kept(value + u * 32, policy);
                    if (f + u >= slice.fars) {
                        const u64 slot = u64(slice.far_column) + (f + u - slice.fars);
                        ahead.column[u] = load_kept(columns + slot * 32 + lane, policy);
                    }
                }
        }
    };

    static __device__ __forceinline__ Halo halo_of(const Band &band, i64 n) {
        const u32 before = band.low < 0 ? u32(-band.low) : 0u, own = u32(int(band.row) - band.low);
        const u32 end = own + band.rows, behind = min(band.span, u32(int(n) - band.low)), upper = own - before;
        return {upper, upper + (behind > end ? behind - end : 0u), before, end - upper};
    }
    static __device__ __forceinline__ void find(const Halo &halo, u32 e, u32 (&place)[BATCH]) {
#pragma unroll
        for (int u = 0; u < BATCH; ++u, e += THREADS)
            place[u] = e >= halo.rows ? NONE : e + (e < halo.upper ? halo.begin : halo.behind);
    }
    static __device__ __forceinline__ void ask(const T *from, i64 n, const u32 (&place)[BATCH], Pack (&value)[BATCH]) {
#pragma unroll
        for (int u = 0; u < BATCH; ++u)
#pragma unroll
            for (int v = 0; v < NB; ++v)
                if (place[u] != NONE) value[u].of[v] = load_foreign(from + v * n + place[u]);
    }
    static __device__ __forceinline__ void put(char *next, const u32 (&place)[BATCH], const Pack (&value)[BATCH]) {
#pragma unroll
        for (int u = 0; u < BATCH; ++u)
            if (place[u] != NONE) *reinterpret_cast<Pack *>(next + place[u] * STRIDE) = value[u];
    }

    static __device__ __forceinline__ void run(const Band *bands, const BandSlice *slice_of, const int *offset_of,
                                               const u32 *neighbour_of, const T *values, const u16 *columns,
                                               const T *coefficients, u32 *flags, const T *x, T *out, u32 k,
                                               u32 vectors, u32 from_vector, u32 to_vector, i64 n, u32 share) {
        const u32 me = blockIdx.x, thread = threadIdx.x, lane = thread & 31, warp = thread / 32;
        __shared__ Shared common;
        static_assert(sizeof(Shared) <= 128, "more than the layout leaves");
        Band &band = common.band;
        if (thread == 0) {
            const Band found = bands[me];
            u32 at = 0;
            const auto reserve = [&](u32 size) {
                const u32 begin = at;
                at += (size + 15) / 16 * 16;
                return begin;
            };
            reserve((found.offsets - HELD_OFFSETS) * 4);
            common.first = reserve(found.slices * 4);
            common.coefficient = reserve(k * 3 * u32(sizeof(T)));
            common.slices = reserve(found.slices * u32(sizeof(BandSlice)));
            common.values = reserve(found.nears * 32 * u32(sizeof(T)));
            common.columns = reserve(found.columns * 64);
            common.x = at;
            common.bytes = (found.span * STRIDE + 15) / 16 * 16;
            common.end = (u32(int(found.row) - found.low) + found.rows) * STRIDE;
            common.halo = halo_of(found, n);
            band = found;
        }
        u32 done = flag_of(flags + FLAG * me);  // all parts have done the same number of steps so far
        __syncthreads();
        const u64 kept = keep_policy(), passing = pass_policy(), once = !STREAM && share > 0 ? kept : passing;

        // x of the first vectors, then what the part keeps: all on its way at once.
        auto ask_x = [&](u32 first) {
            const T *start = x + i64(first) * n;
            for (u32 i = thread; i < band.span; i += THREADS) {
                const i64 row = i64(band.low) + i;
                const bool inside = row >= 0 && row < n;
#pragma unroll
                for (int v = 0; v < NB; ++v) {
                    unsigned char *target = memory() + common.x + i * STRIDE + v * sizeof(T);
                    if (inside) {
                        copy_some<sizeof(T)>(target, start + v * n + row);
                    } else {
                        *reinterpret_cast<T *>(target) = zero<T>();
                        *reinterpret_cast<T *>(target + common.bytes) = zero<T>();
                    }
                }
            }
            commit_copies();
        };
        const auto copy_all = [&](u32 to, const void *from, u32 size) {
            for (u32 i = 16 * thread; i < size; i += 16 * THREADS)
                copy16(memory() + to + i, reinterpret_cast<const char *>(from) + i, once);
        };
        ask_x(from_vector);
        copy_all(0, offset_of + band.offset + HELD_OFFSETS, (band.offsets - HELD_OFFSETS) * 4);
        copy_all(common.slices, slice_of + band.slice, band.slices * u32(sizeof(BandSlice)));
        copy_all(common.values, values + u64(band.near) * 32, band.nears * 32 * u32(sizeof(T)));
        copy_all(common.columns, columns + u64(band.column) * 32, band.columns * 64);
        commit_copies();
        for (u32 i = thread; i < 3 * k; i += THREADS)
            copy_some<sizeof(T)>(memory() + common.coefficient + i * sizeof(T), coefficients + i);
        commit_copies();
        // The last 16 bytes of a slice: numbers of slots in y and z, the cut and the slice's number in w.
        const auto last_of = [&](u32 s) { return __ldg(reinterpret_cast<const uint4 *>(slice_of + band.slice + s) + 1); };
        const auto first_of = [&](const uint4 &last) {  // row of the window where the slice begins
            return u32(int(band.row) - band.low) + (last.w >> 16) * 32;
        };
        for (u32 s = thread; s < band.slices; s += THREADS)
            reinterpret_cast<u32 *>(memory() + common.first)[s] = first_of(last_of(s)) * STRIDE;
        // Of this warp's slices: the row of the window that each held slot multiplies, two to a word, and a bit for
        // each that has other slots. From global memory, and before the values, which fill the way for a while.
        const u32 mine = warp < EXCHANGES ? band.slices : band.border;
        u32 places[HS > 0 ? HS : 1][WORDS > 0 ? WORDS : 1] = {}, more = 0;
#pragma unroll
        for (int t = 0; t < HS; ++t) {
            const u32 s = warp + t * WORKERS;
            if (s < mine) {
                const uint4 last = last_of(s);
                const int4 *table = reinterpret_cast<const int4 *>(offset_of + band.offset) + 2 * s * (ROUNDED / 4);
                const u32 place = first_of(last) + lane, cut = last.w & 0xffff;
                if (last.y | last.z) more |= 1u << t;
#pragma unroll
                for (int f = 0; f < ROUNDED / 4; ++f) {
                    const int4 before = __ldg(table + f), behind = __ldg(table + ROUNDED / 4 + f);
#pragma unroll
                    for (int q = 4 * f; q < HW && q < 4 * f + 4; ++q)
                        places[t][q / 2] |= (place + one_of(lane >= cut ? behind : before, q % 4)) << q % 2 * 16;
                }
            }
        }
        T held[HS > 0 ? HS : 1][HW > 0 ? HW : 1];
#pragma unroll
        for (int t = 0; t < HS; ++t) {
            const u32 s = warp + t * WORKERS;
            const bool there = s < mine;
            const T *from = values + (u64(band.held) + s * HW) * 32 + lane;
#pragma unroll
            for (int q = 0; q < HW; ++q) held[t][q] = there ? load_kept(from + q * 32, once) : zero<T>();
        }
        Asked ahead = {};

        for (u32 first = from_vector; first < to_vector; first += NB) {
            if (first > from_vector) ask_x(first);
            if (first == from_vector) copies_done_but<2>();
            else copies_done();
            // Each thread has what it copied itself.
            for (u32 i = thread; i < band.span; i += THREADS) {
                const u32 row = u32(int(i) + band.low - int(band.row));
                if (row < band.rows)
#pragma unroll
                    for (int v = 0; v < NB; ++v)
                        store_once(out + (i64(first + v) * n + band.row + row),
                                   reinterpret_cast<const T *>(memory() + common.x + i * STRIDE)[v]);
            }
            copies_done();
            __syncthreads();
            // The slice of this warp, from round t on, that has slots elsewhere; the first of all behind the last.
            const auto next_from = [&](u32 t) {
                if (int(t) < HS) t = more >> t ? t + u32(__ffs(int(more >> t))) - 1 : u32(HS);
                return warp + t * WORKERS;
            };
            const auto following = [&](u32 s) {
                const u32 later = next_from(s / WORKERS + 1), begin = next_from(0);
                return later < mine ? later : (begin < mine ? begin : NONE);
            };
            if (STREAM) {
                Step at{common};
                at.values = values, at.columns = columns, at.lane = lane, at.share = share;
                at.kept = kept, at.passing = passing;
                const u32 begin = next_from(0);
                if (begin < mine)
                    at.ask(reinterpret_cast<const BandSlice *>(memory() + common.slices)[begin], 0, ahead);
            }
            T first_term;
            u32 terms;
            const auto prepare = [&](u32 j) {
                const T *coefficient = reinterpret_cast<const T *>(memory() + common.coefficient) + 3 * j;
                first_term = coefficient[0];
                terms = !is_zero(coefficient[1]) + (j > 0 && !is_zero(coefficient[2]) ? 2 : 0);
            };
            prepare(0);
#pragma unroll 1
            for (u32 j = 0; j < k; ++j) {
                Step at{common};
                at.values = values, at.columns = columns;
                at.coefficient = reinterpret_cast<const T *>(memory() + common.coefficient) + 3 * j;
                at.cur = reinterpret_cast<const char *>(memory() + common.x + (j & 1 ? common.bytes : 0u));
                at.next = reinterpret_cast<char *>(memory() + common.x + (j & 1 ? 0u : common.bytes));
                at.y = reinterpret_cast<char *>(out + ((i64(j + 1) * vectors + first) * n + band.low));
                at.end = common.end, at.first_term = first_term, at.terms = terms;
                at.n = n, at.share = share, at.kept = kept, at.passing = passing, at.lane = lane;
                const u32 number = done + j + 1;
                const u32 *firsts = reinterpret_cast<const u32 *>(memory() + common.first);
#pragma unroll 1
                for (int inner = 0; inner < 2; ++inner) {
                    if (inner && warp == EXCHANGES) {
                        await_announcements<THREADS>();
                        if (lane == 0) raise(flags + FLAG * me, number);
                        if (j + 1 < k)
                            for (u32 q = lane; q < band.neighbours; q += 32) {
                                const u32 *flag = flags + FLAG * neighbour_of[band.neighbour + q];
                                while (int(flag_of(flag) - number) < 0) {}
                            }
                    } else {
                        const u32 low = inner ? band.border : 0u, high = inner ? band.slices : band.border;
                        // What follows from the lane is found anew each time: for all slices it takes registers.
                        asm volatile("" : "+r"(at.lane));
#pragma unroll
                        for (int t = 0; t < HS; t += PAIR) {
                            const u32 s = warp + t * WORKERS, later = s + (PAIR - 1) * WORKERS, u = t + PAIR - 1;
                            const bool begins = s >= low && s < high, ends = later >= low && later < high;
                            if (begins && ends) {
                                at.template held_slices<PAIR>(held + t, places + t, firsts + s);
                            } else if (PAIR > 1) {
                                if (begins) at.template held_slices<1>(held + t, places + t, firsts + s);
                                if (ends) at.template held_slices<1>(held + u, places + u, firsts + later);
                            }
                        }
                        // What is not in registers: added to what the slice has, or all there is.
                        u32 s = low + (warp + WORKERS - low % WORKERS) % WORKERS;
                        for (s = next_from(s / WORKERS); s < high; s = next_from(s / WORKERS + 1)) {
                            T sum[1][NB];
#pragma unroll
                            for (int v = 0; v < NB; ++v) sum[0][v] = zero<T>();
                            const u32 place[1] = {firsts[s] + at.lane * STRIDE};
                            at.others(s, place[0], sum[0], STREAM ? following(s) : NONE, ahead);
                            if (HS > 0 && s < u32(HS * WORKERS)) at.template finish<1, true>(place, sum);
                            else at.template finish<1, false>(place, sum);
                        }
                        if (!inner && warp != EXCHANGES) announce<THREADS>();
                    }
                }
                if (j + 1 < k) {
                    const T *from = reinterpret_cast<const T *>(at.y);
                    const Halo halo = common.halo;
                    u32 place[BATCH], e = thread;
                    __syncthreads();
                    find(halo, e, place);
                    Pack value[BATCH];
                    ask(from, n, place, value);
                    prepare(j + 1);  // meanwhile
                    put(at.next, place, value);
                    while (place[BATCH - 1] != NONE) {
                        find(halo, e += BATCH * THREADS, place);
                        ask(from, n, place, value);
                        put(at.next, place, value);
                    }
                }
                __syncthreads();
            }
            done += k;
        }
    }
};
