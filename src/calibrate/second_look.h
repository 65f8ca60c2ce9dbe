/* SPDX-License-Identifier: MIT */
/* The scores that a method with a second reading gives the entries of a piece of text. */
#ifndef WNW_CALIBRATE_SECOND_LOOK_H
#define WNW_CALIBRATE_SECOND_LOOK_H

#include "calibrate/calibrate.h"
#include "plan/compress.h"
#include "policy/policy.h"

/* Tokens of a template, at most. */
enum { WNW_LOOK_ROOM = 256 };

struct wnw__looked {
    struct wnw__plan_source src; /* of s; closed with the rest */
    wnw_session *s;              /* owned: it has read the piece, and its cache is whole */
    const int32_t *il;           /* [n_layer] the layers whose scores are wanted; borrowed */
    int32_t n_layer, n_head_kv;  /* n_row = n_layer * n_head_kv */
    const char *record;          /* a recorder that notes something of the first reading too; NULL = none */
    float *score;                /* [n_row][n], owned; NULL: not scored yet */
    int32_t n, n_first;          /* entries that count, after the n_first of the chat header */
};

/* Lists the layers that policies compress: il[n_layer], which the caller frees. E_UNSUPPORTED: there are none. */
int wnw__looked_layers(int32_t **il, int32_t *n_layer, const wnw_calibration *c);
/* Sets *most to the tokens of the longest piece whose second reading fits the model's context too. E_RANGE: there is
 * none, or `given` tokens are more. */
int wnw__look_fits(int32_t *most, const wnw_calibration *c, int32_t given);
/* Reads a piece; all n_policy are observed for. In *l the members il, n_layer, n_head_kv and record are set, the others 0.
 * score stays NULL. The caller frees *l, after a failure too. */
int wnw__look(struct wnw__looked *l, wnw_calibration *c, const wnw_policy *const *policies, int32_t n_policy,
              const int32_t *tokens, int32_t n);
/* Scores the entries with a policy that was observed for. */
int wnw__look_score(struct wnw__looked *l, const wnw_policy *policy);
/* Both, with policies[0]. */
int wnw__look_again(struct wnw__looked *l, wnw_calibration *c, const wnw_policy *const *policies,
                    int32_t n_policy, const int32_t *tokens, int32_t n);
void wnw__looked_free(struct wnw__looked *l);

#endif
