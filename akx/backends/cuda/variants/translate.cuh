// `vbell`: a pattern on the device, in CSR with sorted rows, to slices of dense blocks. The words and the arrays are
// those of akx/formats/natural_blocks.py and akx/formats/vbell.py, to the bit.
//
//   compare_row    is a row the same as the one before it, or nearly? Which columns are not like the one before?
//   find_ends      of so many rows of a chunk the first and the last that begin a run of rows that are joined
//   cut_run        runs of more than six are cut evenly: of each row its place in its node, and the node's size
//   number_chunk   nodes are numbered: the first row of each, and the first node of each window
//   count_node     blocks of each width
//   sort_window    nodes of a window by size and counts, the largest first; among equals as they come
//   make_slice     which nodes a slice has, its steps, and how many places it takes
//   sum_slices     where slices begin
//   place_slice    their arrays
//
// There are two choices of nodes: exact ones, whose rows are the same and whose columns are, and loose ones, whose rows
// have most columns in common. A column j is not like j - 1 where some row has one of them alone: then it has a block of
// neighbouring columns that begins at j, or ends at j - 1. All who see that write the same flag. So nothing is counted,
// and rows that are the same as the one before say nothing new.
//
// Integers only, and everything is where the rows say, whatever the order of threads. Bytes: the indices are read four
// times, once of each node where its rows are the same, and `entry` is written once.
#pragma once
#include "include/block_sort.cuh"

constexpr u32 NODE_ROWS = 6;       // most rows of a node
constexpr u32 ROWS_EACH = 4;       // rows of a thread where a block has a chunk of them
constexpr u32 SLICE_NUMBERS = 12;  // of a slice: those of `head`, and those that `head` is made from
constexpr u32 NO_ROW = 0xffffffffu;
constexpr u8 SAME = 1, ALIKE = 2; // a row and the one before it: the same, or of one loose node

// ------------------------------------------------------------------------------------------------- rows like the last

// The first of `count` ascending numbers that is not below `item`, `count` where there is none.
__device__ __forceinline__ u32 place_from(const u32 *numbers, u32 count, u32 item) {
    u32 low = 0;
    while (count > 0) {
        const u32 half = count / 2;
        if (load(numbers + low + half) < item) low += half + 1, count -= half + 1;
        else count = half;
    }
    return low;
}

// A warp for each row. `apart` is zero before.
__device__ __forceinline__ void compare_row(u32 rows, const u32 *pointer, const u32 *index, u8 *flags, u8 *apart) {
    const u64 number = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / WARP;
    if (number >= rows) return;
    const u32 row = u32(number), lane = own_lane();
    const u32 begin = load(pointer + row), count = load(pointer + row + 1) - begin;
    const u32 other = row > 0 ? load(pointer + row - 1) : begin, room = begin - other;
    const u32 *own = index + begin, *before = index + other;
    bool same = row > 0 && count == room;
    for (u32 base = 0; same && base < count; base += WARP) {
        const u32 k = base + lane;
        same = __ballot_sync(ALL, k < count && load(own + k) != load(before + k)) == 0;
    }
    bool alike = same;
    if (!same) {
        // No node has both of two rows of which one is so much longer.
        const bool compared = row > 0 && u64(10) * min(count, room) >= u64(7) * larger(count, room);
        u64 both = 0;
        for (u32 base = 0; base < count; base += WARP) {
            const u32 k = base + lane, j = k < count ? load(own + k) : 0;
            if (k < count) {
                if (k == 0 || load(own + k - 1) + 1 != j) apart[j] = 1;
                if (j + 1 < rows && (k + 1 == count || load(own + k + 1) != j + 1)) apart[j + 1] = 1;
            }
            if (compared) {
                const u32 at = k < count ? place_from(before, room, j) : room;
                both += u32(__popc(__ballot_sync(ALL, at < room && load(before + (at < room ? at : 0)) == j)));
            }
        }
        // both / (count + room - both) >= 0.7: no quotient of such numbers that is less is 0.7 when it is rounded.
        alike = compared && 10 * both >= 7 * (u64(count) + room - both);
    }
    if (lane == 0) flags[row] = same ? SAME | ALIKE : alike ? ALIKE : 0;
}

// ------------------------------------------------------------------------------------------------------- runs and nodes

