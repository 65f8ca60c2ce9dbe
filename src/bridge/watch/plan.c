/* SPDX-License-Identifier: MIT */
/* Layers of one shape are planned together. A size in entries or a ratio applies to each of these groups. Bytes are divided by
 * the size of an entry in all layers of each group. */
#include "bridge/watch/watch.h"

#include "observe/source.h"
#include "plan/plan.h"
#include "policy/policy.h"
#include "profile/profile.h"

#include <stdlib.h>

enum { MOST_GROUPS = 16 };

struct group {
    struct wnw__bridge_sequence of;
    wnw_plan *plan;
    wnw_report report;
};

static bool is_listed(const struct group *groups, int32_t n, const struct wnw__bridge_layer *l)
{
    for (int32_t g = 0; g < n; g++)
        if (groups[g].of.layer[wnw__bridge_number(groups[g].of.b, l)] == l)
            return true;
    return false;
}

/* Finds the layers that policies act on; *n counts groups that are to be released. */
static int list_groups(struct wnw__bridge_backend *b, const struct wnw__bridge_sequence_cells *sequence_cells,
                       struct group *groups, int32_t *n)
{
    const struct wnw__bridge_cache *c = sequence_cells->cache;
    for (int32_t i = 0; i < c->n_layer; i++) {
        if (!wnw__bridge_acts_on(b, c->layers[i]) || is_listed(groups, *n, c->layers[i]))
            continue;
        if (*n == MOST_GROUPS)
            return wnw__fail(WNW_E_UNSUPPORTED, "policies work on models whose layers have up to %d shapes",
                             MOST_GROUPS);
        WNW_TRY(wnw__bridge_sequence_list(&groups[(*n)++].of, b, sequence_cells, c->layers[i]));
    }
    if (*n == 0)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "no layer of this cache is on the device WINNOW: policies have nothing to act on");
    return WNW_OK;
}

/* Bytes of one entry in all heads of a group. */
static double bytes_of(const struct group *g)
{
    double bytes = 0.0;
    for (int32_t il = 0; il < g->of.shape.n_layer; il++)
        bytes +=
            wnw__layer_takes_part(&g->of.shape, il) ? (double)g->of.entry_bytes * g->of.shape.n_head_kv : 0.0;
    return bytes;
}

static wnw_size size_of(const struct wnw__bridge_watch *w, const struct group *groups, int32_t n, int32_t g)
{
    wnw_size size = w->size;
    double all = 0.0;
    for (int32_t i = 0; i < n; i++)
        all += bytes_of(&groups[i]);
    if (size.kind == WNW_SIZE_BYTES && n > 1)
        size.bytes = (uint64_t)((double)size.bytes * bytes_of(&groups[g]) / all);
    return size;
}

/* The backend sees no model file, and so no fingerprint. */
static int check_profile(const struct wnw__bridge_watch *w, const struct wnw__shape *shape)
{
    const struct wnw__shape *of = w->profile ? &w->profile->model : NULL;
    if (!of || !(w->needs.flags & WNW_NEED_PROFILE) ||
        (of->n_layer == shape->n_layer && of->n_head == shape->n_head && of->n_head_kv == shape->n_head_kv))
        return WNW_OK;
    return wnw__fail(
        WNW_E_MISMATCH,
        "the profile is of a model with %d layers of %d and %d heads; this one has %d of %d and %d",
        (int)of->n_layer, (int)of->n_head, (int)of->n_head_kv, (int)shape->n_layer, (int)shape->n_head,
        (int)shape->n_head_kv);
}

static int plan_group(struct wnw__bridge_backend *b, struct group *groups, int32_t n, int32_t g)
{
    struct wnw__plan_source src;
    const wnw_size size = size_of(&b->watch, groups, n, g);
    WNW_TRY(check_profile(&b->watch, &groups[g].of.shape));
    WNW_TRY(wnw__bridge_source(&src, &groups[g].of));
    const int rc = wnw__plan_make(&groups[g].plan, b->watch.policy, &size, &src, &groups[g].report);
    wnw__source_close(&src);
    return rc;
}

