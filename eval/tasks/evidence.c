/* SPDX-License-Identifier: MIT */
/*
 * The evidence is looked for in the text of the tokens and not counted from the sample's bytes: chat templates and
 * tokenizers put texts of their own in front, and long contexts lose their middle.
 */
#include "eval/tasks/evidence.h"

#include "app/console.h"
#include "eval/base/grow.h"

#include <stdlib.h>
#include <string.h>

/* Text of ids[n], and in end[n] where each token ends in it. */
static int spell(struct app_text *out, size_t *end, const wnw_model *m, const int32_t *ids, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        char *piece = NULL;
        const int status = wnw_token_piece(m, ids[i], &piece);
        if (status != WNW_OK)
            return app_fail_status(status);
        const bool good = app_text_add(out, piece, strlen(piece));
        wnw_free(piece);
        if (!good)
            return app_fail(APP_FAILED, "out of memory for the text of %d tokens", (int)n);
        end[i] = out->len;
    }
    return APP_OK;
}

/* The tokens that hold text[from, to). */
static struct eval_token_span tokens_of(const size_t *end, size_t from, size_t to)
{
    struct eval_token_span t = {0};
    while (end[t.from] <= from)
        t.from++;
    t.to = t.from;
    while (end[t.to] < to)
        t.to++;
    t.to++;
    return t;
}

int eval_evidence_find(struct eval_evidence *e, const wnw_model *m, const struct eval_sample *s,
                       const int32_t *ids, int32_t n)
{
    struct app_text text = {0};
    *e = (struct eval_evidence){0};
    if (s->n_spans == 0)
        return APP_OK;
    size_t *end = malloc(((size_t)n + 1) * sizeof *end);
    e->span = calloc((size_t)s->n_spans, sizeof *e->span);
    int rc = end && e->span ? spell(&text, end, m, ids, n) : eval_no_memory("the evidence of a sample");
    for (int32_t i = 0; rc == APP_OK && i < s->n_spans; i++) {
        const size_t len = s->spans[i].to - s->spans[i].from;
        const char *found =
            text.s && len > 0 ? memmem(text.s, text.len, s->context.s + s->spans[i].from, len) : NULL;
        if (!found) {
            e->n = 0;
            break;
        }
        const size_t from = (size_t)(found - text.s);
        e->span[e->n++] = tokens_of(end, from, from + len);
    }
    free(text.s);
    free(end);
    return rc;
}

void eval_evidence_clear(struct eval_evidence *e)
{
    free(e->span);
    *e = (struct eval_evidence){0};
}

bool eval_evidence_within(const struct eval_evidence *e, int32_t n_first, int32_t n_last, int32_t n)
{
    for (int32_t i = 0; i < e->n; i++)
        if (e->span[i].to > n_first && e->span[i].from < n - n_last && n_first < n - n_last)
            return false;
    return true;
}
