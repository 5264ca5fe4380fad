// Sparse matrices as callers have them on the device: looked through and put in order there.
//
//   narrow        32 bits of an index, and whether it was out of range
//   look_at_rows  whether row pointers ascend and columns do
//   measure       the largest |part| of all entries as the bits of a double, which order as the numbers do; NaN is above
//   mark_firsts   1 for each entry that is not at the place of the one before, of ordered ones
//   mark_others   1 for each entry that is not zero
//   list_marked   where the marked entries are, from the sums of the marks before
//   take_diagonal  the entry of each row on the diagonal
//   compare_mirrors  is an entry another than the conjugate one across the diagonal, by more than rounding?
//   gather        out[q] = the sum over p of [begin[q], begin[q + 1]) of in[source[p]], one after another
//
// Types are numbers of the launch (content.cuh), so that one module serves all of them.
//
// All who write to a word of `found` write the same; other atomics are of integers, so that their order does not matter.
#pragma once
#include "matrix/content.cuh"

// ------------------------------------------------------------------------------------------------ indices and order

// found[0]: below zero; found[1]: at `limit` or above.
template <class I> __device__ __forceinline__ void narrow(u64 count, u64 limit, const I *in, u32 *out, u64 *found) {
    const u64 p = own_number();
    if (p >= count) return;
    const I own = load(in + p);
    if (i64(own) < 0) found[0] = 1;
    else if (u64(own) >= limit) found[1] = 1;
    out[p] = u32(own);
}

// A warp for each row. found[0]: pointers that do not ascend from 0; found[1]: columns that do not.
__device__ __forceinline__ void look_at_rows(u32 rows, u32 entries, const u32 *pointer, const u32 *index, u64 *found) {
    const u64 row = own_number() / WARP;
    if (row >= rows) return;
    const u32 begin = load(pointer + row), end = load(pointer + row + 1);
    if (begin > end || end > entries || (row == 0 && begin != 0)) {
        found[0] = 1;
        return;
    }
    for (u32 p = begin + 1 + threadIdx.x % WARP; p < end; p += WARP)
        if (load(index + p - 1) >= load(index + p)) found[1] = 1;
}

__device__ __forceinline__ void mark_firsts(u32 rows, const u32 *pointer, const u32 *index, u32 *mark) {
    const u64 row = own_number() / WARP;
    if (row >= rows) return;
    const u32 begin = load(pointer + row), end = load(pointer + row + 1);
    for (u32 p = begin + threadIdx.x % WARP; p < end; p += WARP)
        mark[p] = p == begin || load(index + p - 1) != load(index + p);
}

template <class F> __device__ __forceinline__ void mark_others(u32 count, const F *data, u32 *mark) {
    const u64 p = own_number();
    if (p < count) mark[p] = !is_zero(load(data + p));
}

// `before` is (count + 1,), the sums of the marks before each entry; `begin` has one more than there are marked.
__device__ __forceinline__ void list_marked(u32 count, const u32 *before, u32 *begin) {
    const u64 p = own_number();
    if (p > count) return;
    if (p == count || load(before + p) != load(before + p + 1)) begin[load(before + p)] = u32(p);
}

// ------------------------------------------------------------------------------------------------------------ values

__device__ __forceinline__ double real_of(float a) { return a; }
__device__ __forceinline__ double real_of(double a) { return a; }
__device__ __forceinline__ double real_of(cfloat a) { return a.re; }
__device__ __forceinline__ double real_of(cdouble a) { return a.re; }
__device__ __forceinline__ double imaginary_of(float) { return 0.0; }
__device__ __forceinline__ double imaginary_of(double) { return 0.0; }
__device__ __forceinline__ double imaginary_of(cfloat a) { return a.im; }
__device__ __forceinline__ double imaginary_of(cdouble a) { return a.im; }
__device__ __forceinline__ void make(double re, double, float &to) { to = float(re); }
__device__ __forceinline__ void make(double re, double, double &to) { to = re; }
__device__ __forceinline__ void make(double re, double im, cfloat &to) { to = {float(re), float(im)}; }
__device__ __forceinline__ void make(double re, double im, cdouble &to) { to = {re, im}; }

