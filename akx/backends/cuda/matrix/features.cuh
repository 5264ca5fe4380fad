// What prices ask of a pattern beside the lengths of its rows. All are counts, the same in any order of threads.
//
//   count_new      of some slices of 32 rows, how many different sectors of x they read, or on how many diagonals they lie
//   count_lines    lines of x that the loads of a warp ask for, in some slices
//   count_alike    of some rows, those that are like the row before
//   count_twins    of some rows, those that have the columns of a row which they are coupled with
//   mark_part      of runs of rows: what they read of others, from whom and how far away, and slots of their rows
//   check_blocks   is the pattern one of dense, aligned blocks of 2 x 2, 3 x 3 or 6 x 6?
//   take_blocks    the pattern of such blocks
//   choose_diagonals   of each slice, which diagonals it is stored by, as akx/formats/slice_diagonals.py has it
//   find_blocks    how many blocks of rows on either side do rows read?
//   check_lines    may rows be lines of a grid, one after another?
//   count_counts   how many columns have so many entries
//
// Bytes: some slices of the pattern; `mark_part` reads all of it once, and `check_blocks` what is left to be asked.
#pragma once
#include "lengths.cuh"

constexpr u32 DIAGONALS = 0; // for the columns of a sector: then entries are told apart by their diagonals
constexpr int LOADS = 7;     // kinds of loads: of entries as they are stored, and with 1, 2, 4, .., 32 threads a row
constexpr int OF_PART = 8;   // numbers of a part
constexpr int SHAPES = 3;    // sizes of blocks
constexpr u32 BINS = 4096;   // counts below that are counted
constexpr int MOST = 64;     // diagonals of a slice that are told apart

// Whether one of `count` ascending numbers lies from `low` to `high`.
__device__ __forceinline__ bool has_between(const u32 *numbers, u32 count, u32 low, u32 high) {
    return count && load(numbers) <= high && load(numbers + place_of(numbers, count, high)) >= low;
}

__device__ __forceinline__ void add_up(u64 mine, u64 *total) {
    const u64 found = warp_total(mine);
    if (threadIdx.x % WARP == 0 && found) atomicAdd(total, found);
}

// `shares` blocks for each slice. An entry counts where none of the rows before it, and none before it in its row, has
// the same sector of `per` columns, or lies on the same diagonal. `found` is (2,): those, and all entries; zero before.
__device__ __forceinline__ void count_new(u32 rows, u32 shares, const u32 *slice, const u32 *pointer, const u32 *index,
                                          u32 per, u64 *found) {
    const u32 first = load(slice + blockIdx.x / shares) * WARP, last = min(rows, first + WARP);
    const u32 begin = load(pointer + first), end = load(pointer + last);
    u64 mine = 0;
    for (u64 at = begin + u64(blockIdx.x % shares) * blockDim.x + threadIdx.x; at < end; at += u64(shares) * blockDim.x) {
        const u32 e = u32(at), row = first + place_of(pointer + first, last - first, e), j = load(index + e);
        const u32 least = per == DIAGONALS ? j : j / per * per;
        bool is_new = e == load(pointer + row) || load(index + e - 1) < least;
        for (u32 other = first; is_new && other < row; ++other) {
            const u32 back = per == DIAGONALS ? row - other : 0, own = load(pointer + other);
            const u32 high = per == DIAGONALS ? least : least + per - 1;
            if (back <= least)
                is_new = !has_between(index + own, load(pointer + other + 1) - own, least - back, high - back);
        }
        mine += is_new;
    }
    add_up(mine, found);
    if (blockIdx.x % shares == 0 && threadIdx.x == 0) atomicAdd(found + 1, u64(end - begin));
}

// Different numbers that lanes of a warp have; those without one have NONE.
__device__ __forceinline__ u32 different(u32 own) {
    const u32 alike = __match_any_sync(ALL, own), lane = threadIdx.x % WARP;
    return u32(__popc(__ballot_sync(ALL, own != ~0u && alike % (1u << lane) == 0)));
}

