// SPDX-License-Identifier: Apache-2.0
// Names of two kernel worlds: what must count as one function, what must not, and names that nobody
// wants.
#include "reports/analyse/names/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/unit/runner.h"

static const char *const names_equal[][2] = {
        // PyTorch's elementwise kernels: Array became std::array, widths and suffixes of template
        // arguments changed.
        {"void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, at::detail::Array<char*, 1> >(int, "
         "at::native::FillFunctor<float>, at::detail::Array<char*, 1>)",
                "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int, "
                "at::native::FillFunctor<float>, std::array<char*, 1ul>)"},
        {"void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::Half>, at::detail::Array<char*, 3>>(int)",
                "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::Half>, std::array<char*, 3ul>>(int)"},
        {"void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#2}::"
         "operator()() const::{lambda()#7}::operator()() const::{lambda(float)#1}, at::detail::Array<char*, 2>, "
         "TrivialOffsetCalculator<1, unsigned int>, char*, at::native::memory::LoadWithCast<1>>(int)",
                "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::"
                "operator()() const::{lambda()#12}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul>, 4, "
                "TrivialOffsetCalculator<1, unsigned int>, char*, at::native::memory::LoadWithCast<1>>(int)"},
        {"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float, float, float>, "
         "unsigned int, float, 4> >(at::native::ReduceOp<float>)",
                "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float, float, float>, "
                "unsigned int, float, 4, 4> >(at::native::ReduceOp<float>)"},
        {"void at::native::(anonymous namespace)::softmax_warp_forward<float, float, float, 8, true, false>(float*, float const*)",
                "void at::native::<unnamed>::softmax_warp_forward<float, float, float, (int)8, (bool)1, (bool)0>(T2 *, const T1 *)"},
        {"void f<unsigned long, unsigned int>(int)", "void f<size_t, uint32_t>(long)"},
        {"void foo<c10::Half>(int)", "void foo<__half>(int)"},
        {"void foo<c10::BFloat16>(int)", "void foo<__nv_bfloat16>(int)"},
        {"void k<(c10::ScalarType)6>(int)", "k<(c10::ScalarType)6>"},
        {"void (anonymous namespace)::k<float>(int)",
                "void _GLOBAL__N__3fd4a1b2_7_Copy_cu_12ab34cd::k<float>(long)"},
        // CUB and Thrust with their inline namespaces.
        {"void cub::CUB_101702_800_NS::DeviceRadixSortOnesweepKernel<int>(int)",
                "void cub::CUB_200302_800_900_NS::DeviceRadixSortOnesweepKernel<int>(long)"},
        {"void thrust::THRUST_200302_800_NS::cuda_cub::core::_kernel_agent<X>(X)",
                "void thrust::cuda_cub::core::_kernel_agent<X>(X)"},
        // cuBLAS, CUTLASS.
        {"volta_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"},
        {"sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x128x64_stage4_warpsize2x2x1_tensor16x8x16_kernel",
                "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x128x64_stage4_warpsize2x2x1_tensor16x8x16_kernel"},
        {"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
                "sm100_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__6x_cublas"},
        {"nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT",
                "nvjet_sm90_hsh_128x256_64x4_1x2_h_bz_coopA_TNT"},
        {"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x64_64x4_tn_align8>(Params)",
                "void cutlass::Kernel2<cutlass_90_tensorop_bf16_s16816gemm_bf16_128x64_64x4_tn_align8>(Params)"},
        {"void gemmk1_kernel<int, float, 256, 5, false>(cublasGemmk1Params<float>)",
                "void gemmk1_kernel<int, float, 256, 5, true>(X)"},
        // cuDNN.
        {"void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true, (cudnnKernelDataType_t)0>(cudnn::ops::params)",
                "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, true, true, (cudnnKernelDataType_t)0>(params)"},
        {"cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wgmma_f16_knob_3_64x128x128_4x1x1_kernel0_0",
                "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_1"},
        {"cudnn::v8_::cnn::conv2d_grouped_direct_kernel<float>",
                "cudnn::cnn::conv2d_grouped_direct_kernel<float>"},
        {"cask_cudnn_v8::computeOffsetsKernel(Params)", "cask_cudnn::computeOffsetsKernel(Params)"},
        // Triton and Inductor number what they make.
        {"triton_poi_fused_add_relu_3", "triton_poi_fused_add_relu_7"},
        {"triton_poi_fused_add_relu_3", "triton_poi_fused_add_relu_0d1d2de"},
        {"triton_red_fused__to_copy_native_layer_norm_12",
                "triton_red_fused__to_copy_native_layer_norm_0"},
        {"graph_0_cpp_fused__log_softmax_2", "graph_1_cpp_fused__log_softmax_11"},
        // Flash attention, in PyTorch and on its own.
        {"void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::half_t>, false, true>(Flash_fwd_params)",
                "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::half_t>, "
                "false, true, false, true>(pytorch_flash::Flash_fwd_params)"},
        // NCCL.
        {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)",
                "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)"},
        {"ncclDevKernel_AllReduce_Sum_bf16_TREE_LL128(ncclDevKernelArgsStorage<4096ul>)",
                "ncclKernel_AllReduce_TREE_LL128_Sum___nv_bfloat16(ncclWorkElem)"},
        // The CPU.
        {"at::native::AVX2::vectorized_loop<at::vec::AVX2::Vectorized<float> >",
                "at::native::AVX512::vectorized_loop<at::vec::AVX512::Vectorized<float>>"},
        {"at::vec256::Vec256<float>::loadu",
                "at::vec::CPU_CAPABILITY_AVX2::Vectorized<float>::loadu"},
        {"at::native::(anonymous namespace)::add_kernel(at::TensorIteratorBase&)::{lambda()#1}::operator()() const::{lambda(float)#2}",
                "at::native::(anonymous namespace)::add_kernel(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda(float)#1}"},
        {"at::native::add_kernel(at::TensorIterator&)::'lambda0'()::operator()() const",
                "at::native::add_kernel(at::TensorIterator&)::lambda()#2"},
        {"mkl_blas_avx2_sgemm_kernel_0", "mkl_blas_avx512_sgemm_kernel_0_b0"},
        {"dnnl::impl::cpu::x64::jit_avx512_core_brgemm_kernel_t::execute",
                "dnnl::impl::cpu::x64::jit_avx2_brgemm_kernel_t::execute"},
        {"sgemm_kernel_PRESCOTT", "sgemm_kernel_SKYLAKEX"},
        {"__memcpy_evex_unaligned_erms", "__memcpy_avx_unaligned_erms"},
        {"__memcpy_evex_movbe", "memcpy"},
        {"do_work [clone .constprop.0]", "do_work"},
        {"do_work.isra.0.cold", "do_work.constprop.3"},
        {"gemm_rows.arch_x86_64_v3", "gemm_rows.arch_x86_64_v4.constprop.0"},
        {"gemm_rows.avx2", "gemm_rows"},
        {"pthread_cond_wait@GLIBC_2.3.2", "pthread_cond_wait@@GLIBC_2.34"},
        {"std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >::append",
                "std::string::append"},
        {"std::__1::vector<int, std::__1::allocator<int> >::push_back(int const&)",
                "std::vector<int>::push_back(int)"},
        {"foo[abi:cxx11](int)", "foo(int)"},
        {"libtorch_cpu.so.1.13.0+0x4c91287", "libtorch_cpu.so+0x77aa12"},
        {"torch::autograd::generated::AddBackward0::apply(std::vector<at::Tensor>&&)",
                "torch::autograd::generated::AddBackward0::apply"},
        {"Linear.forward", "Linear.forward"},
};

