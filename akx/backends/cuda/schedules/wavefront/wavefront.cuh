// The front: blocks of rows run diagonally through the powers while their entries stay on the chip.
//
//     v_{p} = a_p A v_{p-1} + b_p v_{p-1} + c_p v_{p-2}
//
// Every thread block owns a strip of the matrix, and of each block of rows its share. At step t it does power p on
// block t - lag (p - 1) for all p at once. A block's entries come from memory once, `AHEAD` steps before its first
// power, into shared memory: the first HW slots of a slice go on into registers of the warp that has the slice for all
// its powers, the rest ("near") stay in shared memory. x is in shared memory, for each power `ring` blocks of own rows
// and, behind all of them, as many of the halo, what rows of this strip read of others; columns are offsets there, in
// bytes.
//
// Rows that others read are published beside the result: each 32-bit half of a value in one 64-bit word with a tag, so
// that who finds the tag has the value, and no fence or flag is waited for (as in NCCL's LL protocol). What is
// published at step t is read from step t + 2 + slack on: lag = reach + 2 + slack, where rows of a block read at most
// `reach` blocks ahead. Without slack it is asked for and taken in step t + 1; with slack it is taken in step
// t + 1 + slack, and asked for one step before, so that nobody waits for the way through L2, and strips may be apart by
// slack - 1 steps before one waits for another. A published word is overwritten RING blocks later; before, its readers
// have said that they are through (`beats`).
//
// Where all rows have their entries on the same few diagonals (RUNS), columns are not stored: places of x of a block,
// own rows and those of others, are in the order of rows, so that entries on diagonals next to each other (a run) read
// places next to each other. A slot is a diagonal, and a lane has the place of the first entry of each run. Near slots are
// as many for each slice, and v_{p-2} is in shared memory too: registers are for the matrix.
//
// What is read or written once in a pass (entries of A, results) is told to leave L2 first. Words that are published
// would else have left it when their place is written again, and L2 would ask memory for the rest of each sector: that
// takes longer than a step.
#pragma once
#include "include/async.cuh"
#include "value_compression/stored.cuh"

constexpr u32 NONE = 0xffffffffu;
constexpr u32 RING = 16;   // blocks of published words, of each power: few, so that they stay in L2
constexpr u32 LINE = 64;   // words from one strip's beat to the next: in one line of L2 they would wait for each other
constexpr u32 STAGES = 5;  // blocks on their way, of which one is being taken into registers
// By diagonals: bits of a word that is fetched, the place where it goes is in the others; the most of them.
constexpr u32 WORD_BITS = 18, MOST_WORDS = (1u << WORD_BITS) - 1;
constexpr u32 FLIGHT = STAGES - 1;  // steps from asking for what comes from memory to using it

// Sizes of all strips; words are 32 bits.
struct Sizes {
    u32 blocks, strips;      // blocks of rows; thread blocks
    u32 reach, slack;        // see above
    u32 ring, stride;        // blocks of x of one power, places of each of them, those of the halo included
    u32 halo;                // places for what is fetched from others, of a block
    u32 published;           // words of values (WORDS each) of one power and block, of all strips
    u32 meta;                // words that describe a block of a strip, a multiple of 4
    u32 near_slots, nears;   // slots in shared memory of a block at most; blocks of them
    u32 lists, halos;        // blocks of lists of indices in shared memory: of entries of x, of published values
    u32 readers;             // places for a strip's readers
    u32 powers;              // of this pass
};

// Slots in shared memory of a block of a strip: the first of all, and how many. A list of indices of x begins with it.
struct alignas(8) Nears {
    u32 first, number;
};

#ifndef AKX_ON_HOST
// What leaves L2 first.
__device__ __forceinline__ u64 passing() {
    u64 policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
// A result: it is not read again in this pass.
template <class T> __device__ __forceinline__ void put(T *to, T value) {
    union {
        T value;
        u32 half[1];
        u64 word[sizeof(T) > 8 ? 2 : 1];
    } bits;
    bits.value = value;
    if constexpr (sizeof(T) == 4)
        asm volatile("st.global.L2::cache_hint.b32 [%0], %1, %2;" ::"l"(to), "r"(bits.half[0]), "l"(passing())
                     : "memory");
    else if constexpr (sizeof(T) == 8)
        asm volatile("st.global.L2::cache_hint.b64 [%0], %1, %2;" ::"l"(to), "l"(bits.word[0]), "l"(passing())
                     : "memory");
    else
        asm volatile("st.global.L2::cache_hint.v2.b64 [%0], {%1, %2}, %3;" ::"l"(to), "l"(bits.word[0]),
                     "l"(bits.word[1]), "l"(passing())
                     : "memory");
}
// What follows is done by those threads that are `wanted` to: a branch would take longer.
__device__ __forceinline__ void publish_word(u64 *to, u32 half, u32 tag, bool wanted) {
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.u32 p, %2, 0;\n"
                 "@p st.relaxed.gpu.global.u64 [%0], %1;\n"
                 "}\n" ::"l"(to),
                 "l"(u64(tag) << 32 | half), "r"(u32(wanted))
                 : "memory");
}
__device__ __forceinline__ void publish_pair(u64 *to, u32 low, u32 high, u32 tag, bool wanted) {
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.u32 p, %3, 0;\n"
                 "@p st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};\n"
                 "}\n" ::"l"(to),
                 "l"(u64(tag) << 32 | low), "l"(u64(tag) << 32 | high), "r"(u32(wanted))
                 : "memory");
}
__device__ __forceinline__ void published_word(u64 &word, const u64 *from, bool wanted) {
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.u32 p, %2, 0;\n"
                 "@p ld.relaxed.gpu.global.u64 %0, [%1];\n"
                 "}\n"
                 : "+l"(word)
                 : "l"(from), "r"(u32(wanted))
                 : "memory");
}
__device__ __forceinline__ void published_pair(u64 &first, u64 &second, const u64 *from, bool wanted) {
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.u32 p, %3, 0;\n"
                 "@p ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];\n"
                 "}\n"
                 : "+l"(first), "+l"(second)
                 : "l"(from), "r"(u32(wanted))
                 : "memory");
}
__device__ __forceinline__ void beat(u32 *to, u32 value) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ __forceinline__ u32 beat_of(const u32 *from) {
    u32 value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}
