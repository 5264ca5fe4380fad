// The kernel of stream.cu that does a pass, to be run by cuda_on_host.h.
#include "cuda_on_host.h"

#include "common.cuh"

inline void flow_signal(u32 *counter) { ++*counter, on_host::tell(); }
inline void flow_signal_read(u32 *counter) { flow_signal(counter); }
inline void flow_wait(const u32 *counter, u32 value) {
    while (int(*counter - value) < 0) on_host::look();
}
struct Octets;
inline Octets flow_load(const Octets *p);

// What a thread has not prepared it does not finish, which the compiler cannot see.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include "schedules/stream/stream.cu"

inline Octets flow_load(const Octets *p) { return *p; }

AKX_ON_HOST_KERNEL(flow)