static const char *const names_differ[][2] = {
        {"void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, at::detail::Array<char*, 1> >(int)",
                "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 1> >(int)"},
        {"void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int)",
                "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<c10::Half>, std::array<char*, 1ul> >(int)"},
        {"void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int)",
                "void at::native::unrolled_elementwise_kernel<at::native::FillFunctor<float>, std::array<char*, 1ul> >(int)"},
        {"at::native::add_kernel(at::TensorIteratorBase&)::{lambda()#1}::operator()() const::{lambda(float)#1}",
                "at::native::mul_kernel(at::TensorIteratorBase&)::{lambda()#1}::operator()() const::{lambda(float)#1}"},
        {"at::native::add_kernel(at::TensorIteratorBase&)::{lambda(float, float)#1}",
                "at::native::add_kernel(at::TensorIteratorBase&)::{lambda(double, double)#2}"},
        {"void k<(c10::ScalarType)6>(int)", "void k<(c10::ScalarType)5>(int)"},
        {"[function 0x4c91280]", "[function 0x4c91380]"}, // of one build on both sides
        {"[function 0x10]", "[unknown]"},
        {"ampere_sgemm_128x64_tn", "ampere_sgemm_32x128_tn"},
        {"ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_nn"},
        {"sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x128x64_kernel",
                "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x128x64_kernel"},
        {"nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT", "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT"},
        {"triton_poi_fused_add_relu_3", "triton_poi_fused_add_gelu_3"},
        {"triton_poi_fused_add_relu_3", "triton_red_fused_add_relu_3"},
        {"flash_fwd_kernel<Flash_fwd_kernel_traits<64>>",
                "flash_bwd_kernel<Flash_bwd_kernel_traits<64>>"},
        {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(X)",
                "ncclDevKernel_AllReduce_Sum_f32_TREE_LL(X)"},
        {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(X)", "ncclDevKernel_AllGather_RING_LL(X)"},
        {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(X)",
                "ncclDevKernel_AllReduce_Sum_f32_RING_SIMPLE(X)"},
        {"at::_ops::add::call", "at::_ops::add_::call"},
        {"at::_ops::add::call", "at::_ops::add::redispatch"},
        {"torch::autograd::generated::AddBackward0::apply",
                "torch::autograd::generated::AddBackward1::apply"},
        {"torch::autograd::Node::operator()", "torch::autograd::Engine::operator()"},
        {"c10::impl::wrap_kernel_functor_unboxed_<c10::CompileTimeFunctionPointer<at::Tensor (long), &at::wrapper_select> >::call",
                "c10::impl::wrap_kernel_functor_unboxed_<c10::CompileTimeFunctionPointer<at::Tensor (long), &at::wrapper_slice> >::call"},
        {"Linear.forward", "Linear.backward"},
        {"f.<locals>.g", "f.<locals>.h"},
        {"<module>", "<lambda>"},
        {"memcpy", "memset"},
        {"std::operator<", "std::operator<<"},
        {"mkl_blas_avx512_sgemm_kernel_nocopy_NT_b0", "mkl_blas_avx512_sgemm_kernel_nocopy_NN_b0"},
        {"a::Foo::run()", "a::Bar::run()"},
        {"add", "add_"},
};

static const char *normal(const char *name, char *buf)
{
    names_normalise(name, buf, NAMES_LENGTH_MAX);
    return buf;
}

TEST(pairs_that_are_one_function)
{
    char a[NAMES_LENGTH_MAX], b[NAMES_LENGTH_MAX];
    for (size_t i = 0; i < sizeof names_equal / sizeof *names_equal; i++) {
        runner_checked();
        if (strcmp(normal(names_equal[i][0], a), normal(names_equal[i][1], b)))
            runner_fail(
                    __FILE__, __LINE__, "differ: %s\n      %s\n      %s", names_equal[i][0], a, b);
    }
}

TEST(pairs_that_are_two)
{
    char a[NAMES_LENGTH_MAX], b[NAMES_LENGTH_MAX];
    for (size_t i = 0; i < sizeof names_differ / sizeof *names_differ; i++) {
        runner_checked();
        if (!strcmp(normal(names_differ[i][0], a), normal(names_differ[i][1], b)))
            runner_fail(__FILE__, __LINE__, "equal: %s\n      %s\n      %s", names_differ[i][0],
                    names_differ[i][1], a);
    }
}

TEST(the_functor_survives)
{
    char buf[NAMES_LENGTH_MAX];
    CHECK_STR(
            normal("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, at::detail::Array<char*, "
                   "1> >(int, at::native::FillFunctor<float>, at::detail::Array<char*, 1>)",
                    buf),
            "vectorized_elementwise_kernel<FillFunctor<float>>");
    CHECK_STR(normal("ampere_sgemm_128x64_tn", buf), "sgemm_128x64_tn");
    CHECK_STR(normal("_PyEval_EvalFrameDefault", buf), "_PyEval_EvalFrameDefault");
    CHECK_STR(normal("", buf), "");
    CHECK_STR(normal("avx2", buf), "avx2"); // nothing would be left
}

TEST(normal_names_stay_as_they_are)
{
    char a[NAMES_LENGTH_MAX], b[NAMES_LENGTH_MAX];
    for (size_t i = 0; i < sizeof names_equal / sizeof *names_equal; i++) {
        normal(names_equal[i][0], a);
        CHECK_STR(normal(a, b), a);
    }
}

TEST(short_names_for_people)
{
    char buf[256];
    CHECK_INT(
            names_short(
                    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
                    "at::detail::Array<char*, 1> >(int, float)",
                    buf, sizeof buf, 200),
            strlen(buf));
    CHECK_STR(buf, "vectorized_elementwise_kernel<4, FillFunctor<float>>");
    names_short(
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, X>(int)",
            buf, sizeof buf, 48);
    CHECK_STR(buf, "vectorized_elementwise_kernel<4, FillFunctor, X>");
    names_short(
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, X>(int)",
            buf, sizeof buf, 30);
    CHECK_STR(buf, "vectorized_elementwise_kernel");
    names_short(
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, X>(int)",
            buf, sizeof buf, 13);
    CHECK_STR(buf, "vectorized…");
    names_short("ampere_sgemm_128x64_tn", buf, sizeof buf, 60);
    CHECK_STR(buf, "ampere_sgemm_128x64_tn");
    names_short("gemm_rows.arch_x86_64_v3", buf, sizeof buf, 60);
    CHECK_STR(buf, "gemm_rows");
    names_short("libtorch_cpu.so+0x77aa12", buf, sizeof buf, 60);
    CHECK_STR(buf, "libtorch_cpu.so+0x77aa12");
    names_short("torch::autograd::Node::operator()", buf, sizeof buf, 60);
    CHECK_STR(buf, "torch::autograd::Node::operator()");
    names_short(
            "c10::impl::wrap_kernel_functor_unboxed_<c10::CompileTimeFunctionPointer<at::Tensor (long), &at::wrapper_slice>, "
            "at::Tensor>::call",
            buf, sizeof buf, 60);
    CHECK_STR(buf, "wrapper_slice");
    names_short(
            "c10::function_ref<(char**, long)>::callback_fn<at::native::AVX2::VectorizedLoop2d<at::native::(anonymous namespace)::"
            "add_kernel(at::Tensor const&, f<int>)::{lambda()#1}::operator()() const::{lambda(float)#1}>>",
            buf, sizeof buf, 60);
    CHECK_STR(buf, "add_kernel");
    names_short("a\nb\xff<script>", buf, sizeof buf, 60);
    CHECK(!strpbrk(buf, "\n\xff"));
    CHECK_INT(names_short("ääää", buf, sizeof buf, 6), 5);
    CHECK_STR(buf, "ä…");
    CHECK_INT(names_short("x", buf, 0, 6), 0);
    CHECK_INT(names_short("xyz", buf, 2, 6), 1);
}

TEST(places)
{
    static const char *const cases[][2] = {
            {"layers.3.attn.q", "layers.*.attn.q"},
            {"layers.17", "layers.*"},
            {"0.weight", "*.weight"},
            {"block[3]", "block[*]"},
            {"step 12", "step *"},
            {"conv1", "conv1"},
            {"/opt/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py",
                    "torch/nn/modules/linear.py"},
            {"/usr/lib/python3/dist-packages/torch/nn/modules/linear.py",
                    "torch/nn/modules/linear.py"},
            {"/usr/lib/python3.11/http/client.py", "http/client.py"},
            {"/home/x/v1/models/dlrm.py", "models/dlrm.py"},
            {"/train.py", "train.py"},
            {"<frozen importlib._bootstrap>", "<frozen importlib._bootstrap>"},
            {"Foo at 0x7f0012345678", "Foo at *"},
            {"", ""},
    };
    char buf[NAMES_LENGTH_MAX];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        names_place(cases[i][0], buf, sizeof buf);
        CHECK_STR(buf, cases[i][1]);
    }
}

