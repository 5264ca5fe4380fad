// The front: blocks of rows run diagonally through the powers while their entries stay on the chip.
//
//     v_{p} = a_p A v_{p-1} + b_p v_{p-1} + c_p v_{p-2}
//
// Every thread block owns a strip of the matrix, and of each block of rows its share. At step t it does power p on
// block t - lag (p - 1) for all p at once. A block's entries come from memory once, `AHEAD` steps before its first
// power, into shared memory: the first HW slots of a slice go on into registers of the warp that has the slice for all
// its powers, the rest ("near") stay in shared memory. x is in shared memory, for each power `ring` blocks of it, own
// rows first, behind them the halo, what rows of this strip read of others.
//
// Rows that others read are published beside the result: each 32-bit half of a value in one 64-bit word with a tag, so
// that who finds the tag has the value, and no fence or flag is waited for (as in NCCL's LL protocol). What is
// published at step t is asked for at step t + 1 + slack, while that step's products are computed, and read from
// t + 2 + slack on: lag = reach + 2 + slack, where rows of a block read at most `reach` blocks ahead. A published word
// is overwritten RING blocks later; before, its readers have said that they are through (`beats`).
#pragma once
#include "common.cuh"

constexpr u32 NONE = 0xffffffffu;
constexpr u32 RING = 32;   // blocks of published words, of each power
constexpr u32 LINE = 64;   // words from one strip's beat to the next: in one line of L2 they would wait for each other
constexpr u32 STAGES = 5;  // blocks on their way, of which one is being taken into registers
constexpr u32 FLIGHT = STAGES - 1;  // steps from asking for what comes from memory to using it

// Sizes of all strips; words are 32 bits.
struct Sizes {
    u32 blocks, strips;      // blocks of rows; thread blocks
    u32 lag, reach, slack;   // see above
    u32 ring, stride;        // blocks of x of one power, places of each of them
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
// What describes a block of a strip begins with it; near slots of each slice follow, nodes and places (in x, and among
// the strip's published values: 0xffff where none) of SLICES * ROWS rows, and columns of held slots, two in a word.
struct alignas(16) Head {
    Nears near;
    u32 own, rows;  // where its rows begin in x, and how many there are
};

__device__ __forceinline__ void copy16(void *to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(u32(__cvta_generic_to_shared(to))), "l"(from)
                 : "memory");
}
__device__ __forceinline__ void copies_begun() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// All but the last FLIGHT - 1 groups have arrived.
__device__ __forceinline__ void copies_arrived() {
    asm volatile("cp.async.wait_group %0;" ::"n"(FLIGHT - 1) : "memory");
}

