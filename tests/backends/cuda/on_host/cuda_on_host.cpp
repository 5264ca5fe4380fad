// Fibers, one for each thread of the blocks that are there at once, and what they wait for: what cuda_on_host.h says of
// itself. Compiled once, not with every kernel.
#include "cuda_on_host.h"

#include <setjmp.h>
#include <signal.h>
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
double (*slots)[2] = nullptr;
unsigned long came = 0, told = 0;

namespace {
constexpr size_t STACK = 128 * 1024, PAGE = 4096;
// Rounds in which threads only look for what others tell, after which nobody will: a warp may work for as long.
constexpr unsigned PATIENCE = 10000;
// Addresses in shared memory: static variables come behind what a launch asks for, and in the upper bits is one more
// than the number in its cluster of the block, where that is another.
constexpr unsigned STATIC = 1 << 23, RANK = 1 << 24;

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
    unsigned long come() {
        const unsigned long before = passed;
        ++came;
        ++here;
        pass();
        return before;
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
// What is to be copied to shared memory, and has not come.
struct Copy {
    unsigned to, size, group;
    const void *from;
};
struct Thread {
    bool done = false;
    Waiting waiting; // it has no turn before that is over
    std::vector<Copy> asked;
    unsigned groups = 0; // of copies, behind it
    unsigned long in_cluster = 0; // what its barrier of the cluster had passed when it came
};
// The same where a barrier of the block counts the bytes; from another block a value comes along.
struct Delivery {
    unsigned to, size, barrier;
    const void *from;
    unsigned char value[16];
};
// Such a barrier, in its eight bytes.
struct Counter {
    short all, left; // threads that come in a phase, and those that have not
    int bytes : 24;
    unsigned phase : 8;
    void pass() {
        if (left != 0 || bytes != 0) return;
        left = all;
        phase ^= 1;
    }
};
struct Block {
    unsigned number = 0;
    unsigned char *shared = nullptr;
    std::vector<unsigned char> statics; // while another one is at work
    double slots[1024][2];
    Barrier whole, announced;
    std::vector<Barrier> warps;
    std::vector<Thread> threads;
    std::vector<Delivery> coming;
};
std::vector<Fiber> fibers;
std::vector<Block> blocks; // those that are there at once
std::vector<Barrier> clusters;
Block *here = nullptr;
unsigned first_fiber = 0, blocks_of_cluster = 1;
jmp_buf way_home;
size_t shared_bytes = 0, static_bytes = 0;
unsigned char *statics = nullptr;
unsigned char *room = nullptr; // dynamic shared memory of all blocks, with pages between them
size_t room_bytes = 0;
bool is_beyond = false; // what is in none of them has been touched
unsigned long looked = 0;
void (*body)(void **) = nullptr;
void **arguments = nullptr;
unsigned long order = 0; // 0 ascending, 1 descending, others shuffled anew for each round

unsigned rank() { return unsigned(here - blocks.data()) % blocks_of_cluster; }
Barrier &of_cluster() { return clusters[unsigned(here - blocks.data()) / blocks_of_cluster]; }
void wait(const Barrier &barrier, unsigned long before) {
    if (barrier.passed != before) return;
    here->threads[me].waiting = {&barrier, before};
    rest();
}
// A block goes on: static variables are where the compiler has put them.
void enter(Block &block) {
    if (&block == here) return;
    if (here != nullptr) std::memcpy(here->statics.data(), statics, static_bytes);
    std::memcpy(statics, block.statics.data(), static_bytes);
    here = &block;
    shared = block.shared;
    slots = block.slots;
    blockIdx.x = block.number;
}
Block &block_of(unsigned address) {
    return address < RANK ? *here : here[int(address / RANK) - 1 - int(rank())];
}
// Where so many bytes of shared memory are; nowhere where there are not as many.
unsigned char *at(unsigned address, unsigned size) {
    Block &block = block_of(address);
    address %= RANK;
    if (address < STATIC) return address + size_t(size) <= shared_bytes ? block.shared + address : nullptr;
    if (address - STATIC + size_t(size) > static_bytes) return nullptr;
    return (&block == here ? statics : block.statics.data()) + (address - STATIC);
}
// What is on its way is garbage: whether it may come there.
bool spoil(unsigned to, unsigned size, unsigned aligned) {
    unsigned char *target = to % aligned == 0 && size % aligned == 0 ? at(to, size) : nullptr;
    if (target != nullptr) std::memset(target, 0xff, size);
    return target != nullptr;
}
void start() {
    for (;;) { // for one block after another
        body(arguments);
        here->threads[me].done = true;
        tell();
        here->warps[me / 32].leave();
        here->whole.leave();
        of_cluster().leave();
        rest();
    }
}
void resume() {
    if (_setjmp(way_home)) return;
    Fiber &fiber = fibers[first_fiber + me];
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
void beyond(int, siginfo_t *what, void *) {
    const auto *touched = static_cast<unsigned char *>(what->si_addr);
    is_beyond = room <= touched && touched < room + room_bytes;
    if (is_beyond) _longjmp(way_home, 1);
    signal(SIGSEGV, SIG_DFL);
}
void shuffle(std::vector<unsigned> &turn) {
    for (size_t i = turn.size(); i > 1; --i) {
        order = order * 6364136223846793005ul + 1442695040888963407ul;
        std::swap(turn[i - 1], turn[(order >> 33) % i]);
    }
}
// Blocks that are there at once, to their end; `turn`: of their threads.
bool run(std::vector<unsigned> &turn) {
    std::vector<unsigned> of_blocks(blocks.size());
    for (unsigned b = 0; b < of_blocks.size(); ++b) of_blocks[b] = b;
    unsigned fruitless = 0;
    for (size_t left = blocks.size() * turn.size(); left > 0;) {
        const unsigned long came_before = came, told_before = told, looked_before = looked;
        if (order > 1) shuffle(of_blocks);
        for (unsigned b : of_blocks) {
            enter(blocks[b]);
            first_fiber = b * unsigned(turn.size());
            // Blocks have a round each, or go on alone while there is something to do: they drift apart.
            const bool alone = blocks.size() > 1 && (order > 1 ? order >> 40 & 1 : order);
            unsigned long before = told;
            for (unsigned idle = 0; idle < (alone ? 4 : 1) && left > 0; ++idle) {
                if (order > 1) shuffle(turn);
                for (unsigned t : turn) {
                    if (here->threads[t].done || !here->threads[t].waiting.is_over()) continue;
                    me = t;
                    resume();
                    if (is_beyond) return false;
                    left -= here->threads[t].done;
                }
                if (alone && told != before) idle = 0;
                before = told;
            }
        }
        fruitless = told == told_before ? fruitless + 1 : 0;
        if ((came == came_before && looked == looked_before) || fruitless > PATIENCE) return false;
    }
    return true;
}
} // namespace

void rest() {
    if (_setjmp(fibers[first_fiber + me].place) == 0) _longjmp(way_home, 1);
}
void look() {
    ++looked;
    rest();
}
void tell() { ++came, ++told; }
void sync_warp() { wait(here->warps[me / 32], here->warps[me / 32].come()); }
void sync_block() {
    ++told;
    wait(here->whole, here->whole.come());
}
void announce() {
    ++told;
    here->announced.come();
}
void await_announcements() {
    ++told;
    wait(here->announced, here->announced.come());
}
void arrive_in_cluster() {
    ++told;
    here->threads[me].in_cluster = of_cluster().come();
}
void wait_for_cluster() { wait(of_cluster(), here->threads[me].in_cluster); }

unsigned address_of(const void *p) {
    const auto *byte = static_cast<const unsigned char *>(p);
    return statics <= byte && byte < statics + static_bytes ? STATIC + unsigned(byte - statics) : unsigned(byte - shared);
}
unsigned address_in(unsigned address, unsigned number) { return address % RANK + (number + 1) * RANK; }

void copy(unsigned to, const void *from, unsigned size) {
    if (reinterpret_cast<uintptr_t>(from) % size == 0 && spoil(to, size, size))
        here->threads[me].asked.push_back({to, size, here->threads[me].groups, from});
}
void commit() { ++here->threads[me].groups; }
void copied_but(unsigned left) {
    Thread &thread = here->threads[me];
    auto one = thread.asked.begin();
    for (; one != thread.asked.end() && one->group + left < thread.groups; ++one)
        std::memcpy(at(one->to, one->size), one->from, one->size);
    thread.asked.erase(thread.asked.begin(), one);
}
void copied() {
    commit();
    copied_but(0);
}

void count(unsigned barrier, unsigned threads) {
    Counter made{};
    made.all = made.left = short(threads);
    std::memcpy(at(barrier, sizeof(made)), &made, sizeof(made));
}
void expect(unsigned barrier, unsigned bytes) {
    Counter &counter = *reinterpret_cast<Counter *>(at(barrier, sizeof(Counter)));
    tell();
    --counter.left;
    counter.bytes += int(bytes);
    counter.pass();
}
void deliver(unsigned to, const void *from, unsigned size, unsigned barrier) {
    if (reinterpret_cast<uintptr_t>(from) % 16 == 0 && spoil(to, size, 16))
        block_of(to).coming.push_back({to % RANK, size, barrier % RANK, from, {}});
}
void give(unsigned to, const void *value, unsigned size, unsigned barrier) {
    if (!spoil(to, size, size)) return;
    Delivery given = {to % RANK, size, barrier % RANK, nullptr, {}};
    std::memcpy(given.value, value, size);
    block_of(to).coming.push_back(given);
}
void expected(unsigned barrier, unsigned parity) {
    Counter &counter = *reinterpret_cast<Counter *>(at(barrier, sizeof(Counter)));
    for (;;) { // what comes does so when somebody waits
        auto &coming = here->coming;
        for (auto one = coming.begin(); one != coming.end() && counter.phase == parity;) {
            if (one->barrier != barrier) {
                ++one;
                continue;
            }
            std::memcpy(at(one->to, one->size), one->from == nullptr ? one->value : one->from, one->size);
            counter.bytes -= int(one->size);
            counter.pass();
            tell();
            one = coming.erase(one);
        }
        if (counter.phase != parity) return;
        look();
    }
}

bool launch(const Launch &how, void (*kernel)(void **), void **given) {
    const size_t whole = (how.bytes + 15) / 16 * 16, pages = (whole + PAGE - 1) / PAGE * PAGE;
    const unsigned block = how.block, at_once = std::min(how.at_once, how.grid);
    room_bytes = at_once * (pages + PAGE);
    room = static_cast<unsigned char *>(
        mmap(nullptr, room_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    struct sigaction ours {}, theirs {};
    ours.sa_sigaction = beyond;
    ours.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &ours, &theirs);
    is_beyond = false;
    shared_bytes = how.bytes;
    statics = how.statics, static_bytes = how.static_bytes;
    gridDim.x = how.grid;
    blockDim.x = block;
    blocks_of_cluster = how.cluster;
    body = kernel;
    arguments = given;
    if (fibers.size() < at_once * block) fibers.resize(at_once * block);
    std::vector<unsigned> turn(block);
    for (unsigned t = 0; t < block; ++t) turn[t] = order == 1 ? block - 1 - t : t;
    bool ended = true;
    for (unsigned first = 0; first < how.grid && ended; first += at_once) {
        blocks.assign(at_once, {});
        clusters.assign((at_once + how.cluster - 1) / how.cluster, {how.cluster * block});
        for (unsigned b = 0; b < at_once; ++b) {
            Block &made = blocks[b];
            unsigned char *own = room + b * (pages + PAGE);
            std::memset(own, 0xff, pages);
            mprotect(own + pages, PAGE, PROT_NONE);
            made.number = order == 1 && at_once == 1 ? how.grid - 1 - first : first + b;
            made.shared = own + pages - whole;
            made.statics.assign(static_bytes, 0xff);
            made.whole = made.announced = {block};
            made.warps.assign((block + 31) / 32, {32});
            made.threads.assign(block, {});
        }
        here = nullptr;
        ended = run(turn);
    }
    if (!ended) fibers.clear(); // they are in the middle of something
    here = nullptr;
    sigaction(SIGSEGV, &theirs, nullptr);
    munmap(room, room_bytes);
    return ended;
}
} // namespace on_host

extern "C" void on_host_order(unsigned long order) { on_host::order = order; }
