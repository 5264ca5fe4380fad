// Every instance of `stream` for the value type VALUES and VECTORS start vectors, in one translation unit.
#include "schedules/stream/flow.cuh"

typedef VALUES T;

#define INSTANCE(INDEX, LANES)                                                                                         \
    extern "C" __global__ void step_##INDEX##_##LANES(Frame frame, Vectors<T> at, i64 t, u32 first, u32 per,           \
                                                      const T *host_x, const T *host_before, i64 host_pitch, T *back,  \
                                                      i64 back_power, i64 back_vector) {                               \
        stream_step<T, INDEX, VECTORS, LANES>(frame, at, t, first, per, host_x, host_before, host_pitch, back,         \
                                              back_power, back_vector);                                                \
    }                                                                                                                  \
    extern "C" __global__ void flow_##INDEX##_##LANES(Frame frame, Vectors<T> at, Flow<T> flow) {                      \
        stream_flow<T, INDEX, VECTORS, LANES, Whole>(frame, frame, at, flow);                                          \
    }
#define INSTANCES(INDEX) INSTANCE(INDEX, 1) INSTANCE(INDEX, 2) INSTANCE(INDEX, 4) INSTANCE(INDEX, 8)

INSTANCES(u16)
INSTANCES(u32)