// Whether a row is not joined to the one before it, in exact nodes or in loose ones. No row after the last begins any.
__device__ __forceinline__ bool begins_run(u32 rows, u64 row, bool loose, const u8 *flags, const u8 *apart) {
    if (row >= rows) return false;
    const u8 flag = load(flags + row);
    return loose ? !(flag & ALIKE) : !(flag & SAME) || load(apart + row);
}

// A block has a chunk of rows: the first `chunks` blocks those of exact nodes, as many more those of loose ones.
struct Chunk {
    u32 number, chunks;
    bool loose;
    u64 row; // the first of this thread

    __device__ __forceinline__ explicit Chunk(u32 chunks)
        : number(blockIdx.x % chunks), chunks(chunks), loose(blockIdx.x >= chunks),
          row((u64(blockIdx.x % chunks) * blockDim.x + threadIdx.x) * ROWS_EACH) {}
};

// `ends` is (2, 2, chunks): one plus the last row that begins a run, and the complement of the first; 0 for none.
__device__ __forceinline__ void find_ends(u32 rows, u32 chunks, const u8 *flags, const u8 *apart, u32 *ends,
                                          u32 *part) {
    const Chunk chunk(chunks);
    u32 last = 0, first = 0;
    for (u32 u = 0; u < ROWS_EACH; ++u)
        if (begins_run(rows, chunk.row + u, chunk.loose, flags, apart)) {
            last = u32(chunk.row + u) + 1;
            first = larger(first, ~u32(chunk.row + u));
        }
    last = block_largest(last, part);
    first = block_largest(first, part);
    if (threadIdx.x == 0) {
        ends += chunk.loose ? 2 * u64(chunks) : 0;
        ends[chunk.number] = last;
        ends[u64(chunks) + chunk.number] = first;
    }
}

// A row that is number `offset` of a run: its place in its node, and eight times the node's size. A run of L rows is
// cut before p L / P, rounded down, for all p < P.
__device__ __forceinline__ u8 part_of(u32 offset, u32 length) {
    if (length <= NODE_ROWS) return u8(offset | length << 3);
    const u64 pieces = quotient_up(length, NODE_ROWS), piece = ((u64(offset) + 1) * pieces - 1) / length;
    const u32 from = u32(piece * length / pieces), upto = u32((piece + 1) * length / pieces);
    return u8((offset - from) | (upto - from) << 3);
}
__device__ __forceinline__ u32 place_in_node(u8 part) { return part & 7; }
__device__ __forceinline__ u32 size_of_node(u8 part) { return part >> 3; }

// `parts` is (2, rows), `totals`, nodes that begin in each chunk, (2, chunks), `nodes` (2,) and zero before. `part` is
// (64,), shared.
__device__ __forceinline__ void cut_run(u32 rows, u32 chunks, const u8 *flags, const u8 *apart, const u32 *ends,
                                        u8 *parts, u32 *totals, u64 *nodes, u32 *part) {
    const Chunk chunk(chunks);
    ends += chunk.loose ? 2 * u64(chunks) : 0;
    // Where the run of the chunk's first row begins, and where the next one after its last row does.
    u32 before = 0, after = 0;
    for (u32 c = threadIdx.x; c < chunk.number; c += blockDim.x) before = larger(before, load(ends + c));
    for (u32 c = chunk.number + 1 + threadIdx.x; c < chunks; c += blockDim.x)
        after = larger(after, load(ends + chunks + c));
    before = block_largest(before, part);
    after = block_largest(after, part);
    bool begins[ROWS_EACH];
    u32 last = 0, first = 0;
    for (u32 u = 0; u < ROWS_EACH; ++u) {
        begins[u] = begins_run(rows, chunk.row + u, chunk.loose, flags, apart);
        if (begins[u]) last = u32(chunk.row + u) + 1, first = larger(first, ~u32(chunk.row + u));
    }
    // The same up to each thread, and from each thread on; then without it.
    const u32 lane = own_lane();
    for (int offset = 1; offset < WARP; offset <<= 1) {
        const u32 above = __shfl_up_sync(ALL, last, offset), below = __shfl_down_sync(ALL, first, offset);
        if (lane >= u32(offset)) last = larger(last, above);
        if (lane + u32(offset) < WARP) first = larger(first, below);
    }
    if (lane == WARP - 1) part[own_warp()] = last;
    if (lane == 0) part[WARP + own_warp()] = first;
    __syncthreads();
    for (u32 w = 0; w < own_warp(); ++w) before = larger(before, part[w]);
    for (u32 w = own_warp() + 1; w < warps_of_block(); ++w) after = larger(after, part[WARP + w]);
    __syncthreads();
    const u32 above = __shfl_up_sync(ALL, last, 1), below = __shfl_down_sync(ALL, first, 1);
    if (lane > 0) before = larger(before, above);
    if (lane < WARP - 1) after = larger(after, below);
    u32 end[ROWS_EACH], next = min(~after, rows), count = 0;
    for (u32 u = ROWS_EACH; u-- > 0;) {
        end[u] = next;
        if (begins[u]) next = u32(chunk.row + u);
    }
    for (u32 u = 0; u < ROWS_EACH; ++u) {
        const u64 row = chunk.row + u;
        if (begins[u]) before = u32(row) + 1;
        if (row >= rows) continue;
        const u8 found = part_of(u32(row) - (before - 1), end[u] - (before - 1));
        parts[(chunk.loose ? u64(rows) : 0) + row] = found;
        count += place_in_node(found) == 0;
    }
    u32 total;
    sums_before(count, part, total);
    if (threadIdx.x == 0) {
        totals[(chunk.loose ? u64(chunks) : 0) + chunk.number] = total;
        atomicAdd(nodes + chunk.loose, u64(total));
    }
}

