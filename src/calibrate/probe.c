/* SPDX-License-Identifier: MIT */
/* Facts, grids and prompts of probes. */
#include "calibrate/probe.h"

#include "base/strings.h"
#include "text/tokens_marked.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Made up, so that no model knows them and no book has them. Every answer is a part of its sentence. */
static const struct fact {
    const char *sentence, *question, *answer;
} facts[WNW_PROBE_FACTS] = {
    {"The best way to spend a free morning in Lindholm is to rent a small rowing boat at the old salt "
     "harbour "
     "and eat warm plum bread on the lighthouse steps.",
     "What is the best way to spend a free morning in Lindholm?",
     "rent a small rowing boat at the old salt harbour and eat warm plum bread on the lighthouse steps"},
    {"The clockmaker Osric Vane lost his licence because he had secretly built a bell that rang backwards at "
     "every full moon.",
     "Why did the clockmaker Osric Vane lose his licence?",
     "he had secretly built a bell that rang backwards at every full moon"},
    {"In its yearly report the harbour office of Teverin wrote that the great storm had carried off "
     "forty-one "
     "fishing nets, two copper roofs and the wooden statue of the mayor.",
     "What had the great storm carried off, as the harbour office of Teverin wrote?",
     "forty-one fishing nets, two copper roofs and the wooden statue of the mayor"},
    {"The secret of the soup at the Blue Heron inn is a spoonful of burnt honey, crushed juniper berries and "
     "water from the mill spring.",
     "What is the secret of the soup at the Blue Heron inn?",
     "a spoonful of burnt honey, crushed juniper berries and water from the mill spring"},
    {"Doctor Amala Reyes found the missing map of Karst Island rolled inside a brass telescope behind the "
     "piano of the music school.",
     "Where did Doctor Amala Reyes find the missing map of Karst Island?",
     "rolled inside a brass telescope behind the piano of the music school"},
    {"Every winter the people of Orrinfeld celebrate the first snow by painting their doors bright yellow "
     "and "
     "flying paper cranes from the bridge.",
     "How do the people of Orrinfeld celebrate the first snow?",
     "by painting their doors bright yellow and flying paper cranes from the bridge"},
};

enum { LEAST_TEXT = 32 }; /* tokens of the haystack in the shortest probe */

/* ---- The grid ---- */

static int32_t or_default(int32_t given, int32_t other)
{
    return given > 0 ? given : other;
}

void wnw__probe_grid_resolve(struct wnw__probe_grid *g, const wnw_calibration *c)
{
    static const struct {
        int32_t n_facts, n_lengths, n_depths, shortest, longest;
    } efforts[] = {
        /* Ten depths as in the paper: of three, two are where streaming heads look. */
        [WNW_EFFORT_NORMAL] = {6, 3, 10, 1000, 4000},
        [WNW_EFFORT_QUICK] = {6, 2, 10, 500, 1000},
        [WNW_EFFORT_PAPER] = {3, 20, 10, 1000, 31500},
    };
    const int32_t most = c->info.n_ctx_train;
    g->n_facts = or_default(g->n_facts, efforts[c->params.effort].n_facts);
    g->n_lengths = or_default(g->n_lengths, efforts[c->params.effort].n_lengths);
    g->n_depths = or_default(g->n_depths, efforts[c->params.effort].n_depths);
    g->longest = or_default(g->longest, efforts[c->params.effort].longest);
    g->longest = g->longest < most ? g->longest : most;
    g->shortest = or_default(g->shortest, efforts[c->params.effort].shortest);
    g->shortest = g->shortest < g->longest ? g->shortest : g->longest;
}

/* Number i of n that lie evenly between from and to. */
static int32_t even(int32_t from, int32_t to, int32_t i, int32_t n)
{
    return n > 1 ? from + (int32_t)nearbyint((double)(to - from) * i / (n - 1)) : from;
}

static int32_t depth_of(const struct wnw__probe_grid *g, int32_t i)
{
    return even(0, 100, i, g->n_depths);
}

