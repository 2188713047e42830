// SPDX-License-Identifier: Apache-2.0
// wgmma of sm_90a: 64 x N sums (+)= 64 x 16 left * 16 x N right, 16-bit values, sums in float32.
// wgmma<N>::tiles<T, LEFT_DOWN, RIGHT_DOWN>(): both sides from shared memory by descriptor;
// wgmma<N>::registers<T, RIGHT_DOWN>(): the left side in four registers a thread. DOWN: the sum
// runs down the rows of the tile (MN-major), else along them. keep 0: the sums start at 0. Included
// by hopper.cuh. The lists below are what inline assembly asks for: the names of N / 2 operands,
// and the operands.
#ifndef UPGATE_KERNELS_WGMMA_CUH
#define UPGATE_KERNELS_WGMMA_CUH

#include <type_traits>

#define WGMMA_N0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define WGMMA_N1 "%8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_N2 "%16, %17, %18, %19, %20, %21, %22, %23"
#define WGMMA_N3 "%24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_N4 "%32, %33, %34, %35, %36, %37, %38, %39"
#define WGMMA_N5 "%40, %41, %42, %43, %44, %45, %46, %47"
#define WGMMA_N6 "%48, %49, %50, %51, %52, %53, %54, %55"
#define WGMMA_N7 "%56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_N8 "%64, %65, %66, %67, %68, %69, %70, %71"
#define WGMMA_N9 "%72, %73, %74, %75, %76, %77, %78, %79"
#define WGMMA_N10 "%80, %81, %82, %83, %84, %85, %86, %87"
#define WGMMA_N11 "%88, %89, %90, %91, %92, %93, %94, %95"
#define WGMMA_N12 "%96, %97, %98, %99, %100, %101, %102, %103"
#define WGMMA_N13 "%104, %105, %106, %107, %108, %109, %110, %111"
#define WGMMA_N14 "%112, %113, %114, %115, %116, %117, %118, %119"
#define WGMMA_N15 "%120, %121, %122, %123, %124, %125, %126, %127"
#define WGMMA_S(b) \
    "+f"(sums[b]), "+f"(sums[b + 1]), "+f"(sums[b + 2]), "+f"(sums[b + 3]), "+f"(sums[b + 4]), \
            "+f"(sums[b + 5]), "+f"(sums[b + 6]), "+f"(sums[b + 7])

#define WGMMA_NAMES_32 WGMMA_N0 ", " WGMMA_N1
#define WGMMA_SUMS_32 WGMMA_S(0), WGMMA_S(8)
#define WGMMA_NAMES_64 WGMMA_NAMES_32 ", " WGMMA_N2 ", " WGMMA_N3
#define WGMMA_SUMS_64 WGMMA_SUMS_32, WGMMA_S(16), WGMMA_S(24)
#define WGMMA_NAMES_80 WGMMA_NAMES_64 ", " WGMMA_N4
#define WGMMA_SUMS_80 WGMMA_SUMS_64, WGMMA_S(32)
#define WGMMA_NAMES_96 WGMMA_NAMES_80 ", " WGMMA_N5
#define WGMMA_SUMS_96 WGMMA_SUMS_80, WGMMA_S(40)
#define WGMMA_NAMES_128 WGMMA_NAMES_96 ", " WGMMA_N6 ", " WGMMA_N7
#define WGMMA_SUMS_128 WGMMA_SUMS_96, WGMMA_S(48), WGMMA_S(56)
#define WGMMA_NAMES_160 WGMMA_NAMES_128 ", " WGMMA_N8 ", " WGMMA_N9
#define WGMMA_SUMS_160 WGMMA_SUMS_128, WGMMA_S(64), WGMMA_S(72)
#define WGMMA_NAMES_176 WGMMA_NAMES_160 ", " WGMMA_N10
#define WGMMA_SUMS_176 WGMMA_SUMS_160, WGMMA_S(80)
#define WGMMA_NAMES_192 WGMMA_NAMES_176 ", " WGMMA_N11
#define WGMMA_SUMS_192 WGMMA_SUMS_176, WGMMA_S(88)
#define WGMMA_NAMES_256 WGMMA_NAMES_192 ", " WGMMA_N12 ", " WGMMA_N13 ", " WGMMA_N14 ", " WGMMA_N15
#define WGMMA_SUMS_256 WGMMA_SUMS_192, WGMMA_S(96), WGMMA_S(104), WGMMA_S(112), WGMMA_S(120)

// names of what follows the sums: A0 to A3 or the left descriptor, the right descriptor, keep, the
// directions
#define WGMMA_TILES(N, TYPE, L, R, K, X, Y) \
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, " K ", 0;\n\t" \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE \
                 " {" WGMMA_NAMES_##N "}, " L ", " R ", p, 1, 1, " X ", " Y ";\n\t}" \
                 : WGMMA_SUMS_##N \
                 : "l"(left), "l"(right), "r"(keep), "n"((int)LEFT_DOWN), "n"((int)RIGHT_DOWN))
#define WGMMA_REGISTERS(N, TYPE, A, R, K, Y) \
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, " K ", 0;\n\t" \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE \
                 " {" WGMMA_NAMES_##N "}, {" A "}, " R ", p, 1, 1, " Y ";\n\t}" \
                 : WGMMA_SUMS_##N \
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"(keep), \
                 "n"((int)RIGHT_DOWN))

template <int N> struct wgmma;
#define WGMMA(N, O0, O1, O2, O3, O4, O5, O6) \
    template <> struct wgmma<N> { \
        template <typename T, bool LEFT_DOWN, bool RIGHT_DOWN> \
        static __device__ __forceinline__ void tiles( \
                float (&sums)[N / 2], uint64_t left, uint64_t right, int keep) \
        { \
            if constexpr (std::is_same<T, __half>::value) \
                WGMMA_TILES(N, "f16", O0, O1, O2, O3, O4); \
            else \
                WGMMA_TILES(N, "bf16", O0, O1, O2, O3, O4); \
        } \
        template <typename T, bool RIGHT_DOWN> \
        static __device__ __forceinline__ void registers( \
                float (&sums)[N / 2], const uint32_t *left, uint64_t right, int keep) \
        { \
            if constexpr (std::is_same<T, __half>::value) \
                WGMMA_REGISTERS(N, "f16", O0 ", " O1 ", " O2 ", " O3, O4, O5, O6); \
            else \
                WGMMA_REGISTERS(N, "bf16", O0 ", " O1 ", " O2 ", " O3, O4, O5, O6); \
        } \
    };
WGMMA(32, "%16", "%17", "%18", "%19", "%20", "%21", "%22")
WGMMA(64, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
WGMMA(80, "%40", "%41", "%42", "%43", "%44", "%45", "%46")
WGMMA(96, "%48", "%49", "%50", "%51", "%52", "%53", "%54")
WGMMA(128, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
WGMMA(160, "%80", "%81", "%82", "%83", "%84", "%85", "%86")
WGMMA(176, "%88", "%89", "%90", "%91", "%92", "%93", "%94")
WGMMA(192, "%96", "%97", "%98", "%99", "%100", "%101", "%102")
WGMMA(256, "%128", "%129", "%130", "%131", "%132", "%133", "%134")

#endif
