/* SPDX-License-Identifier: MIT */
#include "calibrate/curve_sample.h"

#include "base/vectors.h"
#include "calibrate/curve_solve.h"
#include "calibrate/sample.h"
#include "observe/newest.h"
#include "observe/recorders.h"
#include "plan/compress.h"
#include "session/planning/planning.h"
#include "session/run/run.h"
#include "session/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- A sample: what is scored ---- */

/* One piece of text that was read. Entries of every head are 0 .. n - 1. */
struct sample {
    struct wnw__plan_source src; /* the first member, because callbacks get its address */
    const struct wnw__curve_piece *p;
    char *text;
    wnw_session *s;
    int32_t n;
    int32_t *order;  /* [n_row][n] entries that may go, best score first */
    int32_t *n_free; /* [n_row] their number; 0 in layers that policies leave alone */
    float *norm;     /* [n_layer][n_head][n] */
    float *worth;    /* [n_row][n] of the current question */
    double *sorted;  /* [n_row][n] worths in the order of `order` */
    int32_t *scratch;
    int32_t *keep; /* [WNW_CURVE_RATIOS][n_row] of the current question */
};

struct scored {
    float score;
    int32_t i;
};

/* Best score first; of equal ones the earlier entry. */
static int by_score(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->i < y->i ? -1 : x->i > y->i;
}

static int take_scores(const struct wnw__plan_source *src, int32_t il, int32_t ih, const float *score,
                       int32_t n, wnw_protected prot)
{
    const struct sample *s = (const struct sample *)src;
    const int32_t row = il * s->p->c->info.n_head_kv + ih, last = n - prot.n_last;
    struct scored *list = malloc((size_t)(n + 1) * sizeof *list);
    int32_t n_free = 0;
    if (!list)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d scores", (int)n);
    for (int32_t i = prot.n_first; i < last; i++)
        list[n_free++] = (struct scored){score[i], i};
    qsort(list, (size_t)n_free, sizeof *list, by_score);
    for (int32_t k = 0; k < n_free; k++)
        s->order[(int64_t)row * s->n + k] = list[k].i;
    s->n_free[row] = n_free;
    free(list);
    return WNW_OK;
}

static int score_entries(struct sample *s)
{
    const wnw_size size = {.kind = WNW_SIZE_RATIO, .ratio = 0.5};
    wnw_plan *plan;
    WNW_TRY(wnw__session_source(&s->src, s->s));
    s->src.scored = take_scores;
    WNW_TRY(wnw__plan_make(&plan, s->p->policy, &size, &s->src, NULL));
    wnw_plan_free(plan);
    return WNW_OK;
}

/* Norms of the values of all layers after the output projection, of every query head. */
static int read_norms(struct sample *s)
{
    const wnw_model_info *info = &s->p->c->info;
    const wnw_needs needs = {WNW_INIT(wnw_needs), .flags = WNW_NEED_PROJ_NORM};
    const size_t n = (size_t)info->n_head * (size_t)s->n;
    for (int32_t il = 0; il < info->n_layer; il++) {
        wnw_observation obs;
        float *to = s->norm + (size_t)il * n;
        double sum = 0;
        if (!wnw__layer_takes_part(&s->src.shape, il))
            continue;
        WNW_TRY(s->src.observe(&s->src, il, &needs, NULL, &obs));
        const float *norm = obs.head_proj_norm(&obs, WNW_PROJ_L2);
        if (!norm)
            return WNW_E_NOMEM;
        for (size_t i = 0; i < n; i++)
            sum += (double)norm[i];
        for (size_t i = 0; i < n; i++)
            to[i] = s->p->share_norms && sum > 0 ? (float)((double)norm[i] / sum) : norm[i];
    }
    return WNW_OK;
}

static int allocate(struct sample *s)
{
    const size_t n = (size_t)s->n, n_row = (size_t)s->p->n_row;
    const size_t n_head = (size_t)s->p->c->info.n_layer * (size_t)s->p->c->info.n_head;
    s->order = calloc(n_row * n, sizeof *s->order);
    s->n_free = calloc(n_row, sizeof *s->n_free);
    s->norm = calloc(n_head * n, sizeof *s->norm);
    s->worth = calloc(n_row * n, sizeof *s->worth);
    s->sorted = calloc(n_row * n, sizeof *s->sorted);
    s->scratch = calloc(n, sizeof *s->scratch);
    s->keep = calloc(WNW_CURVE_RATIOS * n_row, sizeof *s->keep);
    if (s->order && s->n_free && s->norm && s->worth && s->sorted && s->scratch && s->keep)
        return WNW_OK;
    return wnw__fail(WNW_E_NOMEM, "no memory for the worth of %d entries", (int)s->n);
}

