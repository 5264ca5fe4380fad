// Fibers, one for each thread of a block, and what they wait for: what cuda_on_host.h says of itself. Compiled once, not
// with every kernel.
#include "cuda_on_host.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

dim blockIdx, gridDim, blockDim;

namespace on_host {
unsigned me = 0;
unsigned char *shared = nullptr;
double slots[1024][2];
unsigned long came = 0;

namespace {
constexpr size_t STACK = 128 * 1024;
struct Fiber {
    ucontext_t context; // to begin with; then jumps, which ask nothing of the system
    jmp_buf place;
    bool begun = false;
    std::unique_ptr<char[]> stack;
};
// Where threads wait until all that are left have come.
struct Barrier {
    unsigned left = 0, here = 0;
    unsigned long passed = 0; // how often all had come
    void pass() {
        if (here == 0 || here < left) return;
        here = 0;
        ++passed;
    }
    void leave() {
        --left;
        pass();
    }
};
struct Waiting {
    const Barrier *at = nullptr;
    unsigned long passed = 0; // when it came
    bool is_over() const { return at == nullptr || at->passed != passed; }
};
std::vector<Fiber> fibers;
std::vector<char> done; // whether a thread has ended
jmp_buf way_home;
size_t shared_bytes = 0;
Barrier of_block;
std::vector<Barrier> of_warp;
std::vector<Waiting> waiting; // by each thread: it has no turn before that is over
std::vector<std::vector<std::pair<unsigned, const void *>>> asked; // by each thread, of what is to be brought
void (*body)(void **) = nullptr;
void **arguments = nullptr;
unsigned long order = 0; // 0 ascending, 1 descending, others shuffled anew for each round

void sync(Barrier &barrier) {
    const unsigned long before = barrier.passed;
    ++came;
    ++barrier.here;
    barrier.pass();
    if (barrier.passed != before) return;
    waiting[me] = {&barrier, before};
    rest();
}
void start() {
    for (;;) { // for one block after another
        body(arguments);
        done[me] = true;
        ++came;
        of_warp[me / 32].leave();
        of_block.leave();
        rest();
    }
}
void resume() {
    if (_setjmp(way_home)) return;
    Fiber &fiber = fibers[me];
    if (fiber.begun) _longjmp(fiber.place, 1);
    fiber.begun = true;
    fiber.stack.reset(new char[STACK]); // not make_unique, which would fill it
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = STACK;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, start, 0);
    setcontext(&fiber.context);
}
} // namespace

void rest() {
    if (_setjmp(fibers[me].place) == 0) _longjmp(way_home, 1);
}
void sync_warp() { sync(of_warp[me / 32]); }
void sync_block() { sync(of_block); }

void bring16(unsigned to, const void *from) { asked[me].push_back({to, from}); }
void brought() {
    for (const auto &[to, from] : asked[me])
        if (to % 16 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0 && to + 16 <= shared_bytes)
            std::memcpy(shared + to, from, 16);
    asked[me].clear();
}

bool launch(unsigned grid, unsigned block, size_t bytes, void (*kernel)(void **), void **given) {
    const size_t page = 4096, whole = (bytes + 15) / 16 * 16, pages = (whole + page - 1) / page * page;
    auto *room = static_cast<unsigned char *>(
        mmap(nullptr, pages + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(room + pages, page, PROT_NONE);
    shared = room + pages - whole;
    shared_bytes = bytes;
    gridDim.x = grid;
    blockDim.x = block;
    body = kernel;
    arguments = given;
    if (fibers.size() < block) fibers.resize(block);
    std::vector<unsigned> turn(block);
    for (unsigned t = 0; t < block; ++t) turn[t] = order == 1 ? block - 1 - t : t;
    bool ended = true;
    for (unsigned b = 0; b < grid && ended; ++b) {
        blockIdx.x = order == 1 ? grid - 1 - b : b;
        std::memset(room, 0xff, pages);
        done.assign(block, false);
        waiting.assign(block, {});
        of_block = {block};
        of_warp.assign((block + 31) / 32, {32});
        asked.assign(block, {});
        for (unsigned left = block; left > 0 && ended;) {
            const unsigned long before = came;
            for (unsigned i = block; order > 1 && i > 1; --i) {
                order = order * 6364136223846793005ul + 1442695040888963407ul;
                std::swap(turn[i - 1], turn[(order >> 33) % i]);
            }
            for (unsigned t : turn) {
                if (done[t] || !waiting[t].is_over()) continue;
                me = t;
                resume();
                left -= done[t];
            }
            ended = came != before;
        }
    }
    if (!ended) fibers.clear(); // they are in the middle of something
    munmap(room, pages + page);
    return ended;
}
} // namespace on_host

extern "C" void on_host_order(unsigned long order) { on_host::order = order; }