// LOADS x slices x shares blocks. Entries as they are stored are numbered from slice to slice: those of slice s begin
// with number before[s], and there are before[slices]. `found` is (LOADS,), zero before.
__device__ __forceinline__ void count_lines(u32 rows, u32 slices, u32 shares, const u32 *slice, const u32 *before,
                                            const u32 *pointer, const u32 *index, u32 per, u64 *found) {
    const u32 kind = blockIdx.x % LOADS, block = blockIdx.x / LOADS, lane = threadIdx.x % WARP;
    const u32 warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    u64 mine = 0;
    if (kind == 0) {
        const u32 total = load(before + slices);
        for (u64 first = (u64(block) * warps + warp) * WARP; first < total; first += u64(slices) * shares * warps * WARP) {
            const u64 at = first + lane;
            u32 line = ~0u;
            if (at < total) {
                const u32 s = place_of(before, slices, u32(at));
                line = load(index + load(pointer + load(slice + s) * WARP) + (u32(at) - load(before + s))) / per;
            }
            mine += different(line);
        }
    } else {
        const u32 lanes = 1u << (kind - 1), height = WARP / lanes, share = block % shares;
        for (u32 group = 0; group < lanes; ++group) {
            const u64 row = u64(load(slice + block / shares)) * WARP + group * height + lane / lanes;
            const u32 begin = row < rows ? load(pointer + row) : 0, count = row < rows ? load(pointer + row + 1) - begin : 0;
            const u32 longest = warp_most(count);
            for (u64 step = share * warps + warp; step * lanes < longest; step += shares * warps) {
                const u64 place = step * lanes + lane % lanes;
                mine += different(place < count ? load(index + begin + place) / per : ~0u);
            }
        }
    }
    if (lane == 0 && mine) atomicAdd(found + kind, mine);
}

// A warp for each of some rows, not the first one: those that have most columns in common with the row before, as
// akx/formats/natural_blocks.py has it. `found` is (1,), zero before.
__device__ __forceinline__ void count_alike(u32 some, const u32 *row, const u32 *pointer, const u32 *index, u64 *found) {
    const u64 number = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / WARP;
    if (number >= some) return;
    const u32 own = load(row + number), lane = threadIdx.x % WARP, before = load(pointer + own - 1);
    const u32 begin = load(pointer + own), count = load(pointer + own + 1) - begin, room = begin - before;
    u64 both = 0;
    for (u32 base = 0; base < count; base += WARP) {
        const u32 j = base + lane < count ? load(index + begin + base + lane) : 0;
        both += u32(__popc(__ballot_sync(ALL, base + lane < count && has_between(index + before, room, j, j))));
    }
    // both / (count + room - both) >= 0.7: no quotient of such numbers that is less is 0.7 when it is rounded.
    if (lane == 0 && 10 * both >= 7 * (u64(count) + room - both)) atomicAdd(found, u64(1));
}

// A warp for each of some rows. `found` is (1,), zero before.
__device__ __forceinline__ void count_twins(u32 some, const u32 *row, const u32 *pointer, const u32 *index, u64 *found) {
    const u64 number = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / WARP;
    if (number >= some) return;
    const u32 lane = threadIdx.x % WARP, own = load(row + number);
    const u32 begin = load(pointer + own), count = load(pointer + own + 1) - begin;
    bool is_twin = false;
    for (u32 base = 0; !is_twin && base < count; base += WARP) {
        const u32 j = base + lane < count ? load(index + begin + base + lane) : own;
        u32 left = __ballot_sync(ALL, j != own && load(pointer + j + 1) - load(pointer + j) == count);
        for (; !is_twin && left; left &= left - 1) {
            const u32 other = load(pointer + __shfl_sync(ALL, j, __ffs(int(left)) - 1));
            is_twin = true;
            for (u32 at = 0; is_twin && at < count; at += WARP) {
                const u32 k = at + lane;
                is_twin = __ballot_sync(ALL, k < count && load(index + begin + k) != load(index + other + k)) == 0;
            }
        }
    }
    if (lane == 0 && is_twin) atomicAdd(found, u64(1));
}

// `shares` blocks for each of the parts from `from` on; part p has the rows from cut[p] to cut[p + 1]. `bits` has
// `words` words for each of these parts, a bit for each row; `met` has a bit for each part of each part; `numbers` is
// (parts, OF_PART): rows of others that are read, parts that have them, what the least of them lacks, one plus the
// largest, and slots where each row is dealt to 1, 2, 4 and 8 lanes. All are zero before; so is `border`, a byte for
// each row that reads another part or is read by one, which may be null.
__device__ __forceinline__ void mark_part(u32 parts, u32 from, u32 shares, u32 words, const u32 *cut, const u32 *pointer,
                                          const u32 *index, u32 *bits, u32 *met, u64 *numbers, u8 *border) {
    const u32 own = from + blockIdx.x / shares, share = blockIdx.x % shares, stride = shares * blockDim.x;
    const u32 first = load(cut + own), last = load(cut + own + 1), end = load(pointer + last);
    u32 *marks = bits + u64(own - from) * words;
    u64 *number = numbers + u64(own) * OF_PART, halo = 0, neighbours = 0, slots[4] = {0, 0, 0, 0};
    u32 lack = 0, most = 0;
    for (u64 e = u64(load(pointer + first)) + share * blockDim.x + threadIdx.x; e < end; e += stride) {
        const u32 j = load(index + e), bit = 1u << j % 32;
        if (j >= first && j < last) continue;
        if (border != nullptr) border[j] = border[first + place_of(pointer + first, last - first, u32(e))] = 1;
        if ((marks[j / 32] & bit) || (atomicOr(marks + j / 32, bit) & bit)) continue;
        ++halo;
        lack = lack > ~j ? lack : ~j, most = most > j + 1 ? most : j + 1;
        const u32 owner = place_of(cut, parts, j), one = 1u << owner % 32;
        u32 *seen = met + u64(own) * ((parts + 31) / 32) + owner / 32;
        if (!(*seen & one) && !(atomicOr(seen, one) & one)) ++neighbours;
    }
    for (u64 row = u64(first) + share * blockDim.x + threadIdx.x; row < last; row += stride) {
        const u32 length = load(pointer + row + 1) - load(pointer + row);
        for (int p = 0; p < 4; ++p) slots[p] += (u64(length) + (1u << p) - 1) >> p;
    }
    add_up(halo, number), add_up(neighbours, number + 1);
    lack = warp_most(lack), most = warp_most(most);
    if (threadIdx.x % WARP == 0 && most) atomicMax(number + 2, u64(lack)), atomicMax(number + 3, u64(most));
    for (int p = 0; p < 4; ++p) add_up(slots[p], number + 4 + p);
}

