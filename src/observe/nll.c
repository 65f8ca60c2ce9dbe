/* SPDX-License-Identifier: MIT */
#include "observe/nll.h"

#include "observe/recorders.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int wnw__nll_init(struct wnw__nll *w, int32_t cap)
{
    *w = (struct wnw__nll){.cap = cap, .from = INT32_MAX};
    if (cap == 0)
        return WNW_OK;
    w->nll = calloc((size_t)cap, sizeof *w->nll);
    if (!w->nll) {
        w->cap = 0;
        return wnw__fail(WNW_E_NOMEM, "no memory for the likelihoods of %d tokens", (int)cap);
    }
    return WNW_OK;
}

int wnw__nll_copy(struct wnw__nll *to, const struct wnw__nll *from)
{
    WNW_TRY(wnw__nll_init(to, from->cap));
    if (from->cap > 0)
        memcpy(to->nll, from->nll, (size_t)from->cap * sizeof *to->nll);
    to->n = from->n;
    to->end = from->end;
    to->from = from->from;
    return WNW_OK;
}

void wnw__nll_free(struct wnw__nll *w)
{
    free(w->nll);
    *w = (struct wnw__nll){.from = INT32_MAX};
}

void wnw__nll_begin(struct wnw__nll *w, int32_t first, int32_t n)
{
    w->from = w->cap > 0 ? first + n - w->cap : INT32_MAX;
}

int32_t wnw__nll_rows(const struct wnw__nll *w, int32_t first, int32_t n)
{
    const int64_t rows = (int64_t)first + n - w->from + 1;
    if (rows < 1)
        return 1;
    if (rows > n)
        return n;
    return (int32_t)rows;
}

double wnw__nll_of(const float *logits, int32_t n_vocab, int32_t token)
{
    float max = logits[0];
    double sum = 0.0;
    for (int32_t i = 1; i < n_vocab; i++)
        max = logits[i] > max ? logits[i] : max;
    for (int32_t i = 0; i < n_vocab; i++)
        sum += (double)expf(logits[i] - max);
    return log(sum) - (double)(logits[token] - max);
}

struct job {
    struct wnw__nll *w;
    const struct wnw__nll_batch *b;
    int32_t first; /* index in the batch of the first token that is worked on */
};

static void take_one(int32_t i, void *user)
{
    const struct job *j = user;
    const struct wnw__nll_batch *b = j->b;
    const int32_t t = j->first + i, row = t - 1 - (b->n - b->n_rows);
    const float *logits = t == 0 ? b->before : b->rows + (size_t)row * (size_t)b->n_vocab;
    j->w->nll[(b->first + t) % j->w->cap] = wnw__nll_of(logits, b->n_vocab, b->tokens[t]);
}

void wnw__nll_take(struct wnw__nll *w, const struct wnw__nll_batch *b)
{
    if (w->from >= b->first + b->n)
        return;
    struct job j = {.w = w, .b = b, .first = w->from - b->first};
    if (j.first < b->n - b->n_rows + 1) /* earlier tokens have no logits here ... */
        j.first = b->n - b->n_rows + 1;
    if (b->n == b->n_rows && b->before && w->from <= b->first) /* ... but `before` serves the first */
        j.first = 0;
    if (j.first < b->n - w->cap)
        j.first = b->n - w->cap;
    if (j.first >= b->n)
        return;
    wnw__parallel(b->pool, b->n - j.first, take_one, &j);
    const int32_t n = b->n - j.first, before = w->end == b->first + j.first ? w->n : 0;
    w->n = before < w->cap - n ? before + n : w->cap;
    w->end = b->first + b->n;
}

