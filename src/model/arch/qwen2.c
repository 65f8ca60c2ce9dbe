/* SPDX-License-Identifier: MIT */
/* Qwen2 and Qwen2.5: biases on q, k and v, rotation of half-split pairs. */
#include "model/arch/arch.h"

const struct wnw__arch wnw__arch_qwen2 = {
    .name = "qwen2",
    .rope_type = GGML_ROPE_TYPE_NEOX,
    .qkv_bias = true,
    .output_bias = true,
};