// `totals` are those of one choice of nodes, `cuts` (nodes + 1,), `firsts` (windows + 1,).
__device__ __forceinline__ void number_chunk(u32 rows, u32 window, const u8 *parts, const u32 *totals, u32 *cuts,
                                             u32 *firsts, u32 *part) {
    u32 before = 0, count = 0, number, total;
    for (u32 c = threadIdx.x; c < blockIdx.x; c += blockDim.x) before += load(totals + c);
    sums_before(before, part, number);
    const u64 first = (u64(blockIdx.x) * blockDim.x + threadIdx.x) * ROWS_EACH;
    for (u32 u = 0; u < ROWS_EACH; ++u) count += first + u < rows && place_in_node(load(parts + first + u)) == 0;
    number += sums_before(count, part, total);
    for (u32 u = 0; u < ROWS_EACH && first + u < rows; ++u) {
        const u32 row = u32(first + u);
        if (row % window == 0) firsts[row / window] = number;
        if (place_in_node(load(parts + row)) == 0) cuts[number++] = row;
        if (row + 1 == rows) cuts[number] = rows, firsts[quotient_up(rows, window)] = number;
    }
}

// ---------------------------------------------------------------------------------------------------- blocks of a node

// A pattern, what its rows are like, and which nodes they are of.
struct Noded {
    const u32 *pointer, *index;
    const u8 *flags, *parts;
};

// Whether a row has an entry in columns from `first` up to `end`.
__device__ __forceinline__ bool has_entry(const Noded &A, u32 row, u32 first, u32 end) {
    const u32 begin = load(A.pointer + row), count = load(A.pointer + row + 1) - begin;
    const u32 at = place_from(A.index + begin, count, first);
    return at < count && load(A.index + begin + at) < end;
}

// All blocks of a node by a warp, in the order in which its rows have them: take(c, first) is called by all lanes, with
// the width and the first column of the block that begins at the lane's entry and at none before it, or width 0.
template <class Take>
__device__ __forceinline__ void walk_node(const Noded &A, u32 first_row, u32 size, Take &take) {
    const u32 lane = own_lane();
    for (u32 row = first_row; row < first_row + size; ++row) {
        if (row > first_row && (load(A.flags + row) & SAME)) continue;
        const u32 begin = load(A.pointer + row), count = load(A.pointer + row + 1) - begin;
        u32 before = NO_ROW; // first column of the last entry's block
        for (u32 base = 0; base < count; base += WARP) {
            const u32 k = base + lane, j = k < count ? load(A.index + begin + k) : 0;
            const u8 part = load(A.parts + j);
            const u32 first = j - place_in_node(part), left = __shfl_up_sync(ALL, first, 1);
            u32 c = k < count && first != (lane == 0 ? before : left) ? size_of_node(part) : 0;
            before = __shfl_sync(ALL, first, WARP - 1);
            for (u32 earlier = first_row; c > 0 && earlier < row; ++earlier)
                if ((earlier == first_row || !(load(A.flags + earlier) & SAME)) &&
                    has_entry(A, earlier, first, first + c))
                    c = 0;
            take(c, first);
        }
    }
}

