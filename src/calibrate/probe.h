/* SPDX-License-Identifier: MIT */
/*
 * Probes: a long text with one sentence that does not belong there, a question about it, and the answer, which
 * is a part of the sentence (needle in a haystack, as in "Retrieval Head", arXiv 2404.15574). The sentence is
 * inserted after a full stop of the text. Text and question are laid out as winnow lays out prompts.
 */
#ifndef WNW_CALIBRATE_PROBE_H
#define WNW_CALIBRATE_PROBE_H

#include "calibrate/calibrate.h"
#include "calibrate/retrieval.h"
#include "text/prompt.h"

/* A grid of probes: every fact x every length x every depth. */
struct wnw__probe_grid {
    int32_t n_facts, n_lengths, n_depths;
    int32_t shortest, longest; /* tokens, prompt and answer together; lengths lie evenly between them */
    int32_t n_answer;          /* tokens that may be generated */
    bool raw;                  /* no chat template */
    int32_t *text, n_text;     /* tokens of the haystack, owned */
};

enum { WNW_PROBE_FACTS = 6 };

/* Fills in the counts and lengths that are 0: what the effort says. longest is at most what the model was
 * trained for. */
void wnw__probe_grid_resolve(struct wnw__probe_grid *g, const wnw_calibration *c);
/* Sets the grid's numbers as settings, and reads the text. E_RANGE: the context is too short for the probes,
 * or the text for the context. *g is released with wnw__probe_grid_free, after a failure too. */
int wnw__probe_grid_open(struct wnw__probe_grid *g, wnw_calibration *c);
void wnw__probe_grid_free(struct wnw__probe_grid *g);
int32_t wnw__probe_grid_n(const struct wnw__probe_grid *g);

struct wnw__probe {
    char id[32];           /* "fact.length.depth": "2.1000.33" */
    int32_t fact;          /* 0 .. WNW_PROBE_FACTS - 1 */
    const char *answer;    /* static */
    const int32_t *tokens; /* [n], of prompt */
    int32_t n;
    struct wnw__answer_span span; /* of the answer in tokens */
    wnw_prompt *prompt;           /* owned */
};

/* Makes probe i, 0 <= i < wnw__probe_grid_n, in the order fact, length, depth. *out is released with
 * wnw__probe_free. */
int wnw__probe_make(struct wnw__probe *out, const wnw_calibration *c, const struct wnw__probe_grid *g,
                    int32_t i);
void wnw__probe_free(struct wnw__probe *p);

/* How a probe is answered. */
struct wnw__probe_play {
    int32_t n_answer;  /* tokens at most */
    bool stop_at_line; /* end at an end-of-generation token, or at a line break after the first token */
    bool forced;       /* the answer's own tokens are produced, regardless of what the model would say */
    /* Is called for every query head h of every layer without a sliding window, in order, after every step:
     * row[n] is the attention over all entries of the query that produced `token`. */
    void (*look)(void *user, int32_t il, int32_t h, const float *row, int32_t n, int32_t token);
    void *user;
    int32_t *tokens, n;  /* set: tokens[n_answer] that were produced; the caller's array */
    int32_t n_predicted; /* set: how many of them the model would have produced itself */
};

/* Reads the prompt but its last token, then decodes greedily with the full cache. */
int wnw__probe_play(wnw_calibration *c, const struct wnw__probe *p, struct wnw__probe_play *play);

#endif
