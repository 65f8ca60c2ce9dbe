/* SPDX-License-Identifier: MIT */
/* What scorers have of each other: a scorer's arithmetic that is half of another one's, or a feature from which gates predict. */
#ifndef WNW_SCORE_H
#define WNW_SCORE_H

#include "policy/part.h"

/* ---- Expected attention: a scorer, and one of the numbers from which gates predict scores ---- */

enum wnw__expected_stats { WNW_STATS_PROMPT, WNW_STATS_PROFILE };
struct wnw__expected_opts {
    int32_t n_sink;
    int32_t n_future;
    int32_t covariance;
    int32_t vnorm;
    double epsilon;
    int32_t stats; /* enum wnw__expected_stats */
};
/* Floats of scratch memory. */
size_t wnw__expected_scratch(const wnw_observation *obs);
/* Fills score[n_head][n] as the scorer does. Needs keys, values with vnorm, and the statistics of queries. */
int wnw__expected_attention(const struct wnw__expected_opts *o, const wnw_observation *obs, float *score,
                            float *scratch);

/* ---- KeyDiff: a scorer, and one of these numbers ---- */

/* Fills s[n] with the scores of the keys k[n][d] of a head. mu[d] is scratch memory. */
void wnw__keydiff(const float *k, int32_t n, int32_t d, float *s, float *mu);

/* ---- Compactor, whose two halves are scorers too ---- */

/* Entries of every head that are left out at both ends, as if they were not there; their score is 0. */
struct wnw__ends {
    int32_t first, last;
};

/* Entries of head ih between the ends: [*first, returned end). */
static inline int32_t wnw__between_ends(const wnw_observation *obs, int32_t ih, struct wnw__ends ends,
                                        int32_t *first)
{
    *first = ends.first < obs->n_entry[ih] ? ends.first : obs->n_entry[ih];
    return obs->n_entry[ih] - ends.last > *first ? obs->n_entry[ih] - ends.last : *first;
}

/* Shifts and scales scores to mean 0 and variance 1 (divisor count - 1) over all heads of the layer; all
 * become 0 if they are equal. */
void wnw__standardise(const wnw_observation *obs, struct wnw__ends ends, float *score);

/* Leverage scores of keys. */
struct wnw__leverage_opts {
    int32_t sketch; /* columns, 1 .. WNW_MAX_SKETCH */
    int32_t seed;
};
enum { WNW_MAX_SKETCH = 64 };
/* Rows of an option table; `at` is where the options struct `opts` has them: a member's name. */
#define WNW_OPTION_SKETCH(opts, at)                                                        \
    {                                                                                      \
        .name = "sketch", .help = "columns of the random projection", .type = WNW_OPT_INT, \
        .offset = offsetof(opts, at), .def = 48, .min = 1, .max = WNW_MAX_SKETCH           \
    }
#define WNW_OPTION_PROJECTION_SEED(opts, at)                                             \
    {                                                                                    \
        .name = "seed", .help = "another seed, another projection", .type = WNW_OPT_INT, \
        .offset = offsetof(opts, at), .def = 0, .min = 0, .max = 2147483647              \
    }
size_t wnw__leverage_scratch(const struct wnw__leverage_opts *o, const wnw_observation *obs);
int wnw__leverage(const struct wnw__leverage_opts *o, const wnw_observation *obs, struct wnw__ends ends,
                  float *score, float *scratch);

/* ---- The numbers of an entry from which a gate predicts its score: calibration and scorer compute them here ---- */

/* First entries whose expected attention is not computed, and positions whose queries are expected. */
enum { WNW_GATE_SINKS = 4, WNW_GATE_FUTURE = 512 };

/* Sets what must be observed of a layer. */
void wnw__gate_needs(wnw_needs *out);
/* Floats of the memory that the functions below work in. */
size_t wnw__gate_room(const wnw_observation *obs);
/* Begins a layer: computes what all of its heads share, in the room. */
int wnw__gate_begin(const wnw_observation *obs, float *room);
/* Fills f[n_entry[ih]][n_feature] of KV head ih: all features, or the last WNW_GATE_SCALARS of them. */
int wnw__gate_head(const wnw_observation *obs, int32_t ih, int32_t n_feature, float *room, float *f);

/* The same of all KV heads, on the session's threads, a few heads at a time: calls take(ih, f, user) with the features
 * f[n_entry[ih]][n_feature] of each, from any thread. wnw__gate_begin is part of it. */
size_t wnw__gate_room_all(const wnw_observation *obs, int32_t n_feature);
int wnw__gate_all_heads(const wnw_observation *obs, int32_t n_feature, float *room,
                        void (*take)(int32_t ih, const float *f, void *user), void *user);

#endif