#endif

__device__ __forceinline__ void next(u32 &slot, u32 room) { slot = slot + 1 == room ? 0 : slot + 1; }
__device__ __forceinline__ u32 modulo(int a, u32 b) { return u32(a + 0x10000 * int(b)) % b; }  // -0x10000 b <= a

// What one warp sends for in a step, into shared memory: stretches of multiples of 16 bytes, by bulk copies where there
// are any, and values one by one.
struct Cargo {
    u32 barrier, bytes = 0;

#if __CUDA_ARCH__ >= 900
    static __device__ __forceinline__ void begin(u64 *arrivals) {
        for (u32 i = 0; i < FLIGHT; ++i) make_barrier(shared_address(arrivals + i));
        barriers_made();
    }
    __device__ __forceinline__ Cargo(u64 *arrival) : barrier(shared_address(arrival)) {}
    __device__ __forceinline__ void bring(void *to, const void *from, u32 size) {
        bytes += size;
        if ((threadIdx.x & 31) == 0) copy_bulk(to, from, size, barrier, passing());
    }
    __device__ __forceinline__ void leave() {
        if ((threadIdx.x & 31) == 0) expect_bytes(barrier, bytes);
    }
    static __device__ __forceinline__ void arrived(u64 *arrival, u32 parity) {
        wait_for_bytes(shared_address(arrival), parity);
    }
#else
    static __device__ __forceinline__ void begin(u64 *) {}
    __device__ __forceinline__ Cargo(u64 *) {}
    __device__ __forceinline__ void bring(void *to, const void *from, u32 size) {
        for (u32 i = 16 * (threadIdx.x & 31); i < size; i += 16 * 32)
            copy16(static_cast<char *>(to) + i, static_cast<const char *>(from) + i, passing());
    }
    __device__ __forceinline__ void leave() { commit_copies(); }
    static __device__ __forceinline__ void arrived(u64 *, u32) { copies_done_but<FLIGHT - 1>(); }
#endif
};

// A value as words that carry a tag.
template <class T> struct Tagged {
    static constexpr u32 WORDS = sizeof(T) / 4;
    union Halves {
        T value;
        u32 half[WORDS];
    };
    u64 word[WORDS];

    static __device__ __forceinline__ void publish(u64 *to, T value, u32 tag, bool wanted) {
        Halves of;
        of.value = value;
        if constexpr (WORDS == 1) publish_word(to, of.half[0], tag, wanted);
        else
#pragma unroll
            for (u32 w = 0; w < WORDS; w += 2) publish_pair(to + w, of.half[w], of.half[w + 1], tag, wanted);
    }
    __device__ __forceinline__ void ask(const u64 *from, bool wanted) {
        if constexpr (WORDS == 1) published_word(word[0], from, wanted);
        else
#pragma unroll
            for (u32 w = 0; w < WORDS; w += 2) published_pair(word[w], word[w + 1], from + w, wanted);
    }
    __device__ __forceinline__ bool has(u32 tag) const {
        bool all = true;
#pragma unroll
        for (u32 w = 0; w < WORDS; ++w) all &= u32(word[w] >> 32) == tag;
        return all;
    }
    __device__ __forceinline__ T value() const {
        Halves of;
#pragma unroll
        for (u32 w = 0; w < WORDS; ++w) of.half[w] = u32(word[w]);
        return of.value;
    }
};

// Values in registers as they are stored; offsets into a table are two in a word.
template <class S, int COUNT> struct Kept {
    S value[COUNT];
    __device__ __forceinline__ void keep(int q, S v) { value[q] = v; }
    __device__ __forceinline__ S operator[](int q) const { return value[q]; }
};
template <int COUNT> struct Kept<u16, COUNT> {
    u32 pair[(COUNT + 1) / 2];
    __device__ __forceinline__ void keep(int q, u16 v) {
        pair[q / 2] = q % 2 ? pair[q / 2] | u32(v) << 16 : u32(v);  // in the order of q
    }
    __device__ __forceinline__ u16 operator[](int q) const { return u16(q % 2 ? pair[q / 2] >> 16 : pair[q / 2]); }
};