/* The depths in per cent of the text. */
static json_t *depths_json(const struct wnw__probe_grid *g)
{
    json_t *list = json_array();
    bool good = list != NULL;
    for (int32_t i = 0; good && i < g->n_depths; i++)
        good = json_array_append_new(list, json_integer(depth_of(g, i))) == 0;
    if (!good)
        json_decref(list);
    return good ? list : NULL;
}

static int set_grid(const struct wnw__probe_grid *g, wnw_calibration *c)
{
    WNW_TRY(wnw__calibrate_set(c, "facts", json_integer(g->n_facts)));
    WNW_TRY(wnw__calibrate_set(c, "lengths", json_integer(g->n_lengths)));
    WNW_TRY(wnw__calibrate_set(c, "depths", json_integer(g->n_depths)));
    WNW_TRY(wnw__calibrate_set(c, "depths_percent", depths_json(g)));
    WNW_TRY(wnw__calibrate_set(c, "shortest", json_integer(g->shortest)));
    return wnw__calibrate_set(c, "longest", json_integer(g->longest));
}

int wnw__probe_grid_open(struct wnw__probe_grid *g, wnw_calibration *c)
{
    WNW_TRY(set_grid(g, c));
    WNW_TRY(wnw__calibrate_tokens(c, 2 * g->longest, &g->text, &g->n_text));
    if (g->n_text < g->longest)
        return wnw__fail(
            WNW_E_RANGE,
            "the text has %d tokens, and probes of up to %d need as many without repetition; give "
            "a longer text, or a smaller longest=",
            (int)g->n_text, (int)g->longest);
    return WNW_OK;
}

void wnw__probe_grid_free(struct wnw__probe_grid *g)
{
    free(g->text);
    g->text = NULL;
}

int32_t wnw__probe_grid_n(const struct wnw__probe_grid *g)
{
    return g->n_facts * g->n_lengths * g->n_depths;
}

/* ---- A prompt ---- */

/* The text before and after the sentence, owned. */
struct around {
    char *before, *after;
};

static int ends_sentence(const wnw_calibration *c, int32_t token, bool *out)
{
    char *piece;
    WNW_TRY(wnw_token_piece(c->m, token, &piece));
    const size_t len = strlen(piece);
    *out = len > 0 && piece[len - 1] == '.';
    wnw_free(piece);
    return WNW_OK;
}

/* Where the sentence goes into text[n]: after the last full stop before the depth; 0 if there is none. */
static int find_place(const wnw_calibration *c, const int32_t *text, int32_t n, int32_t depth, int32_t *at)
{
    bool stop = false;
    *at = depth == 100 ? n : (int32_t)((int64_t)n * depth / 100);
    while (depth != 100 && *at > 0) {
        WNW_TRY(ends_sentence(c, text[*at - 1], &stop));
        if (stop)
            break;
        --*at;
    }
    return WNW_OK;
}

/* The text of whole characters. */
static int text_of(const wnw_calibration *c, const int32_t *tokens, int32_t n, char **out)
{
    WNW_TRY(wnw_detokenize(c->m, tokens, n, out));
    const size_t end = wnw__utf8_end(*out, strlen(*out)), start = wnw__utf8_start(*out, end);
    memmove(*out, *out + start, end - start);
    (*out)[end - start] = '\0';
    return WNW_OK;
}

/* Document and question in the model's chat template, or without one. */
static int build(wnw_prompt **out, const wnw_calibration *c, const struct wnw__probe_grid *g,
                 const struct fact *fact, const struct around *around)
{
    char question[200], *document;
    snprintf(question, sizeof question,
             "Based on the content of the book, Question: %s\nAnswer:", fact->question);
    if (asprintf(&document, "%s%s%s%s%s", around->before, *around->before ? " " : "", fact->sentence,
                 *around->after && *around->after != ' ' ? " " : "", around->after) < 0)
        return wnw__fail(WNW_E_NOMEM, "no memory for the text of a probe");
    wnw_prompt_params params = wnw_prompt_default_params();
    params.raw = g->raw;
    params.document = document;
    params.question = question;
    params.now = WNW_PROMPT_NOW;
    const int rc = wnw_prompt_build(out, c->m, &params);
    free(document);
    return rc;
}

