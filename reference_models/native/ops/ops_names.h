// SPDX-License-Identifier: Apache-2.0
// The operations of ops.h carry the suffix of their type, so that both types link into one program:
// code says ops_gemm, the linker sees ops_gemm_f32 or ops_gemm_f64.
#ifndef UPGATE_NATIVE_OPS_NAMES_H
#define UPGATE_NATIVE_OPS_NAMES_H

#include "reference_models/native/ops/real.h"

#define ops_gemm NATIVE_NAME(ops_gemm)
#define ops_gemm_scratch NATIVE_NAME(ops_gemm_scratch)
#define ops_relu NATIVE_NAME(ops_relu)
#define ops_relu_backward NATIVE_NAME(ops_relu_backward)
#define ops_gelu NATIVE_NAME(ops_gelu)
#define ops_gelu_backward NATIVE_NAME(ops_gelu_backward)
#define ops_gelu_erf NATIVE_NAME(ops_gelu_erf)
#define ops_gelu_erf_backward NATIVE_NAME(ops_gelu_erf_backward)
#define ops_add NATIVE_NAME(ops_add)
#define ops_silu NATIVE_NAME(ops_silu)
#define ops_silu_backward NATIVE_NAME(ops_silu_backward)
#define ops_mul NATIVE_NAME(ops_mul)
#define ops_silu_attention_scratch NATIVE_NAME(ops_silu_attention_scratch)
#define ops_silu_attention NATIVE_NAME(ops_silu_attention)
#define ops_silu_attention_backward NATIVE_NAME(ops_silu_attention_backward)
#define ops_column_sum NATIVE_NAME(ops_column_sum)
#define ops_sgd NATIVE_NAME(ops_sgd)
#define ops_sgd_momentum NATIVE_NAME(ops_sgd_momentum)
#define ops_adam NATIVE_NAME(ops_adam)
#define ops_adamw NATIVE_NAME(ops_adamw)
#define ops_layernorm NATIVE_NAME(ops_layernorm)
#define ops_layernorm_backward NATIVE_NAME(ops_layernorm_backward)
#define ops_batchnorm NATIVE_NAME(ops_batchnorm)
#define ops_batchnorm_apply NATIVE_NAME(ops_batchnorm_apply)
#define ops_batchnorm_backward NATIVE_NAME(ops_batchnorm_backward)
#define ops_batchnorm_scratch NATIVE_NAME(ops_batchnorm_scratch)
#define ops_im2col NATIVE_NAME(ops_im2col)
#define ops_col2im NATIVE_NAME(ops_col2im)
#define ops_mean_pool NATIVE_NAME(ops_mean_pool)
#define ops_mean_pool_backward NATIVE_NAME(ops_mean_pool_backward)
#define ops_softmax_loss NATIVE_NAME(ops_softmax_loss)
#define ops_bce_loss NATIVE_NAME(ops_bce_loss)
#define ops_bag NATIVE_NAME(ops_bag)
#define ops_bag_sgd NATIVE_NAME(ops_bag_sgd)
#define ops_bag_update NATIVE_NAME(ops_bag_update)
#define ops_token NATIVE_NAME(ops_token)
#define ops_token_backward NATIVE_NAME(ops_token_backward)
#define ops_copy_rows NATIVE_NAME(ops_copy_rows)
#define ops_sum_rows NATIVE_NAME(ops_sum_rows)
#define ops_interact NATIVE_NAME(ops_interact)
#define ops_interact_backward NATIVE_NAME(ops_interact_backward)
#define ops_attention NATIVE_NAME(ops_attention)
#define ops_attention_backward NATIVE_NAME(ops_attention_backward)
#define ops_attention_cached NATIVE_NAME(ops_attention_cached)

#endif