// A warp for each row. `wrong` is (SHAPES,), zero before: not zero where the pattern is not one of such blocks.
__device__ __forceinline__ void check_blocks(u32 rows, const u32 *pointer, const u32 *index, u32 *wrong) {
    const u64 row = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / WARP;
    if (row >= rows) return;
    const u32 lane = threadIdx.x % WARP, begin = load(pointer + row), count = load(pointer + row + 1) - begin;
    const u32 sizes[SHAPES] = {2, 3, 6};
    for (int s = 0; s < SHAPES; ++s) {
        const u32 size = sizes[s];
        if (__shfl_sync(ALL, wrong[s], 0)) continue; // it may change meanwhile
        const u32 leader = load(pointer + (row - row % size));
        bool right = count % size == 0 && load(pointer + (row - row % size) + 1) - leader == count;
        for (u32 at = 0; right && at < count; at += WARP) {
            const u32 k = at + lane;
            bool is_right = k >= count || load(index + leader + k) == load(index + begin + k);
            if (is_right && k < count) {
                const u32 column = load(index + begin + k);
                is_right = column % size == k % size && (k % size == 0 || load(index + begin + k - 1) + 1 == column);
            }
            right = __ballot_sync(ALL, !is_right) == 0;
        }
        if (!right && lane == 0) wrong[s] = 1;
    }
}

// A warp for each node of `size` rows, in a matrix of such blocks.
__device__ __forceinline__ void take_blocks(u32 nodes, u32 size, const u32 *pointer, const u32 *index, u32 *node_pointer,
                                            u32 *node_index) {
    const u64 node = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / WARP;
    if (node > nodes) return;
    const u32 lane = threadIdx.x % WARP, begin = load(pointer + node * size), to = begin / (size * size);
    if (lane == 0) node_pointer[node] = to;
    if (node == nodes) return;
    const u32 count = (load(pointer + node * size + 1) - begin) / size;
    for (u32 q = lane; q < count; q += WARP) node_index[to + q] = load(index + begin + q * size) / size;
}

// A thread for each slice. `found` is (4, slices): uniform and scattered slots, and the rows of x from the first to behind
// the last that it reads, padding included.
__device__ __forceinline__ void choose_diagonals(u32 rows, u32 slices, const u32 *pointer, const u32 *index, i64 *found) {
    const u64 slice = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (slice >= slices) return;
    const u32 first = u32(slice) * WARP, height = min(rows - first, u32(WARP));
    int known[MOST], count = 0; // ascending; `mask` has a bit for each row that has one
    u32 mask[MOST], left[WARP], longest = 0;
    i64 low = first, high = first + height;
    for (u32 r = 0; r < height; ++r) {
        const u32 begin = load(pointer + first + r), end = load(pointer + first + r + 1);
        left[r] = end - begin;
        longest = longest > left[r] ? longest : left[r];
        if (begin == end) continue;
        const i64 least = load(index + begin), most = i64(load(index + end - 1)) + 1;
        low = low < least ? low : least, high = high > most ? high : most;
        int k = 0;
        for (u32 e = begin; count >= 0 && e < end; ++e) {
            const int wanted = int(load(index + e)) - int(first + r);
            while (k < count && known[k] < wanted) ++k;
            if (k == count || known[k] != wanted) {
                if (count == MOST) {
                    count = -1; // too many
                    break;
                }
                for (int m = count; m > k; --m) known[m] = known[m - 1], mask[m] = mask[m - 1];
                known[k] = wanted, mask[k] = 0;
                ++count;
            }
            mask[k] |= 1u << r;
        }
    }
    count = count > 0 ? count : 0;
    // The fullest diagonals one after another, as long as that takes fewer bytes: a scattered slot takes twice as many.
    u64 taken = 0, chosen = 0;
    u32 least = 2 * longest, best = 0, scattered = longest, cut = WARP;
    for (int u = 0; u < count; ++u) {
        int most = -1, at = 0;
        for (int k = 0; k < count; ++k)
            if (!(taken >> k & 1) && __popc(mask[k]) > most) most = __popc(mask[k]), at = k;
        taken |= u64(1) << at;
        u32 width = 0;
        for (u32 r = 0; r < height; ++r) {
            left[r] -= mask[at] >> r & 1;
            width = width > left[r] ? width : left[r];
        }
        if (u + 1 + 2 * width <= least) least = u + 1 + 2 * width, best = u + 1, scattered = width, chosen = taken;
    }
    // Or all diagonals, of the rows before a cut and of those behind it.
    for (u32 c = 1; count && least > longest && c < height; ++c) {
        u32 one = 0, other = 0;
        for (int k = 0; k < count; ++k) one += (mask[k] & ((1u << c) - 1)) != 0, other += mask[k] >> c != 0;
        const u32 wide = one > other ? one : other;
        if (wide < least) least = best = wide, cut = c, scattered = 0;
    }
    for (int k = 0; k < count; ++k)
        if (cut < WARP || (chosen >> k & 1)) {
            const i64 from = i64(first) + known[k];
            low = low < from ? low : from, high = high > from + WARP ? high : from + WARP;
        }
    found[slice] = best, found[slices + slice] = scattered;
    found[2 * u64(slices) + slice] = low, found[3 * u64(slices) + slice] = high;
}