static void free_sample(struct sample *s)
{
    wnw__source_close(&s->src);
    wnw_session_free(s->s);
    free(s->order);
    free(s->n_free);
    free(s->norm);
    free(s->worth);
    free(s->sorted);
    free(s->scratch);
    free(s->keep);
    wnw_free(s->text);
}

/* ---- A sample: reading ---- */

static int read_piece(struct sample *s, const wnw_prompt *prompt)
{
    const struct wnw__curve_piece *p = s->p;
    const wnw_policy *policy = p->policy;
    WNW_TRY(
        wnw__sample_read(&s->s, p->c, &policy, 1, NULL, prompt, p->n_token + WNW_CURVE_ROOM + p->n_generate));
    s->n = wnw_session_n_past(s->s);
    WNW_TRY(allocate(s));
    WNW_TRY(score_entries(s));
    WNW_TRY(read_norms(s));
    wnw__session_end_observing(s->s);
    return WNW_OK;
}

/* ---- A question ---- */

/* Raises the worth of entries by what the newest token makes of them. */
static void take_step(const struct sample *s, const wnw_session *answer)
{
    const wnw_model_info *info = &s->p->c->info;
    const struct wnw__newest *newest = wnw__recorders_find(&answer->recorders, &wnw__newest_recorder);
    const int32_t group = info->n_head / info->n_head_kv;
    for (int32_t il = 0; il < info->n_layer; il++) {
        int32_t n;
        const float *attn = wnw__newest_rows(newest, il, &n);
        for (int32_t h = 0; h < info->n_head && s->n_free[il * info->n_head_kv] > 0; h++) {
            const float *a = attn + (int64_t)h * n, *nu = s->norm + ((int64_t)il * info->n_head + h) * s->n;
            float *worth = s->worth + (int64_t)(il * info->n_head_kv + h / group) * s->n;
            for (int32_t i = 0; i < s->n; i++)
                worth[i] = a[i] * nu[i] > worth[i] ? a[i] * nu[i] : worth[i];
        }
    }
}

static int answer_in(wnw_session *copy, struct sample *s, const wnw_prompt *prompt, int32_t *n_step)
{
    const wnw_calibration *c = s->p->c;
    WNW_TRY(wnw_session_prefill(copy, prompt->tokens + prompt->n_context,
                                prompt->n_tokens - prompt->n_context, NULL, NULL));
    WNW_TRY(wnw__session_record(copy, wnw__newest_recorder.name, true));
    for (; *n_step < s->p->n_generate; ++*n_step) {
        const int32_t token = wnw__argmax(wnw_session_logits(copy), c->info.n_vocab);
        if (wnw_token_is_eog(c->m, token))
            break;
        WNW_TRY(wnw_session_decode(copy, token));
        take_step(s, copy);
    }
    return WNW_OK;
}

/* Answers a question in a copy of the session. *n_step is the number of generated tokens that were read. */
static int answer(struct sample *s, const wnw_prompt *prompt, int32_t *n_step)
{
    wnw_session *copy;
    *n_step = 0;
    WNW_TRY(wnw_session_copy(&copy, s->s));
    const int rc = answer_in(copy, s, prompt, n_step);
    wnw_session_free(copy);
    return rc;
}

/* Shares of its worth that a head loses when 5 %, 10 %, ... of its entries are dropped. */
static void add_lost(const struct sample *s, int32_t row, double *lost)
{
    const double *worth = s->sorted + (int64_t)row * s->n;
    double sum = 0, dropped = 0;
    int32_t k = s->n_free[row];
    for (int32_t i = 0; i < k; i++)
        sum += worth[i];
    for (int32_t p = 0; p < WNW_CURVE_LOST && sum > 0; p++) {
        const int32_t n_dropped = (int32_t)((int64_t)s->n * (p + 1) / (WNW_CURVE_LOST + 1));
        for (; k > 0 && s->n_free[row] - k < n_dropped; k--)
            dropped += worth[k - 1];
        lost[p] += dropped / sum;
    }
}