// Diagonals of a matrix: RUNS has the length of each run of them, five bits each, the first the lowest; slot OWN is that
// of the rows themselves, -1 where there is none.
template <u64 RUNS, int OWN> struct Runs {
    static constexpr __device__ int length(int run) { return int(RUNS >> 5 * run & 31); }
    static constexpr __device__ int runs() {
        int count = 0;
        while (count < 12 && length(count)) ++count;
        return count;
    }
    static constexpr __device__ int slots() {
        int sum = 0;
        for (int r = 0; r < runs(); ++r) sum += length(r);
        return sum;
    }
    static constexpr __device__ int run_of(int slot) {
        int run = 0;
        for (; slot >= length(run); ++run) slot -= length(run);
        return run;
    }
    static constexpr __device__ int within(int slot) {  // its run
        for (int run = 0; slot >= length(run); ++run) slot -= length(run);
        return slot;
    }
    // Places behind its first one that a run may reach, rounded up.
    static constexpr __device__ int guard() {
        int most = 0;
        for (int r = 0; r < runs(); ++r) most = length(r) > most ? length(r) : most;
        return (most + 2) / 4 * 4;
    }
    // A lane has the places of all runs but its own.
    static constexpr __device__ int places() { return RUNS == 0 ? 0 : runs() - (OWN >= 0); }
    static constexpr __device__ int place_of(int run) { return run - (OWN >= 0 && run > run_of(OWN)); }
    static constexpr __device__ bool is_own(int run) { return OWN >= 0 && run == run_of(OWN); }
};

// T: type of vectors, S: what values are stored as. LANES: lanes of a row. LAG, SLACK: see above. PER: slices of a warp
// that have a power in the same step, LAG * PER in all. HW: slots of each in registers. SLICES: slices of a block of a
// strip. WARPS: those that compute; HELPERS: threads that bring what they need. ASKS: values of others that one of these
// asks for in a step, XS: entries of x. NEAR: whether any slots stay in shared memory; by diagonals, how many of a slice.
template <class T, class S, int LANES, int LAG, int PER, int HW, int SLICES, int WARPS, int HELPERS, int ASKS, int XS,
          int NEAR, int SLACK, u64 RUNS, int OWN>
struct Front {
    typedef Runs<RUNS, OWN> Lines;
    static constexpr bool DIA = RUNS != 0;
    // Places that nothing is in, before x of each power: a run may reach there.
    static constexpr u32 GUARD = DIA ? Lines::guard() : 0;
    static constexpr u32 ROWS = 32 / LANES, PAIRS = ((DIA ? Lines::places() : HW) + 1) / 2, THREADS = 32 * WARPS + HELPERS,
                         ASKERS = HELPERS - 64;
    // What describes a block of a strip: HEAD words that are not read here (first near slot, number of them, where own
    // rows begin in x, their number), near slots of each slice (first << 16 | number), nodes and places (in x, in bytes,
    // and among the strip's published values: 0xffff where none) of ROOM rows, columns of held slots, two in a word.
    static constexpr u32 HEAD = 4, ROOM = SLICES * ROWS;
    static constexpr u32 NODES = HEAD + (SLICES + 3) / 4 * 4, PLACES = NODES + ROOM, COLUMNS = PLACES + ROOM;
    static constexpr u32 HELD = SLICES * HW * 32;  // values
    static constexpr int HELD_ROOM = HW > 0 ? HW : 1, PAIRS_ROOM = PAIRS > 0 ? PAIRS : 1;
    // Near slots that are asked for together: more of them take more registers.
    static constexpr u32 AT_ONCE = sizeof(S) < 8 ? 4 : 1;
    // Steps from one look at the readers to the next; steps before a block's first power that its entries are asked
    // for: they are taken into registers LAG steps before, when those of another block are no longer needed there; and
    // that its lists are asked for.
    static constexpr int LOOK = 4, AHEAD = LAG + int(FLIGHT), LISTED = AHEAD + int(FLIGHT);

    // What is the same for all steps. Shared memory: coefficients of this pass, the table of values, x, stages
    // (descriptions, values), near slots (values, columns), lists of indices.
    struct Setting {
        Sizes size;
        const T *coefficient, *table;
        T *xs, *out;
        unsigned char *stages;
        S *near_value;     // slots that are not in registers: values,
        u16 *near_column;  // and columns
        T *older;          // by diagonals: v_{p-2}
        u32 *node_ring, *halo_ring;  // indices of x, behind a head of 4 words (near slots); places of published values
        u64 *published;
        i64 n;
        u32 from, span, near_magic, meta_bytes, stage_bytes, tag0;
        int lead, last, end;
    };

