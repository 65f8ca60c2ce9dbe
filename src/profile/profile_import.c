/* SPDX-License-Identifier: MIT */
/*
 * Calibration results as the papers' authors publish them, recognised by their shape:
 *
 *   {"0": [heads, best first], "1": ..}        CompressKV (arXiv 2508.02401), ranked heads of every layer
 *   {"0-0": [score per probe], "0-1": ..}      the same harness, scores of every head
 *   {"avg_score": [share per layer], ..}       CompressKV, error of every layer
 *   {"shape": .., "W_head": [L][H]}            CompilerKV (arXiv 2602.08686), head weights
 *   {"shape": .., "M_lex": [L][20][4]}         CompilerKV, thresholds by entropy and perplexity
 *
 * These files do not name their model: only shapes can be checked, and the log says so.
 * CompilerKV's published tables are drawn from curves, not measured. Head lists do not say which of the two
 * retrieval scores they rank; the file's name decides where it has "srh" or "trad" in it, else ranked lists
 * are taken as semantic and score lists as traditional, which is what was published. HeadKV's files (arXiv
 * 2410.19258) have the shape of score lists: the caller of wnw__profile_read_as says which they are.
 */
#include "profile/profile_impl.h"
#include "winnow_calibrate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writes to rank[n_layer][n_head] each layer's heads, best first by mean[n_layer][n_head]; ties go to the
 * lower head. */
static void rank_heads(const float *mean, int32_t n_layer, int32_t n_head, int32_t *rank)
{
    for (int32_t il = 0; il < n_layer; il++) {
        const float *m = mean + (int64_t)il * n_head;
        int32_t *r = rank + (int64_t)il * n_head;
        for (int32_t h = 0; h < n_head; h++) {
            int32_t i = h;
            for (; i > 0 && m[r[i - 1]] < m[h]; i--)
                r[i] = r[i - 1];
            r[i] = h;
        }
    }
}

static bool name_has(const struct wnw__profile_file *f, const char *word)
{
    const char *slash = strrchr(f->path, '/');
    return strcasestr(slash ? slash + 1 : f->path, word) != NULL;
}

static void *allocate(size_t a, size_t b, size_t size)
{
    void *p = calloc(a * b, size);
    if (!p)
        wnw__fail(WNW_E_NOMEM, "no memory for %zu values", a * b);
    return p;
}

/* ---- CompressKV ---- */

static int import_ranks(const struct wnw__profile_file *f, wnw_profile *p, bool srh)
{
    int32_t **rank = srh ? &p->srh_rank : &p->trad_rank;
    *rank = allocate((size_t)p->model.n_layer, (size_t)p->model.n_head, sizeof **rank);
    if (!*rank)
        return WNW_E_NOMEM;
    if (json_object_size(f->root) != (size_t)p->model.n_layer)
        return wnw__fail(WNW_E_MISMATCH, "profile '%.200s' ranks the heads of %zu layers; the model has %d",
                         f->path, json_object_size(f->root), p->model.n_layer);
    for (int32_t il = 0; il < p->model.n_layer; il++) {
        char key[16];
        int32_t *row = NULL;
        snprintf(key, sizeof key, "%d", il);
        const json_t *v = json_object_get(f->root, key);
        if (!v)
            return wnw__profile_bad(f, "layer %d is missing", il);
        if (json_array_size(v) != (size_t)p->model.n_head)
            return wnw__fail(WNW_E_MISMATCH, "profile '%.200s' ranks %zu heads in layer %d; the model has %d",
                             f->path, json_array_size(v), il, p->model.n_head);
        const struct wnw__array_spec spec = {.name = key,
                                             .element = WNW_ELEMENT_I32,
                                             .rank = 1,
                                             .shape = {p->model.n_head},
                                             .max = p->model.n_head - 1};
        WNW_TRY(wnw__profile_array(&row, f, v, &spec));
        memcpy(*rank + (int64_t)il * p->model.n_head, row, (size_t)p->model.n_head * sizeof *row);
        free(row);
    }
    p->kinds = 1u << WNW_PROFILE_SRH;
    return wnw__profile_check_ranks(f, "layer", *rank, p->model.n_layer, p->model.n_head);
}

static int mean_of(const struct wnw__profile_file *f, const json_t *v, const char *key, size_t n, float *out)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *x = json_array_get(v, i);
        if (!json_is_number(x) || !(json_number_value(x) >= 0 && json_number_value(x) <= 1e30))
            return wnw__profile_bad(f, "score %zu of head %.20s is not a number of at least 0", i, key);
        sum += json_number_value(x);
    }
    *out = (float)(sum / (double)n);
    return WNW_OK;
}

