// A caller's arrays on the device, read as they are: what they have in them, and whether a kernel can follow them.
//
//   sum_arrays   a checksum of each of three arrays, and whether one is other than it was
//   look_at_csr  whether rows lie in the arrays, columns in the matrix, and values are finite; and the longest row
//
// A checksum is the sum over words of 64 bits of m_i f(w_i), as in akx/core/checksum.py: f is a bijection and m_i odd, so that
// another word at one place makes another sum. A last word that is not whole has zeros behind it. Arrays that do not begin
// at a word are read byte by byte. All atomics are of integers, so that their order does not matter.
#pragma once
#include "matrix/transpose.cuh"
#include "value_compression/values.cuh"

enum Index { INT = 0, U32, I64, U64 };
enum Value { FLOAT = 0, DOUBLE, CFLOAT, CDOUBLE };

__device__ __forceinline__ u64 folded(u64 a) { return a ^ (a >> 32); }
__device__ __forceinline__ u64 weighed(u64 word, u64 place) {
    return folded(folded(word) * 0xD6E8FEB86659FD93ull) * (folded(place * 0x9E3779B97F4A7C15ull) | 1);
}

// The words of this thread: those at its number and every so many behind, four at a time.
__device__ __forceinline__ u64 sum_words(u64 count, const u64 *words) {
    const u64 step = u64(gridDim.x) * blockDim.x;
    u64 total = 0, p = own_number();
    for (; p + 3 * step < count; p += 4 * step) {
        u64 word[4];
#pragma unroll
        for (int u = 0; u < 4; ++u) word[u] = load(words + p + u * step);
#pragma unroll
        for (int u = 0; u < 4; ++u) total += weighed(word[u], p + u * step);
    }
#pragma unroll 1
    for (; p < count; p += step) total += weighed(load(words + p), p);
    return total;
}

__device__ __forceinline__ u64 sum_bytes(u64 first, u64 bytes, const u8 *array) {
    const u64 step = u64(gridDim.x) * blockDim.x, words = (bytes + 7) / 8;
    u64 total = 0;
#pragma unroll 1
    for (u64 p = first + own_number(); p < words; p += step) {
        u64 word = 0;
        for (u64 b = 8 * p; b < 8 * p + 8 && b < bytes; ++b) word |= u64(array[b]) << (8 * (b - 8 * p));
        total += weighed(word, p);
    }
    return total;
}

__device__ __forceinline__ u64 sum_array(u64 bytes, const u8 *array) {
    if (reinterpret_cast<u64>(array) % 8 != 0) return sum_bytes(0, bytes, array);
    return sum_words(bytes / 8, reinterpret_cast<const u64 *>(array)) + sum_bytes(bytes / 8, bytes, array);
}

// `sums` is (4,): the three sums and the blocks that have added to them, zero before and after. What is written where it is
// asked for: `found`, (3,), the sums; `differs`, whether they are not those that are `known`; `told`, 1 where that is so.
__device__ __forceinline__ void sum_arrays(u64 bytes_a, const u8 *a, u64 bytes_b, const u8 *b, u64 bytes_c, const u8 *c,
                                           u64 *sums, const u64 *known, u64 *found, u32 *differs, u32 *told) {
    __shared__ u64 part[3 * WARP];
    const u32 warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    u64 total[3] = {sum_array(bytes_a, a), sum_array(bytes_b, b), sum_array(bytes_c, c)};
    for (int i = 0; i < 3; ++i) {
        for (int offset = WARP / 2; offset > 0; offset >>= 1) total[i] += __shfl_xor_sync(ALL, total[i], offset);
        if (threadIdx.x % WARP == 0) part[3 * warp + i] = total[i];
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int i = 0; i < 3; ++i) {
        u64 of_block = 0;
        for (u32 w = 0; w < warps; ++w) of_block += part[3 * w + i];
        atomicAdd(sums + i, of_block);
    }
    __threadfence();
    if (atomicAdd(sums + 3, u64(1)) + 1 != gridDim.x) return;
    __threadfence();
    bool is_other = false;
    for (int i = 0; i < 3; ++i) {
        const u64 own = atomicAdd(sums + i, u64(0));
        if (known != nullptr) is_other |= own != known[i];
        if (found != nullptr) found[i] = own;
        sums[i] = 0;
    }
    sums[3] = 0;
    if (differs != nullptr) *differs = is_other;
    if (told != nullptr && is_other) *told = 1;
}

// A warp for each row, in turns. found[0]: rows outside of the arrays; found[1]: columns outside of the matrix; found[2]:
// values that are not finite; found[3]: the most entries of a row. All who write to one of the first three write the same.
template <class T, class I>
__device__ __forceinline__ void look_at_rows_of(u32 rows, u64 entries, const I *start, const I *column, const T *value,
                                                u64 *found) {
    const u64 lane = threadIdx.x % WARP;
    u64 longest = 0;
    for (u64 row = own_number() / WARP; row < rows; row += u64(gridDim.x) * blockDim.x / WARP) {
        const u64 begin = load(start + row), end = load(start + row + 1);
        if (begin > end || end > entries || (row == 0 && begin != 0)) {
            found[0] = 1;
            continue;
        }
        longest = longest < end - begin ? end - begin : longest;
        for (u64 p = begin + lane; p < end; p += WARP) {
            if (load(column + p) >= rows) found[1] = 1;
            if (!is_finite(load(value + p))) found[2] = 1;
        }
    }
    if (lane == 0) atomicMax(found + 3, longest);
}

// Negative indices are far too large ones here.
template <class T>
__device__ __forceinline__ void look_at_values_of(u32 index, u32 rows, u64 entries, const void *start,
                                                  const void *column, const T *value, u64 *found) {
    if (index == INT || index == U32)
        look_at_rows_of(rows, entries, static_cast<const u32 *>(start), static_cast<const u32 *>(column), value, found);
    else look_at_rows_of(rows, entries, static_cast<const u64 *>(start), static_cast<const u64 *>(column), value, found);
}

__device__ __forceinline__ void look_at_csr(u32 type, u32 index, u32 rows, u64 entries, const void *start,
                                            const void *column, const void *value, u64 *found) {
    if (type == FLOAT) look_at_values_of(index, rows, entries, start, column, static_cast<const float *>(value), found);
    else if (type == DOUBLE)
        look_at_values_of(index, rows, entries, start, column, static_cast<const double *>(value), found);
    else if (type == CFLOAT)
        look_at_values_of(index, rows, entries, start, column, static_cast<const cfloat *>(value), found);
    else look_at_values_of(index, rows, entries, start, column, static_cast<const cdouble *>(value), found);
}
