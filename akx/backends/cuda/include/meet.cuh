// Blocks of a cooperative launch that wait for one another.
#pragma once
#include "include/common.cuh"

#ifndef AKX_ON_HOST
// What others may have changed.
__device__ __forceinline__ u32 now_at(const u32 *p) { return *static_cast<const volatile u32 *>(p); }
#endif

// All blocks have come here `count` / gridDim times when they go on; `count` may wrap around.
__device__ __forceinline__ void meet(u32 *arrived, u32 count) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1u);
        while (int(now_at(arrived) - count) < 0) {}
        __threadfence();
    }
    __syncthreads();
}