TEST(libraries)
{
    static const char *const cases[][2] = {
            {"libtorch_cpu.so", "libtorch_cpu.so"},
            {"libtorch_cpu.so.1.13.0", "libtorch_cpu.so"},
            {"libc-2.31.so", "libc.so"},
            {"libc.so.6", "libc.so"},
            {"libc10.so", "libc10.so"},
            {"libgomp-a34b3233.so.1", "libgomp.so"},
            {"libopenblasp-r0.3.21.so", "libopenblasp.so"},
            {"_C.cpython-311-x86_64-linux-gnu.so", "_C.so"},
            {"_C.abi3.so", "_C.so"},
            {"python3.11", "python"},
            {"[kernel]", "[kernel]"},
            {"my.sock", "my.sock"},
            {".so", ".so"},
            {"3.11", "3.11"},
            {"", ""},
    };
    char buf[NAMES_LENGTH_MAX], *text = malloc(1 << 16);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_INT(names_library(cases[i][0], buf, sizeof buf), strlen(cases[i][1]));
        CHECK_STR(buf, cases[i][1]);
    }
    memset(text, 'x', (1 << 16) - 1);
    text[(1 << 16) - 1] = 0;
    CHECK_INT(names_library(text, buf, sizeof buf), NAMES_LENGTH_MAX - 1);
    CHECK_INT(names_library("libc.so.6", buf, 4), 3);
    CHECK_STR(buf, "lib");
    CHECK_INT(names_library("libc.so.6", buf, 0), 0);
    free(text);
}

