// SPDX-License-Identifier: Apache-2.0
// Embedding bags, backward and optimizer in one: for each row that a bag names, the sum of the
// bags' gradients, then one step of SGD, Adagrad (row-wise, or of each element) or Adam on that
// row. Tables, dout and state float32; ids and offsets int64; several tables in one launch.
//     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -c kernels/bag_update.cu
// Bytes: each named row read and written once (Adam: with m and v; Adagrad of each element: with
// its squares), 8 a row for row-wise Adagrad's; dout, ids and offsets once. Not counted, though it
// costs: the sort, and a row of dout for each lookup, most of which the L2 holds. Bound by memory.
//
//   expand   each lookup gets a key (its row, counted over all tables) and a value (its row of
//            dout; weighted: its place)
//   sort     by key, stable (CUB's radix sort, over the bits that the row count has)
//   pieces   a piece begins where the key changes and at every multiple of PIECE: no row, however
//            hot, is one warp's alone
//   update   a group of lanes looks up a piece each, then takes 4 at a time (with a state of each
//            element: 2): their first gradients and their rows are in flight together. A row in one
//            piece is finished there; a piece of a longer row writes its sum: into which slot
//            follows from the multiple that it touches
//   finish   a block a row of several pieces adds their sums, in their order, and finishes the row
// Nothing is added atomically: the same input gives the same bits. Checked and timed by
// bag_bench.cu.
#ifndef __CUDACC_RTC__
#include <algorithm>

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_select.cuh>
#include <thrust/iterator/counting_iterator.h>
#endif

#include "kernels/bags.cuh"

#define PIECE 64u
#define UPDATE_BLOCK 256
#define FINISH_BLOCK 512

struct update_params {
    struct bags_tables table;
    uint32_t base[KERNEL_TABLES_MAX]; // key of the first row of each table
    uint32_t count;                   // lookups
    int tables, bags, vectors;
    uint64_t keys_end;     // of all tables
    uint64_t rows;         // that state has
    const int32_t *places; // NULL, or where in rows[0] the row of each key is, and its state: then
                           // no key has a base
    float rate, epsilon, beta1, beta2, correction1, correction2;
    bool mean;
    const float4 *dout;
    float4 *state;
    const int64_t *ids, *offsets;
    const float *weights;
    uint32_t *keys_in, *keys, *values_in, *values; // [count]
    uint32_t *dout_rows;                           // [count], weighted only
    uint32_t *pieces, *piece_count;                // [count], [1]
    uint32_t *heads, *head_count; // ends of first pieces of long rows, in multiples of PIECE; [1]
    float4 *partial;              // [slots][vectors]
};

// A row and what its optimizer keeps; the squares of Adagrad of each element are v.
template <int VECS> struct update_row {
    float4 weight[VECS], m[VECS], v[VECS];
    float square;
};

static __global__ void update_expand(const __grid_constant__ struct update_params p, bool weighted)
{
    const int number = (int)((blockIdx.x * blockDim.x + threadIdx.x) / 32),
              lane = (int)threadIdx.x % 32;
    if (number >= p.tables * p.bags)
        return;
    const int table = number / p.bags, bag = number - table * p.bags;
    const uint32_t row = (uint32_t)bag * (uint32_t)p.tables + (uint32_t)table;
    for (int64_t i = p.offsets[number] + lane; i < p.offsets[number + 1]; i += 32) {
        p.keys_in[i] = p.base[table] + (uint32_t)p.ids[i];
        p.values_in[i] = weighted ? (uint32_t)i : row;
        if (weighted)
            p.dout_rows[i] = row;
    }
}

struct piece_begins {
    const uint32_t *keys;
    __device__ bool operator()(uint32_t i) const
    {
        return i % PIECE == 0 || keys[i] != keys[i - 1];
    }
};

// The row of dout of a sorted lookup, and what it is multiplied by.
template <bool WEIGHTED>
static __device__ __forceinline__ uint32_t update_source(
        const struct update_params &p, uint32_t at, float *ret_scale)
{
    const uint32_t value = p.values[at];
    *ret_scale = 1;
    if (WEIGHTED) {
        *ret_scale = p.weights[value];
        return p.dout_rows[value];
    }
    if (p.mean) {
        const uint32_t number =
                value % (uint32_t)p.tables * (uint32_t)p.bags + value / (uint32_t)p.tables;
        *ret_scale = 1 / (float)(p.offsets[number + 1] - p.offsets[number]);
    }
    return value;
}

