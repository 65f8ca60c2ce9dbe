/* SPDX-License-Identifier: MIT */
/*
 * Gemma 3 (text): five sliding-window layers are followed by a global one. Sliding layers rotate with their
 * own base frequency; the weights of the norms already contain the "+ 1" of the original formula.
 */
#include "model/arch/arch.h"

#include <math.h>

static int setup(const struct gguf_context *g, struct wnw__hparams *hp)
{
    WNW_TRY(wnw__key_i32(g, ".attention.sliding_window", 0, &hp->n_swa));
    hp->swa_period = 6;
    WNW_TRY(wnw__key_f32(g, ".rope.freq_base_swa", 10000.0f, &hp->rope_freq_base_swa));
    hp->rope_freq_scale_swa = 1.0f;
    hp->embd_scale = sqrtf((float)hp->n_embd);
    /* The 27B model (62 layers) scales queries by the hidden size per head, the smaller models by the head
     * size. */
    const int32_t d = hp->n_layer == 62 ? hp->n_embd / hp->n_head : hp->n_embd_head;
    hp->q_scale = 1.0f / sqrtf((float)d);
    hp->attn_scale = 1.0f;
    return WNW_OK;
}

const struct wnw__arch wnw__arch_gemma3 = {
    .name = "gemma3",
    .rope_type = GGML_ROPE_TYPE_NEOX,
    .qk_norm = true,
    .post_norm = true,
    .gelu = true,
    .setup = setup,
};