// Blocks met so far: lane c - 1 knows how many of c columns, and the first column of the last of them.
struct Met {
    u32 count = 0, last = 0;
    u32 latest = 0; // the same of all widths

    static __device__ __forceinline__ u32 those_of(u32 c, const u32 (&bit)[3]) {
        return (c & 1 ? bit[0] : ~bit[0]) & (c & 2 ? bit[1] : ~bit[1]) & (c & 4 ? bit[2] : ~bit[2]);
    }

    // The number of the lane's block among those of its width, c > 0.
    __device__ __forceinline__ u32 add(u32 c, u32 first) {
        const u32 lane = own_lane();
        const u32 bit[3] = {__ballot_sync(ALL, c & 1), __ballot_sync(ALL, c & 2), __ballot_sync(ALL, c & 4)};
        const u32 number = __shfl_sync(ALL, count, int((c - 1) % WARP)) +
                           u32(__popc(those_of(c, bit) & ((1u << lane) - 1)));
        const u32 own = lane < NODE_ROWS ? those_of(lane + 1, bit) : 0, any = bit[0] | bit[1] | bit[2];
        const u32 newest = __shfl_sync(ALL, first, int(own ? last_lane(own) : 0));
        count += u32(__popc(own));
        if (own) last = newest;
        const u32 newest_of_all = __shfl_sync(ALL, first, int(any ? last_lane(any) : 0));
        if (any) latest = newest_of_all;
        return number;
    }
};

struct Counting {
    Met met;
    __device__ __forceinline__ void operator()(u32 c, u32 first) { met.add(c, first); }
};

// A warp for each node in turn. `counts` is (nodes, 6), `found` are all blocks and their values, zero before; `part` is
// (64,), shared.
__device__ __forceinline__ void count_node(const Noded &A, const u64 *nodes, const u32 *cuts, u32 *counts, u64 *found,
                                           u64 *part) {
    const u32 lane = own_lane();
    const u64 all = load(nodes), step = u64(gridDim.x) * warps_of_block();
    u64 blocks = 0, values = 0;
    for (u64 node = u64(blockIdx.x) * warps_of_block() + own_warp(); node < all; node += step) {
        const u32 first = load(cuts + node), size = load(cuts + node + 1) - first;
        Counting counted;
        walk_node(A, first, size, counted);
        if (lane < NODE_ROWS) {
            counts[NODE_ROWS * node + lane] = counted.met.count;
            blocks += counted.met.count;
            values += u64(counted.met.count) * (lane + 1) * size;
        }
    }
    blocks = warp_total(blocks), values = warp_total(values);
    if (lane == 0) part[own_warp()] = blocks, part[WARP + own_warp()] = values;
    __syncthreads();
    if (threadIdx.x < 2) {
        u64 total = 0;
        for (u32 w = 0; w < warps_of_block(); ++w) total += part[WARP * threadIdx.x + w];
        if (total) atomicAdd(found + threadIdx.x, total);
    }
}

// ------------------------------------------------------------------------------------------------------------- the order

// What nodes are sorted by, the least first: how many blocks of 1, 2, ..., 6 columns they have, and their size.
constexpr u32 FIELDS = NODE_ROWS + 1;
struct Fields {
    const u32 *cuts, *counts;

    __device__ __forceinline__ u32 operator()(u32 node, u32 f) const {
        return f < NODE_ROWS ? load(counts + u64(NODE_ROWS) * node + f) : load(cuts + node + 1) - load(cuts + node);
    }
};

