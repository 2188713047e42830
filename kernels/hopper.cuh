// SPDX-License-Identifier: Apache-2.0
// What the matrix kernels share on Hopper (sm_90a): barriers in shared memory, tiles brought by the
// copy engine (TMA), products of a warpgroup (wgmma), and on the host the map of a tensor that the
// copy engine takes.
//
// One layout of tiles, everywhere: a tile of ROWS x COLUMNS 16-bit values lies as COLUMNS / 64
// panels of [ROWS][64]; a row of a panel is 128 bytes, in which the 16-byte piece at column 8 * c
// lies at c ^ (row % 8) (the 128-byte swizzle: no bank conflicts in either direction). A panel
// starts at a multiple of 1024 bytes. A product reads such a tile along its rows ("K-major": the
// sum runs over the columns) or across them ("MN-major": the sum runs over the rows).
#ifndef UPGATE_KERNELS_HOPPER_CUH
#define UPGATE_KERNELS_HOPPER_CUH

#include <cuda.h>

#include "kernels/device.cuh"

#define PANEL_COLUMNS 64
#define PANEL_ROW_BYTES 128
#define BARRIER_TRIES \
    (1 << 24) // then the kernel traps: an error is better than a hang. Seconds; a wait is
              // microseconds.

static __device__ __forceinline__ uint32_t shared_address(const void *shared)
{
    return (uint32_t)__cvta_generic_to_shared(shared);
}

// Barriers: `count` arrivals end a phase, and all bytes that barrier_expect() announced.
// wait(parity) returns when the phase of that parity has ended; a fresh barrier is in phase 0, so
// wait(1) passes at once.
static __device__ __forceinline__ void barrier_init(uint32_t barrier, int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
static __device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}
static __device__ __forceinline__ void barrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// One piece of assembly: around a loop of C++ the compiler keeps no values uniform.
static __device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity)
{
    asm volatile(
            "{\n\t.reg .pred p;\n\t.reg .u32 tries;\n\tmov.u32 tries, 0;\n"
            "again:\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n\t@p bra.uni done;\n\t"
            "add.u32 tries, tries, 1;\n\tsetp.lt.u32 p, tries, %2;\n\t@p bra.uni again;\n\ttrap;\n"
            "done:\n\t}" ::"r"(barrier),
            "r"(parity), "n"(BARRIER_TRIES)
            : "memory");
}
// After barrier_init() by one thread, before the block's own barrier.
static __device__ __forceinline__ void barriers_ready()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// What this thread wrote to shared memory is seen by products and the copy engine after the next
// barrier.
static __device__ __forceinline__ void shared_to_engines()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// Named barriers of the hardware: sync waits until `threads` have come, by sync or arrive. 0 is
// __syncthreads().
static __device__ __forceinline__ void named_sync(int name, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
}
static __device__ __forceinline__ void named_arrive(int name, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(name), "r"(threads) : "memory");
}
template <int COUNT> static __device__ __forceinline__ void registers_raise()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> static __device__ __forceinline__ void registers_lower()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// One panel of a tile from a tensor [rows][heads][columns]; rows past the tensor's end arrive as
// zeros and count as bytes.
static __device__ __forceinline__ void panel_load(
        uint32_t shared, const CUtensorMap *map, uint32_t barrier, int column, int head, int row)
{
    asm volatile(
            "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::
                    "r"(shared),
            "l"(map), "r"(barrier), "r"(column), "r"(head), "r"(row)
            : "memory");
}
template <int ROWS, int COLUMNS>
static __device__ __forceinline__ void tile_load(
        uint32_t shared, const CUtensorMap *map, uint32_t barrier, int head, int row)
{
#pragma unroll
    for (int panel = 0; panel < COLUMNS / PANEL_COLUMNS; panel++)
        panel_load(shared + panel * ROWS * PANEL_ROW_BYTES, map, barrier, panel * PANEL_COLUMNS,
                head, row);
}