int wnw__nll_perplexity(const struct wnw__nll *w, int32_t n_past, int32_t window, double *out)
{
    const int32_t n = window < n_past ? window : n_past - 1, cap = w ? w->cap : 0;
    *out = 0.0;
    if (cap < n)
        return wnw__fail(
            WNW_E_NOT_OBSERVED,
            "the policy wants the perplexity of the last %d tokens, the session was told to keep %d; "
            "declare the policy before prefill",
            (int)window, (int)cap);
    if (n < 1)
        return wnw__fail(WNW_E_NOT_OBSERVED,
                         "a prompt of one token has no perplexity: nothing comes before it");
    if (!w || w->end != n_past || w->n < n)
        return wnw__fail(
            WNW_E_NOT_OBSERVED,
            "the likelihoods of the last %d tokens were not kept: declare the policy before prefill "
            "and compress right after it",
            (int)n);
    double sum = 0.0;
    for (int32_t p = n_past - n; p < n_past; p++)
        sum += w->nll[p % w->cap];
    *out = exp(sum / n);
    return WNW_OK;
}

/* ---- The recorder ---- */

struct recorder {
    struct wnw__nll nll; /* the first member, because wnw__recorders_find returns a pointer to it */
    struct wnw__pool *pool;
};

static bool needed(const struct wnw__record_needs *needs, const struct wnw__record_shape *shape,
                   struct wnw__record_arg *arg)
{
    *arg = (struct wnw__record_arg){.n = needs->n_likelihood < shape->n_ctx ? needs->n_likelihood
                                                                            : shape->n_ctx};
    return arg->n > 0;
}

static void close_nll(void *rec)
{
    if (rec)
        wnw__nll_free(rec);
    free(rec);
}

static int new_recorder(struct recorder **out, const struct wnw__record_shape *shape)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return wnw__fail(WNW_E_NOMEM, "no memory for likelihoods");
    (*out)->pool = shape->pool;
    return WNW_OK;
}

static int open_nll(void **rec, const struct wnw__record_shape *shape, const struct wnw__record_arg *arg)
{
    struct recorder *r;
    *rec = NULL;
    WNW_TRY(new_recorder(&r, shape));
    const int rc = wnw__nll_init(&r->nll, arg->n);
    if (rc == WNW_OK)
        *rec = r;
    else
        close_nll(r);
    return rc;
}

static int copy_nll(void **rec, const void *from, const struct wnw__record_shape *shape)
{
    struct recorder *r;
    *rec = NULL;
    WNW_TRY(new_recorder(&r, shape));
    const int rc = wnw__nll_copy(&r->nll, from);
    if (rc == WNW_OK)
        *rec = r;
    else
        close_nll(r);
    return rc;
}

/* Likelihoods need logits, that is, a pass through all layers. */
static int begin(void *rec, const struct wnw__record_pass *pass)
{
    if (pass->from == 0 && pass->to == pass->cache->n_layer)
        wnw__nll_begin(rec, pass->n_past, pass->n);
    return WNW_OK;
}

static int32_t logit_rows(const void *rec, const struct wnw__record_pass *pass)
{
    return pass->generated ? 1 : wnw__nll_rows(rec, pass->n_past, pass->n);
}

static void logits(void *rec, const struct wnw__record_logits *l)
{
    const struct wnw__nll_batch b = {.tokens = l->tokens,
                                     .first = l->pass->n_past,
                                     .n = l->pass->n,
                                     .before = l->before,
                                     .rows = l->rows,
                                     .n_rows = l->n_rows,
                                     .n_vocab = l->n_vocab,
                                     .pool = ((const struct recorder *)rec)->pool};
    if (!l->pass->generated)
        wnw__nll_take(rec, &b);
}

static void told(void *rec, int32_t from, int32_t to, enum wnw__event event)
{
    struct wnw__nll *w = rec;
    (void)from;
    (void)to;
    if (event == WNW_EVENT_RENUMBERED || event == WNW_EVENT_EMPTIED)
        w->n = w->end = 0;
}

/* The logits from which the next token's likelihood would be noted are gone. */
static bool can_rewind(const void *rec, int32_t n_past)
{
    const struct wnw__nll *w = rec;
    (void)n_past;
    return w->n == 0;
}

const struct wnw__recorder_type wnw__nll_recorder = {
    .name = "likelihoods",
    .needs = WNW_NEED_PERPLEXITY,
    .needed = needed,
    .open = open_nll,
    .free = close_nll,
    .copy = copy_nll,
    .begin = begin,
    .logit_rows = logit_rows,
    .logits = logits,
    .told = told,
    .can_rewind = can_rewind,
};
