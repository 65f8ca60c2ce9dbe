/* SPDX-License-Identifier: MIT */
/* The needle pressure test: one sentence at a given depth of a text of a given length, cut and joined as
 * tokens. */
#include "eval/tasks/makers.h"

#include "app/console.h"
#include "eval/base/grow.h"

#include <stdlib.h>
#include <string.h>

/* The most tokens that joining may add or lose; the most that the haystack begins later. */
enum { MAX_DRIFT = 8, MAX_SHIFT = 4 };

/* CompressKV's code writes this in front of the prompt, regardless of the model. */
static const char mark[] = "<|im_start|> ";

/* The hidden sentence, the question and the answer. */
struct needle {
    struct app_text text, question, expected;
};

/* Writes a needle as a form has it: the sentence, what is asked about it, the answer. */
static void put_form(struct needle *n, struct eval_sample *s, const struct eval_list *form,
                     const char *const *values)
{
    eval_put_template(s, &n->expected, form->at[2], values);
    eval_put_template(s, &n->question, form->at[1], values);
    eval_put_template(
        s, &n->text, form->at[0],
        (const char *const[]){"expected", n->expected.s ? n->expected.s : "", values[0], values[1], NULL});
}

/* A number or two words under a key of two words. */
static void make_value(struct needle *n, struct eval_sample *s, struct eval_random *r, enum eval_value kind)
{
    char key[EVAL_MAX_VALUE], value[EVAL_MAX_VALUE];
    eval_draw_value(key, r, EVAL_WORDS);
    do
        eval_draw_value(value, r, kind);
    while (strcmp(key, value) == 0);
    char *text = eval_needle_text(s, kind, key, value);
    eval_put(s, &n->text, "\n%s\n", text ? text : "");
    eval_put_template(s, &n->question, eval_form_niah_one.at[EVAL_QUESTION],
                      (const char *const[]){"type", eval_value_name(kind), "query", key, NULL});
    eval_put(s, &n->expected, "%s", value);
    free(text);
}

static void make_random(struct needle *n, struct eval_sample *s, const struct eval_source *w,
                        struct eval_random *r)
{
    const char *town = w->haystack.prose.names.town[eval_random_below(r, EVAL_N_TOWNS)];
    const char *verb = eval_draw(r, &eval_verbs), *adjective = eval_draw(r, &eval_adjectives);
    while (strchr("aeiou", *adjective)) /* the article before it is "a" */
        adjective = eval_draw(r, &eval_adjectives);
    const char *noun = eval_draw(r, &eval_nouns), *verb2 = eval_draw(r, &eval_verbs);
    const char *adjective2 = eval_draw(r, &eval_adjectives), *noun2 = eval_draw(r, &eval_nouns);
    put_form(n, s, &eval_form_grid_random,
             (const char *const[]){"town", town, "verb", verb, "adjective", adjective, "noun", noun, "verb2",
                                   verb2, "adjective2", adjective2, "noun2", noun2, NULL});
}

static void free_needle(struct needle *n)
{
    free(n->text.s);
    free(n->question.s);
    free(n->expected.s);
}

/* Token ids of the beginning of the haystack, at least n of them if the haystack has no end. The caller frees
 * them. */
static int haystack_ids(int32_t **ids, int32_t *n_ids, struct eval_source *w, int32_t n)
{
    *ids = NULL;
    *n_ids = 0;
    for (size_t n_words = (size_t)n; *n_ids < n; n_words *= 2) {
        wnw_free(*ids);
        *ids = NULL;
        WNW_TRY(eval_haystack_reserve(&w->haystack, n_words));
        WNW_TRY(w->tokenizer->encode(w->tokenizer, w->haystack.now.text.s,
                                     eval_haystack_length(&w->haystack, n_words), ids, n_ids));
    }
    return APP_OK;
}

/* Whether the token's text ends with a full stop. */
static int ends_sentence(bool *ends, const struct eval_source *w, int32_t id)
{
    char *text;
    WNW_TRY(w->tokenizer->decode(w->tokenizer, &id, 1, &text));
    *ends = *text && text[strlen(text) - 1] == '.';
    wnw_free(text);
    return APP_OK;
}