    // What a lane has of a slice as long as its block is at work. `at`: its place in x, and where it is published.
    struct Held {
        Kept<S, HELD_ROOM> value;
        T older;
        u32 column[PAIRS_ROOM], node, at, near;
    };

    static __device__ __forceinline__ void run(const Sizes &size, const u32 *meta, const S *values,
                                               const u16 *near_columns, const u32 *nodes, const u32 *halo,
                                               const u32 *readers, const u32 *places, const T *coefficients,
                                               const T *table, u32 tabled, u64 *published, u32 *beats, u32 *epochs,
                                               const T *x, T *out, i64 n, u32 from, u32 total) {
        AKX_DYNAMIC_SHARED(memory);
        __shared__ u64 arrivals[FLIGHT];
        const u32 me = blockIdx.x, thread = threadIdx.x;
        const u32 warp = __shfl_sync(0xffffffffu, thread / 32, 0);
        const u32 epoch = epochs[me];
        Setting at;
        at.size = size;
        T *coefficient = reinterpret_cast<T *>(memory);
        at.coefficient = coefficient;
        T *values_of = reinterpret_cast<T *>(memory + (3 * size.powers * sizeof(T) + 15) / 16 * 16);
        at.table = values_of;
        at.xs = values_of + (tabled * sizeof(T) + 15) / 16 * 16 / sizeof(T);
        at.span = size.ring * size.stride + GUARD;
        at.older = at.xs + (size.powers * at.span + GUARD);
        const u32 olders = DIA ? size.powers * SLICES * LAG * 32 : 0, vectors = size.powers * at.span + GUARD + olders;
        at.stages = reinterpret_cast<unsigned char *>(at.xs) + (vectors * sizeof(T) + 15) / 16 * 16;
        at.meta_bytes = size.meta * 4, at.stage_bytes = at.meta_bytes + HELD * u32(sizeof(S));
        at.near_value = reinterpret_cast<S *>(at.stages + STAGES * at.stage_bytes);
        at.near_column = reinterpret_cast<u16 *>(at.near_value + size.nears * size.near_slots * 32);
        at.node_ring = reinterpret_cast<u32 *>(at.near_column + (DIA ? 0 : size.nears * size.near_slots * 32));
        at.halo_ring = at.node_ring + size.lists * (size.stride + 4);
        at.published = published, at.out = out, at.n = n, at.from = from,
        at.near_magic = 0xffffffffu / size.nears + 1, at.tag0 = epoch * (size.blocks + 1);
        at.lead = (AHEAD + int(FLIGHT) + LAG - 1) / LAG * LAG;
        at.last = int(size.blocks) - 1 + LAG * (int(size.powers) - 1);
        at.end = at.last + 1 + (LAG - 1 - (at.last + at.lead) % LAG);
        if (thread == 0) Cargo::begin(arrivals);
        for (u32 i = thread; i < 3 * size.powers; i += THREADS) coefficient[i] = coefficients[3 * from + i];
        for (u32 i = thread; i < tabled; i += THREADS) values_of[i] = table[i];
        if (DIA)  // a zero is multiplied with what is in a place
            for (u32 i = thread; i < size.powers * at.span + GUARD; i += THREADS) at.xs[i] = zero<T>();
        __syncthreads();
        if (warp < WARPS) compute(at, warp, places[me]);
        else if (warp == WARPS)
            carry(at, arrivals, meta, values, values + u64(size.strips) * size.blocks * HELD, near_columns, nodes,
                  halo);
        else if (warp == WARPS + 1)
            gather(at, readers + me * size.readers, from == 0 ? x : out + i64(from) * n, beats, epoch * total);
        else ask(at, thread - 32 * (WARPS + 2));
        if (thread == 0) epochs[me] = epoch + 1;
    }

