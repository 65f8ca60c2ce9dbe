/* SPDX-License-Identifier: MIT */
/* Calibration results of one model, as parts read them. Immutable once loaded; NULL = that kind is absent. */
#ifndef WNW_PROFILE_H
#define WNW_PROFILE_H

#include "base/err.h"
#include "base/shape.h"
#include "profile/input_gate.h"
#include "winnow_tools.h"

struct json_t; /* jansson's */

/* ---- Names that CompilerKV's tables and options share; the lists are NULL-terminated ---- */

/* What alpha, the window's attention, is averaged over. */
enum wnw__alpha_scope { WNW_ALPHA_GLOBAL, WNW_ALPHA_LAYER, WNW_ALPHA_HEAD };
extern const char *const wnw__alpha_scopes[];
/* What a layer's scores are divided by before they meet the threshold. */
enum wnw__score_norm { WNW_NORM_MEAN, WNW_NORM_MAX, WNW_NORM_MEDIAN };
extern const char *const wnw__score_norms[];
/* How alpha is smoothed along the positions. */
enum wnw__alpha_pool { WNW_ALPHA_POOL_NONE, WNW_ALPHA_POOL_AVG, WNW_ALPHA_POOL_MAX };
extern const char *const wnw__alpha_pools[];
/* What a score is made of. FULL: attention and value norm; RAW: attention of the last query; ATTENTION:
 * attention of the window. */
enum wnw__utility { WNW_UTILITY_FULL, WNW_UTILITY_RAW, WNW_UTILITY_ATTENTION };
extern const char *const wnw__utilities[];
/* What becomes of the entries above the threshold. */
enum wnw__gate_mode { WNW_GATE_ELASTIC, WNW_GATE_STRICT, WNW_GATE_POOLED };
extern const char *const wnw__gate_modes[];

/* Numbers of an entry that a gate reads: `all` are its key before RoPE, its value and the scalars, in this order;
 * src/score/gate_features.c says what they are. */
enum { WNW_GATE_SCALARS = 4 };
extern const char *const wnw__gate_features[]; /* "key", "value", then the scalars; ended by NULL */
static inline int32_t wnw__gate_all(int32_t n_embd_head)
{
    return 2 * n_embd_head + WNW_GATE_SCALARS;
}

/* Scorers whose scores say what is lost when entries go. */
enum { WNW_QUALITY_REPLAY, WNW_QUALITY_KVGATE, WNW_QUALITY_INPUTGATE, WNW_N_QUALITY };
struct wnw__quality_scorer {
    const char *name;
    int32_t kind; /* the wnw_profile_kind that its scores are made from; -1: none */
};
extern const struct wnw__quality_scorer wnw__quality_scorers[WNW_N_QUALITY];
/* The scorer of this name; -1: no such scorer. */
int32_t wnw__quality_scorer(const char *name);
/* Of shares whose losses loss[n] do not fall, the index of the largest one that keeps the quality; -1: none does. */
int32_t wnw__quality_share(const double *loss, int32_t n, double quality);

/* CompilerKV's tables and the settings they were made under. */
struct wnw__compiler_table {
    int32_t n_layer; /* rows of the tables; differs from the model's depth only if foreign */
    bool foreign;    /* made for another model */
    /* Settings of the run that the table was made for. Unstated ones are 0; n_sink and enums are then -1. */
    int32_t budget, window, kernel, n_sink;
    int32_t least_length, most_length; /* tokens of the prompts that it was made from */
    int32_t alpha_scope, score_norm, gate, pool, utility;
    int32_t entropy_norm; /* bool: entropy divided by ln T */

    int32_t n_entropy, n_ppl;        /* bins */
    double *entropy_edge, *ppl_edge; /* [n - 1] ascending */
    int32_t default_ppl_bin;
    float *weight; /* [n_layer][n_head]; NULL = not in the file */
    float *tau;    /* [n_layer][n_entropy][n_ppl]; NULL = not in the file */
    /* one threshold that keeps as much as tau on average over prompts; 0 = not in the file */
    double tau_constant;
};

struct wnw_profile {
    struct wnw__shape model;
    char fingerprint[WNW_FINGERPRINT_SIZE];
    uint32_t kinds; /* bit set of wnw_profile_kind */
    uint32_t found; /* those of them that were found, not asked for (wnw_profile_set_found) */