// Frames as "name@module", leaf first, the leaf's own module before them.
static const char *inside_of(const char *module, const char *const *frames)
{
    static char text[NAMES_INSIDE_MAX + 1];
    char copies[8][256];
    struct names_inside inside = {.module = module};
    for (size_t i = 0; frames[i] && i < 8; i++) {
        snprintf(copies[i], sizeof copies[i], "%s", frames[i]);
        char *at = strchr(copies[i], '@');
        if (at)
            *at++ = '\0';
        if (!names_inside_next(&inside, copies[i], at))
            break;
    }
    return names_inside_text(&inside, text, sizeof text) ? text : "";
}

#define INSIDE(module, ...) inside_of(module, (const char *const[]){__VA_ARGS__, NULL})

TEST(what_a_function_without_a_name_is_inside_of)
{
    // The operator, however far out, before the nearest name.
    CHECK_STR(INSIDE("libtorch_cpu.so", "libtorch_cpu.so+0x10@libtorch_cpu.so",
                      "at::native::index_add_cpu_(at::Tensor&)@libtorch_cpu.so",
                      "at::_ops::index_add::call(at::Tensor const&, long)@libtorch_cpu.so",
                      "_PyEval_EvalFrameDefault@libpython3.11.so"),
            "at::_ops::index_add");
    // The nearest operator.
    CHECK_STR(INSIDE("libmkl.so", "at::_ops::mm::call@libtorch_cpu.so",
                      "at::_ops::linear::call@libtorch_cpu.so"),
            "at::_ops::mm");
    // Without one the nearest function of its own library or the framework.
    CHECK_STR(INSIDE("libfoo.so", "libfoo.so+0x1@libfoo.so", "foo_solve@libfoo.so", "main@app"),
            "foo_solve");
    CHECK_STR(INSIDE("libmkl.so", "c10::foo<int>(int)@libc10.so", "main@app"), "c10::foo");
    // Not a caller in a library that has nothing to do with it, and nothing behind the interpreter.
    CHECK_STR(INSIDE("libfoo.so", "main@app", "__libc_start_call_main@libc.so.6"), "");
    CHECK_STR(INSIDE("libfoo.so", "PyObject_Vectorcall@python3.11", "foo_outer@libfoo.so",
                      "at::_ops::mm::call@libtorch_cpu.so"),
            "");
    // the interpreter, too
    CHECK_STR(INSIDE("libfoo.so", "python3.11+0x77@python3.11", "foo_outer@libfoo.so"), "");
    CHECK_STR(INSIDE("libfoo.so", "[jit]@[jit]", "[unknown]", "foo_outer@libfoo.so"), "foo_outer");
    CHECK_STR(inside_of("libfoo.so", (const char *const[]){NULL}), "");
    char small[4];
    struct names_inside inside = {.module = "m"};
    CHECK(names_inside_next(&inside, NULL, NULL) && names_inside_next(&inside, "name", "m"));
    CHECK_INT(names_inside_text(&inside, small, sizeof small), 3);
    CHECK_STR(small, "nam");
}