    // Power p on block step - LAG (p - 1), for all p.
    static __device__ __forceinline__ void compute(const Setting &at, u32 warp, u32 my_place) {
        const u32 lane = threadIdx.x & 31, powers = at.size.powers, blocks = at.size.blocks;
        Held held[LAG][PER];
        u32 slice_of[PER];
        u32 done[PER];  // powers that the blocks of a slice's class have behind them, from 2^31 on where it has none
#pragma unroll
        for (int j = 0; j < PER; ++j) {
            const u32 turn = (warp + j * WARPS) / SLICES;
            slice_of[j] = (warp + j * WARPS) % SLICES;
            done[j] = turn < powers ? modulo(-at.lead / LAG - int(turn), powers) : 0x80000000u;
#pragma unroll
            for (int r = 0; r < LAG; ++r) {
                held[r][j].node = NONE, held[r][j].at = 0xffff0000u, held[r][j].near = 0;
#pragma unroll
                for (int q = 0; q < PAIRS_ROOM; ++q) held[r][j].column[q] = 0;
            }
        }
        // Which powers have the terms b v and c v; at most 32 of them.
        u32 own_terms = 0, older_terms = 0;
        for (u32 p = 0; p < powers; ++p) {
            own_terms |= u32(!is_zero(at.coefficient[3 * p + 1])) << p;
            older_terms |= u32(!is_zero(at.coefficient[3 * p + 2])) << p;
        }
        Turn turn[PER];
#pragma unroll
        for (int j = 0; j < PER; ++j)
            turn[j].slot = DIA ? modulo(-at.lead - LAG * int(done[j] & 0xffu), at.size.nears) : 0, turn[j].slice = slice_of[j];
        for (int first = -at.lead; first <= at.last; first += LAG) {
            if (DIA)
#pragma unroll
                for (int j = 0; j < PER; ++j) turn[j].begin(at, done[j], my_place, own_terms, older_terms);
#pragma unroll
            for (int r = 0; r < LAG; ++r) {
                const int step = first + r;
#pragma unroll
                for (int j = 0; j < PER; ++j) {
                    const u32 p = done[j], b = u32(step) - u32(LAG) * p;
                    T *older = at.older + ((warp + j * WARPS) * LAG + r) * 32 + lane;
                    if (p < powers && b < blocks) {
                        if constexpr (DIA) go_along(at, turn[j], held[r][j], r, b, older);
                        else advance(at, held[r][j], p, b, my_place, own_terms, older_terms);
                    }
                    // The next block of this slice's registers.
                    if (p + 1 == powers && u32(step + LAG) < blocks)
                        take(at, held[r][j], u32(step + LAG), slice_of[j], lane, older, older_terms);
                    if (r == LAG - 1) {
                        if (DIA && p + 1 == powers) turn[j].slot = around(turn[j].slot + LAG * powers, at.size.nears);
                        done[j] = p + 1 == powers ? 0 : p + 1;
                    }
                }
                __syncthreads();
            }
        }
    }

    // By diagonals: what is the same for the LAG steps in which a warp has the same power of its blocks. It is found once
    // for them: left to itself the compiler finds it anew for each, which is half of all instructions.
    struct Turn {
        u32 slice, slot;  // slot: of near slots of the first of the blocks
        u32 x, next, near, coefficient, word, tag, flags;  // the first four: bytes from the beginning of shared memory
        T *result;

        __device__ __forceinline__ void begin(const Setting &at, u32 p, u32 my_place, u32 own_terms, u32 older_terms) {
            const u32 begins = p == 0 && at.from == 0, goes_on = p + 1 < at.size.powers;
            x = uniform(offset_of(at.xs + p * at.span)), next = uniform(offset_of(at.xs + (p + 1) * at.span));
            near = offset_of(at.near_value + slice * (NEAR * 32) + (threadIdx.x & 31));
            settle(near);
            coefficient = uniform(offset_of(at.coefficient + 3 * p)), tag = uniform(at.tag0);
            word = uniform(p * RING * at.size.published + my_place);
            flags = uniform((own_terms >> p & 1) * OWN_TERM | (older_terms >> p & 1) * OLDER_TERM |
                            (older_terms >> 1 >> p & 1) * KEEPS | begins * BEGINS | goes_on * GOES_ON);
            const u64 to = reinterpret_cast<u64>(at.out + i64(at.from + p + 1) * at.n);
            result = reinterpret_cast<T *>(u64(uniform(u32(to >> 32))) << 32 | uniform(u32(to)));
        }
        enum Flags : u32 { OWN_TERM = 1, OLDER_TERM = 2, KEEPS = 4, BEGINS = 8, GOES_ON = 16 };
    };
    static __device__ __forceinline__ unsigned char *shared() {
        AKX_DYNAMIC_SHARED(memory);
        return memory;
    }
    static __device__ __forceinline__ u32 offset_of(const void *p) {
        return u32(static_cast<const unsigned char *>(p) - shared());
    }
    static __device__ __forceinline__ u32 uniform(u32 v) { return __shfl_sync(0xffffffffu, v, 0); }
    static __device__ __forceinline__ u32 around(u32 v, u32 end) { return v < end ? v : v - end; }

    // Products of a row on diagonals, from slot Q on; `near`: values of slots that are not held, `first`: the place of the
    // first entry of the run at hand.
    template <int Q>
    static __device__ __forceinline__ void along(const Held &own, const T *table, const S *near, const char *source,
                                                 const char *first, u32 place, T &sum, T &more) {
        if constexpr (Q < Lines::slots()) {
            constexpr int run = Lines::run_of(Q), within = Lines::within(Q), word = Lines::place_of(run);
            if constexpr (Lines::is_own(run)) {
                if (within == 0) first = source + place - Lines::within(OWN) * int(sizeof(T));
            } else if constexpr (within == 0)
                first = source + (word % 2 ? own.column[word / 2] >> 16 : own.column[word / 2] & 0xffffu);
            S value;
            if constexpr (Q < HW) value = own.value[Q];
            else value = near[(Q - HW) * 32];
            const T x = *reinterpret_cast<const T *>(first + within * sizeof(T));
            if constexpr (Q % 2) more = mad(widened<T>(table, value), x, more);
            else sum = mad(widened<T>(table, value), x, sum);
            along<Q + 1>(own, table, near, source, first, place, sum, more);
        }
    }

