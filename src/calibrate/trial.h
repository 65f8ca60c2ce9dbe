/* SPDX-License-Identifier: MIT */
/*
 * Trials of CompilerKV's tables on one prompt. The prompt is read once, with the full cache. Every trial then makes a
 * plan for other head weights or thresholds, from numbers that were noted once. It drops entries from a copy of the
 * cache, and reads the text that really follows the prompt. That text's likelihood is what the plan costs. A trial
 * takes about as long as reading the continuation. Plans are those of the parts `compilerkv` and `gate` with such a
 * table, the option `floor` and otherwise their default options.
 */
#ifndef WNW_CALIBRATE_TRIAL_H
#define WNW_CALIBRATE_TRIAL_H

#include "base/err.h"
#include "base/shape.h"
#include "winnow_batch.h"
#include "winnow_method.h"

/* A prompt, and the tokens that follow it in the text: tokens[n_prompt + n_next], borrowed. */
struct wnw__trial_text {
    const int32_t *tokens;
    int32_t n_prompt, n_next;
};

/* A prompt that was read. */
struct wnw__trial_prompt {
    wnw_session *full; /* the whole cache; owned */
    struct wnw__trial_text text;
    struct wnw__shape model;
    int32_t n_vocab, window;
    int32_t n_il; /* layers that take part: those without a sliding window */
    int32_t *il;  /* [n_il] their numbers in the model */
    float *alpha; /* [n_prompt] attention of the window's queries, averaged over the model (eq. 6) */
    float *rho;   /* [n_il][n_head_kv][n_prompt] relative norms of values (eq. 7) */
    float *score; /* [n_prompt] scratch */
    /* The prompt's risk: entropy of alpha / window in nats (eq. 12), perplexity of the window (eq. 13). */
    double entropy, ppl;
};

/* Writes the numbers of the layers that take part to il[n_layer of the model], and sets *n. E_UNSUPPORTED: none does. */
int wnw__trial_layers(int32_t *il, int32_t *n, const struct wnw__shape *model);

/* Reads the prompt with a new session on the engine, which must outlive *p. params: n_ctx, cache type and
 * progress of its sessions. p->text.tokens stays borrowed. wnw__trial_free releases it, also after an
 * error. */
int wnw__trial_read(struct wnw__trial_prompt *p, wnw_engine *e, const wnw_session_params *params,
                    const struct wnw__trial_text *text, int32_t window);
void wnw__trial_free(struct wnw__trial_prompt *p);

/* What is tried. */
struct wnw__trial_choice {
    int32_t budget;      /* entries per layer and KV head, window included */
    const float *weight; /* [n_layer of the model][n_head_kv] largest head weight of each group */
    const double *tau;   /* [n_layer of the model] thresholds; NULL = every layer keeps the budget */
    double floor;        /* part of the budget outside the last ones that every layer keeps at least */
};
/* Entries that a budget leaves in a layer next to the last ones, which always stay. */
int32_t wnw__trial_n_free(int32_t n_prompt, int32_t window, int32_t budget);

/* Makes the plan. above[n_il], where not NULL, receives the entries of each layer that clear its threshold.
 * *out is released with wnw_plan_free. */
int wnw__trial_plan(wnw_plan **out, const struct wnw__trial_prompt *p, const struct wnw__trial_choice *choice,
                    int32_t *above);

/* The entries per KV head that such a plan keeps, the mean over the layers. count[n_il] receives what each layer keeps in
 * addition to the last ones. */
double wnw__trial_count(const struct wnw__trial_prompt *p, const struct wnw__trial_choice *choice,
                        int32_t *count);

/* Sets *nll to the mean negative log-likelihood, in nats, of the tokens that follow the prompt, read one
 * after the other on a cache of what the plan keeps; plan NULL: on the full cache. */
int wnw__trial_run(double *nll, const struct wnw__trial_prompt *p, const wnw_plan *plan);

#endif
