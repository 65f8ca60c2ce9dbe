/* SPDX-License-Identifier: MIT */
/* The positions of a sample's evidence among the tokens of its prompt. */
#ifndef WNW_EVAL_EVIDENCE_H
#define WNW_EVAL_EVIDENCE_H

#include "eval/tasks/tokens.h"

struct eval_evidence {
    struct eval_token_span {
        int32_t from, to; /* tokens of the prompt, `to` excluded */
    } * span;             /* [n], owned */
    int32_t n;            /* 0 = the sample names none, or part of it was cut out of the prompt */
};
/* Finds the texts of the sample's spans in ids[n], the tokens up to the end of its context. A token that holds
 * only a part of the evidence belongs to it. Returns an exit code; the caller clears in any case. */
int eval_evidence_find(struct eval_evidence *e, const wnw_model *m, const struct eval_sample *s,
                       const int32_t *ids, int32_t n);
void eval_evidence_clear(struct eval_evidence *e);
/* Whether all evidence is among the first n_first and the last n_last of n tokens. */
bool eval_evidence_within(const struct eval_evidence *e, int32_t n_first, int32_t n_last, int32_t n);

#endif
