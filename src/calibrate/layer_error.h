/* SPDX-License-Identifier: MIT */
/* How much the output of a layer's attention block changes when only some entries are there: section 3.2 of
 * "CompressKV: Semantic Retrieval Heads Know What Tokens are Not Important Before Generation" (arXiv
 * 2508.02401). */
#ifndef WNW_LAYER_ERROR_H
#define WNW_LAYER_ERROR_H

#include "cache/cache.h"
#include "observe/projnorm.h"

/* One token in one layer. The cache holds every token read, the token's own entry last, and was never
 * compressed. */
struct wnw__layer_token {
    const struct wnw__cache *cache;
    int32_t il;
    float scale;                        /* factor of q . k */
    const struct wnw__score_form *form; /* of the layer; NULL = scores are scale q . k */
    const float *q, *out; /* [n_head][d] queries after RoPE; output of each head from all entries */
    const struct wnw__proj_weight *w;
    struct wnw__pool *pool;
    /* The entries of KV head ih that count: keep[ih][n_keep[ih]], ascending, and all from n_prompt on. */
    const int32_t *const *keep;
    const int32_t *n_keep;
    int32_t n_prompt;
};

/* Sets *error to ||O_kept - O_full|| / (||O_full|| + 1e-5): Euclidean norms of the block's output after the
 * projection, O = concat_h(o_h) W_O, from the entries that count and from all. The projection is linear, so it
 * is the change of the heads' outputs that is projected: no rounding of large numbers that are nearly equal.
 * *error is infinite or not a number where the model computes such values. E_NOMEM. */
int wnw__layer_error(double *error, const struct wnw__layer_token *t);

/* Gives every layer its share of the error. error[n_step][n_layer] of a sample; negative in a step that was
 * dropped. Adds the mean over the sample's steps (mean = true), or the sum, to set[n_layer]. False if no step
 * is left, and nothing is added. */
bool wnw__layer_add_sample(const double *error, int32_t n_step, int32_t n_layer, bool mean, double *set);
/* Adds set / (sum of set) to share[n_layer]. False if the sum is 0: nothing is added. */
bool wnw__layer_add_set(const double *set, int32_t n_layer, double *share);
/* What two lists of shares have in common: the sum over layers of the smaller share, 1 where they are the same. *most is the layer
 * in which they differ most, the first of several. */
double wnw__layer_overlap(const double *a, const double *b, int32_t n_layer, int32_t *most);
/* Divides share[n_layer] by its sum + 1e-12. */
void wnw__layer_normalise(double *share, int32_t n_layer);

#endif