// A block for each window. Bits in which all nodes of a window are the same are left out of the keys, so that most take
// a word, and few passes. `keys` and `orders` are (2, rows), and the first of orders is the one that is found; `sizes`,
// nodes of 6, 5, ..., 1 rows, (windows, 6). Shared: (256, warps + 1) and (32,) and (13,).
__device__ __forceinline__ void sort_window(u32 rows, const u32 *firsts, const u32 *cuts, const u32 *counts, u32 *keys,
                                            u32 *orders, u32 *sizes, u32 *shared) {
    const Fields fields{cuts, counts};
    const u32 lane = own_lane(), warp = own_warp(), warps = warps_of_block();
    u32 *const number = shared, *const part = shared + DIGITS * (warps + 1), *const known = part + WARP;
    const u32 first = load(firsts + blockIdx.x), count = load(firsts + blockIdx.x + 1) - first;
    Sorted sorted{keys + first, orders + first, keys + u64(rows) + first, orders + u64(rows) + first};
    u32 differs[FIELDS], of_first[FIELDS];
    for (u32 f = 0; f < FIELDS; ++f) differs[f] = 0, of_first[f] = count > 0 ? fields(first, f) : 0;
    Met met;
    for (u64 base = 0; base < count; base += blockDim.x) {
        const u64 q = base + threadIdx.x;
        const bool inside = q < count;
        const u32 node = inside ? first + u32(q) : first;
        for (u32 f = 0; f < FIELDS; ++f) differs[f] |= fields(node, f) ^ of_first[f];
        met.add(inside ? fields(node, NODE_ROWS) : 0, 0);
        if (inside) sorted.node[q] = node;
    }
    for (u32 f = 0; f < FIELDS; ++f) {
        differs[f] = warp_any_bit(differs[f]);
        if (lane == 0) number[f * warps + warp] = differs[f];
    }
    if (lane < NODE_ROWS) number[(FIELDS + lane) * warps + warp] = met.count;
    __syncthreads();
    if (threadIdx.x < FIELDS + NODE_ROWS) {
        u32 found = 0;
        for (u32 w = 0; w < warps; ++w) {
            const u32 one = number[threadIdx.x * warps + w];
            found = threadIdx.x < FIELDS ? found | one : found + one;
        }
        if (threadIdx.x < FIELDS) known[threadIdx.x] = found == 0 ? 0 : last_lane(found) + 1;
        else sizes[u64(NODE_ROWS) * blockIdx.x + (FIELDS + NODE_ROWS - 1 - threadIdx.x)] = found;
    }
    __syncthreads();
    // `known` are the bits of each field that are sorted by: as many fields at a time as have room in a word.
    bool turned = false;
    for (u32 f = 0, end = 0; f < FIELDS; f = end) {
        u32 bits = 0;
        while (end < FIELDS && bits + known[end] <= 32) bits += known[end++];
        if (bits == 0) continue;
        for (u64 q = threadIdx.x; q < count; q += blockDim.x) {
            const u32 node = sorted.node[q];
            u32 key = 0, shift = 0;
            for (u32 g = f; g < end; ++g)
                if (known[g] > 0) {
                    key |= (~fields(node, g) & ALL >> (32 - known[g])) << shift; // the largest first
                    shift += known[g];
                }
            sorted.key[q] = key;
        }
        __syncthreads();
        for (u32 shift = 0; shift < bits; shift += DIGIT_BITS) {
            sort_by_digit(sorted, count, shift, number, part);
            sorted.turn();
            turned = !turned;
        }
    }
    if (turned)
        for (u64 q = threadIdx.x; q < count; q += blockDim.x) sorted.next_node[q] = sorted.node[q];
}

// ---------------------------------------------------------------------------------------------------------------- slices

// Lanes that share a row of a node of r rows, and nodes of a slice, where at most `lanes` may.
__device__ __forceinline__ u32 lanes_for(u32 r, u32 lanes) { return min(lanes, WARP / r); }
__device__ __forceinline__ u32 nodes_for(u32 r, u32 lanes) { return larger(1, WARP / (r * lanes_for(r, lanes))); }

// What `make_slice` says of a slice, in the order of the numbers: the place of its first node in the order, indices,
// values, r, nodes that it has, nothing, and its steps with blocks of 6, 5, ..., 1 columns.
constexpr u32 OF_NODE = 0, OF_INDICES = 1, OF_VALUES = 2, OF_ROWS = 3, OF_NODES = 4, OF_STEPS = 6;

