// The instance of `stream` that the macros ask for.
//
//   AKX_VALUE  float, double, cfloat, cdouble      AKX_VECTORS  start vectors, 1 to 8
//   AKX_INDEX  u16 or u32                          AKX_LANES    threads per row
//   AKX_FLOW   threads per block of the one kernel per pass; 0: a launch per step
//   AKX_MARK   bits of a mark where half chunks travel there (triangle.cuh); 0: whole ones do
//   AKX_CONJUGATE  whether mirrors are the conjugates
#include "schedules/stream/flow.cuh"

typedef AKX_VALUE T;

#if AKX_FLOW
#if AKX_MARK == 8
typedef Half<u8, AKX_CONJUGATE> Sent;
#elif AKX_MARK == 16
typedef Half<u16, AKX_CONJUGATE> Sent;
#else
typedef Whole Sent;
#endif

extern "C" __global__ void __launch_bounds__(AKX_FLOW, 1)
    flow(const u8 *slots, u64 slot_bytes, u32 slot_count, u32 kept, u32 header, u32 rows, u32 lag, u32 n, T *before, T *x,
         T *y, i64 stride, u32 ring, u32 older, const T *coefficients, const u8 *chunks, const i64 *begin,
         u32 chunk_count, T *staged, const T *host_x, const T *host_before, T *out, i64 pitch, u32 depth, u32 steps,
         u32 ahead, u32 slack, u32 sends, u32 in, u32 out_blocks, u32 split, u32 rise, u32 *counters, const u8 *whole,
         u64 whole_bytes, u32 whole_count, u32 whole_header, const u32 *heads, u32 parts) {
    Frame frame = {slots, slot_bytes, slot_count, kept, header, rows, lag, n}, sent = frame;
    if (Sent::HALF) {  // which are brought for the step that makes whole ones of them
        frame = {whole, whole_bytes, whole_count, 0, whole_header, rows, lag, n};
        sent.lag = 0;
    }
    const Vectors<T> at = {before, x, y, stride, ring, older, coefficients};
    const Flow<T> flow = {chunks, begin, chunk_count, staged, host_x, host_before, out, pitch,
                          depth,  steps, ahead,       slack,  sends,  in,          out_blocks, split, rise, counters,
                          heads,  parts};
    stream_flow<T, AKX_INDEX, AKX_VECTORS, AKX_LANES, Sent>(frame, sent, at, flow);
}
#else
extern "C" __global__ void step(const u8 *slots, u64 slot_bytes, u32 slot_count, u32 kept, u32 header, u32 rows, u32 lag,
                                u32 n, T *before, T *x, T *y, i64 stride, u32 ring, u32 older, const T *coefficients,
                                i64 t, u32 first, u32 per, const T *host_x, const T *host_before, i64 host_pitch, T *back,
                                i64 back_power, i64 back_vector) {
    const Frame frame = {slots, slot_bytes, slot_count, kept, header, rows, lag, n};
    const Vectors<T> at = {before, x, y, stride, ring, older, coefficients};
    stream_step<T, AKX_INDEX, AKX_VECTORS, AKX_LANES>(frame, at, t, first, per, host_x, host_before, host_pitch, back,
                                                      back_power, back_vector);
}
#endif
