/* SPDX-License-Identifier: MIT */
/* Long keys, and lines that are to be repeated word for word. */
#include "eval/tasks/task.h"

#include "app/console.h"

#include <stdlib.h>
#include <string.h>

/* ---- Passkeys ---- */

enum { MAX_DIGITS = 64 };

static const char instruction[] = "There is an important info hidden inside a lot of irrelevant text. Find "
                                  "it and memorize it. I will quiz you about "
                                  "the important information there.\n";

/* Draws n random digits that do not occur in the haystack. */
static void draw_digits(char *out, int n, const struct eval_source *w, struct eval_random *r)
{
    do {
        for (int i = 0; i < n; i++)
            out[i] = (char)('0' + eval_random_below(r, 10));
        out[n] = '\0';
    } while (w->haystack.text.s && strstr(w->haystack.text.s, out));
}

static int make_passkey(struct eval_sample *s, struct eval_draft *d)
{
    struct eval_source *w = d->w;
    const double depth = eval_grid_depth(w, s->index);
    const size_t n = (size_t)d->units, before = (size_t)((double)n * depth / 100);
    char digits[MAX_DIGITS + 1], key_text[2 * MAX_DIGITS + 64];
    const int rc = eval_haystack_reserve(&w->haystack, n);
    if (rc != APP_OK)
        return rc;
    draw_digits(digits, *(const int *)d->task->params, w, &d->r);
    const int len = snprintf(key_text, sizeof key_text,
                             "The pass key is %s. Remember it. %s is the pass key.", digits, digits);
    /* Words keep the blank after them, and pieces are joined by one: this is how the passkey's authors write
     * it. */
    const size_t all = eval_haystack_length(&w->haystack, n),
                 at = before < n ? w->haystack.word[before] : all;
    eval_put(s, &s->context, "%s", instruction);
    eval_put_n(s, &s->context, w->haystack.text.s, at);
    eval_put(s, &s->context, " ");
    eval_put_piece(s, key_text, (size_t)len, true);
    eval_put(s, &s->context, " ");
    eval_put_n(s, &s->context, w->haystack.text.s + at, all - at);
    eval_put(s, &s->context, " ");
    struct eval_turn *turn = eval_add_turn(s);
    eval_put(s, &turn->question, "\nWhat is the pass key?");
    eval_put(s, &turn->prefix, " The pass key is ");
    eval_add_ref(s, turn, digits);
    eval_set_meta(s, "grid_depth", json_real(depth));
    eval_set_meta(s, "trial", json_integer(s->index % w->n_trials));
    return APP_OK;
}

/* ---- Lines to repeat ---- */

enum { N_REPEATED = 24 };

static int make_repeat(struct eval_sample *s, struct eval_draft *d)
{
    struct eval_random *r = &d->r;
    const int64_t from = 1 + (int64_t)eval_random_below(r, (uint64_t)(d->units - N_REPEATED + 1));
    struct app_text wanted = {0};
    struct eval_turn *turn = eval_add_turn(s);
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
    eval_put(s, &turn->question, "\nRepeat lines %lld to %lld exactly, one per line.", (long long)from,
             (long long)(from + N_REPEATED - 1));
    eval_add_ref(s, turn, wanted.s ? wanted.s : "");
    free(wanted.s);
    return APP_OK;
}

static const int digits_64 = 64, digits_7 = 7;

const struct eval_task eval_tasks_passkey[] = {
    {"passkey64", "passkey", "a key of 64 digits in text", "words", "exact", 256, 512,
     EVAL_ON_GRID | EVAL_HIDES_IN_TEXT, 500, 1, make_passkey, &digits_64, NULL},
    {"passkey7", "passkey", "a key of 7 digits in text", "words", "exact", 32, 192,
     EVAL_ON_GRID | EVAL_HIDES_IN_TEXT, 500, 1, make_passkey, &digits_7, NULL},
    {"repeat_syn", "passkey", "24 of many lines, word for word", "lines", "repeat_lines", 320, 1024, 0, 25,
     N_REPEATED, make_repeat, NULL, NULL},
    {.name = NULL},
};
