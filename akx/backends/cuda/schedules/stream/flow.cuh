// `stream` as one kernel per pass: a block per multiprocessor, some of them movers, the others do the steps.
//
// Movers of one kind bring, for each step, the rows of x and the chunk of the matrix that it is the first to use
// straight from page-locked memory, `ahead` steps early; movers of the other kind write its results there. So what
// orders a step is counters in device memory instead of nodes of a graph:
//
//   done      blocks that have done a step         waited for by the next step, and by all movers
//   arrived   movers that have brought what a step needs, one counter for each of `ahead` groups of movers
//   returned  movers that have taken a step's results away, one for each of two groups
//
// Step t waits for step t - 1, for what is brought for it and for step t + 1, and for the results of step t - slack,
// whose place in the rings it takes. What is brought for step t takes the place of what step t - ahead - 1 was the last
// to use. Chunks that stay on the device are brought where `sends` says so: in the first call with their values.
//
// Of a symmetric matrix half chunks may travel (triangle.cuh). Then they are what is brought and what stays, and step t
// makes chunk t whole, in `parts` tasks for each of its slices: what it writes power 1 is the first to read, at step t + 1.
//
// Results of power p are written up to row split + p rise: the others are the processor's, which does them meanwhile.
#pragma once
#include "schedules/stream/triangle.cuh"

template <class T> struct Flow {
    const u8 *chunks;    // all of them, in host memory
    const i64 *begin;    // where each begins there
    u32 chunk_count;
    T *staged;           // x, and the vector before it, of the next steps: ahead + 1 times 2, B, rows
    const T *x, *before; // in host memory, vectors `pitch` apart
    T *out;              // power 0 of the pass there, powers B * pitch apart
    i64 pitch;
    u32 depth, steps, ahead, slack, sends, in, out_blocks, split, rise;
    u32 *counters;
    const u32 *heads;  // of whole chunks, where half ones travel
    u32 parts;
};

constexpr u32 FLOW_LINE = 32, FLOW_OUT = 2;

struct alignas(16) Octets {
    u32 a, b, c, d;
};

#ifndef AKX_ON_HOST

// What this block has written may be read. A mover signals its step only when all of its group have signalled the step
// before, so that none that runs ahead can stand for one that lags.
__device__ __forceinline__ void flow_signal(u32 *counter) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
// What this block has read may be written over. It publishes nothing, so it does not wait until the host's memory has
// what was written there; that it was written shows that it had been read.
__device__ __forceinline__ void flow_signal_read(u32 *counter) {
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
__device__ __forceinline__ void flow_wait(const u32 *counter, u32 value) {
    u32 found;
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(found) : "l"(counter) : "memory");
    while (int(found - value) < 0);
}