// Bytes that lie in a row, `bytes` a multiple of 16, as both addresses.
static __device__ __forceinline__ void bytes_load(
        uint32_t shared, const void *from, uint32_t bytes, uint32_t barrier)
{
    asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
                    "r"(shared),
            "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier)
            : "memory");
}

// Which place of STAGES is next, and the parity of its barriers.
template <int STAGES> struct cursor {
    uint32_t stage = 0, parity = 0;
    __device__ __forceinline__ void next()
    {
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        parity ^= stage == 0;
    }
};

// The descriptor of a tile for wgmma: address, in MN-major the distance of panels, distance of
// groups of eight rows, 128-byte swizzle; all in units of 16 bytes.
static __device__ __forceinline__ uint64_t tile_descriptor(uint32_t shared, uint32_t panel_bytes)
{
    return (uint64_t)((shared & 0x3ffff) >> 4) | (uint64_t)(panel_bytes >> 4) << 16 |
            (uint64_t)(8 * PANEL_ROW_BYTES >> 4) << 32 | (uint64_t)1 << 62;
}

// The same descriptor, worked out again here. Else the compiler works out those of all steps before
// the loop, and spills what has no register: 88 bytes a thread in SiLU's backward pass with heads
// of 128, 184 with 256.
static __device__ __forceinline__ uint64_t tile_again(uint64_t tile)
{
    asm volatile("" : "+l"(tile));
    return tile;
}
// To the next 16 of the sum, step by step: along the rows of a tile of ROWS, or down them.
template <int ROWS> static __device__ __forceinline__ constexpr uint64_t step_along(int step)
{
    return (uint64_t)((step / 4 * ROWS * PANEL_ROW_BYTES + step % 4 * 32) >> 4);
}
static __device__ __forceinline__ constexpr uint64_t step_down(int step)
{
    return (uint64_t)(step * 16 * PANEL_ROW_BYTES >> 4);
}

#include "kernels/wgmma.cuh"

static __device__ __forceinline__ void products_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void products_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int LEFT> static __device__ __forceinline__ void products_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}
// Keeps the compiler from moving reads and writes of sums across the begin or the wait of a
// product.
template <int COUNT> static __device__ __forceinline__ void sums_pin(float (&sums)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        asm volatile("" : "+f"(sums[i])::"memory");
}
// The same of a left side in registers, which a product reads until it has been waited for.
template <int COUNT> static __device__ __forceinline__ void words_pin(uint32_t (&words)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        asm volatile("" : "+r"(words[i])::"memory");
}

// Two floats as 16-bit values, a in the low half.
static __device__ __forceinline__ uint32_t pair_pack(float a, float b, __nv_bfloat16)
{
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(b), "f"(a));
    return word;
}
static __device__ __forceinline__ uint32_t pair_pack(float a, float b, __half)
{
    uint32_t word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(b), "f"(a));
    return word;
}
static __device__ __forceinline__ float2 pair_unpack(uint32_t word, __nv_bfloat16)
{
    return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
}
static __device__ __forceinline__ float2 pair_unpack(uint32_t word, __half)
{
    return __half22float2(*(const __half2 *)&word);
}
// Thread t of a warpgroup holds, of the 64 x N sums of a product, row = t / 32 * 16 + t % 32 / 4
// and row + 8, column = 8 * j + t % 4 * 2 and column + 1: sums[4 * j] to [4 * j + 3] are (row,
// column), (row, column + 1), (row + 8, column), (row + 8, column + 1). Packed in this order they
// are the left side of the next product, four words a step of 16 columns.
template <typename T, int COUNT>
static __device__ __forceinline__ void sums_pack(
        const float (&sums)[COUNT], uint32_t (&words)[COUNT / 2])
{
#pragma unroll
    for (int i = 0; i < COUNT / 2; i++)
        words[i] = pair_pack(sums[2 * i], sums[2 * i + 1], T());
}

