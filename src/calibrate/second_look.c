/* SPDX-License-Identifier: MIT */
#include "calibrate/second_look.h"

#include "base/err.h"
#include "calibrate/sample.h"
#include "session/planning/planning.h"
#include "session/session.h"

#include <stdlib.h>
#include <string.h>

enum { SINKS = 4 /* where no chat header is known */ };

int wnw__looked_layers(int32_t **il, int32_t *n_layer, const wnw_calibration *c)
{
    *n_layer = 0;
    *il = calloc((size_t)c->info.n_layer, sizeof **il);
    if (!*il)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d layers", (int)c->info.n_layer);
    for (int32_t i = 0; i < c->info.n_layer; i++)
        if (wnw__layer_takes_part(&c->shape, i))
            (*il)[(*n_layer)++] = i;
    if (*n_layer > 0)
        return WNW_OK;
    return wnw__fail(WNW_E_UNSUPPORTED,
                     "all layers of the model have a sliding window; policies leave them alone");
}

int wnw__look_fits(int32_t *most, const wnw_calibration *c, int32_t given)
{
    const int32_t n_ctx = c->info.n_ctx_train, fits = (n_ctx - WNW_LOOK_ROOM) / 2;
    *most = fits > 0 ? fits : 0;
    if (given <= *most && *most > 0)
        return WNW_OK;
    return wnw__fail(WNW_E_RANGE,
                     "pieces of %d tokens, read twice, do not fit the model's context of %d; at most %d do",
                     (int)(given > 1 ? given : 1), (int)n_ctx, (int)*most);
}

/* A source that hands scores on to l. */
struct listener {
    struct wnw__plan_source src; /* the first member, because callbacks get its address */
    struct wnw__looked *l;
};

static int take_scores(const struct wnw__plan_source *src, int32_t il, int32_t ih, const float *score,
                       int32_t n, wnw_protected prot)
{
    const struct wnw__looked *l = ((const struct listener *)src)->l;
    (void)prot;
    for (int32_t i = 0; i < l->n_layer; i++)
        if (l->il[i] == il && n == l->n_first + l->n)
            memcpy(l->score + ((int64_t)i * l->n_head_kv + ih) * l->n, score + l->n_first,
                   (size_t)l->n * sizeof *score);
    return WNW_OK;
}

/* Finds the entries that count, once the piece has been read. */
static int place_entries(struct wnw__looked *l, const wnw_prompt *prompt)
{
    const int32_t n_past = wnw_session_n_past(l->s);
    l->n_first = prompt->n_prefix > 0 ? prompt->n_prefix : SINKS;
    l->n = n_past - l->n_first;
    if (l->n < 1)
        return wnw__fail(WNW_E_RANGE, "a piece of %d tokens has none after the chat header", (int)n_past);
    return wnw__session_source(&l->src, l->s);
}

/* A piece as a document with a question after it. */
struct asked {
    char *text;
    wnw_prompt *prompt;
};

static int read_asked(struct wnw__looked *l, struct asked *a, wnw_calibration *c,
                      const wnw_policy *const *policies, int32_t n_policy, const int32_t *tokens, int32_t n)
{
    WNW_TRY(wnw__sample_text(&a->text, c, tokens, n));
    WNW_TRY(wnw__sample_prompt(&a->prompt, c, a->text, 0));
    WNW_TRY(wnw__sample_read(&l->s, c, policies, n_policy, l->record, a->prompt, n + WNW_LOOK_ROOM));
    return place_entries(l, a->prompt);
}

int wnw__look(struct wnw__looked *l, wnw_calibration *c, const wnw_policy *const *policies, int32_t n_policy,
              const int32_t *tokens, int32_t n)
{
    struct asked a = {0};
    const int rc = read_asked(l, &a, c, policies, n_policy, tokens, n);
    wnw_prompt_free(a.prompt);
    wnw_free(a.text);
    return rc;
}

int wnw__look_score(struct wnw__looked *l, const wnw_policy *policy)
{
    const wnw_size half = {.kind = WNW_SIZE_RATIO, .ratio = 0.5};
    wnw_plan *plan;
    l->score = calloc((size_t)(l->n_layer * l->n_head_kv) * (size_t)l->n, sizeof *l->score);
    if (!l->score)
        return wnw__fail(WNW_E_NOMEM, "no memory for the scores of %d entries", (int)l->n);
    struct listener to = {.src = l->src, .l = l};
    to.src.scored = take_scores;
    WNW_TRY(wnw__plan_make(&plan, policy, &half, &to.src, NULL));
    wnw_plan_free(plan);
    return WNW_OK;
}

int wnw__look_again(struct wnw__looked *l, wnw_calibration *c, const wnw_policy *const *policies,
                    int32_t n_policy, const int32_t *tokens, int32_t n)
{
    WNW_TRY(wnw__look(l, c, policies, n_policy, tokens, n));
    return wnw__look_score(l, policies[0]);
}

void wnw__looked_free(struct wnw__looked *l)
{
    wnw__source_close(&l->src);
    wnw_session_free(l->s);
    free(l->score);
    *l = (struct wnw__looked){0};
}
