/* SPDX-License-Identifier: MIT */
/*
 * What eviction would change of one token: the analyses of "CriticalKV" (arXiv 2502.03805), section 5 and appendix.
 * The token is read after the whole cache. Its attention over every entry, the entries' values and the output
 * projection then say what any plan would change (perturb.c): the layer's input is the same with and without the
 * plan, so heads and layers do not influence each other. How far the changes spread is found by reading the token
 * again after a copy of the cache that the plan has compressed.
 */
#include "study/perturb.h"

#include "base/topk.h"
#include "observe/newest.h"
#include "observe/projnorm.h"
#include "observe/recorders.h"
#include "plan/plan.h"
#include "session/planning/planning.h"
#include "session/run/run.h"
#include "session/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct wnw__perturb_token {
    const wnw_session *of; /* borrowed */
    wnw_session *s;        /* its copy, which has read the token */
    int32_t token, n;      /* entries of every head of s, the token's own last */
    struct wnw__shape model;
    int32_t n_out;
    float *values;      /* [n][d] of the current KV head */
    bool *kept, *first; /* [n] */
    float *key;         /* [n] what entries are chosen by */
    double *delta;      /* [d] */
    float *x, *y;       /* [n_head][n_head x d], [n_head][n_out] of the current layer */
};

/* ---- Reading the token ---- */

/* Reads the token after a copy of `of` and records what the newest token got. plan NULL = every entry stays. */
static int read_token(wnw_session **out, const wnw_session *of, const wnw_plan *plan, int32_t token)
{
    WNW_TRY(wnw_session_copy(out, of));
    /* The rules of `of` are not followed, because they would compress; nor is anything observed for them. */
    WNW_TRY(wnw_session_begin(*out, &(const wnw_run){WNW_INIT(wnw_run)}));
    WNW_TRY(wnw__session_record(*out, wnw__states_recorder.name, true));
    if (plan)
        WNW_TRY(wnw_session_apply(*out, plan, NULL));
    else
        WNW_TRY(wnw__session_record(*out, wnw__newest_recorder.name, true));
    return wnw_session_decode(*out, token);
}

static int check_whole(const wnw_session *s)
{
    for (int32_t il = 0; il < s->cache.n_layer; il++)
        for (int32_t ih = 0; ih < s->cache.n_head_kv && wnw__layer_takes_part(&s->shape.model, il); ih++)
            if (wnw_cache_n(s, il, ih) != s->n_past || s->pos_shift > 0)
                return wnw__fail(
                    WNW_E_ARG,
                    "layer %d head %d holds %d of %d tokens; what plans change is measured against the "
                    "whole cache",
                    (int)il, (int)ih, (int)wnw_cache_n(s, il, ih), (int)s->n_past);
    return s->n_past > 0 ? WNW_OK
                         : wnw__fail(WNW_E_ARG, "no tokens were read, so that nothing can be evicted");
}

static int need_room(struct wnw__perturb_token *p)
{
    const size_t n = (size_t)p->n, h = (size_t)p->model.n_head, d = (size_t)p->model.d;
    p->values = malloc(n * d * sizeof *p->values);
    p->kept = malloc(n * sizeof *p->kept);
    p->first = malloc(n * sizeof *p->first);
    p->key = malloc(n * sizeof *p->key);
    p->delta = malloc(d * sizeof *p->delta);
    p->x = calloc(h * h * d, sizeof *p->x); /* heads write their own slices alone; the rest stays 0 */
    p->y = malloc(h * (size_t)p->n_out * sizeof *p->y);
    return p->values && p->kept && p->first && p->key && p->delta && p->x && p->y
               ? WNW_OK
               : wnw__fail(WNW_E_NOMEM, "no memory for the attention of a token over %d entries", (int)p->n);
}

