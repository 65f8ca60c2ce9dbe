/* SPDX-License-Identifier: MIT */
/* Files into profiles: what a file holds is read into a fresh profile and taken over from there. */
#include "profile/profile_impl.h"
#include "winnow_calibrate.h"

#include <stdlib.h>
#include <string.h>

/* ---- Taking over ---- */

/* Moves one array. With `merge` the file holds only a part of a kind, and an array that it lacks stays. */
static void move(void *to, void *from, bool merge)
{
    void **old = to, **new = from;
    if (merge && !*new)
        return;
    free(*old);
    *old = *new;
    *new = NULL;
}

static void take_compiler(struct wnw__compiler_table *to, struct wnw__compiler_table *from, bool merge)
{
    struct wnw__compiler_table t = *from;
    /* Head weights and thresholds that belong together come as two files from CompilerKV's authors. */
    if (merge && to->n_layer == from->n_layer && to->budget == 0 && !to->foreign) {
        if (!t.weight) {
            t.weight = to->weight;
            to->weight = NULL;
        }
        if (!t.tau) {
            t = *to;
            t.weight = from->weight;
            to->tau = NULL;
            to->entropy_edge = to->ppl_edge = NULL;
        }
    }
    wnw__profile_free_compiler(to);
    *to = t;
    *from = (struct wnw__compiler_table){0};
}

/* A ranking and the scores that it was made of go together. */
static void take_srh(wnw_profile *p, wnw_profile *fresh, bool merge)
{
    if (!merge || fresh->srh_rank) {
        move(&p->srh_rank, &fresh->srh_rank, false);
        move(&p->srh_mean, &fresh->srh_mean, false);
    }
    if (!merge || fresh->trad_rank) {
        move(&p->trad_rank, &fresh->trad_rank, false);
        move(&p->trad_mean, &fresh->trad_mean, false);
    }
    p->srh_k = merge && fresh->srh_k == 0 ? p->srh_k : fresh->srh_k;
}

static void take_layers(wnw_profile *p, wnw_profile *fresh, bool merge)
{
    (void)merge;
    move(&p->layer_share, &fresh->layer_share, false);
}

static void take_tables(wnw_profile *p, wnw_profile *fresh, bool merge)
{
    take_compiler(&p->compiler, &fresh->compiler, merge);
}

static void take_heads(wnw_profile *p, wnw_profile *fresh, bool merge)
{
    (void)merge;
    move(&p->head_score, &fresh->head_score, false);
    move(&p->head_alpha, &fresh->head_alpha, false);
    p->head_sink = fresh->head_sink;
    p->head_recent = fresh->head_recent;
}

static void take_stats(wnw_profile *p, wnw_profile *fresh, bool merge)
{
    (void)merge;
    move(&p->query_mean, &fresh->query_mean, false);
    move(&p->query_cov, &fresh->query_cov, false);
    move(&p->query_filter, &fresh->query_filter, false);
}

static void take_curves(wnw_profile *p, wnw_profile *fresh, bool merge)
{
    (void)merge;
    move(&p->curve_ratio, &fresh->curve_ratio, false);
    move(&p->curve_keep, &fresh->curve_keep, false);
    p->n_curve = fresh->n_curve;
    memcpy(p->curve_scorer, fresh->curve_scorer, sizeof p->curve_scorer);
}

static void take_shares(wnw_profile *p, wnw_profile *fresh, bool merge)
{
    (void)merge;
    move(&p->best_size, &fresh->best_size, false);
    move(&p->best_share, &fresh->best_share, false);
    p->n_best = fresh->n_best;
}

static void take_gates(wnw_profile *p, wnw_profile *fresh, bool merge)
{
    (void)merge;
    move(&p->gate_weight, &fresh->gate_weight, false);
    move(&p->gate_bias, &fresh->gate_bias, false);
    p->n_gate_feature = fresh->n_gate_feature;
    p->gate_least = fresh->gate_least;
}

static void take_input_gates(wnw_profile *p, wnw_profile *fresh, bool merge)
{
    (void)merge;
    wnw__input_gate_free(&p->inputs);
    p->inputs = fresh->inputs;
    fresh->inputs = (struct wnw__input_gate){0};
}

static void take_quality(wnw_profile *p, wnw_profile *fresh, bool merge)
{
    (void)merge;
    p->n_quality = fresh->n_quality;
    move(&p->quality_dropped, &fresh->quality_dropped, false);
    for (int i = 0; i < WNW_N_QUALITY; i++) {
        move(&p->quality_loss[i], &fresh->quality_loss[i], false);
        move(&p->quality_kept[i], &fresh->quality_kept[i], false);
        p->quality_of[i] = fresh->quality_of[i];
    }
}

static void take_gradient(wnw_profile *p, wnw_profile *fresh, bool merge)
{
    (void)merge;
    move(&p->layer_gradient, &fresh->layer_gradient, false);
}

