// Breadth-first levels of a graph in the order of Cuthill and McKee, by all multiprocessors at once: what
// akx/partition/levels.py finds, to the bit.
//
// A level [begin, end) of `order` makes the next one in three phases, between which all threads meet:
//
//   claim   each row offers its neighbours its place; the least is kept (kept[u] = ~(place + 1), the largest one wins)
//   count   each row counts the neighbours that kept its place; blocks have rows side by side, and add them up
//   write   behind the sums of all before it each row writes these, which ascend as its columns do
//
// So rows of a level are ordered by the first neighbour that they have in the level before, then by number, whatever the
// threads do: atomics are of integers, and of a maximum. While a level is short one block goes on alone. The start is
// that of George and Liu: again and again from a row of least degree in the last level, while that makes more levels.
// Rows without neighbours come last, and are one level.
//
// Bytes: of each search three times the pattern, 4 for each entry of `kept` and 12 a row. A level takes some microseconds
// at least.
#pragma once
#include "include/meet.cuh"
#include "matrix/transpose.cuh"

// Threads of a block, rows of a level that one block does alone, and searches for a better start.
constexpr u32 ORDERING = AKX_THREADS, ALONE = AKX_ALONE, TRIES = 5;
// What the host is told: levels, components, rows in levels with others; and why there is no order.
constexpr u32 ARRIVED = 0, TOLD = 1, LEVELS = 8, COMPONENTS = 9, TOGETHER = 10, REFUSED = 11;

// The pattern, and that of the transpose where it is another one.
struct Graph {
    u32 n;
    const u32 *pointer, *column, *across_pointer, *across_column;
};

// The neighbours of a row in ascending order, each once, its own number among them where it has a diagonal entry.
template <class F> __device__ __forceinline__ void each_neighbour(const Graph &graph, u32 row, F &&visit) {
    u32 p = load(graph.pointer + row);
    const u32 stop = load(graph.pointer + row + 1);
    if (graph.across_pointer == nullptr) {
        for (; p < stop; ++p) visit(load(graph.column + p));
        return;
    }
    u32 q = load(graph.across_pointer + row);
    const u32 end = load(graph.across_pointer + row + 1);
    while (p < stop || q < end) {
        const u32 own = p < stop ? load(graph.column + p) : ~0u, other = q < end ? load(graph.across_column + q) : ~0u;
        visit(own < other ? own : other);
        p += own <= other, q += other <= own;
    }
}

__device__ __forceinline__ u32 degree_of(const Graph &graph, u32 row) {
    if (graph.across_pointer == nullptr) return load(graph.pointer + row + 1) - load(graph.pointer + row);
    u32 found = 0;
    each_neighbour(graph, row, [&](u32) { ++found; });
    return found;
}

__device__ __forceinline__ bool has_others(const Graph &graph, u32 row) {
    bool found = false;
    each_neighbour(graph, row, [&](u32 u) { found |= u != row; });
    return found;
}

// A search of one component: its rows are order[begin, begin + rows), `last` is where its last level begins.
struct Search {
    u32 rows, depth, width, last;
};

class Ordering {
  public:
    __device__ Ordering(const Graph &graph, u32 *kept, u32 *order, u32 *counts, u32 *ends, u32 *sums, u32 *state,
                        u64 *most, u32 *part, u32 deepest)
        : graph(graph), kept(kept), order(order), counts(counts), ends(ends), sums(sums), state(state), most(most),
          part(part), deepest(deepest) {}

    // `fewest`: with fewer levels of half of all rows there is no order. `deepest`: nor with so many in all.
    __device__ void run(u32 fewest, u32 most_components) {
        u32 filled = 0, height = 0, components = 0, refused = 0;
        for (u32 from = 0;;) {
            const u32 root = next_root(from);
            if (root == graph.n) break;
            if (++components > most_components) {
                refused = 2;
                break;
            }
            from = root + 1;
            const u32 start = degree_of(graph, root) > 1 ? peripheral(root, filled, height, fewest) : root;
            if (start == graph.n) {
                refused = 1;
                break;
            }
            const Search found = search(start, filled, height);
            filled += found.rows, height += found.depth;
            if (height >= deepest) {
                refused = 3;
                break;
            }
        }
        const u32 alone = refused ? 0 : rest(filled);
        if (is_first()) {
            if (alone) ends[++height] = graph.n;
            state[LEVELS] = height, state[COMPONENTS] = components, state[TOGETHER] = filled, state[REFUSED] = refused;
        }
    }

