/* SPDX-License-Identifier: MIT */
/*
 * What kinds of gates share. A gate is a linear form of numbers that are known of an entry after one reading, its features,
 * that predicts the score of a method that reads twice, the target. The model reads pieces of text, and the target scores
 * their entries. With Z its scores of the entries after the chat header and f their features, y = log(Z + 1e-6), means over
 * the entries of a piece taken off (f', y'), N entries in all:
 *
 *     G = sum f' f'^T / N,   r = sum f' y' / N,   D = diag(G)^1/2
 *     w = D^-1 (D^-1 G D^-1 + lambda I)^-1 D^-1 r,   b = mean y - w . mean f          lambda = 0.01
 *
 * There is nothing random, so the same texts give the same bytes. The last piece of every text is not learned from; on these
 * the report compares predicted with true scores.
 *
 * A piece is a unit of work. What is remembered of one that is learned from are the target's scores, which cost the second
 * reading: a run that was interrupted reads such pieces once more for their features (decision 076).
 */
#ifndef WNW_CALIBRATE_GATES_H
#define WNW_CALIBRATE_GATES_H

#include "calibrate/gate_fit.h"
#include "calibrate/sample.h"
#include "calibrate/second_look.h"

/* Numbers that held-out scores are ranked by, at most: the prediction, and features by themselves. */
enum { WNW_GATES_RANKED = 5 };
/* Shares of the entries for which thresholds are given. */
enum { WNW_GATES_TAU = 4 };

/* The options structs of kinds begin with this one. */
struct wnw__gates_opts {
    int32_t pieces, length;
};
#define WNW_OPTIONS_GATES(pieces_of_effort, usual_length)                                         \
    {.name = "pieces",                                                                            \
     .help = "pieces of each text, at most, the last of which is held out; 0 = " pieces_of_effort \
             " (quick, normal, paper)",                                                           \
     .type = WNW_OPT_INT,                                                                         \
     .offset = offsetof(struct wnw__gates_opts, pieces),                                          \
     .max = 10000},                                                                               \
    {                                                                                             \
        .name = "length", .help = "tokens of a piece; 0 = " usual_length ", or what fits",        \
        .type = WNW_OPT_INT, .offset = offsetof(struct wnw__gates_opts, length), .max = 1000000   \
    }

/* What a held-out piece of a text came to: rank correlations of the target with each of what it is ranked by. */
struct wnw__held_out {
    double within[WNW_GATES_RANKED]; /* mean over heads of the correlation inside a head */
    double over_all[WNW_GATES_RANKED];
};

/* The work of a kind. It starts as {0} but for the first members, and is freed by wnw__gates_free, after a failure too. */
struct wnw__gates {
    wnw_calibration *c;
    const struct wnw__gates_opts *o;
    struct wnw__by_effort pieces; /* of each text, and their length, where the options do not say */
    int32_t length;
    const char *target; /* recipe of the policy whose scores are predicted */
    const char *reader; /* recipe of one that observes what features need; NULL = none */
    const char *record; /* recorder that notes what features need; NULL = none */
    /* Calls wnw__gates_take for every list of features of the piece's i-th layer, in order. */
    int (*see)(struct wnw__gates *g, struct wnw__looked *l, int32_t i_layer);
    int32_t n_feature;
    int32_t n_target; /* heads that one list of features is for: 1, or all KV heads of a layer */
    /* What held-out scores are ranked by: "gate", the prediction, and the last n_ranked - 1 features by themselves. */
    const char *ranked_by[WNW_GATES_RANKED];
    int32_t n_ranked;

    wnw_policy *policies[2]; /* target, reader */
    struct wnw__samples samples;
    int32_t *il, n_layer, n_row; /* layers that take part; KV heads of all of them */
    struct wnw__gate_fit fit;
    float *weight, *bias;           /* [n_row][n_feature], [n_row] */
    struct wnw__held_out *held_out; /* [n_text], zeros where a text has one piece alone */
    double tau[WNW_GATES_TAU];      /* zeros where nothing was held out */
    double *scores;                 /* predicted, of all held-out entries */
    int64_t n_scores;
    /* The current piece. */
    int32_t i_text, i_piece;
    double *y;                  /* [n_target][n] targets of the list of features at hand */
    struct wnw__ranked *ranked; /* NULL: it is learned from */
};

/* Cuts the pieces and notes their settings. */
int wnw__gates_prepare(struct wnw__gates *g);
/* Notes the settings that come after the kind's own. */
int wnw__gates_note_fit(struct wnw__gates *g);
/* Begins the work, learns and judges. */
int wnw__gates_run(struct wnw__gates *g);
void wnw__gates_free(struct wnw__gates *g);

/* Takes the i-th list of a layer's features f[l->n][n_feature], which it changes. */
int wnw__gates_take(struct wnw__gates *g, const struct wnw__looked *l, int32_t i_layer, int32_t i, float *f);

/* What held-out pieces came to, for the profile: [{text, within: {ranked_by: ..}, over_all: {..}}], texts of one piece left out. The caller
 * owns it; NULL without memory. */
json_t *wnw__gates_held_out(const struct wnw__gates *g);

/* The entries of every head that were learned from. */
int64_t wnw__gates_entries(const struct wnw__gates *g);
/* Adds to the report what held-out pieces came to, as `row` writes it under the names of its columns, and the thresholds. */
typedef void wnw__gates_row(struct wnw__calibrate_text *out, const char *name, const struct wnw__held_out *h);
void wnw__gates_tell(const struct wnw__gates *g, struct wnw__calibrate_text *out, const char *columns,
                     wnw__gates_row *row);

#endif