/* Moves the results of every kind that `fresh` has to p; `merge`: a kind's file may lack some of them, which stay. */
static void take(wnw_profile *p, wnw_profile *fresh, bool merge)
{
    static void (*const by_kind[])(wnw_profile * p, wnw_profile * fresh,
                                   bool merge) = {[WNW_PROFILE_SRH] = take_srh,
                                                  [WNW_PROFILE_LAYERS] = take_layers,
                                                  [WNW_PROFILE_COMPILER] = take_tables,
                                                  [WNW_PROFILE_HEADS] = take_heads,
                                                  [WNW_PROFILE_STATS] = take_stats,
                                                  [WNW_PROFILE_CURVES] = take_curves,
                                                  [WNW_PROFILE_SHARES] = take_shares,
                                                  [WNW_PROFILE_GATE] = take_gates,
                                                  [WNW_PROFILE_INPUTGATE] = take_input_gates,
                                                  [WNW_PROFILE_QUALITY] = take_quality,
                                                  [WNW_PROFILE_GRADIENT] = take_gradient};
    _Static_assert(sizeof by_kind / sizeof *by_kind == WNW_N_PROFILE_KINDS, "every kind is taken");
    for (int32_t kind = 0; kind < WNW_N_PROFILE_KINDS; kind++)
        if (fresh->kinds >> kind & 1u)
            by_kind[kind](p, fresh, merge);
    p->kinds |= fresh->kinds;
}

/* ---- Files ---- */

int wnw_profile_add_file(wnw_profile *p, const char *path)
{
    struct wnw__profile_file f;
    WNW_REQUIRE(p);
    WNW_REQUIRE(path);
    struct wnw__profile_shape shape = {.model = p->model};
    wnw_profile *fresh = NULL;
    memcpy(shape.fingerprint, p->fingerprint, sizeof shape.fingerprint);
    struct wnw__profile_limit limit;
    wnw__profile_limit(&limit, &shape);
    WNW_TRY(wnw__profile_open(&f, path, &limit));
    int rc = wnw__profile_new(&fresh, &shape);
    const bool ours = json_object_get(f.root, "format") != NULL;
    if (rc == WNW_OK)
        rc = ours ? wnw__profile_read_kind(&f, fresh) : wnw__profile_import(&f, fresh);
    if (rc == WNW_OK)
        take(p, fresh, !ours);
    wnw_profile_free(fresh);
    json_decref(f.root);
    return rc;
}

int wnw__profile_read_as(wnw_profile *p, const char *path, const char *as)
{
    const bool srh = strcmp(as, "srh") == 0, trad = strcmp(as, "trad") == 0;
    const bool heads = strcmp(as, "heads") == 0, layers = strcmp(as, "layers") == 0;
    struct wnw__profile_file f;
    if (strcmp(as, "duo") == 0)
        return wnw__profile_read_gates(path, p);
    const bool kvzap = strcmp(as, "kvzap") == 0;
    if (kvzap || strcmp(as, "fastkvzip") == 0)
        return wnw__profile_import_gates(path, p, kvzap);
    if (!srh && !trad && !heads && !layers)
        return wnw__fail(
            WNW_E_ARG,
            "a file cannot be read as \"%.40s\"; say srh, trad, heads, duo, layers, kvzap or fastkvzip", as);
    const struct wnw__profile_shape shape = {.model = p->model};
    struct wnw__profile_limit limit;
    wnw__profile_limit(&limit, &shape);
    WNW_TRY(wnw__profile_open(&f, path, &limit));
    int rc;
    if (heads)
        rc = wnw__profile_import_heads(&f, p);
    else
        rc = layers ? wnw__profile_import_layers(&f, p) : wnw__profile_import_srh(&f, p, srh);
    json_decref(f.root);
    return rc;
}

int wnw_profile_open(wnw_profile **out, const char *path)
{
    /* More than any model's profile has; the parser's memory is checked before it is taken. */
    static const struct wnw__profile_limit any = {
        .n_bytes = INT64_C(1) << 32, .n_values = 1 << 26, .n_lists = 1 << 23};
    struct wnw__profile_file f;
    struct wnw__profile_shape shape;
    WNW_REQUIRE(out);
    *out = NULL;
    WNW_REQUIRE(path);
    WNW_TRY(wnw__profile_open(&f, path, &any));
    int rc =
        json_object_get(f.root, "format")
            ? wnw__profile_shape_of(&f, &shape)
            : wnw__profile_bad(&f, "it is not a profile: it has no \"format\"; `winnow profile import` reads "
                                   "files of other programs");
    if (rc == WNW_OK)
        rc = wnw__profile_new(out, &shape);
    if (rc == WNW_OK)
        rc = wnw__profile_read_kind(&f, *out);
    json_decref(f.root);
    if (rc != WNW_OK) {
        wnw_profile_free(*out);
        *out = NULL;
    }
    return rc;
}