// Wider, narrower (rounded once) or as it is; a complex number does not become real.
template <class T, class F> __device__ __forceinline__ T converted(F a) {
    T to;
    make(real_of(a), imaginary_of(a), to);
    return to;
}

// `begin` null: out[q] is of the entry q alone; `source` null: entries are where they are.
template <class T, class F>
__device__ __forceinline__ void gather(u32 count, const u32 *begin, const u32 *source, const F *in, T *out) {
    const u64 q = own_number();
    if (q >= count) return;
    const u64 first = begin == nullptr ? q : load(begin + q), end = begin == nullptr ? q + 1 : load(begin + q + 1);
    T sum = zero<T>();
#pragma unroll 1
    for (u64 p = first; p < end; ++p) {
        const T own = converted<T>(load(in + (source == nullptr ? p : load(source + p))));
        sum = p == first ? own : add(sum, own);
    }
    out[q] = sum;
}

template <class F> __device__ __forceinline__ void measure(u64 count, const F *data, u64 *most) {
    u64 largest = 0;
#pragma unroll 1
    for (u64 p = own_number(); p < count; p += u64(gridDim.x) * blockDim.x) {
        const F own = load(data + p);
        const u64 re = u64(__double_as_longlong(fabs(real_of(own))));
        const u64 im = u64(__double_as_longlong(fabs(imaginary_of(own))));
        largest = largest < re ? re : largest;
        largest = largest < im ? im : largest;
    }
    for (int offset = WARP / 2; offset > 0; offset >>= 1) {
        const u64 other = __shfl_xor_sync(ALL, largest, offset);
        largest = largest < other ? other : largest;
    }
    if (threadIdx.x % WARP == 0) atomicMax(most, largest);
}

// ---------------------------------------------------------------------------------------------------------- symmetry

// The entry of a row in a column, zero where there is none.
template <class F>
__device__ __forceinline__ F entry_at(const u32 *pointer, const u32 *index, const F *data, u32 row, u32 column) {
    const u32 begin = load(pointer + row), count = load(pointer + row + 1) - begin;
    if (count == 0) return zero<F>();
    const u32 p = begin + place_of(index + begin, count, column);
    return load(index + p) == column ? load(data + p) : zero<F>();
}

template <class F>
__device__ __forceinline__ void take_diagonal(u32 rows, const u32 *pointer, const u32 *index, const F *data, F *out) {
    const u64 row = own_number();
    if (row < rows) out[row] = entry_at(pointer, index, data, u32(row), u32(row));
}

template <class F> __device__ __forceinline__ double size_of(F a) { return hypot(real_of(a), imaginary_of(a)); }

// A thread for each entry. found[0]: one differs by more than so many times the largest of both, and the root of the
// product of their diagonal ones.
template <class F>
__device__ __forceinline__ void compare_mirrors(u32 rows, u32 entries, double tolerance, const u32 *pointer,
                                                const u32 *index, const F *data, const F *diagonal, u64 *found) {
    const u64 p = own_number();
    if (p >= entries) return;
    const u32 i = place_of(pointer, rows + 1, u32(p)), j = load(index + p);
    const F own = load(data + p), other = entry_at(pointer, index, data, j, i);
    const double re = real_of(own) - real_of(other), im = imaginary_of(own) + imaginary_of(other);
    if (re == 0 && im == 0) return;
    const double both = sqrt(size_of(load(diagonal + i))) * sqrt(size_of(load(diagonal + j)));
    if (!(hypot(re, im) <= tolerance * fmax(fmax(size_of(own), size_of(other)), both))) found[0] = 1;
}

// -------------------------------------------------------------------------------------------------- types by number

__device__ __forceinline__ void narrow_any(u32 type, u64 count, u64 limit, const void *in, u32 *out, u64 *found) {
    if (type == INT) narrow(count, limit, static_cast<const int *>(in), out, found);
    else if (type == U32) narrow(count, limit, static_cast<const u32 *>(in), out, found);
    else if (type == I64) narrow(count, limit, static_cast<const i64 *>(in), out, found);
    else narrow(count, limit, static_cast<const u64 *>(in), out, found);
}