/* Shares the model's entries out for the current question, and adds counts and losses. */
static int solve(struct sample *s, int32_t *count, double *lost)
{
    const int32_t n_row = s->p->n_row, least = (int32_t)nearbyint(0.01 * s->n);
    double ratio[WNW_CURVE_RATIOS];
    struct wnw__curve_head *heads = calloc((size_t)n_row, sizeof *heads);
    if (!heads)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d heads", (int)n_row);
    for (int32_t row = 0; row < n_row; row++) {
        double *worth = s->sorted + (int64_t)row * s->n;
        const int32_t n_free = s->n_free[row], n_prot = s->n - n_free;
        for (int32_t k = 0; k < n_free; k++)
            worth[k] = (double)s->worth[(int64_t)row * s->n + s->order[(int64_t)row * s->n + k]];
        add_lost(s, row, lost + (int64_t)row * WNW_CURVE_LOST);
        wnw__curve_hull(worth, n_free, s->scratch);
        heads[row] = (struct wnw__curve_head){.worth = worth,
                                              .n_worth = n_free,
                                              .n_entry = n_free > 0 ? s->n : 0,
                                              .n_least = n_prot > least ? n_prot : least};
    }
    for (int32_t i = 0; i < WNW_CURVE_RATIOS; i++)
        ratio[i] = (i + 1) / 100.0;
    const int rc = wnw__curve_share_out(heads, n_row, ratio, WNW_CURVE_RATIOS, s->keep);
    for (int32_t i = 0; rc == WNW_OK && i < WNW_CURVE_RATIOS * n_row; i++)
        count[i] += s->keep[i];
    free(heads);
    return rc;
}

/* ---- All questions ---- */

static int use_question(struct sample *s, const wnw_prompt *prompt, const wnw_prompt *first,
                        struct wnw__curve_tally *t)
{
    int32_t n_step;
    if (prompt->n_context != first->n_context ||
        memcmp(prompt->tokens, first->tokens, (size_t)first->n_context * sizeof(int32_t)) != 0)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "the model's template writes another beginning for every question");
    if (prompt->n_tokens > s->s->params.n_ctx - s->p->n_generate)
        return wnw__fail(WNW_E_RANGE,
                         "a sample of %d tokens with its question needs %d; give a smaller length", (int)s->n,
                         (int)prompt->n_tokens + s->p->n_generate);
    WNW_TRY(answer(s, prompt, &n_step));
    if (n_step < 1)
        return WNW_OK;
    t->n_question++;
    return solve(s, t->count, t->lost);
}

static int ask(struct sample *s, int32_t question, const wnw_prompt *first, struct wnw__curve_tally *t)
{
    wnw_prompt *prompt = NULL;
    int rc = wnw__sample_prompt(&prompt, s->p->c, s->text, question);
    memset(s->worth, 0, (size_t)s->p->n_row * (size_t)s->n * sizeof *s->worth);
    if (rc == WNW_OK)
        rc = use_question(s, prompt, first, t);
    wnw_prompt_free(prompt);
    return rc;
}

static int ask_all(struct sample *s, const wnw_prompt *first, struct wnw__curve_tally *t)
{
    WNW_TRY(read_piece(s, first));
    for (int32_t q = 0; q < s->p->n_question; q++) {
        WNW_TRY(ask(s, q, first, t));
        WNW_TRY(wnw__calibrate_progress(s->p->c, 0.5 + 0.5 * (q + 1) / s->p->n_question));
    }
    return WNW_OK;
}

static int measure(struct sample *s, struct wnw__curve_tally *t)
{
    wnw_prompt *first = NULL;
    WNW_TRY(wnw__sample_text(&s->text, s->p->c, s->p->tokens, s->p->n_token));
    int rc = wnw__sample_prompt(&first, s->p->c, s->text, 0);
    if (rc == WNW_OK)
        rc = ask_all(s, first, t);
    wnw_prompt_free(first);
    return rc;
}

int wnw__curve_measure(struct wnw__curve_tally *t, const struct wnw__curve_piece *p)
{
    struct sample s = {.p = p};
    const int rc = measure(&s, t);
    t->n_entry = s.n;
    free_sample(&s);
    return rc;
}

int wnw__curve_tally_new(struct wnw__curve_tally *t, int32_t n_row)
{
    *t = (struct wnw__curve_tally){0};
    t->count = calloc((size_t)(WNW_CURVE_RATIOS * n_row), sizeof *t->count);
    t->lost = calloc((size_t)(WNW_CURVE_LOST * n_row), sizeof *t->lost);
    return t->count && t->lost ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for budget curves");
}

void wnw__curve_tally_free(struct wnw__curve_tally *t)
{
    free(t->count);
    free(t->lost);
}
