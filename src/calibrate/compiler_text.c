/* SPDX-License-Identifier: MIT */
#include "calibrate/compiler_impl.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_TOKENS = 1 << 24 }; /* what is read of the texts at most */

/* Sets w->bos to the token that the vocabulary wants in front of a text. */
static int find_bos(struct wnw__compiling *w)
{
    int32_t *with = NULL, n = 0;
    WNW_TRY(wnw_tokenize(w->c->m, "", 0, true, false, &with, &n));
    w->bos = n > 0 ? with[0] : -1;
    wnw_free(with);
    return WNW_OK;
}

/* Tokens of the texts that an item takes: a BOS is not among them. */
static int32_t taken(const struct wnw__compiling *w, const struct wnw__compiler_item *item)
{
    return item->n_prompt - (w->bos >= 0) + w->o.next;
}

int wnw__compiler_lay_out(struct wnw__compiling *w, const int32_t *lengths, int32_t n_lengths)
{
    const int32_t n = wnw__compiler_n_items(w);
    int64_t sum = 0;
    int32_t most = 0;
    WNW_TRY(find_bos(w));
    for (int32_t i = 0; i < n; i++) {
        w->items[i].n_prompt = lengths[i % n_lengths];
        most = lengths[i % n_lengths] > most ? lengths[i % n_lengths] : most;
        sum += taken(w, &w->items[i]);
    }
    WNW_TRY(wnw__calibrate_tokens(w->c, MOST_TOKENS, &w->tokens, &w->n_tokens));
    if (w->n_tokens < sum)
        return wnw__fail(WNW_E_RANGE,
                         "the texts have %d tokens, and %d prompts of up to %d and the %d after each take "
                         "%lld; give more text, or fewer or shorter prompts (items, held_out, length)",
                         (int)w->n_tokens, (int)n, (int)most, (int)w->o.next, (long long)sum);
    int64_t at = 0;
    for (int32_t i = 0; i < n; i++) { /* what is left lies in equal gaps between them */
        w->items[i].first = (int32_t)(at + (w->n_tokens - sum) * i / n);
        at += taken(w, &w->items[i]);
    }
    w->prompt = malloc((size_t)(most + w->o.next) * sizeof *w->prompt);
    return w->prompt ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for a prompt of %d tokens", (int)most);
}

struct wnw__trial_text wnw__compiler_text(struct wnw__compiling *w, const struct wnw__compiler_item *item)
{
    const int32_t n_bos = w->bos >= 0;
    if (n_bos)
        w->prompt[0] = w->bos;
    memcpy(w->prompt + n_bos, w->tokens + item->first, (size_t)taken(w, item) * sizeof *w->prompt);
    return (struct wnw__trial_text){.tokens = w->prompt, .n_prompt = item->n_prompt, .n_next = w->o.next};
}