// A warp for each slice, of which a block has a chunk; nothing is there beyond the last slice. `groups` are those of
// nodes of one size in a window. `about` is (slices, 12), `totals` (3, chunks): nodes, indices and values of a chunk;
// `slices` says how many there are. Shared: (3, 32) u64, (4, 32) u32.
__device__ __forceinline__ void make_slice(u32 groups, u32 lanes, const u32 *sizes, const u32 *order, const u32 *counts,
                                           u32 *about, u64 *totals, u64 *slices, u64 *shared) {
    const u32 lane = own_lane(), warp = own_warp(), warps = warps_of_block(), own = blockIdx.x * warps;
    u32 *const part = reinterpret_cast<u32 *>(shared + 3 * WARP);
    u32 *const from = part + WARP, *const rows = from + WARP, *const held = rows + WARP;
    u32 nodes_before = 0, slices_before = 0;
    for (u32 base = 0; base < groups; base += blockDim.x) {
        const u32 group = base + threadIdx.x, count = group < groups ? load(sizes + group) : 0;
        const u32 r = NODE_ROWS - group % NODE_ROWS, most = nodes_for(r, lanes), pieces = quotient_up(count, most);
        u32 nodes, all;
        const u32 node = nodes_before + sums_before(count, part, nodes);
        const u32 first = slices_before + sums_before(pieces, part, all);
        for (u32 s = larger(first, own); s < min(first + pieces, own + warps); ++s) {
            from[s - own] = node + (s - first) * most;
            rows[s - own] = r;
            held[s - own] = min(most, count - (s - first) * most);
        }
        nodes_before += nodes;
        slices_before += all;
    }
    __syncthreads();
    if (blockIdx.x == 0 && threadIdx.x == 0) *slices = slices_before;
    u64 places = 0, indices = 0, values = 0;
    if (own + warp < slices_before) {
        const u32 r = rows[warp], many = held[warp], share = lanes_for(r, lanes), each = nodes_for(r, lanes) * share;
        const u32 node = lane < many ? load(order + from[warp] + lane) : 0;
        u32 steps = 0; // lane c - 1 has those of c columns
        for (u32 c = 1; c <= NODE_ROWS; ++c) {
            const u32 most = warp_largest(lane < many ? load(counts + u64(NODE_ROWS) * node + c - 1) : 0);
            if (lane == c - 1) steps = quotient_up(most, share);
        }
        places = nodes_for(r, lanes);
        indices = warp_total(u64(steps) * each);
        values = warp_total(u64(steps) * (lane + 1) * each * r);
        about += u64(SLICE_NUMBERS) * (own + warp);
        if (lane < NODE_ROWS) about[OF_STEPS + NODE_ROWS - 1 - lane] = steps;
        if (lane == 0) {
            about[OF_NODE] = from[warp];
            about[OF_INDICES] = u32(indices);
            about[OF_VALUES] = u32(values);
            about[OF_ROWS] = r;
            about[OF_NODES] = many;
        }
    }
    if (lane == 0) shared[warp] = places, shared[WARP + warp] = indices, shared[2 * WARP + warp] = values;
    __syncthreads();
    if (threadIdx.x < 3) {
        u64 total = 0;
        for (u32 w = 0; w < warps; ++w) total += shared[WARP * threadIdx.x + w];
        totals[u64(gridDim.x) * threadIdx.x + blockIdx.x] = total;
    }
}

// One block: `totals` become the sums of those before, and `found`, (3,), has those of all. `part` is (32,), shared.
__device__ __forceinline__ void sum_slices(u32 chunks, u64 *totals, u64 *found, u64 *part) {
    for (u32 which = 0; which < 3; ++which, totals += chunks) {
        u64 before = 0;
        for (u32 base = 0; base < chunks; base += blockDim.x) {
            const u32 i = base + threadIdx.x;
            const u64 own = i < chunks ? totals[i] : 0;
            u64 all;
            const u64 within = sums_before(own, part, all);
            if (i < chunks) totals[i] = before + within;
            before += all;
        }
        if (threadIdx.x == 0) found[which] = before;
    }
}

// ----------------------------------------------------------------------------------------------------------- the arrays

// Places the index of each block of a node, number t of `many`; lane c - 1 knows where those of c columns begin.
struct Placing {
    Met met;
    u32 *column;
    u32 first_index, many, t;

    __device__ __forceinline__ void operator()(u32 c, u32 first) {
        const u32 number = met.add(c, first), at = __shfl_sync(ALL, first_index, int((c - 1) % WARP));
        if (c > 0) column[at + number * many + t] = first;
    }
};

