/* SPDX-License-Identifier: MIT */
/* Llama 2 and 3, Mistral, SmolLM2 and others that convert to architecture "llama". */
#include "model/arch/arch.h"

static int setup(const struct gguf_context *g, struct wnw__hparams *hp)
{
    (void)hp;
    int32_t n_expert;
    WNW_TRY(wnw__key_i32(g, ".expert_count", 0, &n_expert));
    if (n_expert > 0)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "this llama model has %d experts; mixture-of-experts models are not supported",
                         (int)n_expert);
    return WNW_OK;
}

const struct wnw__arch wnw__arch_llama = {
    .name = "llama",
    .rope_type = GGML_ROPE_TYPE_NORMAL,
    .setup = setup,
};
