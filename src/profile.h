/* SPDX-License-Identifier: MIT */
/* Calibration results of one model, as parts read them. Immutable once loaded; NULL = that kind is absent. */
#ifndef WNW_PROFILE_H
#define WNW_PROFILE_H

#include "base/err.h"

/* CompilerKV's tables and the settings they were made under. */
struct wnw__compiler_table {
    int32_t n_layer;                 /* rows of the tables; the model's, or another depth with `force` */
    int32_t budget, window, n_sink;  /* of the run it was made for */
    int32_t alpha_scope, score_norm; /* choices of the compilerkv scorer and the gate */
    int32_t gate;
    bool entropy_norm;
    int32_t n_entropy, n_ppl;        /* bins */
    double *entropy_edge, *ppl_edge; /* [n - 1] ascending */
    int32_t default_ppl_bin;
    float *weight; /* [n_layer][n_head] */
    float *tau;    /* [n_layer][n_entropy][n_ppl] */
};

struct wnw_profile {
    int32_t n_layer, n_head, n_head_kv, n_embd_head;
    char fingerprint[17];
    uint32_t kinds; /* bit set of wnw_profile_kind */

    /* SRH: query heads of each layer, best first, by semantic and by traditional retrieval score; mean
     * scores, head order. k: heads that the profile was used with. */
    int32_t *srh_rank, *trad_rank; /* [n_layer][n_head]; trad_rank may be NULL */
    float *srh_mean, *trad_mean;   /* [n_layer][n_head]; each may be NULL */
    int32_t srh_k;                 /* 0 = not said */

    double *layer_share; /* LAYERS: [n_layer], sums to 1 */

    double *head_score; /* HEADS: [n_layer][n_head] importance of query heads; may be NULL */
    double *head_alpha; /* HEADS: [n_layer][n_head_kv] 0 = streaming .. 1 = retrieval; may be NULL */
    int32_t head_sink, head_recent; /* HEADS: what streaming heads keep; 0 = not said */

    struct wnw__compiler_table compiler;

    float *query_mean, *query_cov; /* STATS: [n_layer][n_head][d], [n_layer][n_head][d][d] */
};

#endif