// A block for each slice; `per` slices are a chunk of `totals`.
__device__ __forceinline__ void place_slice(u32 rows, u32 lanes, u32 per, u32 chunks, const Noded &A, const u32 *cuts,
                                            const u32 *counts, const u32 *order, const u32 *about, const u64 *totals,
                                            u32 *head, u32 *first, u32 *column, u32 *entry) {
    const u32 slice = blockIdx.x, lane = own_lane(), warp = own_warp(), warps = warps_of_block();
    const u32 chunk = slice / per;
    // Where it begins: sums of all chunks before its own, and of the slices before it there.
    const u32 *const beside = about + u64(SLICE_NUMBERS) * (u64(chunk) * per + lane);
    const bool is_before = lane < slice - chunk * per;
    u32 place = is_before ? nodes_for(load(beside + OF_ROWS), lanes) : 0;
    u32 index = is_before ? load(beside + OF_INDICES) : 0, value = is_before ? load(beside + OF_VALUES) : 0;
    place = u32(load(totals + chunk)) + warp_total(place);
    index = u32(load(totals + u64(chunks) + chunk)) + warp_total(index);
    value = u32(load(totals + 2 * u64(chunks) + chunk)) + warp_total(value);
    about += u64(SLICE_NUMBERS) * slice;
    const u32 r = load(about + OF_ROWS), held = load(about + OF_NODES), share = lanes_for(r, lanes);
    const u32 many = nodes_for(r, lanes), each = many * share, width = each * r;
    order += load(about + OF_NODE);
    const u32 *const step = about + OF_STEPS; // those of c columns are step[6 - c]

    if (threadIdx.x < SLICE_NUMBERS) {
        const u32 i = threadIdx.x, begin[6] = {place, index, value, r, many, share};
        u32 own = i < OF_STEPS ? 0 : load(about + i);
#pragma unroll
        for (u32 k = 0; k < OF_STEPS; ++k) own = i == k ? begin[k] : own;
        head[u64(SLICE_NUMBERS) * slice + i] = own;
    }
    if (threadIdx.x < many) first[place + threadIdx.x] = threadIdx.x < held ? load(cuts + load(order + threadIdx.x)) : NO_ROW;

    if (held < many) // nodes that there are not have no columns
        for (u32 i = threadIdx.x; i < load(about + OF_INDICES); i += blockDim.x)
            if (i % many >= held) column[index + i] = 0;
    u32 first_index = index;
    for (u32 c = NODE_ROWS; c > lane + 1; --c) first_index += load(step + NODE_ROWS - c) * each;
    for (u32 t = warp; t < held; t += warps) {
        Placing placing{{}, column, first_index, many, t};
        walk_node(A, load(cuts + load(order + t)), r, placing);
        for (u32 c = 1; c <= NODE_ROWS; ++c) {
            const u32 met = __shfl_sync(ALL, placing.met.count, int(c - 1)), at = __shfl_sync(ALL, first_index, int(c - 1));
            const u32 last = __shfl_sync(ALL, placing.met.last, int(c - 1));
            const u32 known = met > 0 ? last : min(placing.met.latest, rows - c);
            for (u32 m = met + lane; m < load(step + NODE_ROWS - c) * share; m += WARP) column[at + m * many + t] = known;
        }
    }
    __syncthreads();

    // Each lane has a row of a node, or nothing; it looks for the first column of each block, and goes on from there.
    const u32 l = lane / (many * r), i = lane % (many * r) / many, t = lane % many;
    const bool active = lane < width, is_there = active && t < held;
    const u32 node = is_there ? load(order + t) : 0, row = is_there ? load(cuts + node) + i : 0;
    const u32 begin = load(A.pointer + row), count = load(A.pointer + row + 1) - begin;
    const u32 *const own = A.index + begin;
    for (u32 c = NODE_ROWS; c > 0; --c) {
        const u32 steps = load(step + NODE_ROWS - c), blocks = is_there ? load(counts + u64(NODE_ROWS) * node + c - 1) : 0;
        for (u32 s = warp; active && s < steps; s += warps) {
            const u32 number = s * share + l, block = number < blocks ? column[index + number * many + t] : 0;
            u32 at = number < blocks ? place_from(own, count, block) : count;
            for (u32 j = 0; j < c; ++j) {
                const bool is_entry = at < count && load(own + at) == block + j;
                entry[value + (s * c + j) * width + lane] = is_entry ? begin + at + 1 : 0;
                at += is_entry;
            }
        }
        index += steps * each;
        value += steps * c * width;
    }
}