// A row of dout is read again and again while the tables stream past: it is asked to stay in the
// L2.
static __device__ __forceinline__ uint64_t keep_policy()
{
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

static __device__ __forceinline__ float4 load_kept(const float4 *from, uint64_t policy)
{
    float4 value;
    asm("ld.global.nc.L2::cache_hint.v4.f32 {%0, %1, %2, %3}, [%4], %5;"
            : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
            : "l"(from), "l"(policy));
    return value;
}

static __device__ __forceinline__ void add_scaled(float4 &sum, const float4 &more, float scale)
{
    sum.x += scale * more.x;
    sum.y += scale * more.y;
    sum.z += scale * more.z;
    sum.w += scale * more.w;
}

static __device__ __forceinline__ float4 *update_address(
        const struct update_params &p, uint32_t key, uint32_t dout_row)
{
    const uint32_t table = p.tables == 1 ? 0 : dout_row % (uint32_t)p.tables;
    return (float4 *)p.table.rows[table] + (size_t)(key - p.base[table]) * (size_t)p.vectors;
}

template <int OPTIMIZER, int LANES, int VECS>
static __device__ __forceinline__ void update_load(const struct update_params &p, uint32_t key,
        const float4 *from, int lane, struct update_row<VECS> *row)
{
    if (OPTIMIZER == KERNEL_ADAGRAD)
        row->square = ((const float *)p.state)[key];
#pragma unroll
    for (int v = 0; v < VECS; v++)
        if (v * LANES + lane < p.vectors) {
            row->weight[v] = __ldcs(from + v * LANES + lane);
            const size_t at = (size_t)key * (size_t)p.vectors + (size_t)(v * LANES + lane);
            if (OPTIMIZER == KERNEL_ADAM) {
                row->m[v] = __ldcs(p.state + at);
                row->v[v] = __ldcs(p.state + p.rows * (size_t)p.vectors + at);
            } else if (OPTIMIZER == KERNEL_ADAGRAD_EACH) {
                row->v[v] = __ldcs(p.state + at);
            }
        }
}

static __device__ __forceinline__ void adam_step(
        const struct update_params &p, float grad, float &weight, float &m, float &v)
{
    m = p.beta1 * m + (1 - p.beta1) * grad;
    v = p.beta2 * v + (1 - p.beta2) * grad * grad;
    weight -= p.rate * p.correction1 * m / (sqrtf(v * p.correction2) + p.epsilon);
}

static __device__ __forceinline__ void adagrad_step(
        const struct update_params &p, float grad, float &weight, float &square)
{
    square += grad * grad;
    weight -= p.rate * grad / (sqrtf(square) + p.epsilon);
}

// mask: the lanes that hold the row, all of which must come.
template <int OPTIMIZER, int LANES, int VECS>
static __device__ __forceinline__ void update_apply(const struct update_params &p, uint32_t key,
        float4 *to, int lane, unsigned mask, const float4 (&grad)[VECS],
        struct update_row<VECS> *row)
{
    float rate = p.rate;
    if (OPTIMIZER == KERNEL_ADAGRAD) {
        float square = 0;
#pragma unroll
        for (int v = 0; v < VECS; v++)
            if (v * LANES + lane < p.vectors)
                square += grad[v].x * grad[v].x + grad[v].y * grad[v].y + grad[v].z * grad[v].z +
                        grad[v].w * grad[v].w;
#pragma unroll
        for (int distance = LANES / 2; distance > 0; distance /= 2)
            square += __shfl_xor_sync(mask, square, distance);
        square = row->square + square / (float)(4 * p.vectors);
        if (lane == 0)
            ((float *)p.state)[key] = square;
        rate = p.rate / (sqrtf(square) + p.epsilon);
    }
#pragma unroll
    for (int v = 0; v < VECS; v++) {
        if (v * LANES + lane >= p.vectors)
            break;
        const size_t at = (size_t)key * (size_t)p.vectors + (size_t)(v * LANES + lane);
        if (OPTIMIZER == KERNEL_ADAM) {
            adam_step(p, grad[v].x, row->weight[v].x, row->m[v].x, row->v[v].x);
            adam_step(p, grad[v].y, row->weight[v].y, row->m[v].y, row->v[v].y);
            adam_step(p, grad[v].z, row->weight[v].z, row->m[v].z, row->v[v].z);
            adam_step(p, grad[v].w, row->weight[v].w, row->m[v].w, row->v[v].w);
            __stcs(p.state + at, row->m[v]);
            __stcs(p.state + p.rows * (size_t)p.vectors + at, row->v[v]);
        } else if (OPTIMIZER == KERNEL_ADAGRAD_EACH) {
            adagrad_step(p, grad[v].x, row->weight[v].x, row->v[v].x);
            adagrad_step(p, grad[v].y, row->weight[v].y, row->v[v].y);
            adagrad_step(p, grad[v].z, row->weight[v].z, row->v[v].z);
            adagrad_step(p, grad[v].w, row->weight[v].w, row->v[v].w);
            __stcs(p.state + at, row->v[v]);
        } else {
            add_scaled(row->weight[v], grad[v], -rate);
        }
        __stcs(to + v * LANES + lane, row->weight[v]);
    }
}

// A piece as one lane has looked it up, for all of its group.
struct piece {
    uint32_t start, end, key, source;
    float scale;
    bool before, after; // the row goes on before start, or from end on
};

template <bool WEIGHTED>
static __device__ __forceinline__ struct piece update_piece(
        const struct update_params &p, uint32_t number, uint32_t total)
{
    struct piece piece = {0, 0, 0, 0, 0, false, false};
    if (number >= total)
        return piece; // empty
    piece.start = p.pieces[number];
    piece.end = number + 1 < total ? p.pieces[number + 1] : p.count;
    piece.key = p.keys[piece.start];
    piece.source = update_source<WEIGHTED>(p, piece.start, &piece.scale);
    piece.before = piece.start > 0 && p.keys[piece.start - 1] == piece.key;
    piece.after = piece.end < p.count && p.keys[piece.end] == piece.key;
    if (p.places)
        piece.key = (uint32_t)p.places[piece.key]; // from here on it says where the row is, not in
                                                   // which order it comes
    return piece;
}

template <int LANES>
static __device__ __forceinline__ struct piece update_broadcast(const struct piece &mine, int lane)
{
    const uint32_t all = 0xffffffffu;
    struct piece piece;
    piece.start = __shfl_sync(all, mine.start, lane, LANES);
    piece.end = __shfl_sync(all, mine.end, lane, LANES);
    piece.key = __shfl_sync(all, mine.key, lane, LANES);
    piece.source = __shfl_sync(all, mine.source, lane, LANES);
    piece.scale = __shfl_sync(all, mine.scale, lane, LANES);
    const int sides = __shfl_sync(all, mine.before + 2 * mine.after, lane, LANES);
    piece.before = sides & 1;
    piece.after = sides & 2;
    return piece;
}

// How many pieces a group takes at once: their rows are in flight together.
template <int OPTIMIZER, int VECS>
constexpr int update_turns = VECS > 1                                  ? 1
        : OPTIMIZER == KERNEL_ADAM || OPTIMIZER == KERNEL_ADAGRAD_EACH ? 2
                                                                       : 4;

template <int OPTIMIZER, int LANES, int VECS, bool WEIGHTED>
static __global__ void __launch_bounds__(UPDATE_BLOCK, VECS > 1 ? 2 : 3)
        update_pieces(const __grid_constant__ struct update_params p)
{
    constexpr int TURNS = update_turns<OPTIMIZER, VECS>, CHUNKS = LANES / TURNS, UNROLL = 2;
    const uint32_t groups = gridDim.x * (UPDATE_BLOCK / LANES),
                   group = (blockIdx.x * UPDATE_BLOCK + threadIdx.x) / LANES;
    const uint32_t total = *p.piece_count;
    const int lane = (int)threadIdx.x % LANES;
    const unsigned mask = LANES == 32
            ? 0xffffffffu
            : ((1u << (LANES % 32)) - 1) << (threadIdx.x % 32 / LANES * LANES);
    const uint64_t policy = keep_policy();

    // The chunks of a group lie `groups` apart, so that the pieces of a hot row are spread over
    // many.
    const struct piece mine = update_piece<WEIGHTED>(
            p, (lane / TURNS * groups + group) * TURNS + lane % TURNS, total);
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        struct piece piece[TURNS];
        float4 sum[TURNS][VECS];
        struct update_row<VECS> row[TURNS];
        // Of the warp's first group, the one with the least numbers: the whole warp leaves
        // together.
        if ((chunk * groups + group / (32 / LANES) * (32 / LANES)) * TURNS >= total)
            break;
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            piece[t] = update_broadcast<LANES>(mine, chunk * TURNS + t);
            if (piece[t].start == piece[t].end)
                continue;
#pragma unroll
            for (int v = 0; v < VECS; v++)
                sum[t][v] = v * LANES + lane < p.vectors
                        ? load_kept(p.dout + (size_t)piece[t].source * p.vectors + v * LANES + lane,
                                  policy)
                        : make_float4(0, 0, 0, 0);
            if (!piece[t].before && !piece[t].after)
                update_load<OPTIMIZER, LANES, VECS>(p, piece[t].key,
                        update_address(p, piece[t].key, piece[t].source), lane, &row[t]);
        }
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            if (piece[t].start == piece[t].end)
                continue;
#pragma unroll
            for (int v = 0; v < VECS; v++) {
                const float4 only = sum[t][v];
                sum[t][v] = make_float4(0, 0, 0, 0);
                add_scaled(sum[t][v], only, piece[t].scale);
            }
            // a lookup a lane, then their rows, some at once
            for (uint32_t at = piece[t].start + 1; at < piece[t].end; at += LANES) {
                const int here = piece[t].end - at < LANES ? (int)(piece[t].end - at) : LANES;
                float scale = 0;
                const uint32_t source =
                        lane < here ? update_source<WEIGHTED>(p, at + lane, &scale) : 0;
                for (int base = 0; base < here; base += UNROLL) {
                    float4 more[UNROLL][VECS];
#pragma unroll
                    for (int u = 0; u < UNROLL; u++) {
                        const uint32_t from = __shfl_sync(mask, source, base + u, LANES);
#pragma unroll
                        for (int v = 0; v < VECS; v++)
                            more[u][v] = base + u < here && v * LANES + lane < p.vectors
                                    ? load_kept(
                                              p.dout + (size_t)from * p.vectors + v * LANES + lane,
                                              policy)
                                    : make_float4(0, 0, 0, 0);
                    }
#pragma unroll
                    for (int u = 0; u < UNROLL; u++) {
                        const float by = __shfl_sync(mask, scale, base + u, LANES);
#pragma unroll
                        for (int v = 0; v < VECS; v++)
                            add_scaled(sum[t][v], more[u][v], by);
                    }
                }
            }
            if (!piece[t].before && !piece[t].after) {
                update_apply<OPTIMIZER, LANES, VECS>(p, piece[t].key,
                        update_address(p, piece[t].key, piece[t].source), lane, mask, sum[t],
                        &row[t]);
                continue;
            }
            // The first piece of a long row ends at a multiple of PIECE, every other begins at one:
            // two slots a multiple.
            const size_t slot = piece[t].before ? 2 * (size_t)(piece[t].start / PIECE)
                                                : 2 * (size_t)(piece[t].end / PIECE) + 1;
#pragma unroll
            for (int v = 0; v < VECS; v++)
                if (v * LANES + lane < p.vectors)
                    p.partial[slot * p.vectors + v * LANES + lane] = sum[t][v];
            if (!piece[t].before && lane == 0)
                // in any order: rows do not meet
                p.heads[atomicAdd(p.head_count, 1)] = piece[t].end / PIECE;
        }
        __syncwarp();
    }
}

