// The instance of `stored_values.cuh` that the macros ask for.
//
//   AKX_VALUE  what the values are, AKX_GIVEN  what the data is: float, double, cfloat, cdouble
//   AKX_HALF   for values in half their bytes: float, cfloat; without it for a table
#include "value_compression/stored_values.cuh"

#ifdef AKX_HALF
extern "C" __global__ void halve(u64 count, const AKX_GIVEN *data, AKX_HALF *stored, u64 *worst) {
    halve_one<AKX_VALUE>(count, data, stored, worst);
}
#else
extern "C" __global__ void collect(u64 count, const AKX_GIVEN *data, u64 *words, u32 bits, u32 most) {
    collect_words<AKX_VALUE>(count, data, Slots{words, bits}, most);
}

extern "C" __global__ void pair(u64 count, const AKX_GIVEN *data, u64 *words, u32 word_bits, u32 most_words, u64 *pairs,
                                u32 bits, u32 most) {
    collect_pairs<AKX_VALUE>(count, data, Slots{words, word_bits}, most_words, Slots{pairs, bits}, most);
}

extern "C" __global__ void number(u64 count, const AKX_GIVEN *data, u64 *words, u32 word_bits, u64 *keys, u32 bits,
                                  const u16 *offset, u16 *stored) {
    number_one<AKX_VALUE>(count, data, Slots{words, word_bits}, Slots{keys, bits}, offset, stored);
}

extern "C" __global__ void place_alone(u64 count, const u32 *entry, const u16 *stored, u16 *values) {
    place_offset(count, entry, stored, values);
}

extern "C" __global__ void place_beside(u64 count, const u32 *entry, const u16 *stored, u32 *values) {
    place_offset(count, entry, stored, values);
}
#endif
