/* SPDX-License-Identifier: MIT */
/* Llama 2 and 3, Mistral, SmolLM2, InternLM3, Granite code and others that convert to architecture "llama". */
#include "model/arch/arch.h"

const struct wnw__arch wnw__arch_llama = {
    .name = "llama",
    .rope_type = GGML_ROPE_TYPE_NORMAL,
    .other_biases = true,
    .ffn_factors = true,
    .rope_factors = true,
};
