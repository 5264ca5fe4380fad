// Eight vectors brought from one order of rows into another, in the ways that `permuting.py` compares. Vectors of `rows`
// values lie one after another; `to` is where a row belongs, `from` where it comes from.
#define VECTORS 8
#define TILE 64

extern "C" __global__ void gather_all(const double *in, const unsigned *from, double *out, unsigned rows) {
    const unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const unsigned source = from[row];
    double value[VECTORS];
#pragma unroll
    for (unsigned v = 0; v < VECTORS; ++v) value[v] = in[size_t(v) * rows + source];
#pragma unroll
    for (unsigned v = 0; v < VECTORS; ++v) out[size_t(v) * rows + row] = value[v];
}

// One vector: `in` and `out` are its own.
extern "C" __global__ void gather_one(const double *in, const unsigned *from, double *out, unsigned rows) {
    const unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows) out[row] = in[from[row]];
}

extern "C" __global__ void scatter_all(const double *in, const unsigned *to, double *out, unsigned rows) {
    const unsigned row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const unsigned target = to[row];
#pragma unroll
    for (unsigned v = 0; v < VECTORS; ++v) out[size_t(v) * rows + target] = in[size_t(v) * rows + row];
}

// Two kernels: the first writes the eight values of a row side by side where the row belongs, 64 bytes at a time, the
// second brings them into vectors. Both turn a tile of TILE rows in shared memory.
extern "C" __global__ void side_by_side(const double *in, const unsigned *to, double2 *beside, unsigned rows) {
    __shared__ double tile[VECTORS][TILE + 1];
    const unsigned first = blockIdx.x * TILE;
    for (unsigned i = threadIdx.x; i < VECTORS * TILE; i += blockDim.x) {
        const unsigned v = i / TILE, row = first + i % TILE;
        if (row < rows) tile[v][i % TILE] = __ldcs(in + size_t(v) * rows + row);
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < TILE * VECTORS / 2; i += blockDim.x) {
        const unsigned r = i / (VECTORS / 2), pair = i % (VECTORS / 2);
        if (first + r < rows)
            beside[size_t(to[first + r]) * (VECTORS / 2) + pair] = make_double2(tile[2 * pair][r], tile[2 * pair + 1][r]);
    }
}
extern "C" __global__ void apart(const double2 *beside, double *out, unsigned rows) {
    __shared__ double tile[VECTORS][TILE + 1];
    const unsigned first = blockIdx.x * TILE;
    for (unsigned i = threadIdx.x; i < TILE * VECTORS / 2; i += blockDim.x) {
        const unsigned r = i / (VECTORS / 2), pair = i % (VECTORS / 2);
        if (first + r < rows) {
            const double2 value = beside[size_t(first + r) * (VECTORS / 2) + pair];
            tile[2 * pair][r] = value.x, tile[2 * pair + 1][r] = value.y;
        }
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < VECTORS * TILE; i += blockDim.x) {
        const unsigned v = i / TILE, row = first + i % TILE;
        if (row < rows) __stcs(out + size_t(v) * rows + row, tile[v][i % TILE]);
    }
}
