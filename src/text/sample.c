/* SPDX-License-Identifier: MIT */
/* Picking the next token with libllama's samplers, by an interface of plain arrays. */
#include "base/err.h"
#include "base/vectors.h"

#include <llama.h>
#include <math.h>
#include <stdlib.h>

enum { PENALTY_TOKENS = 64 }; /* llama.cpp's own default */

struct wnw_sampler {
    struct llama_sampler *chain;
    struct llama_sampler
        *penalties;         /* made by the first pick, which knows n_vocab; NULL = off or not made yet */
    float repeat_penalty;   /* 0 or 1 = off */
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
    if (p.repeat_penalty != 0.0f && (!(p.repeat_penalty >= 1.0f) || !isfinite(p.repeat_penalty)))
        return wnw__fail(WNW_E_RANGE,
                         "sampling needs a finite repeat_penalty >= 1, or 0 for off, and it is %g",
                         (double)p.repeat_penalty);
    struct wnw_sampler *sp = calloc(1, sizeof *sp);
    if (sp)
        sp->chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    if (!sp || !sp->chain) {
        wnw_sampler_free(sp);
        return wnw__fail(WNW_E_NOMEM, "no memory for a sampler");
    }
    sp->repeat_penalty = p.repeat_penalty;
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
    if (sp->penalties)
        llama_sampler_free(sp->penalties);
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
    if (sp->repeat_penalty > 1.0f && !sp->penalties)
        sp->penalties = llama_sampler_init_penalties(n_vocab, PENALTY_TOKENS, sp->repeat_penalty, 0.0f, 0.0f);
    if (sp->penalties)
        llama_sampler_apply(sp->penalties, &all);
    llama_sampler_apply(sp->chain, &all);
    const int32_t token = all.selected >= 0 ? all.data[all.selected].id : wnw__argmax(logits, n_vocab);
    llama_sampler_accept(sp->chain, token);
    if (sp->penalties)
        llama_sampler_accept(sp->penalties, token);
    return token;
}
