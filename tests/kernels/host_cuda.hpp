// Enough of CUDA to run kernels on the host, block after block: every thread of a block is a coroutine that runs until it
// waits for others. In which order they run is chosen, so that what depends on it shows.
//
// Include this, then a `.cu` file; `launch` in the including file calls its kernels by name.
#pragma once
#include <algorithm>
#include <csetjmp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <ucontext.h>
#include <utility>
#include <vector>

#define __device__
#define __global__
#define __shared__
#define __forceinline__ inline
#define __align__(bytes)
#define __launch_bounds__(...)

struct float2 {
    float x, y;
};
struct double2 {
    double x, y;
};
struct Index {
    unsigned x;
};
using std::fabs;

static Index threadIdx, blockIdx, blockDim, gridDim;
alignas(16) unsigned char shared[256 * 1024]; // what `extern __shared__ ... shared[]` names

namespace host {
constexpr unsigned WIDTH = 32;
constexpr std::size_t STACK = 64 * 1024;

struct Barrier {
    unsigned long generation = 0;
    unsigned waiting = 0, members = 0;
};
struct Thread {
    ucontext_t context;
    jmp_buf place;
    std::vector<char> stack;
    bool begun = false, done = true;
};
static jmp_buf scheduler;
static std::vector<Thread> threads;
static std::vector<Barrier> warps;
static std::vector<std::uint64_t> lanes; // what each thread shows to its warp, two words each
static Barrier block;
static unsigned current;
static unsigned long progress;
static const std::function<void()> *body;

// A context is used to begin a thread; from then on jumps go to and fro, which need no system call.
__attribute__((noinline)) inline void resume(unsigned t) {
    current = t, threadIdx.x = t;
    if (_setjmp(scheduler)) return;
    if (threads[t].begun) _longjmp(threads[t].place, 1);
    threads[t].begun = true;
    setcontext(&threads[t].context);
}
__attribute__((noinline)) inline void yield() {
    if (!_setjmp(threads[current].place)) _longjmp(scheduler, 1);
}
inline void wait(Barrier &barrier) {
    const unsigned long mine = barrier.generation;
    ++progress;
    if (++barrier.waiting == barrier.members) {
        barrier.waiting = 0;
        ++barrier.generation;
    } else {
        while (barrier.generation == mine) yield();
    }
}
inline void leave(Barrier &barrier) {
    --barrier.members;
    if (barrier.members > 0 && barrier.waiting == barrier.members) {
        barrier.waiting = 0;
        ++barrier.generation;
    }
}
inline void enter() {
    (*body)();
    threads[current].done = true;
    ++progress;
    leave(warps[current / WIDTH]);
    leave(block);
    _longjmp(scheduler, 1);
}

// order: 0 ascending, 1 descending, others shuffled anew for each round. False where all wait for what never comes.
inline bool run(unsigned grid, unsigned width, unsigned long order, const std::function<void()> &kernel) {
    body = &kernel;
    gridDim.x = grid, blockDim.x = width;
    if (threads.size() < width) threads.resize(width);
    std::vector<unsigned> turn(width);
    for (unsigned b = 0; b < grid; ++b) {
        blockIdx.x = order == 1 ? grid - 1 - b : b;
        std::memset(shared, 0xff, sizeof shared);
        warps.assign((width + WIDTH - 1) / WIDTH, Barrier());
        lanes.assign(2 * width, 0);
        block = Barrier();
        block.members = width;
        for (unsigned t = 0; t < width; ++t) {
            ++warps[t / WIDTH].members;
            Thread &thread = threads[t];
            thread.stack.resize(STACK);
            thread.begun = thread.done = false;
            getcontext(&thread.context);
            thread.context.uc_stack.ss_sp = thread.stack.data();
            thread.context.uc_stack.ss_size = STACK;
            thread.context.uc_link = nullptr;
            makecontext(&thread.context, enter, 0);
            turn[t] = order == 1 ? width - 1 - t : t;
        }
        for (unsigned left = width; left > 0;) {
            const unsigned long before = progress;
            left = 0;
            for (unsigned i = width; order > 1 && i > 1; --i) {
                order = order * 6364136223846793005ul + 1442695040888963407ul;
                std::swap(turn[i - 1], turn[(order >> 33) % i]);
            }
            for (unsigned t : turn) {
                if (threads[t].done) continue;
                resume(t);
                left += !threads[t].done;
            }
            if (left > 0 && progress == before) return false;
        }
    }
    return true;
}

template <class T> inline T shuffle(T value, unsigned from) {
    static_assert(sizeof(T) <= 8, "wider than a shuffle");
    const unsigned own = current, warp = own / WIDTH;
    std::memcpy(&lanes[own], &value, sizeof value);
    wait(warps[warp]);
    T found;
    std::memcpy(&found, &lanes[warp * WIDTH + from % WIDTH], sizeof found);
    wait(warps[warp]);
    return found;
}

// Calls a kernel with arguments of eight bytes each.
template <class T> inline T argument(std::uint64_t slot) {
    T value;
    std::memcpy(&value, &slot, sizeof value);
    return value;
}
template <class... A, std::size_t... I>
inline bool call_with(void (*kernel)(A...), unsigned grid, unsigned width, unsigned long order,
                      const std::uint64_t *slots, std::index_sequence<I...>) {
    return run(grid, width, order, [=] { kernel(argument<A>(slots[I])...); });
}
template <class... A>
inline bool call(void (*kernel)(A...), unsigned grid, unsigned width, unsigned long order, const std::uint64_t *slots) {
    return call_with(kernel, grid, width, order, slots, std::index_sequence_for<A...>());
}
} // namespace host

inline void __syncthreads() { host::wait(host::block); }
inline void __syncwarp() { host::wait(host::warps[host::current / host::WIDTH]); }
template <class T> inline T __shfl_sync(unsigned, T value, int from) { return host::shuffle(value, unsigned(from)); }
template <class T> inline T __shfl_xor_sync(unsigned, T value, int mask) {
    return host::shuffle(value, (host::current % host::WIDTH) ^ unsigned(mask));
}
template <class T> inline T __shfl_up_sync(unsigned, T value, int by) {
    const unsigned lane = host::current % host::WIDTH;
    return host::shuffle(value, lane < unsigned(by) ? lane : lane - unsigned(by));
}
inline unsigned __ballot_sync(unsigned, bool own) {
    unsigned found = 0;
    for (unsigned lane = 0; lane < host::WIDTH; ++lane) found |= unsigned(host::shuffle(own, lane)) << lane;
    return found;
}
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
template <class T> inline T __ldg(const T *p) { return *p; }
template <class T> inline T __ldcs(const T *p) { return *p; }
template <class T> inline T atomicAdd(T *p, T by) {
    const T before = *p;
    *p += by;
    return before;
}
template <class T> inline T atomicMax(T *p, T other) {
    const T before = *p;
    *p = std::max(before, other);
    return before;
}
