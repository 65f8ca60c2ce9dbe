/* SPDX-License-Identifier: MIT */
/* Long keys, and lines that are to be repeated word for word. */
#include "eval/tasks/makers.h"

#include "app/console.h"
#include "eval/base/grow.h"

#include <stdlib.h>
#include <string.h>

/* ---- Passkeys ---- */

enum { MAX_DIGITS = 64 };

/* Draws n random digits that do not occur in the text. */
static void draw_digits(char *out, int n, struct eval_draft *d)
{
    do {
        for (int i = 0; i < n; i++)
            out[i] = (char)('0' + eval_random_below(&d->r, 10));
        out[n] = '\0';
    } while (eval_haystack_says(&d->w->haystack, (size_t)d->units, out));
}

int eval_make_passkey(struct eval_sample *s, struct eval_draft *d)
{
    struct eval_source *w = d->w;
    const size_t n = (size_t)d->units, before = (size_t)((double)n * eval_grid_depth(w, s->index) / 100);
    char digits[MAX_DIGITS + 1], key_text[2 * MAX_DIGITS + 64];
    WNW_TRY(eval_haystack_reserve(&w->haystack, n));
    draw_digits(digits, *(const int *)d->task->params, d);
    const int len = snprintf(key_text, sizeof key_text,
                             "The pass key is %s. Remember it. %s is the pass key.", digits, digits);
    /* Words keep the blank after them, and pieces are joined by one: this is how the passkey's authors write
     * it. */
    const size_t all = eval_haystack_length(&w->haystack, n),
                 place = before < n ? w->haystack.now.word[before] : all;
    eval_put(s, &s->context, "%s%.*s ", eval_form_passkey.at[EVAL_CONTEXT], (int)place,
             w->haystack.now.text.s);
    eval_put_piece(s, key_text, (size_t)len, true);
    eval_put(s, &s->context, " %.*s ", (int)(all - place), w->haystack.now.text.s + place);
    eval_add_ref(s, eval_ask(s, &eval_form_passkey, NULL), digits);
    eval_note_grid(s, w);
    return APP_OK;
}

/* ---- Lines to repeat ---- */

enum { N_REPEATED = 24 };

int eval_make_repeat(struct eval_sample *s, struct eval_draft *d)
{
    struct eval_random *r = &d->r;
    const int64_t from = 1 + (int64_t)eval_random_below(r, (uint64_t)(d->units - N_REPEATED + 1));
    struct app_text wanted = {0};
    char first[32], last[32];
    for (int64_t k = 1; k <= d->units; k++) {
        char line[96];
        const char *adjective = eval_draw(r, &eval_adjectives), *noun = eval_draw(r, &eval_nouns);
        const char *verb = eval_draw(r, &eval_verbs);
        const int len = snprintf(line, sizeof line, "Line %lld: %s %s %s %s", (long long)k, adjective, noun,
                                 verb, eval_draw(r, &eval_nouns));
        const bool asked = k >= from && k < from + N_REPEATED;
        eval_put_piece(s, line, (size_t)len, asked);
        if (asked)
            eval_put(s, &wanted, "%s%s", wanted.len > 0 ? "\n" : "", line);
        eval_put(s, &s->context, "\n");
    }
    snprintf(first, sizeof first, "%lld", (long long)from);
    snprintf(last, sizeof last, "%lld", (long long)(from + N_REPEATED - 1));
    eval_add_ref(s, eval_ask(s, &eval_form_repeat, (const char *const[]){"from", first, "to", last, NULL}),
                 wanted.s ? wanted.s : "");
    free(wanted.s);
    return APP_OK;
}
