/* SPDX-License-Identifier: MIT */
/*
 * The driver observe -> score -> budget -> select. It turns a policy and a source of observations into a
 * keep-plan and knows neither session nor model: tests feed it plain arrays.
 */
#ifndef WNW_COMPRESS_H
#define WNW_COMPRESS_H

#include "base/err.h"

/* Where observations come from. */
struct wnw__plan_source {
    int32_t n_layer, n_head, n_head_kv, n_embd_head;
    int32_t n_past;     /* tokens read */
    size_t entry_bytes; /* of one key plus one value */
    void *user;
    /* Layers that policies leave alone (sliding window). NULL = none. */
    bool (*is_skipped)(const struct wnw__plan_source *src, int32_t il);
    /* Entries and positions of one head, cheap. */
    int32_t (*n_entry)(const struct wnw__plan_source *src, int32_t il, int32_t ih);
    const int32_t *(*positions)(const struct wnw__plan_source *src, int32_t il, int32_t ih);
    /* Fills *obs for layer il with what `needs` asks for. Borrowed until the next call. */
    int (*observe)(const struct wnw__plan_source *src, int32_t il, const wnw_needs *needs,
                   wnw_observation *obs);
    /* Called after layer il is done; return false to cancel. NULL = none. */
    bool (*progress)(const struct wnw__plan_source *src, int32_t il);
};

/* report: kept_mean, warning, observe_ms, select_ms are filled. */
int wnw__plan_make(wnw_plan **out, const wnw_policy *policy, const wnw_size *size,
                   const struct wnw__plan_source *src, wnw_report *report);

#endif