// A block a row: its warps add every 16th sum each, then the warps' sums are added in their order.
template <int OPTIMIZER, int VECS, bool WEIGHTED>
static __global__ void __launch_bounds__(FINISH_BLOCK)
        update_finish(const __grid_constant__ struct update_params p)
{
    constexpr int WARPS = FINISH_BLOCK / 32, UNROLL = 8 / VECS;
    __shared__ float4 sums[WARPS][VECS * 32];
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    for (uint32_t i = blockIdx.x; i < *p.head_count; i += gridDim.x) {
        const uint32_t multiple = p.heads[i], key = p.keys[multiple * PIECE],
                       end = (p.count + PIECE - 1) / PIECE;
        float4 sum[VECS];
#pragma unroll
        for (int v = 0; v < VECS; v++)
            sum[v] = warp == 0 && v * 32 + lane < p.vectors
                    ? p.partial[(2 * (size_t)multiple + 1) * p.vectors + v * 32 + lane]
                    : make_float4(0, 0, 0, 0);
        for (uint32_t at = multiple + warp; at < end; at += WARPS * UNROLL) {
            bool last = false;
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                const uint32_t here = at + u * WARPS;
                const bool mine = here < end && p.keys[here * PIECE] == key;
#pragma unroll
                for (int v = 0; v < VECS; v++)
                    if (mine && v * 32 + lane < p.vectors)
                        add_scaled(
                                sum[v], p.partial[2 * (size_t)here * p.vectors + v * 32 + lane], 1);
                last |= !mine;
            }
            if (last)
                break;
        }
#pragma unroll
        for (int v = 0; v < VECS; v++)
            sums[warp][v * 32 + lane] = sum[v];
        __syncthreads();
        if (warp == 0) {
            struct update_row<VECS> row;
            float ignored;
            const uint32_t source = update_source<WEIGHTED>(p, multiple * PIECE, &ignored),
                           place = p.places ? (uint32_t)p.places[key] : key;
            float4 *address = update_address(p, place, source);
            update_load<OPTIMIZER, 32, VECS>(p, place, address, lane, &row);
            for (int other = 1; other < WARPS; other++)
#pragma unroll
                for (int v = 0; v < VECS; v++)
                    add_scaled(sum[v], sums[other][v * 32 + lane], 1);
            update_apply<OPTIMIZER, 32, VECS>(p, place, address, lane, 0xffffffffu, sum, &row);
        }
        __syncthreads();
    }
}

