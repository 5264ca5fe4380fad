// BLAKE2b (RFC 7693) of the leaves of the tree over a pattern, a thread for each (akx/core/fingerprint.py has the formula).
//
// A leaf has 16 KiB, of which a thread reads 128 bytes at a time: leaves are many, and each keeps its thread busy for long
// enough that reading them apart costs little.
#pragma once
#include "include/common.cuh"

constexpr u32 LEAF_WORDS = 4096, BLOCK_WORDS = 32; // of 32 bits

__device__ __forceinline__ u64 turned(u64 a, int bits) { return (a >> bits) | (a << (64 - bits)); }

__device__ __forceinline__ void mix(u64 &a, u64 &b, u64 &c, u64 &d, u64 x, u64 y) {
    a += b + x, d = turned(d ^ a, 32);
    c += d, b = turned(b ^ c, 24);
    a += b + y, d = turned(d ^ a, 16);
    c += d, b = turned(b ^ c, 63);
}

// A round with the words of the message in this order.
template <int A, int B, int C, int D, int E, int F, int G, int H, int I, int J, int K, int L, int M, int N, int O, int P>
__device__ __forceinline__ void mix_all(u64 (&v)[16], const u64 (&m)[16]) {
    mix(v[0], v[4], v[8], v[12], m[A], m[B]);
    mix(v[1], v[5], v[9], v[13], m[C], m[D]);
    mix(v[2], v[6], v[10], v[14], m[E], m[F]);
    mix(v[3], v[7], v[11], v[15], m[G], m[H]);
    mix(v[0], v[5], v[10], v[15], m[I], m[J]);
    mix(v[1], v[6], v[11], v[12], m[K], m[L]);
    mix(v[2], v[7], v[8], v[13], m[M], m[N]);
    mix(v[3], v[4], v[9], v[14], m[O], m[P]);
}

__device__ __forceinline__ void compress(u64 (&h)[8], const u64 (&m)[16], u64 bytes, u64 last, u64 last_node) {
    u64 v[16] = {h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7],
                 0x6a09e667f3bcc908ull, 0xbb67ae8584caa73bull, 0x3c6ef372fe94f82bull, 0xa54ff53a5f1d36f1ull,
                 0x510e527fade682d1ull ^ bytes, 0x9b05688c2b3e6c1full, 0x1f83d9abfb41bd6bull ^ last,
                 0x5be0cd19137e2179ull ^ last_node};
    mix_all<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15>(v, m);
    mix_all<14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3>(v, m);
    mix_all<11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4>(v, m);
    mix_all<7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8>(v, m);
    mix_all<9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13>(v, m);
    mix_all<2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9>(v, m);
    mix_all<12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11>(v, m);
    mix_all<13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10>(v, m);
    mix_all<6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5>(v, m);
    mix_all<10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0>(v, m);
    mix_all<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15>(v, m);
    mix_all<14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3>(v, m);
    for (int i = 0; i < 8; ++i) h[i] ^= v[i] ^ v[8 + i];
}

// Leaves are first of the numbers of entries in rows, `of_rows` of them, then of columns. `key` is the parameter block,
// xored with the initial vector, as words; that of the leaf's number is left out. `out` is (leaves, 4).
__device__ __forceinline__ void digest_leaf(u32 leaves, u32 of_rows, u32 rows, u32 entries, const u32 *pointer,
                                            const u32 *index, const u64 *key, u64 *out) {
    const u64 leaf = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    if (leaf >= leaves) return;
    const bool is_of_rows = leaf < of_rows;
    const u64 first = (is_of_rows ? leaf : leaf - of_rows) * LEAF_WORDS, all = is_of_rows ? rows : entries;
    const u32 words = u32(all - first < LEAF_WORDS ? all - first : LEAF_WORDS);
    u64 h[8];
    for (int i = 0; i < 8; ++i) h[i] = load(key + i);
    h[1] ^= leaf;
    for (u32 at = 0; at < words; at += BLOCK_WORDS) {
        u64 m[16];
#pragma unroll
        for (u32 i = 0; i < 16; ++i) {
            u64 pair[2];
#pragma unroll
            for (u32 half = 0; half < 2; ++half) {
                const u32 w = at + 2 * i + half;
                pair[half] = 0;
                if (w < words) {
                    const u64 p = first + w;
                    pair[half] = is_of_rows ? load(pointer + p + 1) - load(pointer + p) : load(index + p);
                }
            }
            m[i] = pair[0] | pair[1] << 32;
        }
        const u32 upto = at + BLOCK_WORDS < words ? at + BLOCK_WORDS : words;
        const u64 last = upto == words ? ~u64(0) : 0;
        compress(h, m, 4 * u64(upto), last, leaf + 1 == leaves ? last : 0);
    }
    for (int i = 0; i < 4; ++i) out[4 * leaf + i] = h[i];
}