__device__ __forceinline__ void publish_word(u64 *to, u32 half, u32 tag) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(u64(tag) << 32 | half) : "memory");
}
__device__ __forceinline__ u64 published_word(const u64 *from) {
    u64 word;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
    return word;
}
__device__ __forceinline__ void publish_pair(u64 *to, u32 low, u32 high, u32 tag) {
    asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(u64(tag) << 32 | low),
                 "l"(u64(tag) << 32 | high)
                 : "memory");
}
__device__ __forceinline__ void published_pair(u64 (&word)[2], const u64 *from) {
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(word[0]), "=l"(word[1]) : "l"(from) : "memory");
}
__device__ __forceinline__ void beat(u32 *to, u32 value) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ __forceinline__ u32 beat_of(const u32 *from) {
    u32 value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

// A value as words that carry a tag.
template <class T> struct Tagged {
    static constexpr u32 WORDS = sizeof(T) / 4;
    union Halves {
        T value;
        u32 half[WORDS];
    };
    u64 word[WORDS];

    static __device__ __forceinline__ void publish(u64 *to, T value, u32 tag) {
        Halves of;
        of.value = value;
        if constexpr (WORDS == 1) publish_word(to, of.half[0], tag);
        else
#pragma unroll
            for (u32 w = 0; w < WORDS; w += 2) publish_pair(to + w, of.half[w], of.half[w + 1], tag);
    }
    __device__ __forceinline__ void ask(const u64 *from) {
        if constexpr (WORDS == 1) word[0] = published_word(from);
        else
#pragma unroll
            for (u32 w = 0; w < WORDS; w += 2) {
                u64 pair[2];
                published_pair(pair, from + w);
                word[w] = pair[0], word[w + 1] = pair[1];
            }
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

// Have a value that was asked for now, so that nothing later waits for it together with other things.
__device__ __forceinline__ void settle(float &v) { asm volatile("" : "+f"(v)); }
__device__ __forceinline__ void settle(double &v) { asm volatile("" : "+d"(v)); }
__device__ __forceinline__ void settle(cfloat &v) { settle(v.re), settle(v.im); }
__device__ __forceinline__ void settle(cdouble &v) { settle(v.re), settle(v.im); }

// A copy to shared memory of one value, as wide as it is.
template <class T> __device__ __forceinline__ void copy_value(T *to, const T *from) {
    if constexpr (sizeof(T) == 16) copy16(to, from);
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(u32(__cvta_generic_to_shared(to))), "l"(from),
                     "n"(sizeof(T))
                     : "memory");
}

// LANES: lanes of a row. LAG: see above. PER: slices of a warp that have a power in the same step, LAG * PER in all.
// HW: slots of each in registers. SLICES: slices of a block of a strip. WARPS: those that compute; HELPERS: threads that
// bring what they need. ASKS: values of others that one of these asks for in a step, XS: entries of x. NEAR: whether any
// slots stay in shared memory.
template <class T, int LANES, int LAG, int PER, int HW, int SLICES, int WARPS, int HELPERS, int ASKS, int XS, bool NEAR>
struct Front {
    static constexpr u32 ROWS = 32 / LANES, PAIRS = (HW + 1) / 2, THREADS = 32 * WARPS + HELPERS;
    static constexpr u32 HEAD = sizeof(Head) / 4, ROOM = SLICES * ROWS;
    // Words of a description before the columns: head, near slots of each slice (first << 16 | number), nodes, places.
    static constexpr u32 NODES = HEAD + (SLICES + 3) / 4 * 4, PLACES = NODES + ROOM, COLUMNS = PLACES + ROOM;
    static constexpr u32 HELD = SLICES * HW * 32;  // values
    static constexpr int HELD_ROOM = HW > 0 ? HW : 1, PAIRS_ROOM = HW > 0 ? (HW + 1) / 2 : 1;
    // Steps from one look at the readers to the next; steps before a block's first power that its entries are asked
    // for: they are taken into registers LAG steps before, when those of another block are no longer needed there.
    static constexpr int LOOK = 4, AHEAD = LAG + int(FLIGHT);

    // What is the same for all steps. Shared memory: coefficients of this pass, x, stages (descriptions, values), near
    // slots (values, columns), lists of indices.
    struct Setting {
        Sizes size;
        const T *coefficient;
        T *xs, *out;
        unsigned char *stages;
        T *near_value;     // slots that are not in registers: values,
        u16 *near_column;  // and columns
        u32 *node_ring, *halo_ring;  // indices of x, behind a head of 4 words (near slots); places of published values
        u64 *published;
        i64 n;
        u32 from, span, meta_bytes, stage_bytes, tag0;
        int lead, last;
    };

    // What a lane has of a slice as long as its block is at work. `at`: its place in x, and where it is published.
    struct Held {
        T value[HELD_ROOM], older;
        u32 column[PAIRS_ROOM], node, at, near;
    };

    static __device__ __forceinline__ void run(const Sizes &size, const u32 *meta, const T *values,
                                               const u16 *near_columns, const u32 *nodes, const u32 *halo,
                                               const u32 *readers, const u32 *places, const T *coefficients,
                                               u64 *published, u32 *beats, u32 *epochs, const T *x, T *out, i64 n,
                                               u32 from, u32 total) {
        AKX_DYNAMIC_SHARED(memory);
        const u32 me = blockIdx.x, thread = threadIdx.x;
        const u32 warp = __shfl_sync(0xffffffffu, thread / 32, 0);
        const u32 epoch = epochs[me];
        Setting at;
        at.size = size;
        T *coefficient = reinterpret_cast<T *>(memory);
        at.coefficient = coefficient;
        at.xs = reinterpret_cast<T *>(memory + (3 * size.powers * sizeof(T) + 15) / 16 * 16);
        at.span = size.ring * size.stride;
        at.stages = reinterpret_cast<unsigned char *>(at.xs) + (size.powers * at.span * sizeof(T) + 15) / 16 * 16;
        at.meta_bytes = size.meta * 4, at.stage_bytes = at.meta_bytes + HELD * u32(sizeof(T));
        at.near_value = reinterpret_cast<T *>(at.stages + STAGES * at.stage_bytes);
        at.near_column = reinterpret_cast<u16 *>(at.near_value + size.nears * size.near_slots * 32);
        at.node_ring = reinterpret_cast<u32 *>(at.near_column + size.nears * size.near_slots * 32);
        at.halo_ring = at.node_ring + size.lists * (size.stride + 4);
        at.published = published, at.out = out, at.n = n, at.from = from, at.tag0 = epoch * (size.blocks + 1);
        at.lead = (AHEAD + int(FLIGHT) + LAG - 1) / LAG * LAG;
        at.last = int(size.blocks) - 1 + LAG * (int(size.powers) - 1);
        for (u32 i = thread; i < 3 * size.powers; i += THREADS) coefficient[i] = coefficients[3 * from + i];
        __syncthreads();
        if (warp < WARPS) compute(at, warp, places[me]);
        else {
            help(at, thread - 32 * WARPS, meta, values, values + u64(size.strips) * size.blocks * HELD, near_columns,
                 nodes, halo, readers + me * size.readers, from == 0 ? x : out + i64(from) * n, beats, epoch * total);
        }
        if (thread == 0) epochs[me] = epoch + 1;
    }

    // Power p on block step - LAG (p - 1), for all p.
    static __device__ __forceinline__ void compute(const Setting &at, u32 warp, u32 my_place) {
        const u32 lane = threadIdx.x & 31, powers = at.size.powers, blocks = at.size.blocks;
        Held held[LAG][PER];
        u32 slice_of[PER];
        int done[PER];  // powers that the blocks of a slice's class have behind them, negative where it has none
#pragma unroll
        for (int j = 0; j < PER; ++j) {
            const u32 turn = (warp + j * WARPS) / SLICES;
            slice_of[j] = (warp + j * WARPS) % SLICES;
            done[j] = (-at.lead / LAG - int(turn)) % int(powers);
            if (done[j] < 0) done[j] += powers;
            if (turn >= powers) done[j] = -0x40000000;
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
        for (int first = -at.lead; first <= at.last; first += LAG) {
#pragma unroll
            for (int r = 0; r < LAG; ++r) {
                const int step = first + r;
#pragma unroll
                for (int j = 0; j < PER; ++j) {
                    const u32 p = u32(done[j]), b = u32(step - LAG * done[j]);
                    if (p < powers && b < blocks) advance(at, held[r][j], p, b, my_place, own_terms, older_terms);
                    // The next block of this slice's registers.
                    if (p + 1 == powers && u32(step + LAG) < blocks)
                        take(at, held[r][j], u32(step + LAG), slice_of[j], lane, older_terms);
                    if (r == LAG - 1) done[j] = p + 1 == powers ? 0 : done[j] + 1;
                }
                __syncthreads();
            }
        }
    }

    // One power of one slice.
    static __device__ __forceinline__ void advance(const Setting &at, Held &own, u32 p, u32 b, u32 my_place,
                                                   u32 own_terms, u32 older_terms) {
        const u32 lane = threadIdx.x & 31, place = own.at & 0xffffu, publishes = own.at >> 16;
        const T *source = at.xs + p * at.span, *c = at.coefficient + 3 * p;
        const T mine = source[place];
        T sum = zero<T>(), more = zero<T>();
#pragma unroll
        for (int q = 0; q < HW; ++q) {
            const u32 column = q % 2 ? own.column[q / 2] >> 16 : own.column[q / 2] & 0xffffu;
            T &to = q % 2 ? more : sum;
            to = mad(own.value[q], source[column], to);
        }
        if (NEAR) {
            const T *value = at.near_value + (own.near >> 16) * 32 + lane;
            const u16 *column = at.near_column + (own.near >> 16) * 32 + lane;
#pragma unroll 4
            for (u32 q = 0; q < (own.near & 0xffffu); ++q) sum = mad(value[q * 32], source[column[q * 32]], sum);
        }
        sum = add(sum, more);
#pragma unroll
        for (int offset = ROWS; offset < 32; offset *= 2) sum = add(sum, across(sum, offset));
        if (own.node == NONE) return;
        T value = mad(c[0], sum, zero<T>());
        if (own_terms >> p & 1) value = mad(c[1], mine, value);
        if (older_terms >> p & 1) value = mad(c[2], own.older, value);
        own.older = mine;
        if (p + 1 < at.size.powers) {
            if (publishes != 0xffffu) {
                const u32 word = (p * RING + b % RING) * at.size.published + my_place + publishes;
                Tagged<T>::publish(at.published + u64(word) * Tagged<T>::WORDS, value, at.tag0 + b);
            }
            at.xs[(p + 1) * at.span + place] = value;
        }
        T *result = at.out + i64(at.from + p) * at.n + own.node;
        if (p == 0 && at.from == 0) result[0] = mine;
        result[at.n] = value;
    }

    // Take a slice of a block that has arrived.
    static __device__ __forceinline__ void take(const Setting &at, Held &own, u32 b, u32 slice, u32 lane,
                                                u32 older_terms) {
        const unsigned char *stage = at.stages + (b % STAGES) * at.stage_bytes;
        const u32 *words = reinterpret_cast<const u32 *>(stage);
        const T *value = reinterpret_cast<const T *>(stage + at.meta_bytes) + slice * (HW * 32) + lane;
        const u32 row = slice * ROWS + lane % ROWS;
        own.node = lane < ROWS ? words[NODES + row] : NONE;
        own.at = words[PLACES + row];
        if (NEAR) own.near = words[HEAD + slice] + (b % at.size.nears * at.size.near_slots << 16);
        own.older = zero<T>();
#pragma unroll
        for (int q = 0; q < HW; ++q) own.value[q] = value[q * 32];
#pragma unroll
        for (int q = 0; q < (HW + 1) / 2; ++q) own.column[q] = words[COLUMNS + (slice * PAIRS + q) * 32 + lane];
        if (at.from > 0 && (older_terms & 1) && own.node != NONE) {
            own.older = at.out[i64(at.from - 1) * at.n + own.node];
            settle(own.older);
        }
    }

    // Bring what the others compute with: entries of the matrix and of x, and what other strips publish.
    static __device__ __forceinline__ void help(const Setting &at, u32 me, const u32 *meta, const T *values,
                                                const T *near_values, const u16 *near_columns, const u32 *nodes,
                                                const u32 *halo, const u32 *readers, const T *x, u32 *beats,
                                                u32 beat0) {
        const Sizes &size = at.size;
        // Entries of x of a block are asked for so many steps before its first power; its lists come before all else.
        const int early = int(size.reach + FLIGHT), listed = AHEAD + int(FLIGHT);
        const auto modulo = [](int a, u32 b) { return u32(a + 0x10000 * int(b)) % b; };  // -0x10000 b <= a
        // What this thread asks others for: power p + 1 of block `asked_of`, for x at `to_place`; its place in the list.
        u32 to_place[ASKS], place_end[ASKS], base_word[ASKS], list_at[ASKS];
        int asked_of[ASKS];
#pragma unroll
        for (int u = 0; u < ASKS; ++u) {
            const u32 item = me + u * HELPERS, p = item / size.halo, i = item % size.halo;
            asked_of[u] = -at.lead - 1 - int(size.slack) - LAG * int(p);
            to_place[u] = (p + 1) * at.span + modulo(asked_of[u], size.ring) * size.stride + ROOM + i;
            place_end[u] = (p + 2) * at.span;
            list_at[u] = modulo(asked_of[u], size.halos) * size.halo + i;
            base_word[u] = p * RING * size.published;
            if (p + 1 >= size.powers) asked_of[u] = 0x40000000;  // never
        }
        const u32 list_words = size.stride + 4, first_reader = me < size.readers ? readers[me] : NONE;
        // Where blocks are in rings: what is copied of x, its list, the stage, near slots, and lists that arrive.
        u32 x_slot = modulo(early - at.lead, size.ring), x_list = modulo(early - at.lead, size.lists);
        u32 stage_slot = modulo(AHEAD - at.lead, STAGES), stage_list = modulo(AHEAD - at.lead, size.lists);
        u32 near_slot = modulo(AHEAD - at.lead, size.nears);
        u32 list_slot = modulo(listed - at.lead, size.lists), halo_slot = modulo(listed - at.lead, size.halos);
        const auto next = [](u32 &slot, u32 room) { slot = slot + 1 == room ? 0 : slot + 1; };

        for (int step = -at.lead; step < at.last + 1 + (LAG - 1 - (at.last + at.lead) % LAG); ++step) {
            const int number = step + at.lead;
            // 1. What others have published one step and `slack` ago.
            Tagged<T> got[ASKS];
            const u64 *from_whom[ASKS];
#pragma unroll
            for (int u = 0; u < ASKS; ++u) {
                from_whom[u] = nullptr;
                if (u32(asked_of[u]) < size.blocks) {
                    const u32 place = at.halo_ring[list_at[u]];
                    if (place != NONE) {
                        const u32 word = base_word[u] + u32(asked_of[u]) % RING * size.published + place;
                        from_whom[u] = at.published + u64(word) * Tagged<T>::WORDS;
                        got[u].ask(from_whom[u]);
                    }
                }
            }
            const bool looks = number % LOOK == 0 && first_reader != NONE;
            u32 through = 0;
            if (looks) through = beat_of(beats + LINE * first_reader);

            // 2. Entries of x, lists, and the block whose first power is AHEAD steps away: its description, its values.
            u32 b = u32(step + early);
            if (b < size.blocks) {
                const u32 *list = at.node_ring + x_list * list_words + 4;
                T *to = at.xs + x_slot * size.stride;
#pragma unroll
                for (int u = 0; u < XS; ++u) {
                    const u32 item = me + u * HELPERS, node = item < size.stride ? list[item] : NONE;
                    if (node != NONE) copy_value(to + item, x + node);
                }
            }
            b = u32(step + AHEAD);
            if (b < size.blocks) {
                const u32 group = b * size.strips + blockIdx.x;
                unsigned char *stage = at.stages + stage_slot * at.stage_bytes;
                const char *source = reinterpret_cast<const char *>(meta + group * size.meta);
                const char *data = reinterpret_cast<const char *>(values + u64(group) * HELD) - at.meta_bytes;
#pragma unroll 4
                for (u32 i = 16 * me; i < at.stage_bytes; i += 16 * HELPERS)
                    copy16(stage + i, (i < at.meta_bytes ? source : data) + i);
                if (NEAR) {
                    const Nears near = *reinterpret_cast<const Nears *>(at.node_ring + stage_list * list_words);
                    const u32 first = near_slot * size.near_slots * 32;
                    const T *value = near_values + u64(near.first) * 32;
                    constexpr u32 EACH = 16 / sizeof(T);
                    for (u32 i = EACH * me; i < near.number * 32; i += EACH * HELPERS)
                        copy16(at.near_value + first + i, value + i);
                    const u16 *column = near_columns + u64(near.first) * 32;
                    for (u32 i = 8 * me; i < near.number * 32; i += 8 * HELPERS)
                        copy16(at.near_column + first + i, column + i);
                }
            }
            b = u32(step + listed);
            if (b < size.blocks) {
                const u32 group = b * size.strips + blockIdx.x;
                u32 *to = at.node_ring + list_slot * list_words;
                for (u32 i = 4 * me; i < list_words; i += 4 * HELPERS) copy16(to + i, nodes + group * list_words + i);
                to = at.halo_ring + halo_slot * size.halo;
                for (u32 i = 4 * me; i < size.halo; i += 4 * HELPERS) copy16(to + i, halo + group * size.halo + i);
            }
            copies_begun();
            next(x_slot, size.ring), next(x_list, size.lists), next(stage_slot, STAGES), next(stage_list, size.lists);
            if (NEAR) next(near_slot, size.nears);
            next(list_slot, size.lists), next(halo_slot, size.halos);

            // 3. What was asked for has come, or comes soon.
#pragma unroll
            for (int u = 0; u < ASKS; ++u) {
                if (from_whom[u] != nullptr) {
                    while (!got[u].has(at.tag0 + u32(asked_of[u]))) got[u].ask(from_whom[u]);
                    at.xs[to_place[u]] = got[u].value();
                }
                ++asked_of[u];
                to_place[u] += size.stride, list_at[u] += size.halo;
                if (to_place[u] >= place_end[u]) to_place[u] -= at.span;
                if (list_at[u] >= size.halos * size.halo) list_at[u] -= size.halos * size.halo;
            }

            // 4. Before published words are overwritten, in the steps up to the next look, their readers are through.
            const int behind = number + LOOK + 2 + int(size.slack) - int(RING);
            if (looks && behind > 0) {
                while (int(through - beat0 - u32(behind)) < 0) through = beat_of(beats + LINE * first_reader);
                for (u32 r = me + HELPERS; r < size.readers && readers[r] != NONE; r += HELPERS)
                    while (int(beat_of(beats + LINE * readers[r]) - beat0 - u32(behind)) < 0) {}
            }
            copies_arrived();
            __syncthreads();
            // Who is through has used what it asked for: a beat needs no fence.
            if (me == 0) beat(beats + LINE * blockIdx.x, beat0 + u32(number) + 1);
        }
    }
};