  private:
    const Graph graph;
    u32 *kept, *order, *counts, *ends, *sums, *state;
    u64 *most; // (3,): largest numbers that all agree on, in turns
    u32 *part; // (33,), shared
    const u32 deepest;
    u32 meetings = 0, turn = 0;

    __device__ bool is_first() const { return blockIdx.x == 0 && threadIdx.x == 0; }

    __device__ void wait(bool alone) {
        if (alone) __syncthreads();
        else meet(state + ARRIVED, ++meetings * gridDim.x);
    }

    // The largest of what all threads have; 0 where all have 0.
    __device__ u64 largest(u64 own) {
        if (own) atomicMax(most + turn % 3, own);
        wait(false);
        const u64 found = __ldcg(most + turn % 3);
        if (is_first()) most[(turn + 2) % 3] = 0; // which all had read when they came here
        ++turn;
        return found;
    }

    // The first row from `from` on that is in no level, but has neighbours; n where there is none.
    __device__ u32 next_root(u32 from) {
        constexpr u32 EACH = 4;
        for (u64 base = from; base < graph.n; base += u64(gridDim.x) * blockDim.x * EACH) {
            u64 own = 0;
            for (u32 i = 0; i < EACH && !own; ++i) {
                const u64 row = base + (u64(i) * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;
                if (row < graph.n && __ldcg(kept + row) == 0 && has_others(graph, u32(row))) own = u32(~row);
            }
            if (const u64 found = largest(own)) return ~u32(found);
        }
        return graph.n;
    }

    // Each of [begin, end) has count(place) things, put(place, where) where those of all before it end. How many in all.
    template <class C, class P> __device__ u32 deal(u32 begin, u32 end, bool alone, C &&count, P &&put) {
        const u32 blocks = alone ? 1 : gridDim.x, tiles = (end - begin + ORDERING - 1) / ORDERING;
        const u64 each = u64((tiles + blocks - 1) / blocks) * ORDERING, stop = end;
        const u64 first = begin + (alone ? 0 : blockIdx.x) * each, behind = first + each < stop ? first + each : stop;
        u32 sum = 0, total;
        for (u64 place = first + threadIdx.x; place < behind; place += ORDERING) {
            const u32 own = count(u32(place));
            counts[place] = own;
            sum += own;
        }
        sum_before(sum, part, total);
        if (threadIdx.x == 0) sums[alone ? 0 : blockIdx.x] = total;
        wait(alone);
        u32 mine = 0, all = 0;
        for (u32 b = threadIdx.x; b < blocks; b += ORDERING) {
            const u32 of_block = __ldcg(sums + b);
            all += of_block;
            if (b < blockIdx.x) mine += of_block;
        }
        u32 before, found;
        sum_before(mine, part, before);
        sum_before(all, part, found);
        if (alone) before = 0;
        for (u64 tile = first; tile < behind; tile += ORDERING) {
            const u64 place = tile + threadIdx.x;
            const u32 own = place < behind ? counts[place] : 0, within = sum_before(own, part, total);
            if (own) put(u32(place), before + within);
            before += total;
        }
        wait(alone);
        return found;
    }

    // The next level of [begin, end), behind it. How many rows it has.
    __device__ u32 next_level(u32 begin, u32 end, bool alone) {
        const u32 threads = alone ? ORDERING : gridDim.x * ORDERING;
        for (u64 place = begin + (alone ? 0 : blockIdx.x * ORDERING) + threadIdx.x; place < end; place += threads) {
            const u32 own = ~(u32(place) + 1), row = __ldcg(order + place);
            for (u32 side = 0; side < (graph.across_pointer == nullptr ? 1 : 2); ++side) {
                const u32 *pointer = side ? graph.across_pointer : graph.pointer;
                const u32 *column = side ? graph.across_column : graph.column;
                for (u32 p = load(pointer + row), stop = load(pointer + row + 1); p < stop; ++p) {
                    u32 *at = kept + load(column + p);
                    if (__ldcg(at) < own) atomicMax(at, own);
                }
            }
        }
        wait(alone);
        return deal(
            begin, end, alone,
            [&](u32 place) {
                u32 found = 0;
                each_neighbour(graph, __ldcg(order + place), [&](u32 u) { found += __ldcg(kept + u) == ~(place + 1); });
                return found;
            },
            [&](u32 place, u32 where) {
                u32 *to = order + end + where;
                each_neighbour(graph, __ldcg(order + place), [&](u32 u) {
                    if (__ldcg(kept + u) == ~(place + 1)) *to++ = u;
                });
            });
    }

    // All rows that `start` leads to, level after level, from order[filled] on; ends of levels from ends[height + 1] on.
    // It goes no further where there are `deepest` levels.
    __device__ Search search(u32 start, u32 filled, u32 height) {
        if (is_first()) order[filled] = start, kept[start] = ~0u;
        wait(false);
        u32 begin = filled, end = filled + 1;
        Search found = {1, 0, 0, filled};
        while (begin < end && height + found.depth < deepest) {
            const bool alone = end - begin <= ALONE;
            if (!alone || blockIdx.x == 0)
                do {
                    const u32 more = next_level(begin, end, alone);
                    if (is_first()) ends[height + found.depth + 1] = end;
                    ++found.depth, found.width = max(found.width, end - begin), found.last = begin;
                    begin = end, end += more;
                } while (alone && begin < end && end - begin <= ALONE && height + found.depth < deepest);
            if (alone) {
                u32 *told = state + TOLD;
                if (is_first()) {
                    told[0] = begin, told[1] = end;
                    told[2] = found.depth, told[3] = found.width, told[4] = found.last;
                }
                wait(false);
                begin = __ldcg(told), end = __ldcg(told + 1);
                found = {0, __ldcg(told + 2), __ldcg(told + 3), __ldcg(told + 4)};
            }
        }
        found.rows = end - filled;
        return found;
    }

    // A row from which there are many levels, and thin ones (George and Liu); n where half of all rows have too few,
    // or all too many.
    __device__ u32 peripheral(u32 root, u32 filled, u32 height, u32 fewest) {
        u32 best = root, depth = 0, width = 0;
        for (u32 row = root, tries = 0; tries <= TRIES; ++tries) {
            const Search found = search(row, filled, height);
            if (height + found.depth >= deepest) return graph.n;
            const bool better = found.depth > depth || (found.depth == depth && found.width < width);
            const u64 first = u64(blockIdx.x) * blockDim.x + threadIdx.x, step = u64(gridDim.x) * blockDim.x;
            if (better) {
                best = row, depth = found.depth, width = found.width;
                u64 own = 0; // the first row of least degree in the last level
                for (u64 place = found.last + first; place < filled + found.rows; place += step) {
                    const u64 key = ~(u64(degree_of(graph, __ldcg(order + place))) << 32 | place);
                    own = own > key ? own : key;
                }
                row = __ldcg(order + u32(~largest(own)));
            }
            for (u64 place = filled + first; place < filled + found.rows; place += step) kept[__ldcg(order + place)] = 0;
            wait(false);
            if (found.depth < fewest / 2 && found.rows >= (graph.n + 1) / 2) return graph.n;
            if (!better || depth <= 1) break;
        }
        return best;
    }

    // Behind all others the rows that are in no level.
    __device__ u32 rest(u32 filled) {
        return deal(
            0, graph.n, false, [&](u32 row) { return u32(__ldcg(kept + row) == 0); },
            [&](u32 row, u32 where) { order[filled + where] = row; });
    }
};