    // One power of one slice by diagonals, of the r-th block of the turn.
    static __device__ __forceinline__ void go_along(const Setting &at, const Turn &turn, const Held &own, int r, u32 b,
                                                    T *older) {
        const u32 place = own.at & 0xffffu, publishes = own.at >> 16;
        const char *source = reinterpret_cast<const char *>(shared() + turn.x);
        const u32 slot = around(turn.slot + r, at.size.nears);
        const S *near = reinterpret_cast<const S *>(shared() + turn.near) + slot * (SLICES * NEAR * 32);
        const T *c = reinterpret_cast<const T *>(shared() + turn.coefficient);
        T sum = zero<T>(), more = zero<T>();
        along<0>(own, at.table, near, source, source, place, sum, more);
        const T mine = *reinterpret_cast<const T *>(source + place);
        T value = mad(c[0], add(sum, more), zero<T>());
        if (turn.flags & (Turn::OWN_TERM | Turn::OLDER_TERM)) {
            if (turn.flags & Turn::OWN_TERM) value = mad(c[1], mine, value);
            if (turn.flags & Turn::OLDER_TERM) value = mad(c[2], *older, value);
        }
        if (turn.flags & Turn::KEEPS) *older = mine;
        const bool writes = own.node != NONE, goes_on = writes && turn.flags & Turn::GOES_ON;
        if (goes_on) *reinterpret_cast<T *>(shared() + turn.next + place) = value;
        const u32 word = turn.word + b % RING * at.size.published + publishes;
        Tagged<T>::publish(at.published + u64(word) * Tagged<T>::WORDS, value, turn.tag + b,
                           goes_on && publishes != 0xffffu);
        if (writes) put(turn.result + own.node, value);
        if (turn.flags & Turn::BEGINS && writes) put(at.out + own.node, mine);
    }

    // One power of one slice.
    static __device__ __forceinline__ void advance(const Setting &at, Held &own, u32 p, u32 b, u32 my_place,
                                                   u32 own_terms, u32 older_terms) {
        const u32 lane = threadIdx.x & 31, place = own.at & 0xffffu, publishes = own.at >> 16;
        const char *source = reinterpret_cast<const char *>(at.xs + p * at.span);
        const T *c = at.coefficient + 3 * p;
        const auto x_at = [&](u32 offset) { return *reinterpret_cast<const T *>(source + offset); };
        const T mine = x_at(place), scale = c[0];
        T sum = zero<T>(), more = zero<T>();
#pragma unroll
        for (int q = 0; q < HW; ++q) {
            const u32 column = q % 2 ? own.column[q / 2] >> 16 : own.column[q / 2] & 0xffffu;
            T &to = q % 2 ? more : sum;
            to = mad(widened<T>(at.table, own.value[q]), x_at(column), to);
        }
        if (NEAR) {
            const u32 count = own.near & 0xffffu;
            const S *value = at.near_value + (own.near >> 16) * 32 + lane;
            const u16 *column = at.near_column + (own.near >> 16) * 32 + lane;
            for (u32 q = 0; q < count; q += AT_ONCE) {
                u32 from[AT_ONCE];
                S of[AT_ONCE];
                T with[AT_ONCE];
#pragma unroll
                for (u32 i = 0; i < AT_ONCE; ++i)
                    if (q + i < count) from[i] = column[(q + i) * 32], of[i] = value[(q + i) * 32];
#pragma unroll
                for (u32 i = 0; i < AT_ONCE; ++i)
                    if (q + i < count) with[i] = x_at(from[i]);
#pragma unroll
                for (u32 i = 0; i < AT_ONCE; ++i)
                    if (q + i < count) {
                        T &to = i % 2 ? more : sum;
                        to = mad(widened<T>(at.table, of[i]), with[i], to);
                    }
            }
        }
        sum = add(sum, more);
#pragma unroll
        for (int offset = ROWS; offset < 32; offset *= 2) sum = add(sum, across(sum, offset));
        T value = mad(scale, sum, zero<T>());
        if ((own_terms | older_terms) >> p & 1) {
            if (own_terms >> p & 1) value = mad(c[1], mine, value);
            if (older_terms >> p & 1) value = mad(c[2], own.older, value);
        }
        own.older = mine;
        const bool writes = own.node != NONE, goes_on = writes && p + 1 < at.size.powers;
        char *next_x = reinterpret_cast<char *>(at.xs + (p + 1) * at.span);
        if (goes_on) *reinterpret_cast<T *>(next_x + place) = value;
        const u32 word = (p * RING + b % RING) * at.size.published + my_place + publishes;
        Tagged<T>::publish(at.published + u64(word) * Tagged<T>::WORDS, value, at.tag0 + b,
                           goes_on && publishes != 0xffffu);
        T *result = at.out + i64(at.from + p) * at.n;
        if (p == 0 && at.from == 0 && writes) put(result + own.node, mine);
        if (writes) put(result + at.n + own.node, value);
    }