#ifndef __CUDACC_RTC__ // what the host does: NVRTC takes the kernels alone
template <int OPTIMIZER, int LANES, int VECS, bool WEIGHTED>
static void update_launch(const struct update_params *p, int multiprocessors, cudaStream_t stream)
{
    // pieces of a block: LANES a group; at most as many pieces as lookups
    const uint32_t each = UPDATE_BLOCK;
    update_pieces<OPTIMIZER, LANES, VECS, WEIGHTED>
            <<<(p->count + each - 1) / each, UPDATE_BLOCK, 0, stream>>>(*p);
    update_finish<OPTIMIZER, VECS, WEIGHTED>
            <<<(unsigned)multiprocessors * 4, FINISH_BLOCK, 0, stream>>>(*p);
}

template <int OPTIMIZER, bool WEIGHTED>
static void update_any(const struct update_params *p, int multiprocessors, cudaStream_t stream)
{
    if (p->vectors <= 8)
        update_launch<OPTIMIZER, 8, 1, WEIGHTED>(p, multiprocessors, stream);
    else if (p->vectors <= 16)
        update_launch<OPTIMIZER, 16, 1, WEIGHTED>(p, multiprocessors, stream);
    else if (p->vectors <= 32)
        update_launch<OPTIMIZER, 32, 1, WEIGHTED>(p, multiprocessors, stream);
    else if (p->vectors <= 64)
        update_launch<OPTIMIZER, 32, 2, WEIGHTED>(p, multiprocessors, stream);
    else
        update_launch<OPTIMIZER, 32, 4, WEIGHTED>(p, multiprocessors, stream);
}

