/* SPDX-License-Identifier: MIT */
#include "calibrate/compiler_impl.h"

#include <string.h>

enum { MOST_TOKENS = 1 << 24 }; /* what is read of the texts at most */

/* Tokens of the texts that an item takes: a BOS is not among them. */
static int32_t taken(const struct wnw__compiling *w, const struct wnw__compiler_item *item)
{
    return item->n_prompt - (w->bos >= 0) + w->o.next;
}

/* What prompts take of one text. */
struct part {
    int32_t first, n;        /* its tokens among those of all texts */
    int32_t n_of[2], n_seen; /* prompts of it: tried, held out; how many have their place */
    int64_t taken, at;       /* tokens of its prompts, and of those that have their place */
};

/* The text that the next prompt is taken from: each has as many as it has tokens, in proportion. -1: none has room. */
static int32_t next_text(const struct part *parts, int32_t n_part, bool held_out, int32_t n_tokens)
{
    int32_t best = -1;
    double most = 0;
    for (int32_t k = 0; k < n_part; k++) {
        const double share = parts[k].n / (1.0 + parts[k].n_of[held_out]);
        if (parts[k].taken + n_tokens > parts[k].n || share <= most)
            continue;
        most = share;
        best = k;
    }
    return best;
}

/* Chooses a text for every prompt: w->items[i].text. */
static int choose_texts(struct wnw__compiling *w, struct part *parts, int32_t most)
{
    for (int32_t i = 0; i < wnw__compiler_n_items(w); i++) {
        const bool held_out = i >= w->o.items;
        const int32_t n = taken(w, &w->items[i]), k = next_text(parts, w->c->params.n_texts, held_out, n);
        if (k < 0)
            return wnw__fail(
                WNW_E_RANGE,
                "the texts have %d tokens, which is too little for %d prompts of up to %d and the %d after "
                "each; give more text, or fewer or shorter prompts (items, held_out, length)",
                (int)w->n_tokens, (int)wnw__compiler_n_items(w), (int)most, (int)w->o.next);
        w->items[i].text = k;
        parts[k].taken += n;
        parts[k].n_of[held_out]++;
    }
    return WNW_OK;
}

/* Gives every prompt its place: in its text the items come first, and what is left lies in equal gaps. */
static void place(struct wnw__compiling *w, struct part *parts)
{
    for (int32_t i = 0; i < wnw__compiler_n_items(w); i++) {
        struct part *p = &parts[w->items[i].text];
        w->items[i].first =
            (int32_t)(p->first + p->at + (p->n - p->taken) * p->n_seen / (p->n_of[0] + p->n_of[1]));
        p->at += taken(w, &w->items[i]);
        p->n_seen++;
    }
}

/* Tells the profile how many prompts came from each text. */
static int set_counts(struct wnw__compiling *w, const char *key, const struct part *parts, bool held_out)
{
    json_t *v = json_array();
    for (int32_t k = 0; v && k < w->c->params.n_texts; k++)
        json_array_append_new(v, json_integer(parts[k].n_of[held_out]));
    return wnw__calibrate_set(w->c, key, v);
}

int wnw__compiler_lay_out(struct wnw__compiling *w, const int32_t *lengths, int32_t n_lengths)
{
    const int32_t n_part = w->c->params.n_texts;
    int32_t most = 0;
    for (int32_t i = 0; i < wnw__compiler_n_items(w); i++) {
        w->items[i].n_prompt = lengths[i % n_lengths];
        most = lengths[i % n_lengths] > most ? lengths[i % n_lengths] : most;
    }
    int32_t *end = wnw__compiler_own(w, (size_t)n_part, sizeof *end);
    struct part *parts = wnw__compiler_own(w, (size_t)n_part, sizeof *parts);
    w->prompt = wnw__compiler_own(w, (size_t)(most + w->o.next), sizeof *w->prompt);
    if (w->short_of_memory)
        return wnw__fail(WNW_E_NOMEM, "no memory for prompts of %d tokens", (int)most);
    WNW_TRY(wnw__calibrate_bos(w->c, &w->bos));
    WNW_TRY(wnw__calibrate_tokens_of_texts(w->c, MOST_TOKENS, &w->tokens, end));
    w->n_tokens = end[n_part - 1];
    for (int32_t k = 0; k < n_part; k++) {
        parts[k].first = k > 0 ? end[k - 1] : 0;
        parts[k].n = end[k] - parts[k].first;
    }
    WNW_TRY(choose_texts(w, parts, most));
    place(w, parts);
    WNW_TRY(set_counts(w, "items_of_texts", parts, false));
    return set_counts(w, "held_out_of_texts", parts, true);
}

struct wnw__trial_text wnw__compiler_text(struct wnw__compiling *w, const struct wnw__compiler_item *item)
{
    const int32_t n_bos = w->bos >= 0;
    if (n_bos)
        w->prompt[0] = w->bos;
    memcpy(w->prompt + n_bos, w->tokens + item->first, (size_t)taken(w, item) * sizeof *w->prompt);
    return (struct wnw__trial_text){.tokens = w->prompt, .n_prompt = item->n_prompt, .n_next = w->o.next};
}