    // Take a slice of a block that has arrived.
    static __device__ __forceinline__ void take(const Setting &at, Held &own, u32 b, u32 slice, u32 lane,
                                                T *older, u32 older_terms) {
        const unsigned char *stage = at.stages + (b % STAGES) * at.stage_bytes;
        const u32 *words = reinterpret_cast<const u32 *>(stage);
        const S *value = reinterpret_cast<const S *>(stage + at.meta_bytes) + slice * (HW * 32) + lane;
        const u32 row = slice * ROWS + lane % ROWS;
        own.node = lane < ROWS ? words[NODES + row] : NONE;
        own.at = words[PLACES + row];
        if (NEAR && !DIA) {
            const u32 slot = b - __umulhi(b, at.near_magic) * at.size.nears;  // the rest, for b nears < 2^32
            own.near = words[HEAD + slice] + (slot * at.size.near_slots << 16);
        }
        own.older = zero<T>();
#pragma unroll
        for (int q = 0; q < HW; ++q) own.value.keep(q, value[q * 32]);
#pragma unroll
        for (int q = 0; q < int(PAIRS); ++q) own.column[q] = words[COLUMNS + (slice * PAIRS + q) * 32 + lane];
        if (at.from > 0 && (older_terms & 1) && own.node != NONE) {
            own.older = (at.out + i64(at.from - 1) * at.n)[own.node];
            settle(own.older);
        }
        if (DIA && (older_terms & 1)) *older = own.older;
    }

    // Bring entries of the matrix and lists of indices. One warp.
    static __device__ __forceinline__ void carry(const Setting &at, u64 *arrivals, const u32 *meta, const S *values,
                                                 const S *near_values, const u16 *near_columns, const u32 *nodes,
                                                 const u32 *halo) {
        const Sizes &size = at.size;
        const u32 list_words = size.stride + 4;
        // Where blocks are in rings: the stage, its list, near slots, and lists that arrive.
        u32 stage_slot = modulo(AHEAD - at.lead, STAGES), stage_list = modulo(AHEAD - at.lead, size.lists);
        u32 near_slot = modulo(AHEAD - at.lead, size.nears);
        u32 list_slot = modulo(LISTED - at.lead, size.lists), halo_slot = modulo(LISTED - at.lead, size.halos);
        for (int step = -at.lead; step < at.end; ++step) {
            const int number = step + at.lead;
            Cargo cargo(arrivals + number % FLIGHT);
            u32 b = u32(step + AHEAD);
            if (b < size.blocks) {
                const u64 group = b * size.strips + blockIdx.x;
                unsigned char *stage = at.stages + stage_slot * at.stage_bytes;
                cargo.bring(stage, meta + group * size.meta, at.meta_bytes);
                if (HW > 0) cargo.bring(stage + at.meta_bytes, values + group * HELD, HELD * u32(sizeof(S)));
                if (NEAR) {
                    const Nears near = *reinterpret_cast<const Nears *>(at.node_ring + stage_list * list_words);
                    const u32 first = near_slot * size.near_slots * 32;
                    if (near.number) {
                        cargo.bring(at.near_value + first, near_values + u64(near.first) * 32,
                                    near.number * 32 * u32(sizeof(S)));
                        if (!DIA)
                            cargo.bring(at.near_column + first, near_columns + u64(near.first) * 32, near.number * 64);
                    }
                }
            }
            b = u32(step + LISTED);
            if (b < size.blocks) {
                const u64 group = b * size.strips + blockIdx.x;
                cargo.bring(at.node_ring + list_slot * list_words, nodes + group * list_words, list_words * 4);
                cargo.bring(at.halo_ring + halo_slot * size.halo, halo + group * size.halo, size.halo * 4);
            }
            cargo.leave();
            next(stage_slot, STAGES), next(list_slot, size.lists), next(halo_slot, size.halos);
            if (NEAR) next(near_slot, size.nears), next(stage_list, size.lists);
            // What left FLIGHT - 1 steps ago has arrived.
            const int due = number - int(FLIGHT - 1);
            if (due >= 0) Cargo::arrived(arrivals + due % FLIGHT, due / FLIGHT % 2);
            __syncthreads();
        }
    }

