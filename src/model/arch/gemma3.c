/* SPDX-License-Identifier: MIT */
/*
 * Gemma 3 (text): five sliding-window layers are followed by a global one, unless the file says otherwise.
 * Sliding layers rotate with their own base frequency; the weights of the norms already contain the "+ 1" of the original formula.
 */
#include "model/arch/arch.h"

#include <math.h>

static const char pattern[] = ".attention.sliding_window_pattern";

/* Which layers slide: every n-th layer is global (0 = none is). Files that list the layers run through libllama (model_hparams.c). */
static int read_pattern(const struct gguf_context *g, struct wnw__hparams *hp)
{
    int32_t period;
    bool any = false;
    WNW_TRY(wnw__key_i32(g, pattern, 6, &period));
    for (int32_t il = 0; il < hp->n_layer; il++) {
        hp->swa[il] = period == 0 || il % period < period - 1;
        any = any || hp->swa[il];
    }
    return any ? WNW_OK
               : wnw__fail(WNW_E_UNSUPPORTED,
                           "the GGUF has a window of %d tokens, and by gemma3%s = %d no layer slides",
                           (int)hp->n_swa, pattern, (int)period);
}

static int setup(const struct gguf_context *g, struct wnw__hparams *hp)
{
    WNW_TRY(wnw__key_i32(g, ".attention.sliding_window", 0, &hp->n_swa));
    if (hp->n_swa > 0)
        WNW_TRY(read_pattern(g, hp));
    WNW_TRY(wnw__key_f32(g, ".final_logit_softcapping", 0.0f, &hp->logit_cap));
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

static const char *const keys[] = {".attention.sliding_window", pattern, ".final_logit_softcapping", NULL};

const struct wnw__arch wnw__arch_gemma3 = {
    .name = "gemma3",
    .rope_type = GGML_ROPE_TYPE_NEOX,
    .partial_rope = true,
    .qk_norm = true,
    .post_norm = true,
    .gelu = true,
    .keys = keys,
    .setup = setup,
};