// Stores a warp's 16 rows of `sums` (as sums_pack() says), times one factor for row and one for row
// + 8, to to[row * stride]. The four threads of a row turn 4 x 4 words round so that each has 16
// bytes of its own. inside: of the two rows.
template <typename T, int COUNT>
static __device__ __forceinline__ void sums_store(const float (&sums)[COUNT],
        const float (&factor)[2], const bool (&inside)[2], T *to, int64_t stride)
{
    const int quad = (int)threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        T *row = to + 8 * half * stride;
#pragma unroll
        for (int group = 0; group < COUNT / 16; group++) {
            uint32_t word[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                word[i] = pair_pack(sums[16 * group + 4 * i + 2 * half] * factor[half],
                        sums[16 * group + 4 * i + 2 * half + 1] * factor[half], T());
#pragma unroll
            for (int i = 0; i < 4; i += 2) {
                const uint32_t other =
                        __shfl_xor_sync(0xffffffffu, quad & 1 ? word[i] : word[i + 1], 1);
                word[i] = quad & 1 ? other : word[i];
                word[i + 1] = quad & 1 ? word[i + 1] : other;
            }
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const uint32_t other =
                        __shfl_xor_sync(0xffffffffu, quad & 2 ? word[i] : word[i + 2], 2);
                word[i] = quad & 2 ? other : word[i];
                word[i + 2] = quad & 2 ? word[i + 2] : other;
            }
            if (inside[half])
                *(uint4 *)(row + 32 * group + 8 * quad) =
                        make_uint4(word[0], word[1], word[2], word[3]);
        }
    }
}

static __device__ __forceinline__ float fast_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
static __device__ __forceinline__ float fast_tanh(float x)
{
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#ifndef __CUDACC_RTC__ // what the host does: NVRTC takes the kernels alone
// The map of a tensor [rows][heads][dim] of 16-bit values, boxes of `box` rows of one head and 64
// columns. 0 rows: as if 1, never read.
static inline int tensor_map(CUtensorMap *ret_map, const void *data, enum kernel_type type,
        int64_t rows, int64_t heads, int64_t dim, int box, struct error *err)
{
    typedef CUresult (*encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
            const cuuint64_t *, const cuuint64_t *, const cuuint32_t *, const cuuint32_t *,
            CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
            CUtensorMapFloatOOBfill);
    static void *entry; // the driver's, asked for once; two threads find the same
    const cuuint64_t sizes[3] = {(cuuint64_t)dim, (cuuint64_t)heads, (cuuint64_t)(rows ? rows : 1)};
    const cuuint64_t strides[2] = {(cuuint64_t)dim * 2, (cuuint64_t)(heads * dim) * 2};
    const cuuint32_t boxes[3] = {PANEL_COLUMNS, 1, (cuuint32_t)box}, steps[3] = {1, 1, 1};
    if (!entry) {
        cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
        void *symbol = NULL;
        cudaError_t error = cudaGetDriverEntryPointByVersion(
                "cuTensorMapEncodeTiled", &symbol, 12000, cudaEnableDefault, &found);
        if (error != cudaSuccess)
            return device_error(error, "find cuTensorMapEncodeTiled", err);
        if (found != cudaDriverEntryPointSuccess || !symbol)
            return error_set(err, -ENOSYS,
                    "the CUDA driver has no cuTensorMapEncodeTiled: it is older than 12.0");
        entry = symbol;
    }
    const CUresult result = ((encode_fn)entry)(ret_map,
            type == KERNEL_FLOAT16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                   : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            3, (void *)data, sizes, strides, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
            CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS)
        return error_set(err, -EIO,
                "cuTensorMapEncodeTiled of [%lld][%lld][%lld], box %d: error %d", (long long)rows,
                (long long)heads, (long long)dim, box, (int)result);
    return 0;
}
#endif

#endif
