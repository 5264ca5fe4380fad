// `sweep`, variant `hubs`: one step v_{j+1} = a_j A v_j + b_j v_j + c_j v_{j-1} of a matrix that reads some entries of x
// much more often than others, as most graphs do.
//
// Entries are in the order of the rows, 256 of them a chunk: lane l has slots 8 l to 8 l + 7, slot 8 l + u at place
// 32 u + l, so that loads are whole runs. A warp does a run of chunks, as many as every other one, whatever the rows
// are. Entries of x that most rows read, the hubs, are in shared memory; a column with the highest bit is the number of
// one. Sums of rows are segmented sums: within a lane, then over the lanes, then over the chunks of the run. A row that
// goes on in another run leaves its shares: `head` of a run where it began before, `tail` of the one where it began;
// a second kernel adds them up in order, and makes the hubs of the next step from the results. No atomics.
// See akx/backends/cuda/variants/hot_columns.py for the layout.
#pragma once
#include "include/swept.cuh"

constexpr u32 HUB = 0x80000000u, NOWHERE = 0xffffffffu, OWN = 8;

__device__ __forceinline__ float from_below(float a, u32 lanes) { return __shfl_up_sync(NOWHERE, a, lanes); }
__device__ __forceinline__ double from_below(double a, u32 lanes) { return __shfl_up_sync(NOWHERE, a, lanes); }
__device__ __forceinline__ cfloat from_below(cfloat a, u32 lanes) {
    return {from_below(a.re, lanes), from_below(a.im, lanes)};
}
__device__ __forceinline__ cdouble from_below(cdouble a, u32 lanes) {
    return {from_below(a.re, lanes), from_below(a.im, lanes)};
}
__device__ __forceinline__ float of_last(float a) { return __shfl_sync(NOWHERE, a, 31); }
__device__ __forceinline__ double of_last(double a) { return __shfl_sync(NOWHERE, a, 31); }
__device__ __forceinline__ cfloat of_last(cfloat a) { return {of_last(a.re), of_last(a.im)}; }
__device__ __forceinline__ cdouble of_last(cdouble a) { return {of_last(a.re), of_last(a.im)}; }

