/* SPDX-License-Identifier: MIT */
#include "calibrate/trial.h"

#include "method/compiler.h"
#include "observe/nll.h"
#include "session/compact/compact.h"
#include "session/planning/planning.h"
#include "session/run/run.h"
#include "session/session.h"

#include <stdlib.h>

/* ---- Reading ---- */

/* What the prompt's session is to record: as for the scorer and the gate. */
static int declare(wnw_session *s, int32_t window)
{
    char recipe[96];
    wnw_policy *policy = NULL;
    /* The gate looks at the perplexity because of its table. */
    snprintf(recipe, sizeof recipe, "compilerkv:window=%d+gate:window=%d", window, window);
    WNW_TRY(wnw_policy_parse(&policy, recipe, NULL));
    const wnw_run run = {WNW_INIT(wnw_run),
                         .more = &(wnw_run_more){WNW_INIT(wnw_run_more),
                                                 .policies = (const wnw_policy *const *)&policy,
                                                 .n_policies = 1}};
    const int rc = wnw_session_begin(s, &run);
    wnw_policy_free(policy);
    return rc;
}

int wnw__trial_layers(int32_t *il, int32_t *n, const struct wnw__shape *model)
{
    *n = 0;
    for (int32_t i = 0; i < model->n_layer; i++)
        if (wnw__layer_takes_part(model, i))
            il[(*n)++] = i;
    if (*n > 0)
        return WNW_OK;
    return wnw__fail(WNW_E_UNSUPPORTED,
                     "every layer of this model has a sliding window: there is nothing to compress");
}

static int allocate(struct wnw__trial_prompt *p, const struct wnw__plan_source *src)
{
    const size_t n = (size_t)src->n_past, n_layer = (size_t)src->shape.n_layer,
                 n_kv = (size_t)src->shape.n_head_kv;
    p->model = src->shape;
    p->il = calloc(n_layer, sizeof *p->il);
    p->alpha = calloc(n, sizeof *p->alpha);
    p->score = calloc(n, sizeof *p->score);
    if (p->il)
        WNW_TRY(wnw__trial_layers(p->il, &p->n_il, &src->shape));
    p->rho = calloc((size_t)p->n_il * n_kv * n, sizeof *p->rho);
    if (p->il && p->alpha && p->score && p->rho)
        return WNW_OK;
    return wnw__fail(WNW_E_NOMEM, "no memory for a prompt of %zu tokens", n);
}

/* Notes alpha, rho and the risk of the prompt that the source shows; mass[n_past] is scratch and 0. */
static int note_layers(struct wnw__trial_prompt *p, const struct wnw__plan_source *src, double *mass)
{
    const wnw_needs needs = {.flags = WNW_NEED_WINDOW_ATTN | WNW_NEED_VALUES, .window = p->window};
    double total = 0;
    for (int32_t i = 0; i < p->n_il; i++) {
        wnw_observation obs = {0};
        WNW_TRY(src->observe(src, p->il[i], &needs, NULL, &obs));
        const int32_t n_row = p->window < obs.n_window ? p->window : obs.n_window;
        wnw__window_mass(&obs, n_row, mass);
        total += (double)src->shape.n_head * n_row;
        for (int32_t ih = 0; ih < src->shape.n_head_kv; ih++)
            wnw__relative_norms(&obs, ih, p->rho + ((int64_t)i * src->shape.n_head_kv + ih) * src->n_past);
    }
    const double scale = 1.0 / ((double)p->n_il * src->shape.n_head);
    for (int32_t t = 0; t < src->n_past; t++)
        p->alpha[t] = (float)(mass[t] * scale);
    p->entropy = wnw__entropy(mass, src->n_past, total);
    return src->perplexity(src, p->window, &p->ppl);
}

static int note(struct wnw__trial_prompt *p)
{
    struct wnw__plan_source src;
    WNW_TRY(wnw__session_source(&src, p->full));
    double *mass = calloc((size_t)src.n_past, sizeof *mass);
    int rc = mass ? allocate(p, &src) : wnw__fail(WNW_E_NOMEM, "no memory for a prompt");
    if (rc == WNW_OK)
        rc = note_layers(p, &src, mass);
    free(mass);
    wnw__source_close(&src);
    return rc;
}

int wnw__trial_read(struct wnw__trial_prompt *p, wnw_engine *e, const wnw_session_params *params,
                    const struct wnw__trial_text *text, int32_t window)
{
    *p = (struct wnw__trial_prompt){.text = *text, .window = window};
    WNW_TRY(wnw_session_new_on(&p->full, e, params));
    WNW_TRY(declare(p->full, window));
    WNW_TRY(wnw_session_prefill(p->full, text->tokens, text->n_prompt, NULL, NULL));
    WNW_TRY(note(p));
    p->n_vocab = p->full->m->hp.n_vocab;
    p->full->params.progress = NULL;     /* that of a prompt */
    wnw__session_end_observing(p->full); /* copies need not carry what was recorded */
    return WNW_OK;
}

void wnw__trial_free(struct wnw__trial_prompt *p)
{
    wnw_session_free(p->full);
    free(p->il);
    free(p->alpha);
    free(p->rho);
    free(p->score);
    *p = (struct wnw__trial_prompt){0};
}

/* ---- Costs ---- */

struct follow {
    const int32_t *next; /* the token that each row of logits predicts */
    int32_t n_vocab;
    double sum;
};

static bool add_row(int32_t i, const float *logits, void *user)
{
    struct follow *f = user;
    f->sum += wnw__nll_of(logits, f->n_vocab, f->next[i]);
    return true;
}

int wnw__trial_run(double *nll, const struct wnw__trial_prompt *p, const wnw_plan *plan)
{
    const int32_t *next = p->text.tokens + p->text.n_prompt, n = p->text.n_next;
    wnw_session *s;
    WNW_TRY(wnw_session_copy(&s, p->full));
    /* The first token is predicted by the prompt's last one, before anything is dropped. */
    struct follow f = {.next = next + 1, .n_vocab = p->n_vocab};
    f.sum = wnw__nll_of(wnw_session_logits(s), p->n_vocab, next[0]);
    int rc = plan ? wnw__session_apply(s, plan, -1, NULL) : WNW_OK;
    if (rc == WNW_OK && n > 1)
        rc = wnw_session_prefill(s, next, n - 1, add_row, &f);
    wnw_session_free(s);
    *nll = f.sum / n;
    return rc;
}