TEST(who_has_no_name)
{
    CHECK(names_is_nameless("libtorch_cpu.so.1.13.0+0x4c91287") &&
            names_is_nameless("my+0xlib.so+0x10"));
    CHECK(!names_is_nameless(NULL) && !names_is_nameless("") && !names_is_nameless("[jit]") &&
            !names_is_nameless("operator+"));
    // of no library; C++
    CHECK(!names_is_nameless("+0x10") && !names_is_nameless("a+0x") &&
            !names_is_nameless("f<1+0x2>"));
    // Where it begins and how far behind that; the address itself is both.
    CHECK(names_has_start("libfoo.so+0x1200", 0) && names_has_start("libfoo.so+0x1200", 0x34));
    CHECK(!names_has_start("libfoo.so+0x1200", 0x1200) && !names_has_start("libfoo.so+0x1200", -1));
    CHECK(!names_has_start("foo_solve", 4) && !names_has_start(NULL, 4));
}

TEST(similarity)
{
    CHECK_DBL(names_similarity("sgemm_128x64_tn", "sgemm_128x64_tn"), 1, 1e-12);
    CHECK_DBL(names_similarity("a b", "c d"), 0, 0);
    CHECK_DBL(names_similarity("FillFunctor", "fill_functor"), 1, 1e-12);
    CHECK(names_similarity("softmax_warp_forward<float>", "softmax_block_forward<float>") > 0.6);
    CHECK_DBL(names_similarity("", ""), 1, 0);
}

