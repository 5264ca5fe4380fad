// Threads that work together on one small problem: a warp, or a whole block.
//
// A team of 32 is a warp, of which a block has several, each with a problem of its own; a larger team is the block. All
// sums are in a fixed order, and every thread of a team gets the same bits, so that all take the same branches.
#pragma once
#include "include/common.cuh"

constexpr int WARP = 32;
constexpr u32 ALL = 0xffffffffu;
// Bytes at the beginning of a block's shared memory that a team larger than a warp needs for itself.
constexpr u32 TEAM_BYTES = 1024;

template <class T> __device__ __forceinline__ T warp_sum(T a) {
    for (int offset = WARP / 2; offset > 0; offset >>= 1) a = add(a, across(a, offset));
    return a;
}

// Sums over the lanes up to this one, it included.
__device__ __forceinline__ u32 warp_scan(u32 a, int lane) {
    for (int offset = 1; offset < WARP; offset <<= 1) {
        const u32 other = __shfl_up_sync(ALL, a, offset);
        if (lane >= offset) a += other;
    }
    return a;
}

template <int TEAM> struct Team {
    static constexpr u32 WARPS = TEAM / WARP;
    u32 rank, warp;
    int lane;
    double *sums; // (2 WARPS,) in shared memory; not used by a warp
    u32 *word;    // likewise

    __device__ __forceinline__ explicit Team(u8 *shared)
        : rank(threadIdx.x % TEAM), warp(threadIdx.x % TEAM / WARP), lane(int(threadIdx.x % WARP)),
          sums(reinterpret_cast<double *>(shared)), word(reinterpret_cast<u32 *>(shared + 16 * WARP)) {
        static_assert(TEAM % WARP == 0 && 16 * WARPS <= 16 * WARP && 16 * WARP + 4 <= TEAM_BYTES, "no such team");
    }

    // What was written before by one thread of the team is seen by all afterwards.
    __device__ __forceinline__ void sync() const {
        if (TEAM == WARP) __syncwarp();
        else __syncthreads();
    }

    // Both over all threads of the team.
    __device__ __forceinline__ void sum(double &a, double &b) const {
        a = warp_sum(a), b = warp_sum(b);
        if (TEAM > WARP) {
            if (lane == 0) sums[2 * warp] = a, sums[2 * warp + 1] = b;
            __syncthreads();
            a = b = 0.0;
            for (u32 w = 0; w < WARPS; ++w) a += sums[2 * w], b += sums[2 * w + 1];
            __syncthreads();
        }
    }

    // What the first warp has, for all.
    __device__ __forceinline__ u32 share(u32 a) const {
        if (TEAM > WARP) {
            if (rank == 0) *word = a;
            __syncthreads();
            a = *word;
            __syncthreads();
        }
        return a;
    }
};

template <class T> __device__ __forceinline__ void in_order(T *items, u32 low, u32 high) {
    const T a = items[low], b = items[high];
    if (b < a) items[low] = b, items[high] = a;
}

// Sort `count` items, fewer than 2^31, ascending, in place: a bitonic network whose comparisons all put the smaller item
// first, so that those with a partner beyond the end, where there would be padding, need not be done.
template <int TEAM, class T>
__device__ __forceinline__ void sort_items(const Team<TEAM> &team, T *items, u32 count) {
    for (u32 half = 1; half < count; half *= 2) {
        const u32 pairs = (count + 2 * half - 1) / (2 * half) * half;
        for (u32 p = team.rank; p < pairs; p += TEAM) {
            const u32 within = p & (half - 1), first = 2 * (p - within), high = first + 2 * half - 1 - within;
            if (high < count) in_order(items, first + within, high);
        }
        team.sync();
        for (u32 stride = half / 2; stride > 0; stride /= 2) {
            for (u32 p = team.rank; p < pairs; p += TEAM) {
                const u32 within = p & (stride - 1), low = 2 * (p - within) + within;
                if (low + stride < count) in_order(items, low, low + stride);
            }
            team.sync();
        }
    }
}

// The last of `count` ascending numbers that is not above `item`; the first is not.
__device__ __forceinline__ u32 place_of(const u32 *numbers, u32 count, u32 item) {
    u32 low = 0;
    while (count > 1) {
        const u32 half = count / 2;
        if (numbers[low + half] <= item) low += half, count -= half;
        else count = half;
    }
    return low;
}
