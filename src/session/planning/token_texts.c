/* SPDX-License-Identifier: MIT */
#include "session/planning/token_texts.h"

#include "base/err.h"
#include "model/model.h"

#include <stdlib.h>

void wnw__token_texts_free(struct wnw__token_texts *t)
{
    for (int32_t i = 0; t->text && i < t->n_vocab; i++)
        wnw_free(t->text[i]);
    free(t->text);
    free(t->at);
    *t = (struct wnw__token_texts){0};
}

static int reserve(struct wnw__token_texts *t, const wnw_model *m, int32_t n)
{
    if (!t->text) {
        t->text = calloc((size_t)m->hp.n_vocab + 1, sizeof *t->text);
        if (!t->text)
            return wnw__fail(WNW_E_NOMEM, "no memory for the texts of %d tokens", (int)m->hp.n_vocab);
        t->n_vocab = m->hp.n_vocab;
    }
    if (t->at && n <= t->cap)
        return WNW_OK;
    const char **at = realloc(t->at, ((size_t)n + 1) * sizeof *at);
    if (!at)
        return wnw__fail(WNW_E_NOMEM, "no memory for the texts of %d tokens", (int)n);
    t->at = at;
    t->cap = n;
    return WNW_OK;
}

int wnw__token_texts_reach(struct wnw__token_texts *t, const wnw_model *m, const int32_t *tokens, int32_t n)
{
    WNW_TRY(reserve(t, m, n));
    for (; t->n < n; t->n++) {
        const int32_t id = tokens[t->n];
        const bool known = id >= 0 && id < t->n_vocab;
        if (known && !t->text[id])
            WNW_TRY(wnw_token_piece(m, id, &t->text[id]));
        t->at[t->n] = known ? t->text[id] : NULL;
    }
    return WNW_OK;
}
