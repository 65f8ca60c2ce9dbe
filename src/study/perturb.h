/* SPDX-License-Identifier: MIT */
/* How far evicting entries moves outputs: of one head on arrays, of a whole model for one token. The perturbation study (perturb/) is
 * the one program that may include this header. */
#ifndef WNW_PERTURB_H
#define WNW_PERTURB_H

#include "winnow.h"
#include "winnow_method.h"

/* ---- Perturbation: the change of one head's output when entries are evicted ---- */

/* The output of one head for one query is o = sum_i A_i v_i W_O, A = softmax attention over all n entries.
 * With the entries that are not kept evicted, softmax is over the rest and o changes. Bounds of ||change||_1
 * after "CriticalKV" (arXiv 2502.03805) for an eviction in two stages; nu_i = ||v_i W_O||_1. */
struct wnw__perturbation {
    double sigma;       /* attention on kept entries */
    double sigma_first; /* attention on entries of stage 1 */
    bool guaranteed;    /* sigma_first > 1/2 (assumption 3.4): more A nu in stage 2 means a lower theta_hat */
    double theta;       /* the bound itself (theorem 3.3) */
    double theta_hat;   /* the bound that a stage 2 by A nu minimises (theorem 3.5); >= theta */
    /* the bound that a stage 2 by A minimises (theorem C.1); >= theta_hat if guaranteed */
    double theta_relax;
};

/* Computes the bounds from attn, nu, kept and first, all [n]; first marks stage 1, NULL = all kept entries.
 * E_ARG: attention is not a distribution, no entry is kept, or stage 1 is empty or not kept. */
int wnw__perturb_bounds(struct wnw__perturbation *out, const float *attn, const float *nu, const bool *kept,
                        const bool *first, int32_t n);
/* The change itself, delta[d] = sum_i (A_i - A'_i) rows[i][d], and its L1 norm; either may be NULL. rows =
 * v_i W_O gives the change of the head's output; rows = v_i the change before the projection, which is
 * linear, so that changes of several heads can be projected and added. E_ARG as above. */
int wnw__perturb_output(double *l1, double *delta, const float *attn, const float *rows, const bool *kept,
                        int32_t n, int32_t d);

/* ---- Perturbation of a whole model: one token, and what plans would change of it ---- */

/* A token that was read after a session's whole cache. It belongs to the session's thread. Layers with a sliding
 * window, which plans leave alone, have zeros in all results. */
struct wnw__perturb_token;

/* Reads `token`, the next one, after a copy of s; s itself does not change, and neither s nor its cache may change
 * while *out is used. *out is released with wnw__perturb_token_free before s. Rules of s are not followed. E_ARG:
 * entries of s are gone, or it has read nothing. Other errors are those of wnw_session_copy and
 * wnw_session_decode. */
int wnw__perturb_token_new(struct wnw__perturb_token **out, const wnw_session *s, int32_t token);
void wnw__perturb_token_free(struct wnw__perturb_token *p);

/* L1 norms of what changes of the attention's output, after the output projection, if the plan is applied in that
 * layer alone: of every query head by itself, heads[n_layer][n_head]; of the sum over the query heads of a KV head,
 * groups[n_layer][n_head_kv]; of the sum over all, layers[n_layer]. Each may be NULL. The token's own entry stays.
 * E_MISMATCH: the plan is of another cache. E_UNSUPPORTED: it also writes into entries. E_NOMEM. */
int wnw__perturb_token_change(struct wnw__perturb_token *p, const wnw_plan *plan, double *heads,
                              double *groups, double *layers);
/* How far the hidden state after each layer moves if the plan is applied in all layers: drift[n_layer], the mean
 * over its numbers of the absolute difference. Sliding layers count here. Errors are those of wnw_session_copy,
 * wnw_session_apply and wnw_session_decode. */
int wnw__perturb_token_drift(struct wnw__perturb_token *p, const wnw_plan *plan, double *drift);

/* ---- The first stage that a policy took ---- */

/* What a head of n entries kept, and what its first stage had to choose by. */
struct wnw__stage_one {
    const float *score; /* [n] attention that entries were chosen by */
    int32_t n;
    const int32_t *kept; /* [n_kept] ascending */
    int32_t n_kept;
    int32_t n_first;    /* entries of the first stage, those that stay in any case included */
    int32_t sinks;      /* first entries that stay in any case, in addition to the protected ones */
    wnw_protected prot; /* protected entries */
};
/* Marks the entries of the first stage, mark[n]: those that stay in any case, then the best of the kept ones by score until there
 * are n_first; of equal ones the first. value[n_kept] is scratch. */
void wnw__perturb_mark_stage(bool *mark, const struct wnw__stage_one *s, float *value);

/* Options of the selector `critical`: share of a head's entries that attention chooses; first entries that stay in any case. */
struct wnw__first_stage {
    double alpha;
    int32_t sinks;
};
/* Marks what the policy's first stage takes of the session's cache, which is whole and still observed for the policy:
 * stage[n_layer][n_head_kv][tokens of s]; nothing in layers that stay as they are. Errors are those of wnw_session_plan. */
int wnw__perturb_stage_one(bool *stage, wnw_session *s, const wnw_policy *policy, const wnw_size *size,
                           const struct wnw__first_stage *first);
/* The token's attention on marked entries, marks[n_layer][n_head_kv][entries without its own], and on its own, which always
 * stays: mass[n_layer][n_head]. */
int wnw__perturb_token_mass(struct wnw__perturb_token *p, const bool *marks, double *mass);

/* How tight the bounds are for one query head if `keep` entries are chosen by the token's own attention A: half of
 * them (rounded down) by A, the rest by A nu or, for comparison, by A. Structs of this kind never grow. */
struct wnw__perturb_bound {
    double sigma_first; /* attention on stage 1; above 1/2 the bounds hold (assumption 3.4) */
    double change;      /* ||change||_1 of the choice by A nu; it is at most theta_hat */
    double theta_hat;   /* the bound of the choice by A nu */
    double theta_hat_attention, theta_relax; /* the bounds of the choice by A */
};

/* Fills bounds[n_layer][n_head]. keep counts the token's own entry. The first call computes the norms of all
 * values after the projection. E_RANGE: keep is not in 2 .. entries. E_NOMEM. */
int wnw__perturb_token_bounds(struct wnw__perturb_token *p, int32_t keep, struct wnw__perturb_bound *bounds);

#endif