/* Means of the scores of every head, mean[n_layer][n_head]. */
static int head_means(const struct wnw__profile_file *f, const wnw_profile *p, float *mean)
{
    const size_t n_all = (size_t)p->model.n_layer * (size_t)p->model.n_head;
    size_t n_probe = 0;
    if (json_object_size(f->root) != n_all)
        return wnw__fail(WNW_E_MISMATCH, "profile '%.200s' has scores of %zu heads; the model has %zu",
                         f->path, json_object_size(f->root), n_all);
    for (int32_t il = 0; il < p->model.n_layer; il++)
        for (int32_t h = 0; h < p->model.n_head; h++) {
            char key[32];
            snprintf(key, sizeof key, "%d-%d", il, h);
            const json_t *v = json_object_get(f->root, key);
            const size_t n = json_array_size(v);
            n_probe = n_probe == 0 ? n : n_probe;
            if (n == 0 || n != n_probe)
                return wnw__profile_bad(f, "head %s has %zu scores; every head must have as many, at least 1",
                                        key, n);
            WNW_TRY(mean_of(f, v, key, n, &mean[(int64_t)il * p->model.n_head + h]));
        }
    return WNW_OK;
}

static int import_scores(const struct wnw__profile_file *f, wnw_profile *p, bool srh)
{
    float *mean = allocate((size_t)p->model.n_layer, (size_t)p->model.n_head, sizeof *mean);
    int32_t *rank = allocate((size_t)p->model.n_layer, (size_t)p->model.n_head, sizeof *rank);
    *(srh ? &p->srh_mean : &p->trad_mean) = mean;
    *(srh ? &p->srh_rank : &p->trad_rank) = rank;
    if (!mean || !rank)
        return WNW_E_NOMEM;
    WNW_TRY(head_means(f, p, mean));
    rank_heads(mean, p->model.n_layer, p->model.n_head, rank);
    p->kinds = 1u << WNW_PROFILE_SRH;
    return WNW_OK;
}

/* ---- HeadKV: scores of query heads as CompressKV's, taken as importance ---- */

int wnw__profile_import_heads(const struct wnw__profile_file *f, wnw_profile *p)
{
    const size_t n = (size_t)p->model.n_layer * (size_t)p->model.n_head;
    float *mean = allocate(n, 1, sizeof *mean);
    p->head_score = allocate(n, 1, sizeof *p->head_score);
    int rc = mean && p->head_score ? head_means(f, p, mean) : WNW_E_NOMEM;
    for (size_t i = 0; rc == WNW_OK && i < n; i++)
        p->head_score[i] = (double)mean[i];
    free(mean);
    p->kinds = 1u << WNW_PROFILE_HEADS;
    return rc;
}

int wnw__profile_import_layers(const struct wnw__profile_file *f, wnw_profile *p)
{
    const json_t *v = json_object_get(f->root, "avg_score");
    if (json_is_array(v) && json_array_size(v) != (size_t)p->model.n_layer)
        return wnw__fail(WNW_E_MISMATCH, "profile '%.200s' has shares of %zu layers; the model has %d",
                         f->path, json_array_size(v), p->model.n_layer);
    const struct wnw__array_spec spec = {
        .name = "avg_score", .element = WNW_ELEMENT_F64, .rank = 1, .shape = {p->model.n_layer}, .max = 1e30};
    WNW_TRY(wnw__profile_array(&p->layer_share, f, v, &spec));
    p->kinds = 1u << WNW_PROFILE_LAYERS;
    return wnw__profile_normalise(f, p->layer_share, p->model.n_layer);
}

/* ---- CompilerKV ---- */

/* Bins of the published tables: equal steps from 2 to 10 nats, and from 1 to 100 on a logarithmic scale; a
 * value at or above the upper end is alone in the last bin. */
enum { N_ENTROPY = 20, N_PPL = 4 };

static int published_edges(struct wnw__compiler_table *t)
{
    t->n_entropy = N_ENTROPY;
    t->n_ppl = N_PPL;
    t->entropy_edge = allocate(N_ENTROPY - 1, 1, sizeof *t->entropy_edge);
    t->ppl_edge = allocate(N_PPL - 1, 1, sizeof *t->ppl_edge);
    if (!t->entropy_edge || !t->ppl_edge)
        return WNW_E_NOMEM;
    for (int32_t i = 1; i < N_ENTROPY; i++)
        t->entropy_edge[i - 1] = 2 + 8.0 * i / (N_ENTROPY - 1);
    for (int32_t i = 1; i < N_PPL; i++)
        t->ppl_edge[i - 1] = pow(100, i / (N_PPL - 1.0));
    t->ppl_edge[N_PPL - 2] = 100;
    t->default_ppl_bin = 1; /* the bin of perplexity 10, which the authors' code assumes */
    return WNW_OK;
}