/* A plan that cannot be applied leaves all as it is. */
static int apply(struct group *groups, int32_t n)
{
    for (int dry = 1; dry >= 0; dry--)
        for (int32_t g = 0; g < n; g++)
            WNW_TRY(wnw__bridge_apply(&groups[g].of, groups[g].plan, dry));
    return WNW_OK;
}

static int check_seen(const struct wnw__bridge_sequence_cells *sequence_cells)
{
    const struct wnw__bridge_cache *c = sequence_cells->cache;
    bool unobserved = c->unobserved;
    if (!c->note)
        return wnw__fail(WNW_E_ARG, "the cache is gone");
    for (int32_t i = 0; i < sequence_cells->n; i++)
        unobserved = unobserved || wnw__bridge_note_of(sequence_cells, i)->unobserved;
    return unobserved
               ? wnw__fail(WNW_E_NOT_OBSERVED,
                           "tokens of the sequence were not observed, because memory ran out while they were "
                           "read: read it again")
               : WNW_OK;
}

/* Also after a failure, which the next token would only repeat. */
static void mark_seen(const struct wnw__bridge_sequence_cells *sequence_cells)
{
    const struct wnw__bridge_cache *c = sequence_cells->cache;
    for (int32_t i = 0; c->note && i < sequence_cells->n; i++)
        wnw__bridge_note_of(sequence_cells, i)->judged = true;
    for (int32_t i = 0; i < c->n_layer; i++)
        wnw__bridge_record_seen(c->layers[i], sequence_cells->stream, sequence_cells->cell,
                                sequence_cells->n);
}

/* The most entries of a head that a plan settles. */
static int32_t settles(const struct group *g)
{
    int32_t most = 0;
    for (int32_t il = 0; il < g->of.shape.n_layer; il++)
        most = g->plan->n_settled[il] > most ? g->plan->n_settled[il] : most;
    return most;
}

/* The caller ends the plan that began on other devices, and releases *n groups, in any case. */
static int plan_and_apply(struct wnw__bridge_backend *b, struct wnw__bridge_sequence_cells *sequence_cells,
                          struct group *groups, int32_t *n)
{
    WNW_TRY(check_seen(sequence_cells));
    if (b->far)
        WNW_TRY(b->far->plan_begin(b, sequence_cells->cache));
    WNW_TRY(list_groups(b, sequence_cells, groups, n));
    for (int32_t g = 0; g < *n; g++)
        WNW_TRY(plan_group(b, groups, *n, g));
    return apply(groups, *n);
}

static void note_kept(struct wnw__bridge_sequence_cells *sequence_cells, const struct group *groups,
                      int32_t n)
{
    wnw__log(WNW_LOG_INFO, "winnow: of %d tokens, %.0f entries per head are kept", (int)sequence_cells->n,
             groups[0].report.kept_mean);
    for (int32_t g = 0; g < n; g++)
        sequence_cells->settles =
            settles(&groups[g]) > sequence_cells->settles ? settles(&groups[g]) : sequence_cells->settles;
}

int wnw__bridge_compress(struct wnw__bridge_backend *b, struct wnw__bridge_sequence_cells *sequence_cells)
{
    struct group *groups = calloc(MOST_GROUPS, sizeof *groups);
    int32_t n = 0;
    int rc =
        groups ? plan_and_apply(b, sequence_cells, groups, &n) : wnw__fail(WNW_E_NOMEM, "no memory to plan");
    if (b->far)
        rc = b->far->plan_end(b, rc, wnw__contents_works(wnw__contents_of(b->watch.policy)));
    mark_seen(sequence_cells);
    sequence_cells->settles = 0;
    if (rc == WNW_OK)
        note_kept(sequence_cells, groups, n);
    for (int32_t g = 0; g < n; g++) {
        wnw_plan_free(groups[g].plan);
        wnw__bridge_sequence_release(&groups[g].of);
    }
    free(groups);
    return rc;
}
