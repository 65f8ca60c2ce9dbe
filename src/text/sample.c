/* SPDX-License-Identifier: MIT */
/* Picking the next token with libllama's samplers, by an interface of plain arrays. */
#include "base/err.h"
#include "base/vectors.h"

#include <llama.h>
#include <math.h>
#include <stdlib.h>

struct wnw_sampler {
    struct llama_sampler *chain;
    llama_token_data *data; /* [cap] */
    int32_t cap;
};

int wnw_sampler_new(wnw_sampler **out, const wnw_sampler_params *params)
{
    WNW_REQUIRE(out);
    *out = NULL;
    wnw_sampler_params p = wnw_sampler_default_params();
    WNW_TRY(WNW_SIZED_TAKE(wnw_sampler_params, &p, params));
    if (!(p.temp >= 0.0f) || !isfinite(p.temp) || p.top_k < 0 || !(p.top_p > 0.0f && p.top_p <= 1.0f))
        return wnw__fail(WNW_E_RANGE, "sampling needs temp >= 0, top_k >= 0 and 0 < top_p <= 1");
    struct wnw_sampler *sp = calloc(1, sizeof *sp);
    if (sp)
        sp->chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    if (!sp || !sp->chain) {
        wnw_sampler_free(sp);
        return wnw__fail(WNW_E_NOMEM, "no memory for a sampler");
    }
    if (p.temp > 0.0f) {
        if (p.top_k > 0)
            llama_sampler_chain_add(sp->chain, llama_sampler_init_top_k(p.top_k));
        if (p.top_p < 1.0f)
            llama_sampler_chain_add(sp->chain, llama_sampler_init_top_p(p.top_p, 1));
        llama_sampler_chain_add(sp->chain, llama_sampler_init_temp(p.temp));
        llama_sampler_chain_add(sp->chain, llama_sampler_init_dist(p.seed));
    } else {
        llama_sampler_chain_add(sp->chain, llama_sampler_init_greedy());
    }
    *out = sp;
    return WNW_OK;
}

void wnw_sampler_free(wnw_sampler *sp)
{
    if (!sp)
        return;
    if (sp->chain)
        llama_sampler_free(sp->chain);
    free(sp->data);
    free(sp);
}

int32_t wnw_sampler_pick(wnw_sampler *sp, const float *logits, int32_t n_vocab)
{
    if (!sp || !logits || n_vocab < 1)
        return -1;
    if (sp->cap < n_vocab) {
        llama_token_data *more = realloc(sp->data, (size_t)n_vocab * sizeof *more);
        if (!more)
            return wnw__argmax(logits, n_vocab); /* where memory runs out the best token is a valid answer */
        sp->data = more;
        sp->cap = n_vocab;
    }
    for (int32_t i = 0; i < n_vocab; i++)
        sp->data[i] = (llama_token_data){.id = i, .logit = logits[i], .p = 0.0f};
    llama_token_data_array all = {.data = sp->data, .size = (size_t)n_vocab, .selected = -1, .sorted = false};
    llama_sampler_apply(sp->chain, &all);
    const int32_t token = all.selected >= 0 ? all.data[all.selected].id : wnw__argmax(logits, n_vocab);
    llama_sampler_accept(sp->chain, token);
    return token;
}