/* The answer has the tokens that it has after a blank, or those at the beginning of a text: vocabularies
 * differ in this. A sequence that is there exactly is better than one that nearly is. */
static int find_answer(struct wnw__probe *p, const wnw_calibration *c)
{
    struct wnw__answer_span near = {0};
    const int32_t before = -1; /* some text */
    char text[200];
    for (int with = 1; with >= 0; with--) {
        int32_t *ids, n;
        const int len = snprintf(text, sizeof text, "%s%s", with ? " " : "", p->answer);
        WNW_TRY(wnw__tokenize_plain(c->m, text, (size_t)len, &before, &ids, &n));
        const bool found = wnw__span_find(&p->span, p->tokens, p->n, ids, n);
        const bool exact = found && memcmp(p->tokens + p->span.first, ids, (size_t)n * sizeof *ids) == 0;
        wnw_free(ids);
        if (exact)
            return WNW_OK;
        near = found && near.n == 0 ? p->span : near;
    }
    p->span = near;
    return near.n > 0 ? WNW_OK
                      : wnw__fail(WNW_E_UNSUPPORTED,
                                  "the tokens of the answer \"%.60s\" are not in the prompt: the model's "
                                  "tokenizer writes it otherwise there",
                                  p->answer);
}

/* A text has a few tokens more or less when it is next to other text. */
enum { SLACK = 8 };

/* Tokens of the haystack in a prompt of this length. */
static int room_for_text(const wnw_calibration *c, const struct wnw__probe_grid *g, const struct fact *fact,
                         int32_t length, int32_t *room)
{
    char none[1] = "";
    wnw_prompt *bare = NULL;
    WNW_TRY(build(&bare, c, g, fact, &(struct around){none, none}));
    *room = length - bare->n_tokens - g->n_answer - SLACK;
    wnw_prompt_free(bare);
    if (*room < LEAST_TEXT)
        return wnw__fail(
            WNW_E_RANGE,
            "a context of %d tokens is too short for a probe: sentence, question and answer have "
            "%d, and %d more are needed for a text around them",
            (int)length, (int)(length - *room), LEAST_TEXT);
    return WNW_OK;
}

static int fill(struct wnw__probe *p, const wnw_calibration *c, const struct wnw__probe_grid *g,
                const struct fact *fact, const int32_t *text, int32_t n, int32_t depth)
{
    struct around around = {0};
    int32_t at;
    WNW_TRY(find_place(c, text, n, depth, &at));
    int rc = text_of(c, text, at, &around.before);
    if (rc == WNW_OK)
        rc = text_of(c, text + at, n - at, &around.after);
    if (rc == WNW_OK)
        rc = build(&p->prompt, c, g, fact, &around);
    wnw_free(around.before);
    wnw_free(around.after);
    if (rc != WNW_OK)
        return rc;
    p->tokens = p->prompt->tokens;
    p->n = p->prompt->n_tokens;
    return find_answer(p, c);
}

int wnw__probe_make(struct wnw__probe *out, const wnw_calibration *c, const struct wnw__probe_grid *g,
                    int32_t i)
{
    const int32_t number = i / (g->n_lengths * g->n_depths);
    const int32_t length = even(g->shortest, g->longest, i / g->n_depths % g->n_lengths, g->n_lengths);
    const int32_t depth = depth_of(g, i % g->n_depths);
    const struct fact *fact = &facts[number];
    int32_t n;
    *out = (struct wnw__probe){.fact = number, .answer = fact->answer};
    snprintf(out->id, sizeof out->id, "%d.%d.%d", (int)number, (int)length, (int)depth);
    WNW_TRY(room_for_text(c, g, fact, length, &n));
    /* The facts begin at different places of the text. */
    const int32_t start =
        g->n_facts > 1 ? (int32_t)((int64_t)(g->n_text - n) * number / (g->n_facts - 1)) : 0;
    const int rc = fill(out, c, g, fact, g->text + start, n, depth);
    if (rc != WNW_OK)
        wnw__probe_free(out);
    return rc;
}

void wnw__probe_free(struct wnw__probe *p)
{
    wnw_prompt_free(p->prompt);
    p->prompt = NULL;
    p->tokens = NULL;
}
