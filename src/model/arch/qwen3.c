/* SPDX-License-Identifier: MIT */
/* Qwen3 (dense): no biases, but an RMS norm on every query and key head. */
#include "model/arch/arch.h"

const struct wnw__arch wnw__arch_qwen3 = {
    .name = "qwen3",
    .rope_type = GGML_ROPE_TYPE_NEOX,
    .ffn_factors = true,
    .qk_norm = true,
};
