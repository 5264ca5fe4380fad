// What comes to shared memory while a block goes on: copies that threads wait for, and barriers that count bytes.
#pragma once
#include "include/common.cuh"

__device__ __forceinline__ u32 shared_address(const void *p) { return u32(__cvta_generic_to_shared(p)); }

#ifndef AKX_ON_HOST
// 16 bytes, whose line L2 keeps as the policy says.
__device__ __forceinline__ void copy16(void *to, const void *from, u64 policy) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "l"(policy)
                 : "memory");
}
// What a thread has asked for since the last time is a group; it waits for all groups but the last LEFT, or for all.
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT> __device__ __forceinline__ void copies_done_but() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}
__device__ __forceinline__ void copies_done() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// A barrier is through when one thread of the block has said how many bytes there will be and they are there.
__device__ __forceinline__ void make_barrier(u32 barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barriers_made() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void expect_bytes(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void wait_for_bytes(u32 barrier, u32 parity) {
    u32 through;
    do {
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}"
                     : "=r"(through)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!through);
}
// Multiples of 16 bytes, which the barrier counts.
__device__ __forceinline__ void copy_bulk(void *to, const void *from, u32 size, u32 barrier, u64 policy) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
                 " [%0], [%1], %2, [%3], %4;" ::"r"(shared_address(to)),
                 "l"(from), "r"(size), "r"(barrier), "l"(policy)
                 : "memory");
}
#endif
