// What is in the slots of parts, found on the device: to the bit that of akx/formats/block_local_loops.py.
//
//   sort_part     own rows of a part: those on the border first, the longest first, ties as they come
//   list_part     the rows that a part reads of others, ascending
//   number_node   where each node of a part is in the part's list: a table by open addressing for each part
//   lay_columns   columns of a slice, and which entries its slots have where these are single ones
//   lay_blocks    which entries the slots of a slice have where these are dense blocks
//
// Which slots a slice has is known before. Lane l h + r of a slice of h = 32 / lanes block rows has blocks l, l + lanes,
// ... of block row r. An entry is one plus its number in CSR, or 0 for padding.
//
// Bytes: a node's row of the pattern read once, for each slot its columns and 4 for each entry written; in dense blocks
// the pattern of all rows read besides. What a table has in a place depends on the order of threads, what is found does not.
#pragma once
#include "include/block_sort.cuh"

constexpr u32 NO_ROW = 0xffffffffu;

// As PARTS and SLICES of parts_layout.py.
struct Part {
    u32 list, computed, table, shift;
};
struct Slice {
    u32 part, top, held, held_at, nears, near_at, far_at, slots;
};
struct Table {
    const u32 *key; // one plus a node, 0 where a place is free
    const u16 *where;
};
// Rows of nodes, (nodes, bc), or null where they are those from node * bc on.
struct Listed {
    const u32 *rows;
    u32 bc, last; // no block begins behind `last`

    __device__ __forceinline__ u32 row(u32 node, u32 at) const {
        return rows == nullptr ? node * bc + at : load(rows + u64(node) * bc + at);
    }
    // What a column is called where x is in global memory: the first row that a block of it multiplies, or its number.
    __device__ __forceinline__ u32 name(u32 node) const {
        if (rows == nullptr) return node;
        const u32 first = row(node, 0);
        return first < last ? first : last;
    }
};

__device__ __forceinline__ u32 scattered(u32 node, u32 shift) { return node * 2654435769u >> shift; }

// A block for each part, which has the rows from cut[p] to cut[p + 1]; a key has so many `bits`. What is `sorted` has room
// for all rows, and turns with each digit. `number` and `part` are shared, as sort_by_digit has them.
__device__ __forceinline__ void sort_part(u32 longest, u32 bits, const u32 *cut, const u32 *pointer, const u8 *border,
                                          Sorted sorted, u32 *on_border, u32 *number, u32 *part) {
    const u32 first = load(cut + blockIdx.x), count = load(cut + blockIdx.x + 1) - first;
    sorted.key += first, sorted.node += first, sorted.next_key += first, sorted.next_node += first;
    u32 mine = 0, total;
    for (u32 q = threadIdx.x; q < count; q += blockDim.x) {
        const u32 row = first + q, is_inner = load(border + row) == 0;
        mine += !is_inner;
        sorted.node[q] = row;
        sorted.key[q] = is_inner << (bits - 1) | (longest - (load(pointer + row + 1) - load(pointer + row)));
    }
    sums_before(mine, part, total);
    if (threadIdx.x == 0) on_border[blockIdx.x] = total;
    for (u32 shift = 0; shift < bits; shift += DIGIT_BITS) {
        sort_by_digit(sorted, count, shift, number, part);
        sorted.turn();
    }
}

// A block for each part. `bits` has `words` words for each; its rows begin at begin[p]. `part` is (32,), shared.
__device__ __forceinline__ void list_part(u32 words, const u32 *bits, const u32 *begin, u32 *rows, u32 *part) {
    u32 tail = load(begin + blockIdx.x), total;
    for (u64 base = 0; base < words; base += blockDim.x) {
        const u64 w = base + threadIdx.x;
        u32 left = w < words ? load(bits + u64(blockIdx.x) * words + w) : 0;
        u32 at = tail + sums_before(u32(__popc(left)), part, total);
        for (; left; left &= left - 1) rows[at++] = u32(w) * WARP + u32(__ffs(int(left)) - 1);
        tail += total;
    }
}

__device__ __forceinline__ void number_node(u32 parts, u32 count, const u32 *lists, const Part *part, const u32 *nodes,
                                            u32 *key, u16 *where) {
    const u64 t = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (t >= count) return;
    const u32 g = place_of(lists, parts, u32(t)), node = load(nodes + t), shift = part[g].shift;
    const u32 most = 0xffffffffu >> shift;
    for (u32 at = scattered(node, shift);; at = (at + 1) & most) {
        const u64 place = u64(part[g].table) + at;
        if (atomicCAS(key + place, 0u, node + 1) == 0u) {
            where[place] = u16(t - lists[g]);
            return;
        }
    }
}

__device__ __forceinline__ u32 number_of(const Table &table, const Part &part, u32 node) {
    u32 at = scattered(node, part.shift);
    while (load(table.key + part.table + at) != node + 1) at = (at + 1) & (0xffffffffu >> part.shift);
    return load(table.where + part.table + at);
}