#ifndef AKX_ON_HOST
// 16 bytes to an address in shared memory, some time; and the wait for all that this thread has asked for.
__device__ __forceinline__ void bring16(u32 to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void brought() { asm volatile("cp.async.wait_all;" ::: "memory"); }
#endif

// What a lane has of a chunk: columns, values, and `mark`: a bit for each slot where a row begins, and above these
// eight bits how many rows begin in the lanes before.
template <class T, class S> struct Chunk {
    u32 column[OWN], mark;
    S value[OWN];

    template <int HOW>
    __device__ __forceinline__ void ask(u64 chunk, u32 lane, const u32 *columns, const S *values, const u16 *marks,
                                        u64 policy) {
        const u64 at = chunk * (32 * OWN) + lane;
#pragma unroll
        for (u32 u = 0; u < OWN; ++u) column[u] = fetch<HOW>(columns + at + u * 32, policy);
#pragma unroll
        for (u32 u = 0; u < OWN; ++u) value[u] = fetch<HOW>(values + at + u * 32, policy);
        mark = fetch<HOW>(marks + chunk * 32 + lane, policy);
    }
};

// S: what values are stored as, with a table where these are offsets into it. `row_before`: of each chunk, the row of the slot before its first one (-1 for none).
template <class T, class S, int THREADS, int HOW>
__device__ __forceinline__ void hubs_step(u32 chunks, u32 hubs, const u32 *__restrict__ columns,
                                          const S *__restrict__ values, const T *__restrict__ table,
                                          const u16 *__restrict__ marks, const u32 *__restrict__ row_before,
                                          const T *hub, T *head, T *tail, const T *x, const T *before, T *y, T *first,
                                          const T *coefficient, u32 kept) {
    let_the_next_begin();
    AKX_DYNAMIC_SHARED(memory);
    T *near = reinterpret_cast<T *>(memory);
    const u32 thread = threadIdx.x, lane = thread % 32;
    // Runs that follow one another are of different blocks: long rows are a little slower.
    const u32 me = thread / 32 * gridDim.x + blockIdx.x, runs = gridDim.x * (THREADS / 32);
    const u32 begin = u32(u64(chunks) * me / runs), end = u32(u64(chunks) * (me + 1) / runs);
    const u32 bytes = hubs * u32(sizeof(T)), to = u32(__cvta_generic_to_shared(near));
    const u64 policy = policy_of<HOW>(me, kept);
    Chunk<T, S> now{};
    if (begin < end) now.template ask<HOW>(begin, lane, columns, values, marks, policy);
    after_the_last(chunks != 0);
    for (u32 i = 16 * thread; i < bytes; i += 16 * THREADS)
        bring16(to + i, reinterpret_cast<const char *>(hub) + i);
    brought();
    __syncthreads();
    T carry = zero<T>();  // of the row that the chunk before ended with
    bool begun = false;   // whether that row began in this run
    for (u32 chunk = begin; chunk < end; ++chunk) {
        const u32 starts = now.mark & 0xff;
        u32 row = load(row_before + chunk) + (now.mark >> 8);  // that of the slot before this lane's first
        T product[OWN];
#pragma unroll
        for (u32 u = 0; u < OWN; ++u) {
            const u32 at = now.column[u];
            const T entry = at & HUB ? near[at & ~HUB] : fresh(x + at);
            product[u] = mad(widened<T>(table, now.value[u]), entry, zero<T>());
        }
        if (chunk + 1 < end) now.template ask<HOW>(chunk + 1, lane, columns, values, marks, policy);
        // Within the lane: what belongs to the row before, sums of rows that begin and end here, and what is left.
        T lead = zero<T>(), rest = zero<T>(), done[OWN];
        bool any = false;
#pragma unroll
        for (u32 u = 0; u < OWN; ++u) {
            if (starts >> u & 1) {
                if (any) done[u] = rest;
                else lead = rest;
                any = true, rest = zero<T>();
            }
            rest = add(rest, product[u]);
        }
        // Over the lanes: the sum of `rest` since the last lane in which a row began.
        const u32 beginning = __ballot_sync(NOWHERE, any), upto = beginning & (NOWHERE >> (31 - lane));
        const u32 since = upto != 0 ? 31 - __clz(int(upto)) : 0;
        if (upto == 0 && lane == 0) rest = add(rest, carry);
#pragma unroll
        for (u32 lanes = 1; lanes < 32; lanes *= 2) {
            const T other = from_below(rest, lanes);
            if (lane >= since + lanes) rest = add(rest, other);
        }
        T open = from_below(rest, 1);
        if (lane == 0) open = carry;
        carry = of_last(rest);
        bool is_share = !begun && (beginning & ((1u << lane) - 1)) == 0;  // the row began in an earlier run
        bool is_first = true;
#pragma unroll
        for (u32 u = 0; u < OWN; ++u)
            if (starts >> u & 1) {
                const T sum = is_first ? add(open, lead) : done[u];
                if (is_first && is_share) {
                    if (chunk > begin || lane > 0 || u > 0) head[me] = sum;
                } else {
                    finish_step(sum, x, before, y, first, coefficient, i64(row));
                }
                is_first = false, ++row;
            }
        begun = begun || beginning != 0;
    }
    if (lane == 0) (begun ? tail : head)[me] = carry;  // zero where the run has no chunks
}

// Rows that runs have ended with: split[s], from run begin[s] on to run end[s]. Then the hubs of the next step:
// number[s] is that of a split row, or none, and row[h] the row of hub h where that is not split.
template <class T>
__device__ __forceinline__ void hubs_join(u32 splits, u32 hubs, const u32 *__restrict__ split,
                                          const u32 *__restrict__ begin, const u32 *__restrict__ end,
                                          const u32 *__restrict__ number, const u32 *__restrict__ row, const T *head,
                                          const T *tail, const T *x, const T *before, T *y, T *first,
                                          const T *coefficient, T *hub) {
    let_the_next_begin();
    u32 s = blockIdx.x * blockDim.x + threadIdx.x;
    if (s < splits) {
        const u32 run_of = load(begin + s), stop = load(end + s), own = load(split + s), to = load(number + s);
        after_the_last(splits != 0);
        T sum = fresh(tail + run_of);
#pragma unroll 8
        for (u32 run = run_of + 1; run <= stop; ++run) sum = add(sum, fresh(head + run));
        finish_step(sum, x, before, y, first, coefficient, i64(own));
        if (to < hubs) hub[to] = y[own];
        return;
    }
    s -= splits;
    if (s >= hubs) return;
    const u32 own = load(row + s);
    after_the_last(hubs != 0);
    if (own != NOWHERE) hub[s] = fresh(y + own);
}

template <class T>
__device__ __forceinline__ void hubs_gather(u32 hubs, const u32 *__restrict__ row, const T *__restrict__ x, T *hub) {
    const u32 h = blockIdx.x * blockDim.x + threadIdx.x;
    if (h < hubs) hub[h] = load(x + load(row + h));
}
