/* SPDX-License-Identifier: MIT */
/* One piece of text for budget curves: what its entries are worth to answers, and what follows for the heads. See
 * curves.c for the formulas. Rows are KV heads of all layers. */
#ifndef WNW_CURVE_SAMPLE_H
#define WNW_CURVE_SAMPLE_H

#include "calibrate/calibrate.h"

#define WNW_CURVE_RATIOS 99  /* shares of removed entries: 0.01, 0.02, ... */
#define WNW_CURVE_LOST   19  /* shares of a head's removed entries: 0.05, 0.10, ... */
#define WNW_CURVE_ROOM   256 /* most tokens of a question with the template */

struct wnw__curve_piece {
    wnw_calibration *c;
    const wnw_policy *policy;
    const int32_t *tokens; /* [n_token] */
    int32_t n_token, n_row;
    int32_t n_question, n_generate; /* questions, and tokens of each answer at most */
    bool share_norms;               /* norms of values are shares of their sum in the layer */
};

/* Sums over the questions that were answered. */
struct wnw__curve_tally {
    int32_t n_entry; /* of each head */
    int32_t n_question;
    int32_t *count; /* [WNW_CURVE_RATIOS][n_row] entries kept */
    double *lost;   /* [n_row][WNW_CURVE_LOST] shares of a head's worth that are lost */
};

/* The caller frees *t, also after a failure. */
int wnw__curve_tally_new(struct wnw__curve_tally *t, int32_t n_row);
void wnw__curve_tally_free(struct wnw__curve_tally *t);
/* Reads the piece, asks all questions and adds to *t, which is new. */
int wnw__curve_measure(struct wnw__curve_tally *t, const struct wnw__curve_piece *p);

#endif
