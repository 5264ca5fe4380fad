// What the caches of a GPU can do at most: the same data read again and again, and their sum, so that nobody can leave
// the reading out. A word has 16 bytes; the sum is that of its four numbers, modulo 2^32.
#include "include/common.cuh"

__device__ __forceinline__ u32 sum_of(uint4 word) { return word.x + word.y + word.z + word.w; }

// From the L2 cache: every block reads all parts of the data, a part a turn, each turn another, so that what its
// multiprocessor keeps is of no use, and all blocks together all data in every turn. `turns` are a multiple of the
// blocks, or what is read of some parts is one turn more than of others.
extern "C" __global__ void __launch_bounds__(1024)
    read_shared_cache(u32 words_of_part, u32 turns, const uint4 *data, u32 *sums) {
    u32 sum = 0, part = blockIdx.x;
    for (u32 turn = 0; turn < turns; ++turn) {
        const uint4 *mine = data + u64(part) * words_of_part;
#pragma unroll 8
        for (u32 i = threadIdx.x; i < words_of_part; i += blockDim.x) sum += sum_of(__ldcg(mine + i));
        part = part + 1 == gridDim.x ? 0 : part + 1;
    }
    sums[u64(blockIdx.x) * blockDim.x + threadIdx.x] = sum;
}

// From shared memory: every block reads its `words` again and again, of which word i is (i, i + 1, i + 2, i + 3); a
// power of two, and as many as the block has threads, or more.
extern "C" __global__ void __launch_bounds__(1024) read_shared_memory(u32 words, u32 turns, u32 *sums) {
    AKX_DYNAMIC_SHARED(bytes);
    uint4 *held = reinterpret_cast<uint4 *>(bytes);
    for (u32 i = threadIdx.x; i < words; i += blockDim.x) held[i] = {i, i + 1, i + 2, i + 3};
    __syncthreads();
    u32 sum = 0, place = threadIdx.x;
#pragma unroll 8
    for (u32 turn = 0; turn < turns; ++turn) {
        sum += sum_of(held[place]);
        place = (place + blockDim.x) & (words - 1);
    }
    sums[u64(blockIdx.x) * blockDim.x + threadIdx.x] = sum;
}