int wnw__perturb_token_new(struct wnw__perturb_token **out, const wnw_session *s, int32_t token)
{
    WNW_REQUIRE(out);
    *out = NULL;
    WNW_REQUIRE(s);
    WNW_TRY(check_whole(s));
    WNW_TRY(wnw__session_check_tokens(s, &token, 1));
    struct wnw__perturb_token *p = calloc(1, sizeof *p);
    if (!p)
        return wnw__fail(WNW_E_NOMEM, "no memory to perturb a cache");
    *p = (struct wnw__perturb_token){
        .of = s, .token = token, .n = s->n_past + 1, .model = s->shape.model, .n_out = s->m->hp.n_embd};
    int rc = need_room(p);
    if (rc == WNW_OK)
        rc = read_token(&p->s, s, NULL, token);
    if (rc != WNW_OK) {
        wnw__perturb_token_free(p);
        return rc;
    }
    *out = p;
    return WNW_OK;
}

void wnw__perturb_token_free(struct wnw__perturb_token *p)
{
    if (!p)
        return;
    wnw_session_free(p->s);
    free(p->values);
    free(p->kept);
    free(p->first);
    free(p->key);
    free(p->delta);
    free(p->x);
    free(p->y);
    free(p);
}

/* ---- Heads ---- */

/* The attention [n] of query head h in layer il. */
static const float *attention_of(const struct wnw__perturb_token *p, int32_t il, int32_t h)
{
    int32_t n;
    const float *rows =
        wnw__newest_rows(wnw__recorders_find(&p->s->recorders, &wnw__newest_recorder), il, &n);
    return rows + (size_t)h * (size_t)n;
}

static void load_values(struct wnw__perturb_token *p, int32_t il, int32_t ih)
{
    wnw__cache_read(&p->s->cache, il, WNW_VALUES, ih, 0, p->n, p->values);
}

/* Puts the change of head h's output in front of the projection into its row of x. */
static int change_of_head(struct wnw__perturb_token *p, int32_t il, int32_t h, const bool *kept)
{
    float *x =
        p->x + (size_t)h * (size_t)p->model.n_head * (size_t)p->model.d + (size_t)h * (size_t)p->model.d;
    WNW_TRY(wnw__perturb_output(NULL, p->delta, attention_of(p, il, h), p->values, kept, p->n, p->model.d));
    for (int32_t c = 0; c < p->model.d; c++)
        x[c] = (float)p->delta[c];
    return WNW_OK;
}

/* y = x W_O: the change of every head's output. */
static int project(struct wnw__perturb_token *p, int32_t il)
{
    WNW_TRY(wnw__proj_check(p->s->m, il));
    const struct wnw__proj_weight w = wnw__proj_weight_of(p->s->m, il);
    return wnw__proj_apply(wnw__engine_pool(p->s->engine), &w, p->x, p->model.n_head, p->y);
}

/* || sum of the changes of heads from .. to - 1 ||_1 */
static double norm_of(const struct wnw__perturb_token *p, int32_t from, int32_t to)
{
    double norm = 0;
    for (int32_t k = 0; k < p->n_out; k++) {
        double sum = 0;
        for (int32_t h = from; h < to; h++)
            sum += (double)p->y[(size_t)h * (size_t)p->n_out + (size_t)k];
        norm += fabs(sum);
    }
    return norm;
}

/* ---- What a plan changes ---- */

static int check_plan(const struct wnw__perturb_token *p, const wnw_plan *plan)
{
    if (wnw_plan_n_layer(plan) != p->model.n_layer || wnw_plan_n_head_kv(plan) != p->model.n_head_kv ||
        wnw_plan_n_tokens(plan) != p->n - 1)
        return wnw__fail(
            WNW_E_MISMATCH, "the plan is for %d layers, %d KV heads and %d tokens; here are %d, %d and %d",
            (int)wnw_plan_n_layer(plan), (int)wnw_plan_n_head_kv(plan), (int)wnw_plan_n_tokens(plan),
            (int)p->model.n_layer, (int)p->model.n_head_kv, (int)p->n - 1);
    if (plan->contents)
        return wnw__fail(
            WNW_E_UNSUPPORTED,
            "the plan writes into entries that stay; only plans that drop entries can be measured");
    return WNW_OK;
}