static int bits_of(uint64_t count)
{
    int bits = 1;
    while (bits < 32 && count > 1ull << bits)
        bits++;
    return bits;
}

// Places everything in scratch, which may be NULL; the bytes needed.
static cudaError_t update_place(struct update_params *p, char *scratch, bool weighted,
        void **ret_temp, size_t *ret_temp_bytes, size_t *ret_bytes)
{
    const size_t count = p->count, multiples = count / PIECE + 2;
    size_t at = 0, sort = 0, select = 0;
    const struct piece_begins begins = {NULL};
    auto take = [&](size_t bytes) {
        char *place = scratch ? scratch + at : NULL;
        at += (bytes + 255) / 256 * 256;
        return place;
    };
    p->keys_in = (uint32_t *)take(4 * count);
    p->keys = (uint32_t *)take(4 * count);
    p->values_in = (uint32_t *)take(4 * count);
    p->values = (uint32_t *)take(4 * count);
    p->dout_rows = (uint32_t *)take(weighted ? 4 * count : 0);
    p->pieces = (uint32_t *)take(4 * count);
    p->piece_count = (uint32_t *)take(8);
    p->head_count = p->piece_count + 1;
    p->heads = (uint32_t *)take(4 * multiples);
    p->partial = (float4 *)take(2 * multiples * sizeof(float4) * (size_t)p->vectors);
    cudaError_t error = cub::DeviceRadixSort::SortPairs(NULL, sort, p->keys_in, p->keys,
            p->values_in, p->values, (int)p->count, 0, bits_of(p->keys_end));
    if (error == cudaSuccess)
        error = cub::DeviceSelect::If(NULL, select, thrust::counting_iterator<uint32_t>(0),
                p->pieces, p->piece_count, (int)p->count, begins);
    *ret_temp_bytes = sort > select ? sort : select;
    *ret_temp = take(*ret_temp_bytes);
    *ret_bytes = at;
    return error;
}