    // Bring x, and watch how far those are who read what is published here. One warp.
    static __device__ __forceinline__ void gather(const Setting &at, const u32 *readers, const T *x, u32 *beats,
                                                  u32 beat0) {
        const Sizes &size = at.size;
        const u32 lane = threadIdx.x & 31;
        // Entries of x of a block are asked for so many steps before its first power.
        const int early = int(size.reach + FLIGHT);
        const u32 list_words = size.stride + 4, my_reader = lane < size.readers ? readers[lane] : NONE;
        u32 through = beat0;
        u32 x_slot = modulo(early - at.lead, size.ring), x_list = modulo(early - at.lead, size.lists);
        for (int step = -at.lead; step < at.end; ++step) {
            const int number = step + at.lead;
            if (u32(step + early) < size.blocks) {
                const u32 *list = at.node_ring + x_list * list_words + 4;
                T *own = at.xs + x_slot * ROOM, *others = at.xs + size.ring * ROOM + x_slot * size.halo - ROOM;
                if (DIA) own = others = at.xs + GUARD + x_slot * size.stride;
                u32 nodes[XS];
#pragma unroll
                for (int u = 0; u < XS; ++u) nodes[u] = lane + u * 32 < size.stride ? list[lane + u * 32] : NONE;
#pragma unroll
                for (int u = 0; u < XS; ++u) {
                    const u32 item = lane + u * 32;
                    copy_value((item < ROOM ? own : others) + item, x + nodes[u], nodes[u] != NONE);
                }
            }
            commit_copies();
            next(x_slot, size.ring), next(x_list, size.lists);
            // Before published words are overwritten, in the steps up to the next look, their readers are through.
            // They were looked at LOOK steps ago, and then once more where that is not enough.
            if (number % LOOK == 0 && my_reader != NONE) {
                const int behind = number + LOOK + 2 + int(size.slack) - int(RING);
                if (behind > 0) {
                    while (int(through - beat0 - u32(behind)) < 0) through = beat_of(beats + LINE * my_reader);
                    for (u32 r = lane + 32; r < size.readers && readers[r] != NONE; r += 32)
                        while (int(beat_of(beats + LINE * readers[r]) - beat0 - u32(behind)) < 0) {}
                }
                through = beat_of(beats + LINE * my_reader);
            }
            copies_done_but<FLIGHT - 1>();
            __syncthreads();
            // Who is through has used what it asked for: a beat needs no fence.
            if (lane == 0) beat(beats + LINE * blockIdx.x, beat0 + u32(number) + 1);
        }
    }

    // Ask other strips for what they publish. With slack, what is asked for in one step is taken in the next one. There
    // is not a branch here but for what is late: a step is that short.
    static __device__ __forceinline__ void ask(const Setting &at, u32 me) {
        const Sizes &size = at.size;
        const u32 places = size.ring * size.halo, listed = size.halos * size.halo;
        // What this thread asks others for next: power p + 1 of block `asked_of`, for x at `to_place`; its place in the
        // list. What it has asked for: a word, and the value of it.
        u32 to_place[ASKS], place_end[ASKS], base_word[ASKS], list_at[ASKS], word[ASKS];
        int asked_of[ASKS];
        Tagged<T> got[ASKS];
#pragma unroll
        for (int u = 0; u < ASKS; ++u) {
            const u32 item = me + u * ASKERS, p = item / size.halo, i = item % size.halo;
            got[u] = {}, word[u] = NONE;
            asked_of[u] = -at.lead - (SLACK > 0 ? SLACK : 1) - LAG * int(p);
            to_place[u] = (p + 1) * at.span + size.ring * ROOM + modulo(asked_of[u], size.ring) * size.halo + i;
            place_end[u] = (p + 2) * at.span;
            list_at[u] = modulo(asked_of[u], size.halos) * size.halo + i;
            base_word[u] = p * RING * size.published;
            if (DIA) place_end[u] = (p + 1) * at.span;  // where x of the power begins
            if (p + 1 >= size.powers) asked_of[u] = 0x40000000;  // never
        }
        const auto question = [&](int u) {
            got[u].ask(at.published + u64(word[u]) * Tagged<T>::WORDS, word[u] != NONE);
        };
        const auto ask_all = [&]() {
#pragma unroll
            for (int u = 0; u < ASKS; ++u) word[u] = u32(asked_of[u]) < size.blocks ? at.halo_ring[list_at[u]] : NONE;
#pragma unroll
            for (int u = 0; u < ASKS; ++u) {
                if (DIA && word[u] != NONE) to_place[u] = place_end[u] + (word[u] >> WORD_BITS), word[u] &= MOST_WORDS;
                if (word[u] != NONE) word[u] += base_word[u] + u32(asked_of[u]) % RING * size.published;
                question(u);
                ++asked_of[u];
                list_at[u] += size.halo;
                if (!DIA) to_place[u] += size.halo, to_place[u] -= to_place[u] >= place_end[u] ? places : 0;
                list_at[u] -= list_at[u] >= listed ? listed : 0;
            }
        };
        // What is not there is asked for again.
        const auto take_all = [&]() {
            while (true) {
                bool late = false;
#pragma unroll
                for (int u = 0; u < ASKS; ++u) {
                    const bool there = got[u].has(at.tag0 + u32(asked_of[u] - 1));
                    u32 place = to_place[u] - (DIA ? 0 : size.halo);
                    if (!DIA) place += place + places < place_end[u] ? places : 0;
                    if (word[u] != NONE && there) at.xs[place] = got[u].value(), word[u] = NONE;
                    late |= word[u] != NONE;
                }
                if (!__any_sync(0xffffffffu, late)) break;
#pragma unroll
                for (int u = 0; u < ASKS; ++u) question(u);
            }
        };
        for (int step = -at.lead; step < at.end; ++step) {
            if (SLACK != 0) take_all();
            ask_all();
            if (SLACK == 0) take_all();
            __syncthreads();
        }
    }
};