static int change_of_layer(struct wnw__perturb_token *p, const wnw_plan *plan, int32_t il, double *heads,
                           double *groups, double *layer)
{
    for (int32_t ih = 0; ih < p->model.n_head_kv; ih++) {
        const int32_t *pos, n_kept = wnw_plan_head(plan, il, ih, &pos);
        memset(p->kept, 0, (size_t)p->n * sizeof *p->kept);
        for (int32_t i = 0; i < n_kept; i++)
            p->kept[pos[i]] = true; /* entry i of a whole cache is position i */
        p->kept[p->n - 1] = true;
        load_values(p, il, ih);
        for (int32_t h = ih * wnw__shape_group(&p->model); h < (ih + 1) * wnw__shape_group(&p->model); h++)
            WNW_TRY(change_of_head(p, il, h, p->kept));
    }
    WNW_TRY(project(p, il));
    for (int32_t h = 0; heads && h < p->model.n_head; h++)
        heads[h] = norm_of(p, h, h + 1);
    for (int32_t ih = 0; groups && ih < p->model.n_head_kv; ih++)
        groups[ih] = norm_of(p, ih * wnw__shape_group(&p->model), (ih + 1) * wnw__shape_group(&p->model));
    if (layer)
        *layer = norm_of(p, 0, p->model.n_head);
    return WNW_OK;
}

int wnw__perturb_token_change(struct wnw__perturb_token *p, const wnw_plan *plan, double *heads,
                              double *groups, double *layers)
{
    WNW_REQUIRE(p);
    WNW_REQUIRE(plan);
    WNW_TRY(check_plan(p, plan));
    for (int32_t il = 0; il < p->model.n_layer; il++) {
        double *of_heads = heads ? heads + (size_t)il * (size_t)p->model.n_head : NULL;
        double *of_groups = groups ? groups + (size_t)il * (size_t)p->model.n_head_kv : NULL;
        if (wnw__layer_takes_part(&p->of->shape.model, il)) {
            WNW_TRY(change_of_layer(p, plan, il, of_heads, of_groups, layers ? &layers[il] : NULL));
            continue;
        }
        for (int32_t h = 0; heads && h < p->model.n_head; h++)
            of_heads[h] = 0;
        for (int32_t ih = 0; groups && ih < p->model.n_head_kv; ih++)
            of_groups[ih] = 0;
        if (layers)
            layers[il] = 0;
    }
    return WNW_OK;
}

int wnw__perturb_token_drift(struct wnw__perturb_token *p, const wnw_plan *plan, double *drift)
{
    wnw_session *s = NULL;
    WNW_REQUIRE(p);
    WNW_REQUIRE(plan);
    WNW_REQUIRE(drift);
    int rc = read_token(&s, p->of, plan, p->token);
    for (int32_t il = 0; rc == WNW_OK && il < p->model.n_layer; il++) {
        const float *a = wnw__states_of(wnw__recorders_find(&p->s->recorders, &wnw__states_recorder), il);
        const float *b = wnw__states_of(wnw__recorders_find(&s->recorders, &wnw__states_recorder), il);
        drift[il] = 0;
        for (int32_t c = 0; c < p->n_out; c++)
            drift[il] += fabs((double)a[c] - (double)b[c]) / p->n_out;
    }
    wnw_session_free(s);
    return rc;
}

/* ---- What marked entries have ---- */

int wnw__perturb_token_mass(struct wnw__perturb_token *p, const bool *marks, double *mass)
{
    WNW_REQUIRE(p);
    WNW_REQUIRE(marks);
    WNW_REQUIRE(mass);
    const int32_t group = wnw__shape_group(&p->model), n = p->n - 1;
    for (int32_t il = 0; il < p->model.n_layer; il++)
        for (int32_t h = 0; h < p->model.n_head; h++) {
            double *sum = &mass[(size_t)il * (size_t)p->model.n_head + (size_t)h];
            *sum = 0;
            if (!wnw__layer_takes_part(&p->of->shape.model, il))
                continue;
            const float *attn = attention_of(p, il, h);
            const bool *mark =
                marks + ((size_t)il * (size_t)p->model.n_head_kv + (size_t)(h / group)) * (size_t)n;
            for (int32_t i = 0; i < n; i++)
                *sum += mark[i] ? (double)attn[i] : 0;
            *sum += (double)attn[n];
        }
    return WNW_OK;
}