    /* SRH: rank holds the query heads of each layer, best first, by semantic (srh) or traditional (trad)
     * retrieval score; mean holds the mean scores in order of heads. srh_k: heads that the profile was used
     * with. */
    int32_t *srh_rank, *trad_rank; /* [n_layer][n_head]; each may be NULL */
    float *srh_mean, *trad_mean;   /* [n_layer][n_head]; each may be NULL */
    int32_t srh_k;                 /* 0 = unstated */

    double *layer_share; /* LAYERS: [n_layer], sums to 1 */

    double *layer_gradient; /* GRADIENT: [n_layer], at least 0 */

    double *head_score; /* HEADS: [n_layer][n_head] importance of query heads; may be NULL */
    double *head_alpha; /* HEADS: [n_layer][n_head_kv] 0 = streaming .. 1 = retrieval; may be NULL */
    int32_t head_sink, head_recent; /* HEADS: entries that streaming heads keep; 0 = unstated */

    struct wnw__compiler_table compiler;

    /* STATS: queries before RoPE, [n_layer][n_head][d] and [n_layer][n_head][d][d], both or neither; and the
     * directions that queries after RoPE favour, [n_layer][n_head_kv][d]; may be NULL. */
    float *query_mean, *query_cov, *query_filter;

    /* CURVES: of shares curve_ratio[n_curve] of the model's entries that are removed, ascending and between 0 and
     * 1, the shares that KV heads keep. curve_scorer: name of the scorer they were made for, "" = unstated. */
    int32_t n_curve;
    double *curve_ratio;
    float *curve_keep; /* [n_curve][n_layer][n_head_kv], not rising */
    char curve_scorer[65];

    /* SHARES: best_size[n_best] are sizes, shares of the model's entries that stay, descending and between 0 and 1.
     * For each size there is the share of each KV head's entries that are among the best of the model. */
    int32_t n_best;
    double *best_size;
    float *best_share; /* [n_best][n_layer][n_head_kv], not rising */

    /* GATE: what an entry's features are multiplied with, [n_layer][n_head_kv][n_gate_feature], and what is added,
     * [n_layer][n_head_kv]; zeros in layers that were not measured. n_gate_feature: WNW_GATE_SCALARS, or
     * wnw__gate_all of the elements of a head. */
    int32_t n_gate_feature;
    float *gate_weight, *gate_bias;
    double gate_least; /* the smallest share of the entries that they are for; 0 = not stated */

    struct wnw__input_gate inputs; /* INPUTGATE */

    /* QUALITY: of shares quality_dropped[n_quality] of all scores of a scorer that go, ascending and between 0 and 1, what
     * is lost; one array [n_quality] for each scorer, not falling, NULL = it was not measured. */
    int32_t n_quality;
    double *quality_dropped, *quality_loss[WNW_N_QUALITY];
    /* [n_quality] mean shares of the entries that stay; with the losses */
    double *quality_kept[WNW_N_QUALITY];
    uint64_t quality_of[WNW_N_QUALITY]; /* wnw__profile_hash of the gates that were measured; 0 = unstated */
};

/* An empty profile for a model of these shapes. */
struct wnw__profile_shape {
    struct wnw__shape model;
    char fingerprint[WNW_FINGERPRINT_SIZE];
};
/* Identifies results of the kinds; p may be NULL. */
uint64_t wnw__profile_hash(const wnw_profile *p, uint32_t kinds);
/* Whether the losses of a scorer were measured with other gates than those that p has. */
bool wnw__quality_is_foreign(const wnw_profile *p, int32_t scorer);
int wnw__profile_new(wnw_profile **out, const struct wnw__profile_shape *shape);
/* Adds the results of a file of another program to an empty profile; `as` says what it is, in the words of
 * wnw_profile_import. E_ARG: another word. */
int wnw__profile_read_as(wnw_profile *p, const char *path, const char *as);

/* ---- Kind inputgate as JSON, for what makes such profiles (profile_inputs.c) ---- */

/* results.layers; NULL if memory runs out. g->number is changed in between and the same afterwards. */
struct json_t *wnw__profile_input_layers(const struct wnw__input_gate *g, const struct wnw__shape *shape);
/* Adds to the settings, an object, what reading the layers needs. False if memory runs out. */
bool wnw__profile_input_settings(const struct wnw__input_gate *g, struct json_t *settings);

#endif