static int update_prepare(
        const struct kernel_bags *bags, struct update_params *p, struct error *err)
{
    int rc = bags_refuse(bags, err);
    if (rc)
        return rc;
    if (bags->type != KERNEL_FLOAT32)
        return error_set(err, -EINVAL,
                "embedding update: %s tables are not supported; float32 ones are",
                kernel_type_name(bags->type));
    if (bags->places && (bags->slots < 1 || bags->slots > INT32_MAX))
        return error_set(err, -EINVAL,
                "embedding update: places in %lld slots: 1 to 2^31 - 1 are supported",
                (long long)bags->slots);
    for (int64_t t = 0; t < bags->tables; t++) {
        p->table.rows[t] = bags->rows[bags->places ? 0 : t];
        p->base[t] = bags->places ? 0 : (uint32_t)p->keys_end;
        p->keys_end = bags->places ? std::max(p->keys_end, (uint64_t)bags->row_counts[t])
                                   : p->keys_end + (uint64_t)bags->row_counts[t];
    }
    if (p->keys_end > UINT32_MAX)
        return error_set(err, -EINVAL,
                "embedding update: %llu rows in all tables are not supported: up to 2^32 - 1 are",
                (unsigned long long)p->keys_end);
    p->places = bags->places;
    p->rows = bags->places ? (uint64_t)bags->slots : p->keys_end;
    p->count = (uint32_t)bags->ids_count;
    p->tables = (int)bags->tables;
    p->bags = (int)bags->bags;
    p->vectors = (int)bags->dim / 4;
    p->mean = bags->pooling == KERNEL_MEAN;
    p->ids = bags->ids;
    p->offsets = bags->offsets;
    p->weights = bags->weights;
    return 0;
}

int kernel_bag_update_scratch(const struct kernel_bags *bags, size_t *ret_bytes, struct error *err)
{
    struct update_params p = {};
    void *temp;
    size_t temp_bytes;
    int rc = update_prepare(bags, &p, err);
    if (rc)
        return rc;
    return device_error(
            update_place(&p, NULL, bags->pooling == KERNEL_WEIGHTED, &temp, &temp_bytes, ret_bytes),
            "ask for the scratch of the sort", err);
}

static int update_check(const struct kernel_update *update, struct error *err)
{
    if (update->optimizer == KERNEL_ADAM &&
            !(update->step >= 1 && update->beta1 >= 0 && update->beta1 < 1 && update->beta2 >= 0 &&
                    update->beta2 < 1))
        return error_set(err, -EINVAL,
                "Adam: step %lld, beta1 %g, beta2 %g: from 1; from 0 to below 1",
                (long long)update->step, (double)update->beta1, (double)update->beta2);
    if (update->optimizer != KERNEL_SGD && (!update->state || (uintptr_t)update->state % 16 != 0))
        return error_set(err, -EINVAL,
                "embedding update: state is NULL or does not start at a multiple of 16 bytes");
    if (update->optimizer != KERNEL_SGD && !(update->epsilon > 0))
        return error_set(err, -EINVAL, "embedding update: epsilon is %g: it must be more than 0",
                (double)update->epsilon);
    return 0;
}