static int import_compiler(const struct wnw__profile_file *f, wnw_profile *p)
{
    struct wnw__compiler_table *t = &p->compiler;
    const json_t *weight = json_object_get(f->root, "W_head"), *tau = json_object_get(f->root, "M_lex");
    const json_t *any = weight ? weight : tau;
    if (json_is_array(any) && json_array_size(any) != (size_t)p->model.n_layer)
        return wnw__fail(WNW_E_MISMATCH, "profile '%.200s' has a table of %zu layers; the model has %d",
                         f->path, json_array_size(any), p->model.n_layer);
    if (weight && json_is_array(json_array_get(weight, 0)) &&
        json_array_size(json_array_get(weight, 0)) != (size_t)p->model.n_head)
        return wnw__fail(WNW_E_MISMATCH, "profile '%.200s' has weights of %zu heads; the model has %d",
                         f->path, json_array_size(json_array_get(weight, 0)), p->model.n_head);
    t->n_layer = p->model.n_layer;
    t->alpha_scope = t->gate = t->entropy_norm = t->n_sink = t->pool = t->utility = -1;
    t->score_norm = WNW_NORM_MAX; /* thresholds of 0.8 to 1 are fractions of the largest score */
    if (weight)
        WNW_TRY(wnw__profile_array(&t->weight, f, weight,
                                   &(struct wnw__array_spec){.name = "W_head",
                                                             .element = WNW_ELEMENT_F32,
                                                             .rank = 2,
                                                             .shape = {p->model.n_layer, p->model.n_head},
                                                             .min = -1e6,
                                                             .max = 1e6}));
    if (tau) {
        WNW_TRY(published_edges(t));
        WNW_TRY(wnw__profile_array(&t->tau, f, tau,
                                   &(struct wnw__array_spec){.name = "M_lex",
                                                             .element = WNW_ELEMENT_F32,
                                                             .rank = 3,
                                                             .shape = {p->model.n_layer, N_ENTROPY, N_PPL},
                                                             .max = 1e6}));
    }
    p->kinds = 1u << WNW_PROFILE_COMPILER;
    return WNW_OK;
}

/* ---- Which of them it is ---- */

/* Whether every key is of digits, with one dash between them if `pair`, and every value an array. */
static bool keys_are(json_t *root, bool pair)
{
    const char *key;
    json_t *v;
    json_object_foreach(root, key, v)
    {
        size_t n = strspn(key, "0123456789");
        if (n == 0 || !json_is_array(v))
            return false;
        if (pair) {
            const size_t m = key[n] == '-' ? strspn(key + n + 1, "0123456789") : 0;
            if (m == 0)
                return false;
            n += 1 + m;
        }
        if (key[n])
            return false;
    }
    return json_object_size(root) > 0;
}

int wnw__profile_import_srh(const struct wnw__profile_file *f, wnw_profile *fresh, bool srh)
{
    if (keys_are(f->root, false))
        return import_ranks(f, fresh, srh);
    if (keys_are(f->root, true))
        return import_scores(f, fresh, srh);
    return wnw__profile_bad(f, "it has neither ranked heads, {\"0\": [heads], ..}, nor scores of heads, "
                               "{\"0-0\": [scores], ..}");
}

int wnw__profile_import(const struct wnw__profile_file *f, wnw_profile *fresh)
{
    int rc;
    if (json_object_get(f->root, "W_head") || json_object_get(f->root, "M_lex"))
        rc = import_compiler(f, fresh);
    else if (json_object_get(f->root, "avg_score"))
        rc = wnw__profile_import_layers(f, fresh);
    else if (keys_are(f->root, false))
        rc = import_ranks(f, fresh, !name_has(f, "trad"));
    else if (keys_are(f->root, true))
        rc = import_scores(f, fresh, name_has(f, "srh"));
    else
        return wnw__profile_bad(f, "it is not a profile: it has no \"format\", nor the shape of a published "
                                   "calibration file");
    if (rc == WNW_OK)
        wnw__profile_note(f, "a published file that does not name its model: only shapes were checked%s",
                          fresh->kinds >> WNW_PROFILE_COMPILER & 1u ? "; its tables are synthetic" : "");
    return rc;
}