__device__ __forceinline__ void mark_any(u32 type, u32 count, const void *data, u32 *mark) {
    if (type == FLOAT) mark_others(count, static_cast<const float *>(data), mark);
    else if (type == DOUBLE) mark_others(count, static_cast<const double *>(data), mark);
    else if (type == CFLOAT) mark_others(count, static_cast<const cfloat *>(data), mark);
    else mark_others(count, static_cast<const cdouble *>(data), mark);
}

__device__ __forceinline__ void measure_any(u32 type, u64 count, const void *data, u64 *most) {
    if (type == FLOAT) measure(count, static_cast<const float *>(data), most);
    else if (type == DOUBLE) measure(count, static_cast<const double *>(data), most);
    else if (type == CFLOAT) measure(count, static_cast<const cfloat *>(data), most);
    else measure(count, static_cast<const cdouble *>(data), most);
}

template <class T>
__device__ __forceinline__ void gather_from(u32 type, u32 count, const u32 *begin, const u32 *source, const void *in,
                                            T *out) {
    if (type == FLOAT) gather(count, begin, source, static_cast<const float *>(in), out);
    else if (type == DOUBLE) gather(count, begin, source, static_cast<const double *>(in), out);
    else if (type == CFLOAT) gather(count, begin, source, static_cast<const cfloat *>(in), out);
    else gather(count, begin, source, static_cast<const cdouble *>(in), out);
}

__device__ __forceinline__ void gather_any(u32 from, u32 to, u32 count, const u32 *begin, const u32 *source,
                                           const void *in, void *out) {
    if (to == FLOAT) gather_from(from, count, begin, source, in, static_cast<float *>(out));
    else if (to == DOUBLE) gather_from(from, count, begin, source, in, static_cast<double *>(out));
    else if (to == CFLOAT) gather_from(from, count, begin, source, in, static_cast<cfloat *>(out));
    else gather_from(from, count, begin, source, in, static_cast<cdouble *>(out));
}

__device__ __forceinline__ void take_diagonal_any(u32 type, u32 rows, const u32 *pointer, const u32 *index,
                                                  const void *data, void *out) {
    if (type == FLOAT) take_diagonal(rows, pointer, index, static_cast<const float *>(data), static_cast<float *>(out));
    else if (type == DOUBLE)
        take_diagonal(rows, pointer, index, static_cast<const double *>(data), static_cast<double *>(out));
    else if (type == CFLOAT)
        take_diagonal(rows, pointer, index, static_cast<const cfloat *>(data), static_cast<cfloat *>(out));
    else take_diagonal(rows, pointer, index, static_cast<const cdouble *>(data), static_cast<cdouble *>(out));
}

template <class F>
__device__ __forceinline__ void compare_mirrors_of(u32 rows, u32 entries, double tolerance, const u32 *pointer,
                                                   const u32 *index, const void *data, const void *diagonal,
                                                   u64 *found) {
    const F *values = static_cast<const F *>(data);
    compare_mirrors(rows, entries, tolerance, pointer, index, values, static_cast<const F *>(diagonal), found);
}

__device__ __forceinline__ void compare_mirrors_any(u32 type, u32 rows, u32 entries, double tolerance,
                                                    const u32 *pointer, const u32 *index, const void *data,
                                                    const void *diagonal, u64 *found) {
    if (type == FLOAT) compare_mirrors_of<float>(rows, entries, tolerance, pointer, index, data, diagonal, found);
    else if (type == DOUBLE) compare_mirrors_of<double>(rows, entries, tolerance, pointer, index, data, diagonal, found);
    else if (type == CFLOAT) compare_mirrors_of<cfloat>(rows, entries, tolerance, pointer, index, data, diagonal, found);
    else compare_mirrors_of<cdouble>(rows, entries, tolerance, pointer, index, data, diagonal, found);
}