/* Finds the needle's place: at the depth, moved back after a full stop, or 0 if there is none before it. */
static int find_depth(int32_t *at_token, const struct eval_source *w, const int32_t *ids, int32_t n,
                      double depth)
{
    bool ends = depth >= 100;
    for (*at_token = (int32_t)(n * depth / 100); !ends && *at_token > 0; *at_token -= !ends)
        WNW_TRY(ends_sentence(&ends, w, ids[*at_token - 1]));
    return APP_OK;
}

static int put_text(struct eval_sample *s, const struct eval_source *w, const int32_t *ids, int32_t n)
{
    char *text;
    WNW_TRY(w->tokenizer->decode(w->tokenizer, ids, n, &text));
    eval_put(s, &s->context, "%s", text);
    wnw_free(text);
    return APP_OK;
}

/* Puts the text of ids[n_text] with the needle in it in the place of what the context has after `from`. */
static int put_around(struct eval_sample *s, const struct eval_source *w, const struct needle *n, size_t from,
                      const int32_t *ids, int32_t n_text)
{
    int32_t at_token;
    WNW_TRY(find_depth(&at_token, w, ids, n_text, eval_grid_depth(w, s->index)));
    s->context.len = from;
    s->n_spans = 0;
    WNW_TRY(put_text(s, w, ids, at_token));
    eval_put_piece(s, n->text.s, n->text.len, true);
    return put_text(s, w, ids + at_token, n_text - at_token);
}

/* Joins n_text tokens of the haystack, from token `first` on, and the needle in them, in the place of what the context has
 * after `from`. *n_joined becomes the tokens of the joined text. */
static int join(struct eval_sample *s, int32_t *n_joined, struct eval_source *w, const struct needle *n,
                size_t from, int32_t first, int32_t n_text)
{
    int32_t *ids = NULL, n_ids;
    int rc = haystack_ids(&ids, &n_ids, w, first + n_text);
    if (rc == APP_OK)
        rc = put_around(s, w, n, from, ids + first, n_text);
    wnw_free(ids);
    return rc == APP_OK && !s->no_memory
               ? eval_count_tokens(n_joined, w->tokenizer, s->context.s + from, s->context.len - from)
               : rc;
}

/* Adds the haystack with the needle in it, which have `units` tokens together. Where the joined text has many more or fewer,
 * the haystack begins a few tokens later, so that it is cut elsewhere; if that does not help, the sample is left out. */
static int put_needle(struct eval_sample *s, struct eval_source *w, const struct needle *n, int64_t units)
{
    int32_t n_needle, n_joined = 0;
    int rc = eval_count_tokens(&n_needle, w->tokenizer, n->text.s, n->text.len);
    const int32_t n_text = (int32_t)units - n_needle;
    const size_t from = s->context.len;
    s->too_few = n_text <= 0;
    if (rc != APP_OK || s->too_few)
        return rc;
    s->unmade = true;
    for (int32_t first = 0; rc == APP_OK && s->unmade && first <= MAX_SHIFT; first++) {
        rc = join(s, &n_joined, w, n, from, first, n_text);
        s->unmade = !s->no_memory && abs(n_joined - (int32_t)units) > MAX_DRIFT;
    }
    eval_set_meta(s, "drift", json_integer(n_joined - units));
    eval_note_grid(s, w);
    return rc;
}

/* The unit is a token of text and needle. */
int eval_make_grid(struct eval_sample *s, struct eval_draft *d)
{
    const struct eval_source *w = d->w;
    struct needle n = {0};
    int rc = APP_OK;
    if (strcmp(w->needle, "sf") == 0)
        put_form(&n, s, &eval_form_grid_famous, (const char *const[]){NULL, NULL});
    else if (strcmp(w->needle, "num") == 0)
        make_value(&n, s, &d->r, EVAL_NUMBER);
    else if (strcmp(w->needle, "words") == 0)
        make_value(&n, s, &d->r, EVAL_WORDS);
    else
        make_random(&n, s, w, &d->r);
    eval_put(s, &s->context, "%s%s", w->needle_mark ? mark : "", eval_form_grid.at[EVAL_CONTEXT]);
    if (!s->no_memory)
        rc = put_needle(s, d->w, &n, d->units);
    if (rc == APP_OK && !s->too_few && !s->no_memory) {
        eval_put(s, &s->context, " </book>.\n");
        eval_add_ref(s, eval_ask(s, &eval_form_grid, (const char *const[]){"question", n.question.s, NULL}),
                     n.expected.s);
        eval_set_meta(s, "needle", json_stringn(n.text.s, n.text.len));
    }
    free_needle(&n);
    return rc;
}
