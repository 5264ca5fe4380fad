// Every instance of `sweep` that the space can reach, one per call of a macro, to be compiled and never run; HOW is 0 or
// 2, since 1 is another word in the loads of 0. VALUES selects the value types of this translation unit (see
// test_cuda_compile.py).
#include "schedules/sweep/sweep.cuh"

#define STEP u32 n, const u32 *p, const T *value, const T *x, const T *before, T *y, T *first, const T *coefficient
#define VECTORS_OF x, before, y, first, coefficient
#define TAIL VECTORS_OF, n

template <class T, int B, int LANES, int HOW> __global__ void every_csr(STEP) {
    csr_step<T, T, B, LANES, HOW>(n, p, p, value, value, TAIL);
}
template <class T, int B, int HOW> __global__ void every_rows16(STEP) {
    rows16_step<T, T, B, HOW>(n, p, p, value, value, TAIL);
}
template <class T, int B, int PAD, int AHEAD, int HOW> __global__ void every_pcsr(STEP, T *head, T *tail) {
    pcsr_step<T, T, B, PAD, AHEAD, HOW>(n, p, p, value, value, p, n, head, tail, TAIL);
}
template <class T, int B> __global__ void every_join(STEP, T *head, T *tail) {
    pcsr_join<T, B>(n, p, p, p, n, n, head, tail, VECTORS_OF);
}
template <class T, class INDEX, int B, int LANES, int HOW> __global__ void every_sell(STEP, const INDEX *column) {
    sell_step<T, T, INDEX, B, LANES, HOW>(n, p, p, column, value, value, p, TAIL);
}

#define ARGUMENTS(T) u32, const u32 *, const T *, const T *, const T *, T *, T *, const T *
#define CSR(T, B, L) \
    template __global__ void every_csr<T, B, L, 0>(ARGUMENTS(T)); \
    template __global__ void every_csr<T, B, L, 2>(ARGUMENTS(T));
#define PCSR(T, B, P, A) \
    template __global__ void every_pcsr<T, B, P, A, 0>(ARGUMENTS(T), T *, T *); \
    template __global__ void every_pcsr<T, B, P, A, 2>(ARGUMENTS(T), T *, T *);
#define SELL(T, B, L) \
    template __global__ void every_sell<T, u16, B, L, 0>(ARGUMENTS(T), const u16 *); \
    template __global__ void every_sell<T, u16, B, L, 2>(ARGUMENTS(T), const u16 *); \
    template __global__ void every_sell<T, u32, B, L, 0>(ARGUMENTS(T), const u32 *); \
    template __global__ void every_sell<T, u32, B, L, 2>(ARGUMENTS(T), const u32 *);
#define PADS(T, B, A) PCSR(T, B, 1, A) PCSR(T, B, 2, A) PCSR(T, B, 4, A) PCSR(T, B, 8, A)
#define EVERY(T, B) \
    CSR(T, B, 1) CSR(T, B, 2) CSR(T, B, 4) CSR(T, B, 8) CSR(T, B, 16) CSR(T, B, 32) \
    SELL(T, B, 1) SELL(T, B, 2) SELL(T, B, 4) SELL(T, B, 8) \
    PADS(T, B, 1) PADS(T, B, 2) PADS(T, B, 3) PADS(T, B, 4) \
    template __global__ void every_rows16<T, B, 0>(ARGUMENTS(T)); \
    template __global__ void every_rows16<T, B, 2>(ARGUMENTS(T)); \
    template __global__ void every_join<T, B>(ARGUMENTS(T), T *, T *);

EVERY(VALUES, VECTORS)