// Brackets that never close, invalid bytes, random ones: time and memory stay bounded.
TEST(hostile_names)
{
    enum { SIZE = 65536 };
    static const char *const units[] = {"<", "(", "a<", "::", "{lambda(", "[", "operator",
            "a::b<c, ", ")", ">", "_", "\xff\xfe", "(anonymous namespace)::", "a b ", "'lambda",
            " [clone", "operator<", "0", "->", "_sm90", "a>("};
    char *name = malloc(SIZE + 1), buf[NAMES_LENGTH_MAX], small[8], people[5000];
    clock_t begin = clock();
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t len = strlen(units[i]);
        for (size_t k = 0; k < SIZE; k++)
            name[k] = units[i][k % len];
        name[SIZE] = '\0';
        CHECK(names_normalise(name, buf, sizeof buf) < NAMES_LENGTH_MAX);
        CHECK(names_normalise(name, small, sizeof small) < sizeof small);
        CHECK(names_short(name, people, sizeof people, 80) <= 80);
        CHECK(names_place(name, buf, sizeof buf) < NAMES_LENGTH_MAX);
        CHECK_DBL(names_similarity(name, name), 1, 1e-9);
    }
    uint32_t random = 1;
    for (int round = 0; round < 2000; round++) {
        size_t len = round % 200;
        for (size_t k = 0; k < len; k++) {
            random = random * 1664525 + 1013904223;
            name[k] = "<>(){}[]:, ab_9$~'#-@.\xc3\xa4operatorlambda"[(random >> 16) % 38];
        }
        name[len] = '\0';
        size_t got = names_normalise(name, buf, sizeof buf);
        CHECK_INT(got, strlen(buf));
        CHECK(names_short(name, people, sizeof people, 40) <= 40);
        names_place(name, buf, sizeof buf);
    }
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    printf("# %.0f ms\n", seconds * 1e3);
    CHECK(seconds < 60); // of CPU; in quadratic time it would be minutes
    free(name);
}

TEST(names_that_differ_late_differ)
{
    char a[2000], b[2000], buf_a[NAMES_LENGTH_MAX], buf_b[NAMES_LENGTH_MAX];
    memset(a, 'x', sizeof a);
    a[1999] = '\0';
    memcpy(b, a, sizeof a);
    b[1500] = 'y';
    CHECK(strcmp(normal(a, buf_a), normal(b, buf_b)) != 0);
}