/* ---- Bounds ---- */

/* Marks the k entries with the largest key. */
static void mark(bool *marks, const float *key, int32_t n, int32_t k)
{
    struct wnw__cut cut = wnw__topk_cut(key, n, k);
    for (int32_t i = 0; i < n; i++)
        marks[i] = wnw__cut_take(&cut, key[i]);
}

/* Marks stage 1, half of `keep`, by attention, and with stage 2, the rest by `attn` times nu, both stages.
 * nu NULL: stage 2 by attention too. */
static void choose(struct wnw__perturb_token *p, const float *attn, const float *nu, int32_t keep)
{
    mark(p->first, attn, p->n, keep / 2);
    for (int32_t i = 0; i < p->n; i++) {
        p->key[i] = nu ? attn[i] * nu[i] : attn[i];
        if (p->first[i])
            p->key[i] = INFINITY;
    }
    mark(p->kept, p->key, p->n, keep);
}

static int bounds_of_layer(struct wnw__perturb_token *p, const float *nu, int32_t il, int32_t keep,
                           struct wnw__perturb_bound *out)
{
    for (int32_t h = 0; h < p->model.n_head; h++) {
        const float *attn = attention_of(p, il, h), *of_head = nu + (size_t)h * (size_t)p->n;
        struct wnw__perturbation b;
        if (h % wnw__shape_group(&p->model) == 0)
            load_values(p, il, h / wnw__shape_group(&p->model));
        choose(p, attn, NULL, keep);
        WNW_TRY(wnw__perturb_bounds(&b, attn, of_head, p->kept, p->first, p->n));
        out[h] =
            (struct wnw__perturb_bound){.theta_hat_attention = b.theta_hat, .theta_relax = b.theta_relax};
        choose(p, attn, of_head, keep);
        WNW_TRY(wnw__perturb_bounds(&b, attn, of_head, p->kept, p->first, p->n));
        out[h].sigma_first = b.sigma_first;
        out[h].theta_hat = b.theta_hat;
        WNW_TRY(change_of_head(p, il, h, p->kept));
    }
    WNW_TRY(project(p, il));
    for (int32_t h = 0; h < p->model.n_head; h++)
        out[h].change = norm_of(p, h, h + 1);
    return WNW_OK;
}

static int bounds_of_layers(struct wnw__perturb_token *p, struct wnw__plan_source *src, int32_t keep,
                            struct wnw__perturb_bound *bounds)
{
    const wnw_needs norms = {WNW_INIT(wnw_needs), .flags = WNW_NEED_PROJ_NORM};
    for (int32_t il = 0; il < p->model.n_layer; il++) {
        wnw_observation obs;
        if (!wnw__layer_takes_part(&src->shape, il))
            continue;
        WNW_TRY(src->observe(src, il, &norms, NULL, &obs));
        const float *nu = obs.head_proj_norm(&obs, WNW_PROJ_L1);
        if (!nu)
            return WNW_E_NOMEM;
        WNW_TRY(bounds_of_layer(p, nu, il, keep, bounds + (size_t)il * (size_t)p->model.n_head));
    }
    return WNW_OK;
}

int wnw__perturb_token_bounds(struct wnw__perturb_token *p, int32_t keep, struct wnw__perturb_bound *bounds)
{
    struct wnw__plan_source src;
    WNW_REQUIRE(p);
    WNW_REQUIRE(bounds);
    if (keep < 2 || keep > p->n)
        return wnw__fail(WNW_E_RANGE, "%d entries in two stages; possible are 2 to %d", (int)keep, (int)p->n);
    memset(bounds, 0, (size_t)p->model.n_layer * (size_t)p->model.n_head * sizeof *bounds);
    WNW_TRY(wnw__session_source(&src, p->s));
    const int rc = bounds_of_layers(p, &src, keep, bounds);
    wnw__source_close(&src);
    return rc;
}
