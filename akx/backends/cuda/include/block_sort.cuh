// What the threads of a warp or of a block do together: largest numbers, sums of those before, and a stable sort by digits.
#pragma once
#include "include/team.cuh"

constexpr u32 DIGIT_BITS = 8, DIGITS = 1u << DIGIT_BITS, KEYS_EACH = 4;

__device__ __forceinline__ u32 own_lane() { return threadIdx.x % WARP; }
__device__ __forceinline__ u32 own_warp() { return threadIdx.x / WARP; }
__device__ __forceinline__ u32 warps_of_block() { return blockDim.x / WARP; }
__device__ __forceinline__ u32 larger(u32 a, u32 b) { return a > b ? a : b; }
__device__ __forceinline__ u32 quotient_up(u32 a, u32 b) { return a / b + (a % b != 0); }
// The last of the lanes in a mask that is not empty.
__device__ __forceinline__ u32 last_lane(u32 mask) { return 31 - u32(__clz(int(mask))); }

template <class T> __device__ __forceinline__ T warp_total(T a) {
    for (int offset = WARP / 2; offset > 0; offset >>= 1) a += __shfl_xor_sync(ALL, a, offset);
    return a;
}
__device__ __forceinline__ u32 warp_largest(u32 a) {
    for (int offset = WARP / 2; offset > 0; offset >>= 1) a = larger(a, __shfl_xor_sync(ALL, a, offset));
    return a;
}
__device__ __forceinline__ u32 warp_any_bit(u32 a) {
    for (int offset = WARP / 2; offset > 0; offset >>= 1) a |= __shfl_xor_sync(ALL, a, offset);
    return a;
}

// Over the threads of a block of at most 1024; `part` is (32,), shared.
__device__ __forceinline__ u32 block_largest(u32 a, u32 *part) {
    a = warp_largest(a);
    if (own_lane() == 0) part[own_warp()] = a;
    __syncthreads();
    u32 found = 0;
    for (u32 w = 0; w < warps_of_block(); ++w) found = larger(found, part[w]);
    __syncthreads();
    return found;
}

// The sum of `a` before this thread, and of all.
template <class T> __device__ __forceinline__ T sums_before(T a, T *part, T &total) {
    const int lane = int(own_lane());
    T upto = a;
    for (int offset = 1; offset < WARP; offset <<= 1) {
        const T other = __shfl_up_sync(ALL, upto, offset);
        if (lane >= offset) upto += other;
    }
    if (lane == WARP - 1) part[own_warp()] = upto;
    __syncthreads();
    T before = 0;
    total = 0;
    for (u32 w = 0; w < warps_of_block(); ++w) {
        if (w < own_warp()) before += part[w];
        total += part[w];
    }
    __syncthreads();
    return before + upto - a;
}

// Keys and nodes, and where they go.
struct Sorted {
    u32 *key, *node, *next_key, *next_node;

    __device__ __forceinline__ void turn() {
        u32 *const k = key, *const n = node;
        key = next_key, node = next_node, next_key = k, next_node = n;
    }
};

// One pass by a digit: each warp has a piece of them, in order. `number` is (256, warps + 1), `part` (32,), both shared.
__device__ __forceinline__ void sort_by_digit(const Sorted &sorted, u32 count, u32 shift, u32 *number, u32 *part) {
    const u32 lane = own_lane(), warp = own_warp(), warps = warps_of_block(), pitch = warps + 1;
    const u32 piece = quotient_up(quotient_up(count, warps), WARP) * WARP;
    const u64 begin = u64(warp) * piece, end = begin + piece < count ? begin + piece : count;
    for (u32 i = threadIdx.x; i < DIGITS * pitch; i += blockDim.x) number[i] = 0;
    __syncthreads();
    for (u64 base = begin; base < end; base += KEYS_EACH * WARP) {
        u32 digit[KEYS_EACH];
        for (u32 u = 0; u < KEYS_EACH; ++u) {
            const u64 q = base + u * WARP + lane;
            digit[u] = q < end ? sorted.key[q] >> shift & (DIGITS - 1) : DIGITS;
        }
        for (u32 u = 0; u < KEYS_EACH; ++u) {
            const u32 equal = __match_any_sync(ALL, digit[u]);
            if (digit[u] < DIGITS && lane == last_lane(equal)) number[digit[u] * pitch + warp] += u32(__popc(equal));
            __syncwarp();
        }
    }
    __syncthreads();
    // Of each digit, warp after warp, how many come before: eight numbers a thread.
    const u32 each = DIGITS * warps / blockDim.x, first = threadIdx.x * each;
    u32 sum = 0, total;
    for (u32 i = first; i < first + each; ++i) sum += number[i / warps * pitch + i % warps];
    u32 before = sums_before(sum, part, total);
    for (u32 i = first; i < first + each; ++i) {
        u32 &own = number[i / warps * pitch + i % warps];
        const u32 held = own;
        own = before;
        before += held;
    }
    __syncthreads();
    for (u64 base = begin; base < end; base += KEYS_EACH * WARP) {
        u32 key[KEYS_EACH], node[KEYS_EACH];
        for (u32 u = 0; u < KEYS_EACH; ++u) {
            const u64 q = base + u * WARP + lane;
            key[u] = q < end ? sorted.key[q] : 0;
            node[u] = q < end ? sorted.node[q] : 0;
        }
        for (u32 u = 0; u < KEYS_EACH; ++u) {
            const bool inside = base + u * WARP + lane < end;
            const u32 digit = inside ? key[u] >> shift & (DIGITS - 1) : DIGITS;
            const u32 equal = __match_any_sync(ALL, digit);
            u32 to = 0;
            if (inside) to = number[digit * pitch + warp] + u32(__popc(equal & ((1u << lane) - 1)));
            __syncwarp();
            if (inside) {
                sorted.next_key[to] = key[u];
                sorted.next_node[to] = node[u];
                if (lane == last_lane(equal)) number[digit * pitch + warp] += u32(__popc(equal));
            }
            __syncwarp();
        }
    }
    __syncthreads();
}