__device__ __forceinline__ u32 slot_of(const Slice &slice, u32 q) {
    if (q < slice.held) return slice.held_at + q;
    q -= slice.held;
    return q < slice.nears ? slice.near_at + q : slice.far_at + (q - slice.nears);
}

__device__ __forceinline__ void put_column(u16 &at, u32 column) { at = u16(column); }
__device__ __forceinline__ void put_column(u32 &at, u32 column) { at = column << 16; } // beside what says the value

// A warp for a slice. `base` and `is_far` where columns are named, which is where there is no table; `entry` where slots
// have single entries, else null.
template <class C>
__device__ __forceinline__ void lay_columns(u32 slices, u32 br, u32 lanes, const Part *parts, const Slice *known,
                                            const u32 *nodes, Table table, const u32 *pointer, const u32 *index,
                                            Listed listed, u32 *base, u32 *is_far, C *columns, u32 *entry) {
    const u64 s = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / WARP;
    if (s >= slices) return;
    const u32 lane = threadIdx.x % WARP, height = WARP / lanes;
    const Slice slice = known[s];
    const Part part = parts[slice.part];
    const u32 i = (slice.top + lane % height) / (listed.bc / br);
    const bool is_row = i < part.computed;
    u32 node = 0, begin = 0, end = 0, low = 0;
    if (is_row) node = load(nodes + part.list + i), begin = load(pointer + node), end = load(pointer + node + 1);
    if (table.key == nullptr) {
        u32 least = ~0u, most = 0;
        if (is_row) {
            least = most = listed.name(node);
            if (begin < end) {
                const u32 first = listed.name(load(index + begin)), last = listed.name(load(index + end - 1));
                least = first < least ? first : least, most = last > most ? last : most;
            }
        }
        for (int offset = WARP / 2; offset > 0; offset >>= 1) {
            const u32 less = __shfl_xor_sync(ALL, least, offset), more = __shfl_xor_sync(ALL, most, offset);
            least = less < least ? less : least, most = more > most ? more : most;
        }
        if (lane == 0) {
            base[s] = least;
            if (most - least > 65535) *is_far = 1;
        }
        low = least;
    }
    for (u32 q = 0, t = begin + lane / height; q < slice.slots; ++q, t += lanes) {
        const bool is_there = t < end;
        u32 column = 0;
        if (is_row) {
            const u32 read = is_there ? load(index + t) : node;
            column = table.key == nullptr ? listed.name(read) - low : is_there ? number_of(table, part, read) : i;
        }
        const u64 at = u64(slot_of(slice, q)) * WARP + lane;
        put_column(columns[at], column);
        if (entry != nullptr) entry[at] = is_there ? t + 1 : 0;
    }
}

// A warp for a slice; `entry` is zero before. Rows have their entries in `row_pointer` and `row_index`; row j is the
// within[j]-th of node of[j], or both follow from bc where `of` is null.
__device__ __forceinline__ void lay_blocks(u32 slices, u32 br, u32 lanes, u32 is_local, const Part *parts,
                                           const Slice *known, const u32 *nodes, const u32 *pointer, const u32 *index,
                                           Listed listed, const u32 *row_pointer, const u32 *row_index, const u32 *of,
                                           const u8 *within, u32 *entry) {
    const u64 s = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / WARP;
    if (s >= slices) return;
    const u32 height = WARP / lanes, bc = listed.bc, per = bc / br;
    const Slice slice = known[s];
    const Part part = parts[slice.part];
    for (u32 r = 0; r < height; ++r) {
        const u32 i = (slice.top + r) / per, upper = (slice.top + r) % per * br;
        if (i >= part.computed) return;
        const u32 node = load(nodes + part.list + i), begin = load(pointer + node), blocks = load(pointer + node + 1) - begin;
        for (u32 r_of = 0; r_of < br; ++r_of) {
            const u32 row = listed.row(node, upper + r_of);
            if (row == NO_ROW) break;
            const u32 stop = load(row_pointer + row + 1);
            for (u32 p = load(row_pointer + row) + threadIdx.x % WARP; p < stop; p += WARP) {
                const u32 j = load(row_index + p), column = of == nullptr ? j / bc : load(of + j);
                const u32 c = of == nullptr ? j % bc : u32(load(within + j)), t = place_of(index + begin, blocks, column);
                // Of the last nodes, whose blocks begin earlier.
                const u32 shifted = is_local || listed.rows == nullptr ? 0 : listed.row(column, 0) - listed.name(column);
                const u64 at = u64(slot_of(slice, t / lanes)) * (br * bc) + shifted + r_of * bc + c;
                entry[at * WARP + t % lanes * height + r] = p + 1;
            }
        }
    }
}