// Past every cache: the host may have written it since the last time.
__device__ __forceinline__ Octets flow_load(const Octets *p) {
    Octets v;
    asm volatile("ld.global.cv.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.a), "=r"(v.b), "=r"(v.c), "=r"(v.d) : "l"(p));
    return v;
}
#endif

template <class T, int B>
__device__ __forceinline__ void flow_in(const Frame f, const Vectors<T> at, const Flow<T> w, u32 blocks, u32 *done,
                                        u32 *arrived) {
    constexpr u32 U = 6;  // reads of a thread on their way at a time
    const u32 group = blockIdx.x % w.ahead, members = w.in / w.ahead;
    const u32 thread = blockIdx.x / w.ahead * blockDim.x + threadIdx.x, threads = members * blockDim.x;
    for (u32 t = group; t < w.steps; t += w.ahead) {
        const i64 from = i64(t) * f.rows, chunk = i64(t) - f.lag / f.rows;
        const u32 width = from < f.n ? min(f.rows, (f.n - u32(from) + 31) / 32 * 32) * u32(sizeof(T)) / 16 : 0;
        const bool sent = chunk >= 0 && chunk < w.chunk_count && (w.sends || chunk >= f.kept);
        const i64 begin = sent ? load(w.begin + chunk) : 0, end = sent ? load(w.begin + chunk + 1) : 0;
        const u32 vectors = width * B * (1 + at.older), total = vectors + u32((end - begin) / 16);
        T *staged = w.staged + t % (w.ahead + 1) * 2 * B * i64(f.rows);
        const u64 slot = sent ? f.slot_of(u32(chunk)) : 0;
        if (threadIdx.x == 0 && t > w.ahead) flow_wait(done, blocks * (t - w.ahead));
        __syncthreads();
        for (u32 first = thread; first < total; first += U * threads) {
            Octets held[U];
#pragma unroll
            for (int way = 0; way < 2; ++way)
#pragma unroll
                for (u32 u = 0; u < U; ++u) {
                    u32 i = first + u * threads;
                    if (i >= total) continue;
                    const void *source = w.chunks + begin;
                    void *target = const_cast<u8 *>(f.slots) + slot;
                    if (i < vectors) {
                        const u32 v = i / width;
                        source = from + (v < B ? w.x + v * w.pitch : w.before + (v - B) * w.pitch);
                        target = staged + v * f.rows;
                        i -= v * width;
                    } else {
                        i -= vectors;
                    }
                    if (way == 0)
                        held[u] = flow_load(static_cast<const Octets *>(source) + i);
                    else
                        static_cast<Octets *>(target)[i] = held[u];
                }
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            flow_wait(arrived + group * FLOW_LINE, members * (t / w.ahead));  // see flow_signal
            flow_signal(arrived + group * FLOW_LINE);
        }
    }
}

__device__ __forceinline__ u32 flow_first(const Frame f, i64 at) { return at < f.n ? 0 : u32((at - f.n) / f.lag) + 1; }
__device__ __forceinline__ u32 flow_last(const Frame f, i64 at, u32 depth) {
    return u32(min(i64(depth), (at + f.rows - 1) / f.lag));
}

template <class T, int B>
__device__ __forceinline__ void flow_out(const Frame f, const Vectors<T> at, const Flow<T> w, u32 blocks, u32 *done,
                                         u32 *returned) {
    constexpr u32 PER = 16 / sizeof(T);
    const u32 mover = blockIdx.x - w.in, group = mover % FLOW_OUT, members = w.out_blocks / FLOW_OUT;
    const u32 thread = mover / FLOW_OUT * blockDim.x + threadIdx.x, threads = members * blockDim.x;
    const u32 pieces = f.rows / PER;
    for (u32 t = group; t < w.steps; t += FLOW_OUT) {
        if (threadIdx.x == 0) flow_wait(done, blocks * (t + 1));
        __syncthreads();
        const i64 begin = i64(t) * f.rows;
        const u32 low = max(1u, flow_first(f, begin)), high = flow_last(f, begin, w.depth);
        const u32 count = high < low ? 0 : (high - low + 1) * B * pieces;
        for (u32 i = thread; i < count; i += threads) {
            const u32 vector = i / pieces, power = low + vector / B, v = vector % B;
            const i64 row = begin - i64(power) * f.lag + i % pieces * PER;
            if (row < 0 || row >= min(i64(f.n), i64(w.split) + i64(power) * w.rise)) continue;
            const T *source = at.y + i64(power - 1) * at.stride + i64(v) * at.ring + u32(row) % at.ring;
            T *target = w.out + (i64(power) * B + v) * w.pitch + row;
            *reinterpret_cast<Octets *>(target) = *reinterpret_cast<const Octets *>(source);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            flow_wait(returned + group * FLOW_LINE, members * (t / FLOW_OUT));
            flow_signal_read(returned + group * FLOW_LINE);
        }
    }
}

// The tasks of a step that are a warp's: those of its block side by side, one for each of its warps at a time.
struct Tasks {
    u32 warps, first, low, next, end;  // the first ones make a chunk whole
    __device__ __forceinline__ Tasks(const Frame f, u32 t, u32 depth, u32 lanes, u32 parts, u32 block, u32 blocks) {
        warps = f.rows / 32 * lanes;
        first = i64(t) * f.rows < f.n ? f.rows / 32 * parts : 0;
        low = flow_first(f, i64(t) * f.rows);
        const u32 high = flow_last(f, i64(t) * f.rows, depth);
        const u32 count = first + (high < low ? 0 : (high - low + 1) * warps);
        next = u32(u64(count) * block / blocks) + threadIdx.x / 32;
        end = u32(u64(count) * (block + 1) / blocks);
    }
};

template <class T, class INDEX, int B, int LANES, class SENT>
__device__ __forceinline__ void flow_steps(const Frame f, const Frame sent, const Vectors<T> at, const Flow<T> w,
                                           u32 block, u32 blocks, u32 *done, const u32 *arrived, const u32 *returned) {
    // Registers hold so many entries of a lane over the wait for the step before.
    constexpr int HELD = sizeof(T) * B <= 8 ? (SENT::HALF ? 8 : 12) : (sizeof(T) * B <= 16 ? 8 : (sizeof(T) * B <= 32 ? 4 : 0));
    Share<T, INDEX, B, LANES, true, HELD> share;
    const u32 members = w.in / w.ahead, takers = w.out_blocks / FLOW_OUT;
    if (threadIdx.x == 0) flow_wait(arrived, members);
    __syncthreads();
    for (u32 t = 0; t < w.steps; ++t) {
        Tasks task(f, t, w.depth, LANES, SENT::HALF ? w.parts : 0, block, blocks);
        const u32 next = t + 1, taken = t - w.slack;
        bool waited = false;
        for (bool more = true; more; task.next += blockDim.x / 32) {
            const bool any = task.next < task.end, makes = SENT::HALF && any && task.next < task.first;
            const u32 of_power = task.next - task.first;
            const u32 power = makes ? 0 : task.low + of_power / task.warps, warp = of_power % task.warps;
            const i64 from = i64(t) * f.rows - i64(power) * f.lag;
            const bool early = power > (SENT::HALF ? 1 : 0);  // of a half chunk power 1 reads what step t - 1 wrote
            if (any && early) share.prepare(f, from, power, warp);
            if (!waited) {  // for what the next step needs too, so that its entries can be read before the next wait
                if (threadIdx.x == 0) flow_wait(done, blocks * t);
                if (threadIdx.x == 32 && next < w.steps)
                    flow_wait(arrived + next % w.ahead * FLOW_LINE, members * (next / w.ahead + 1));
                if (threadIdx.x == 64 && t >= w.slack)
                    flow_wait(returned + taken % FLOW_OUT * FLOW_LINE, takers * (taken / FLOW_OUT + 1));
                __syncthreads();
                waited = true;
            }
            if (any && power > 0) {
                if (!early) share.prepare(f, from, power, warp);
                share.finish(at, nullptr, 0);
            } else if (makes) {
                if constexpr (SENT::HALF)
                    stream_mirror<T, INDEX, SENT>(f, sent, w.heads, at.ring, t, task.next / w.parts, task.next % w.parts,
                                                  w.parts);
            } else if (any) {
                const T *x = w.staged + i64(t % (w.ahead + 1)) * 2 * B * f.rows;
                const u32 thread = warp * 32 + threadIdx.x % 32;
                stream_fetch<T, B>(f, at, from, x, x + i64(B) * f.rows, f.rows, thread, task.warps * 32);
            }
            more = any && task.next + blockDim.x / 32 < task.end;
        }
        __syncthreads();
        if (threadIdx.x == 0) flow_signal(done);
    }
}

// `sent`: the chunks as they are brought; `f`: whole ones, which are the same where no half ones travel.
template <class T, class INDEX, int B, int LANES, class SENT>
__device__ __forceinline__ void stream_flow(const Frame f, const Frame sent, const Vectors<T> at, const Flow<T> w) {
    const u32 blocks = gridDim.x - w.in - w.out_blocks;
    u32 *done = w.counters, *arrived = done + FLOW_LINE, *returned = arrived + w.ahead * FLOW_LINE;
    if (blockIdx.x < w.in)
        flow_in<T, B>(sent, at, w, blocks, done, arrived);
    else if (blockIdx.x < w.in + w.out_blocks)
        flow_out<T, B>(f, at, w, blocks, done, returned);
    else
        flow_steps<T, INDEX, B, LANES, SENT>(f, sent, at, w, blockIdx.x - w.in - w.out_blocks, blocks, done, arrived,
                                             returned);
}