// A thread for each row; block b has the rows from begin[b] on. `found` is (2,), zero before: blocks that rows read behind
// and before their own.
__device__ __forceinline__ void find_blocks(u32 rows, u32 blocks, const u32 *begin, const u32 *pointer, const u32 *index,
                                            u32 *found) {
    const u64 row = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    u32 ahead = 0, behind = 0;
    if (row < rows) {
        const u32 first = load(pointer + row), end = load(pointer + row + 1);
        if (first < end) {
            const u32 own = place_of(begin, blocks, u32(row)), low = place_of(begin, blocks, load(index + first));
            const u32 high = place_of(begin, blocks, load(index + end - 1));
            ahead = high > own ? high - own : 0, behind = own > low ? own - low : 0;
        }
    }
    ahead = warp_most(ahead), behind = warp_most(behind);
    if (threadIdx.x % WARP == 0) {
        if (ahead) atomicMax(found, ahead);
        if (behind) atomicMax(found + 1, behind);
    }
}

// A thread for each row. A line begins with each row that the one before does not read; `line` is what the first one
// has, 0 where that is to be found. `found` is (3,), zero before: where the second line begins, as its complement; or
// whether lines begin elsewhere than at multiples of `line`, whether a row reads beyond the lines next to its own, and the
// least row that reads another than those next to it, or that is read by one, as its complement.
__device__ __forceinline__ void check_lines(u32 rows, u32 line, const u32 *pointer, const u32 *index, u32 *found) {
    const u64 number = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (number >= rows) return;
    const u32 row = u32(number), begin = load(pointer + row), count = load(pointer + row + 1) - begin;
    bool begins = row > 0;
    if (row > 0) {
        const u32 before = load(pointer + row - 1);
        begins = !has_between(index + before, begin - before, row, row);
    }
    if (line == 0) {
        if (begins) atomicMax(found, ~row);
        return;
    }
    if (row > 0 && begins != (row % line == 0)) found[0] = 1;
    if (count == 0) return;
    const u32 low = load(index + begin), high = load(index + begin + count - 1), own = row / line;
    if (low / line + 1 < own || high / line > own + 1) found[1] = 1;
    if (low + 1 < row) atomicMax(found + 2, ~low);
    else if (high > row + 1) atomicMax(found + 2, ~row);
}

// Columns by how many entries they have: `bins` is (BINS,), in shared memory `own` too; larger counts are listed behind
// their number in `rest`. All are zero before.
__device__ __forceinline__ void count_counts(u32 columns, const u32 *count, u32 *bins, u32 *rest, u32 *own) {
    for (u32 b = threadIdx.x; b < BINS; b += blockDim.x) own[b] = 0;
    __syncthreads();
    for (u64 j = u64(blockIdx.x) * blockDim.x + threadIdx.x; j < columns; j += u64(gridDim.x) * blockDim.x) {
        const u32 entries = load(count + j);
        if (entries < BINS) atomicAdd(own + entries, 1u);
        else rest[1 + atomicAdd(rest, 1u)] = entries;
    }
    __syncthreads();
    for (u32 b = threadIdx.x; b < BINS; b += blockDim.x)
        if (own[b]) atomicAdd(bins + b, own[b]);
}
