// (M + M^H) / 2 of a matrix whose rows and columns are both there, ascending: a warp merges row i with column i.
//
// An entry of the row comes behind those of the row before it and those of the column before it that are not in both; one
// of the column that is not in the row behind those of the row and the fresh ones of the column. Both are found by
// bisection, and counted by ballots: the order is that of the entries, whoever comes first.
#pragma once
#include "include/team.cuh"

__device__ __forceinline__ float mirrored(float a) { return a; }
__device__ __forceinline__ double mirrored(double a) { return a; }
__device__ __forceinline__ cfloat mirrored(cfloat a) { return {a.re, -a.im}; }
__device__ __forceinline__ cdouble mirrored(cdouble a) { return {a.re, -a.im}; }
__device__ __forceinline__ float half_of(float a) { return a * 0.5f; }
__device__ __forceinline__ double half_of(double a) { return a * 0.5; }
__device__ __forceinline__ cfloat half_of(cfloat a) { return {a.re * 0.5f, a.im * 0.5f}; }
__device__ __forceinline__ cdouble half_of(cdouble a) { return {a.re * 0.5, a.im * 0.5}; }

// How many of `count` ascending numbers are below `item`.
__device__ __forceinline__ u32 below(const u32 *numbers, u32 count, u32 item) {
    u32 low = 0;
    while (low < count) {
        const u32 middle = low + (count - low) / 2;
        if (load(numbers + middle) < item) low = middle + 1;
        else count = middle;
    }
    return low;
}

// `out_start` is counted where `out_index` is null, and read otherwise.
template <class T>
__device__ __forceinline__ void merge_rows(u32 n, const u32 *row_start, const u32 *row_index, const T *row_value,
                                           const u32 *column_start, const u32 *column_index, const T *column_value,
                                           u32 *out_start, u32 *out_index, T *out_value) {
    const u64 i = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / WARP;
    if (i >= n) return;
    const u32 lane = threadIdx.x % WARP, before = (1u << lane) - 1;
    const u32 a = load(row_start + i), na = load(row_start + i + 1) - a;
    const u32 b = load(column_start + i), nb = load(column_start + i + 1) - b;
    const u32 *as = row_index + a, *bs = column_index + b;
    const bool counting = out_index == nullptr;
    const u32 place = counting ? 0 : out_start[i];
    u32 both = 0;
    for (u32 base = 0; base < na; base += WARP) {
        const u32 p = base + lane, j = p < na ? load(as + p) : 0, q = p < na ? below(bs, nb, j) : 0;
        const bool common = p < na && q < nb && load(bs + q) == j;
        const u32 those = __ballot_sync(ALL, common);
        if (!counting && p < na) {
            const u32 at = place + p + q - (both + u32(__popc(those & before)));
            const T own = load(row_value + a + p);
            out_index[at] = j;
            out_value[at] = half_of(common ? add(own, mirrored(load(column_value + b + q))) : own);
        }
        both += u32(__popc(those));
    }
    u32 fresh = 0;
    for (u32 base = 0; base < nb; base += WARP) {
        const u32 q = base + lane, j = q < nb ? load(bs + q) : 0, p = q < nb ? below(as, na, j) : 0;
        const bool alone = q < nb && !(p < na && load(as + p) == j);
        const u32 those = __ballot_sync(ALL, alone);
        if (!counting && alone) {
            const u32 at = place + p + fresh + u32(__popc(those & before));
            out_index[at] = j;
            out_value[at] = half_of(mirrored(load(column_value + b + q)));
        }
        fresh += u32(__popc(those));
    }
    if (counting && lane == 0) out_start[i] = na + fresh;
}
