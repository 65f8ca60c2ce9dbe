/* SPDX-License-Identifier: MIT */
/* Shared arithmetic of counts: rounding, sharing out, protected entries. */
#ifndef WNW_COUNT_H
#define WNW_COUNT_H

#include "policy/part.h"

/* x as a whole number, 0 .. INT32_MAX; `rounding` says how fractions are cut. */
int32_t wnw__round_count(double x, wnw_rounding rounding);

/* Recent entries that always stay: some, and a share of the budget. The options of scorers that have both begin with
 * this struct, and their tables have the rows below. */
struct wnw__recent_opts {
    int32_t recent;
    double share;
};
#define WNW_OPTION_RECENT                                                                             \
    {                                                                                                 \
        .name = "recent", .help = "most recent entries that always stay, besides share",              \
        .type = WNW_OPT_INT, .offset = offsetof(struct wnw__recent_opts, recent), .def = 0, .min = 0, \
        .max = 65536                                                                                  \
    }
#define WNW_OPTION_SHARE                                                                                \
    {                                                                                                   \
        .name = "share", .help = "share of the budget that the most recent entries take",               \
        .type = WNW_OPT_REAL, .offset = offsetof(struct wnw__recent_opts, share), .def = 0.5, .min = 0, \
        .max = 1                                                                                        \
    }
/* Last entries give way where they and the first ones would be more than `room` of what heads keep on average. How many of n_last
 * stay in addition to n_first; the options of parts that do so have the row below. */
int32_t wnw__last_in_room(const wnw_keep_problem *p, double room, int32_t n_first, int32_t n_last);
#define WNW_OPTION_ROOM(opts)                                                                                \
    {                                                                                                        \
        .name = "room",                                                                                      \
        .help = "the most of a size's entries per head that first and last ones may be; the last give way, " \
                "and 1 leaves them whole",                                                                   \
        .type = WNW_OPT_REAL, .offset = offsetof(opts, room), .def = 1, .min = 0, .max = 1                   \
    }
/* What heads keep whose budgets are shares of a second look: the chat header, or where none is known first entries, and last ones.
 * The options of such budgets begin with this struct, and their tables have the rows below. */
struct wnw__look_opts {
    int32_t header, sinks, last;
    double room;
};
#define WNW_OPTION_LOOK_HEADER                                                                      \
    {                                                                                               \
        .name = "header", .help = "the chat header stays whole, as in KVzip", .type = WNW_OPT_BOOL, \
        .offset = offsetof(struct wnw__look_opts, header), .def = 1                                 \
    }
#define WNW_OPTION_LOOK_SINKS                                                                               \
    {                                                                                                       \
        .name = "sinks", .help = "first entries that stay where no chat header is known, or with header=0", \
        .type = WNW_OPT_INT, .offset = offsetof(struct wnw__look_opts, sinks), .def = 4, .min = 0,          \
        .max = 65536                                                                                        \
    }
#define WNW_OPTION_LOOK_LAST                                                                             \
    {                                                                                                    \
        .name = "last", .help = "last entries that stay, besides the scorer's own", .type = WNW_OPT_INT, \
        .offset = offsetof(struct wnw__look_opts, last), .def = 1, .min = 0, .max = 65536                \
    }
#define WNW_OPTION_LOOK_ROOM WNW_OPTION_ROOM(struct wnw__look_opts)
/* `keep` of such a part; opts is a struct that begins with wnw__look_opts. */
void wnw__look_keep(const void *opts, const wnw_keep_problem *p, wnw_protected *out);
/* The count of row r that keeps a share of what is not protected of the text, at most what it has. */
double wnw__look_count(const wnw_layer_problem *p, int32_t r, double share);

/* How many last entries stay of a budget after n_first of its entries are taken: the share gives way where the budget
 * is too small. */
int32_t wnw__recent_count(const struct wnw__recent_opts *o, int32_t budget, int32_t n_first);

/* Shares total out over n parts in proportion to weight[n] >= 0, or equally where all weights are 0. out[n]
 * are whole numbers up to `most` that add up to the smaller of total and n x most. A share over `most` goes
 * to the other parts in proportion. Rounding is by largest fraction, lower index first. */
void wnw__share_out(const double *weight, int32_t n, int64_t total, int32_t most, int32_t *out);
/* The same where part i takes up to most[i]. */
void wnw__share_out_within(const double *weight, int32_t n, int64_t total, const int32_t *most, int32_t *out);

/* Hands out `missing` entries to n rows that keep n_keep[n] of n_entry[n]. One entry at a time goes to the
 * row with the largest fraction[n] (lower index first) that has room; that fraction then falls by 1. It ends
 * early when no row has room. */
void wnw__hand_out(const int32_t *n_entry, int32_t n, int64_t missing, float *fraction, int32_t *n_keep);

/* Counts of n_row rows that all follow from one number x in 0 .. 1: count(user, row, x) is real-valued, 0 ..
 * n_entry[row], and does not grow with x. */
struct wnw__count_rule {
    double (*count)(const void *user, int32_t row, double x);
    const void *user;
    const int32_t *n_entry; /* [n_row] */
    int32_t n_row;
};
/* The x at which all counts together are `total`, or as near as the rule allows. */
double wnw__count_rule_find(const struct wnw__count_rule *rule, double total);
/* Sets n_keep of rows first .. first + n - 1 to their counts at x, made whole so that they add up to total.
 * fraction[n_row] is scratch. */
void wnw__count_rule_round(const struct wnw__count_rule *rule, double x, int32_t first, int32_t n,
                           int64_t total, float *fraction, int32_t *n_keep);

/* Copies to `out` the scores of a head's n_entry entries that are neither protected nor among the n_skip best
 * unprotected ones; returns their number. */
int32_t wnw__candidates(const float *score, int32_t n_entry, wnw_protected prot, int32_t n_skip, float *out);

/* Limits protected entries to the n that exist: the last ones are given up before the first ones. */
wnw_protected wnw__protected_clamp(wnw_protected p, int32_t n);
/* Shrinks protected entries so that room is left to choose others: of n_keep entries the window takes at most
 * min(n_keep - 1, max(8, n_keep / 4)) and the sinks at most the rest. */
wnw_protected wnw__protected_make_room(wnw_protected p, int32_t n_keep);
/* Makes protected entries fit into n_keep, with room for chosen ones. Entries that fit already stay as they
 * are. */
wnw_protected wnw__protected_shrink(wnw_protected p, int32_t n_keep);
/* Entries of row r that are protected where the heads of a layer share p->budget. */
int32_t wnw__row_protected(const wnw_layer_problem *p, int32_t r);
/* The row of row r in the model's own arrays [n_layer_model][n_head_kv]; row r = layer r / n_head_kv that takes part,
 * KV head r % n_head_kv. */
static inline int64_t wnw__row_of_model(const wnw_layer_problem *p, int32_t r)
{
    return (int64_t)p->il[r / p->n_head_kv] * p->n_head_kv + r % p->n_head_kv;
}
/* Entries that the size leaves of n_row rows together, whose lengths are n_entry[n_row] <= p->n. Short rows do not lower it: others keep
 * more in their place. The sum is rounded once, so that it is exact where n_row times a rounded count is not. For parts that count over
 * the whole model. */
int32_t wnw__count_together(const wnw_layer_problem *p, const int32_t *n_entry, int32_t n_row);

#endif