static void update_run(const struct update_params *p, enum kernel_optimizer optimizer,
        bool weighted, int multiprocessors, cudaStream_t stream)
{
    switch (optimizer) {
    case KERNEL_SGD:
        weighted ? update_any<KERNEL_SGD, true>(p, multiprocessors, stream)
                 : update_any<KERNEL_SGD, false>(p, multiprocessors, stream);
        break;
    case KERNEL_ADAGRAD:
        weighted ? update_any<KERNEL_ADAGRAD, true>(p, multiprocessors, stream)
                 : update_any<KERNEL_ADAGRAD, false>(p, multiprocessors, stream);
        break;
    case KERNEL_ADAM:
        weighted ? update_any<KERNEL_ADAM, true>(p, multiprocessors, stream)
                 : update_any<KERNEL_ADAM, false>(p, multiprocessors, stream);
        break;
    case KERNEL_ADAGRAD_EACH:
        weighted ? update_any<KERNEL_ADAGRAD_EACH, true>(p, multiprocessors, stream)
                 : update_any<KERNEL_ADAGRAD_EACH, false>(p, multiprocessors, stream);
        break;
    }
}

int kernel_bag_update(const struct kernel_bags *bags, const struct kernel_update *update,
        const float *dout, void *scratch, size_t scratch_bytes, cudaStream_t stream,
        struct error *err)
{
    struct update_params p = {};
    const bool weighted = bags->pooling == KERNEL_WEIGHTED;
    void *temp = NULL;
    size_t temp_bytes = 0, needed = 0;
    int multiprocessors = 0, rc = update_prepare(bags, &p, err);

    if (rc || (rc = update_check(update, err)))
        return rc;
    if (!dout || (uintptr_t)dout % 16 != 0)
        return error_set(err, -EINVAL,
                "embedding update: dout is NULL or does not start at a multiple of 16 bytes");
    if (bags->ids_count == 0)
        return 0;
    cudaError_t error = update_place(&p, (char *)scratch, weighted, &temp, &temp_bytes, &needed);
    if (error == cudaSuccess &&
            (!scratch || scratch_bytes < needed || (uintptr_t)scratch % 256 != 0))
        return error_set(err, -EINVAL,
                "embedding update: %zu bytes of scratch: %zu are needed, from a multiple of 256",
                scratch_bytes, needed);
    rc = device_multiprocessors(err, &multiprocessors);
    if (rc)
        return rc;
    p.dout = (const float4 *)dout;
    p.state = (float4 *)update->state;
    p.rate = update->rate;
    p.epsilon = update->epsilon;
    p.beta1 = update->beta1;
    p.beta2 = update->beta2;
    p.correction1 = (float)(1 / (1 - pow((double)update->beta1, (double)update->step)));
    p.correction2 = (float)(1 / (1 - pow((double)update->beta2, (double)update->step)));
    if (error == cudaSuccess)
        error = cudaMemsetAsync(p.piece_count, 0, 8, stream);
    if (error != cudaSuccess)
        return device_error(error, "prepare the update", err);
    update_expand<<<(unsigned)(((int64_t)p.tables * p.bags * 32 + 255) / 256), 256, 0, stream>>>(
            p, weighted);
    error = cub::DeviceRadixSort::SortPairs(temp, temp_bytes, p.keys_in, p.keys, p.values_in,
            p.values, (int)p.count, 0, bits_of(p.keys_end), stream);
    const struct piece_begins begins = {p.keys};
    if (error == cudaSuccess)
        error = cub::DeviceSelect::If(temp, temp_bytes, thrust::counting_iterator<uint32_t>(0),
                p.pieces, p.piece_count, (int)p.count, begins, stream);
    if (error != cudaSuccess)
        return device_error(error, "sort the lookups", err);
    update_run(&p, update->optimizer, weighted, multiprocessors, stream);
    return device_error(cudaGetLastError(), "launch the update", err);
}
#endif
