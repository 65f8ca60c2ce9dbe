/* SPDX-License-Identifier: MIT */
/* The library's own format: {"format", "kind", "model", "settings", "data", "results"}; docs/reference/profiles.md
 * lists the fields. */
#include "profile/profile_impl.h"

#include "base/fingerprint_form.h"
#include "winnow_calibrate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT     "winnow-profile-1"
#define MAX_LAYERS 4096
#define MAX_HEADS  1024 /* of a layer, and elements of a head */
#define MAX_BINS   1024
#define MAX_TOKENS 0x7fffffff

/* ---- What model it belongs to ---- */

static int model_int(const struct wnw__profile_file *f, const json_t *model, const char *key, int32_t *out)
{
    WNW_TRY(wnw__profile_int(f, model, key, 0, 1, 1 << 20, out));
    return *out > 0 ? WNW_OK : wnw__profile_bad(f, "model.%s is missing", key);
}

int wnw__profile_shape_of(const struct wnw__profile_file *f, struct wnw__profile_shape *shape)
{
    const json_t *model = json_object_get(f->root, "model");
    const char *fingerprint = json_string_value(json_object_get(model, "fingerprint"));
    const char *kind = json_string_value(json_object_get(f->root, "kind"));
    const enum wnw__fingerprint_form form = wnw__fingerprint_form(fingerprint);
    if (form == WNW_FINGERPRINT_OLD)
        return wnw__fail(
            WNW_E_MISMATCH,
            "profile '%.200s' was made by an older winnow, whose fingerprint %s covers a part of the model "
            "alone: make it again with `winnow calibrate %.20s`, or import it again",
            f->path, fingerprint, kind ? kind : "KIND");
    if (form != WNW_FINGERPRINT_NOW)
        return wnw__profile_bad(f, "model.fingerprint is not %d hexadecimal digits",
                                WNW_FINGERPRINT_SIZE - 1);
    memcpy(shape->fingerprint, fingerprint, sizeof shape->fingerprint);
    WNW_TRY(model_int(f, model, "n_layer", &shape->model.n_layer));
    WNW_TRY(model_int(f, model, "n_head", &shape->model.n_head));
    WNW_TRY(model_int(f, model, "n_head_kv", &shape->model.n_head_kv));
    WNW_TRY(model_int(f, model, "n_embd_head", &shape->model.d));
    if (shape->model.n_layer > MAX_LAYERS || shape->model.n_head > MAX_HEADS || shape->model.d > MAX_HEADS)
        return wnw__profile_bad(
            f, "a model of %d layers and %d heads of %d elements; at most %d and %d of %d are read",
            shape->model.n_layer, shape->model.n_head, shape->model.d, MAX_LAYERS, MAX_HEADS, MAX_HEADS);
    return WNW_OK;
}

/* E_MISMATCH unless it is the profile's model. Tables of CompilerKV may come from another model with the
 * same number of heads; a policy must ask for such a table to be used (wnw__table_check). */
static int check_model(const struct wnw__profile_file *f, wnw_profile *p, bool compiler)
{
    struct wnw__profile_shape of;
    WNW_TRY(wnw__profile_shape_of(f, &of));
    const bool same = strcmp(of.fingerprint, p->fingerprint) == 0;
    const bool fits = of.model.n_layer == p->model.n_layer && of.model.n_head == p->model.n_head &&
                      of.model.n_head_kv == p->model.n_head_kv && of.model.d == p->model.d;
    if (compiler) {
        p->compiler.n_layer = of.model.n_layer;
        p->compiler.foreign = !same || !fits;
        if (of.model.n_head == p->model.n_head && of.model.n_head_kv == p->model.n_head_kv)
            return WNW_OK;
    }
    if (same && fits)
        return WNW_OK;
    return wnw__fail(WNW_E_MISMATCH,
                     "profile '%.200s' was made for another model: fingerprint %s, %d layers, %d and %d "
                     "heads; this model has %s, %d, %d and %d; calibrate it with `winnow calibrate`",
                     f->path, of.fingerprint, of.model.n_layer, of.model.n_head, of.model.n_head_kv,
                     p->fingerprint, p->model.n_layer, p->model.n_head, p->model.n_head_kv);
}

/* ---- The kinds ---- */

/* Reads results[key] if the key is there; otherwise *out is NULL. */
static int optional(void *out, const struct wnw__profile_file *f, const char *key,
                    struct wnw__array_spec spec)
{
    const json_t *v = json_object_get(json_object_get(f->root, "results"), key);
    void **array = out;
    *array = NULL;
    spec.name = key;
    return v ? wnw__profile_array(out, f, v, &spec) : WNW_OK;
}

static int required(void *out, const struct wnw__profile_file *f, const char *key,
                    struct wnw__array_spec spec)
{
    void **array = out;
    WNW_TRY(optional(out, f, key, spec));
    return *array ? WNW_OK : wnw__profile_bad(f, "results.%s is missing", key);
}

static int read_srh(const struct wnw__profile_file *f, const json_t *settings, wnw_profile *p)
{
    const struct wnw__array_spec ranks = {.element = WNW_ELEMENT_I32,
                                          .rank = 2,
                                          .shape = {p->model.n_layer, p->model.n_head},
                                          .min = 0,
                                          .max = p->model.n_head - 1};
    struct wnw__array_spec means = ranks;
    means.element = WNW_ELEMENT_F32;
    means.max = 1e30;
    WNW_TRY(optional(&p->trad_rank, f, "trad", ranks));
    WNW_TRY((p->trad_rank ? optional : required)(&p->srh_rank, f, "srh", ranks));
    if (p->srh_rank)
        WNW_TRY(wnw__profile_check_ranks(f, "srh", p->srh_rank, p->model.n_layer, p->model.n_head));
    WNW_TRY(optional(&p->srh_mean, f, "srh_mean", means));
    if (p->trad_rank)
        WNW_TRY(wnw__profile_check_ranks(f, "trad", p->trad_rank, p->model.n_layer, p->model.n_head));
    WNW_TRY(optional(&p->trad_mean, f, "trad_mean", means));
    return wnw__profile_int(f, settings, "k", 0, 1, p->model.n_head, &p->srh_k);
}

static int read_layers(const struct wnw__profile_file *f, const json_t *settings, wnw_profile *p)
{
    (void)settings;
    WNW_TRY(required(&p->layer_share, f, "avg_score",
                     (struct wnw__array_spec){
                         .element = WNW_ELEMENT_F64, .rank = 1, .shape = {p->model.n_layer}, .max = 1e30}));
    return wnw__profile_normalise(f, p->layer_share, p->model.n_layer);
}

/* Reads the interior edges of one feature; *n_bin is the number of bins that they make. */
static int read_edges(const struct wnw__profile_file *f, const char *key, double min, double **out,
                      int32_t *n_bin)
{
    const json_t *v = json_object_get(json_object_get(f->root, "results"), key);
    const size_t n = json_array_size(v);
    if (!json_is_array(v) || n >= MAX_BINS)
        return wnw__profile_bad(f, "results.%s is not an array of less than %d edges", key, MAX_BINS);
    const struct wnw__array_spec spec = {
        .name = key, .element = WNW_ELEMENT_F64, .rank = 1, .shape = {(int32_t)n}, .min = min, .max = 1e30};
    WNW_TRY(wnw__profile_array(out, f, v, &spec));
    for (size_t i = 1; i < n; i++)
        if (!((*out)[i] > (*out)[i - 1]))
            return wnw__profile_bad(f, "%s[%zu] is not above the edge before it", key, i);
    *n_bin = (int32_t)n + 1;
    return WNW_OK;
}

/* Reads the lengths of prompts: a number, or a list of them; what is neither counts as unstated. */
static void read_lengths(const json_t *settings, struct wnw__compiler_table *t)
{
    const json_t *v = json_object_get(settings, "length");
    const size_t n = json_is_array(v) ? json_array_size(v) : (size_t)(v != NULL);
    for (size_t i = 0; i < n; i++) {
        const json_int_t x = json_integer_value(json_is_array(v) ? json_array_get(v, i) : v);
        const int32_t length = x >= 1 && x <= MAX_TOKENS ? (int32_t)x : 0;
        t->least_length = i == 0 || length < t->least_length ? length : t->least_length;
        t->most_length = length > t->most_length ? length : t->most_length;
    }
}

static int read_compiler(const struct wnw__profile_file *f, const json_t *settings, wnw_profile *p)
{
    struct wnw__compiler_table *t = &p->compiler;
    WNW_TRY(wnw__profile_int(f, settings, "budget", 0, 1, MAX_TOKENS, &t->budget));
    WNW_TRY(wnw__profile_int(f, settings, "window", 0, 1, MAX_TOKENS, &t->window));
    WNW_TRY(wnw__profile_int(f, settings, "n_sink", -1, 0, MAX_TOKENS, &t->n_sink));
    WNW_TRY(wnw__profile_int(f, settings, "kernel", 0, 1, MAX_TOKENS, &t->kernel));
    WNW_TRY(wnw__profile_choice(f, settings, "pool", wnw__alpha_pools, &t->pool));
    WNW_TRY(wnw__profile_choice(f, settings, "utility", wnw__utilities, &t->utility));
    WNW_TRY(wnw__profile_choice(f, settings, "alpha_scope", wnw__alpha_scopes, &t->alpha_scope));
    WNW_TRY(wnw__profile_choice(f, settings, "score_norm", wnw__score_norms, &t->score_norm));
    WNW_TRY(wnw__profile_choice(f, settings, "gate", wnw__gate_modes, &t->gate));
    const json_t *norm = json_object_get(settings, "entropy_norm");
    if (t->budget == 0 || t->window == 0 || t->alpha_scope < 0 || t->score_norm < 0 || t->gate < 0 ||
        !json_is_boolean(norm))
        return wnw__profile_bad(f, "settings must say budget, window, alpha_scope, score_norm, gate and "
                                   "entropy_norm (true or false)");
    t->entropy_norm = json_is_true(norm);
    read_lengths(settings, t);
    const json_t *constant = json_object_get(json_object_get(f->root, "results"), "tau_constant");
    t->tau_constant = json_number_value(constant);
    if (constant && !(t->tau_constant > 0 && t->tau_constant <= 1e6))
        return wnw__profile_bad(f, "results.tau_constant is no number above 0");
    WNW_TRY(read_edges(f, "entropy_edges", -1e30, &t->entropy_edge, &t->n_entropy));
    WNW_TRY(read_edges(f, "ppl_edges", 0, &t->ppl_edge, &t->n_ppl));
    WNW_TRY(wnw__profile_int(f, json_object_get(f->root, "results"), "default_ppl_bin", -1, 0, t->n_ppl - 1,
                             &t->default_ppl_bin));
    if (t->default_ppl_bin < 0)
        return wnw__profile_bad(f, "results.default_ppl_bin is missing");
    WNW_TRY(required(&t->weight, f, "weight",
                     (struct wnw__array_spec){.element = WNW_ELEMENT_F32,
                                              .rank = 2,
                                              .shape = {t->n_layer, p->model.n_head},
                                              .min = -1e6,
                                              .max = 1e6}));
    return required(&t->tau, f, "tau",
                    (struct wnw__array_spec){.element = WNW_ELEMENT_F32,
                                             .rank = 3,
                                             .shape = {t->n_layer, t->n_entropy, t->n_ppl},
                                             .max = 1e6});
}

static int read_heads(const struct wnw__profile_file *f, const json_t *settings, wnw_profile *p)
{
    WNW_TRY(optional(&p->head_score, f, "score",
                     (struct wnw__array_spec){.element = WNW_ELEMENT_F64,
                                              .rank = 2,
                                              .shape = {p->model.n_layer, p->model.n_head},
                                              .max = 1e30}));
    WNW_TRY(optional(&p->head_alpha, f, "alpha",
                     (struct wnw__array_spec){.element = WNW_ELEMENT_F64,
                                              .rank = 2,
                                              .shape = {p->model.n_layer, p->model.n_head_kv},
                                              .max = 1}));
    if (!p->head_score && !p->head_alpha)
        return wnw__profile_bad(f, "results has neither score nor alpha");
    WNW_TRY(wnw__profile_int(f, settings, "sink", 0, 0, MAX_TOKENS, &p->head_sink));
    return wnw__profile_int(f, settings, "recent", 0, 0, MAX_TOKENS, &p->head_recent);
}

/* Correlations are stored as whole ten-thousandths: half as many digits as a covariance has, and an error of
 * at most 0.00005 of the two standard deviations. */
enum { CORRELATION_UNIT = 10000 };

/* Makes covariances [n][d][d] of standard deviations [n][d] and of the correlations [n][d (d - 1) / 2] of the
 * elements below the diagonal, row by row. */
static void covariances(const float *std, const int32_t *corr, int64_t n, int32_t d, float *cov)
{
    for (int64_t i = 0; i < n; i++, std += d, cov += (int64_t)d * d)
        for (int32_t a = 0; a < d; a++) {
            for (int32_t b = 0; b < a; b++)
                cov[a * d + b] = cov[b * d + a] =
                    (float)((double)std[a] * (double)std[b] * *corr++ / CORRELATION_UNIT);
            cov[a * d + a] = std[a] * std[a];
        }
}

/* The caller frees *std and *corr in any case. */
static int read_covariances(const struct wnw__profile_file *f, wnw_profile *p, float **std, int32_t **corr)
{
    const int32_t d = p->model.d;
    const int64_t n = (int64_t)p->model.n_layer * p->model.n_head;
    WNW_TRY(required(std, f, "query_std",
                     (struct wnw__array_spec){.element = WNW_ELEMENT_F32,
                                              .rank = 3,
                                              .shape = {p->model.n_layer, p->model.n_head, d},
                                              .max = 1e15}));
    WNW_TRY(required(corr, f, "query_corr",
                     (struct wnw__array_spec){.element = WNW_ELEMENT_I32,
                                              .rank = 3,
                                              .shape = {p->model.n_layer, p->model.n_head, d * (d - 1) / 2},
                                              .min = -CORRELATION_UNIT,
                                              .max = CORRELATION_UNIT}));
    p->query_cov = calloc((size_t)n * (size_t)d * (size_t)d, sizeof *p->query_cov);
    if (!p->query_cov)
        return wnw__fail(WNW_E_NOMEM, "no memory for covariances of queries");
    covariances(*std, *corr, n, d, p->query_cov);
    return WNW_OK;
}

static int read_correlations(const struct wnw__profile_file *f, wnw_profile *p)
{
    float *std = NULL;
    int32_t *corr = NULL;
    const int rc = read_covariances(f, p, &std, &corr);
    free(std);
    free(corr);
    return rc;
}

static int read_stats(const struct wnw__profile_file *f, const json_t *settings, wnw_profile *p)
{
    (void)settings;
    const int32_t d = p->model.d;
    const struct wnw__array_spec any = {.element = WNW_ELEMENT_F32, .min = -1e30, .max = 1e30};
    struct wnw__array_spec mean = any, cov = any, filter = any;
    mean.rank = filter.rank = 3;
    cov.rank = 4;
    memcpy(mean.shape, (int32_t[4]){p->model.n_layer, p->model.n_head, d}, sizeof mean.shape);
    memcpy(cov.shape, (int32_t[4]){p->model.n_layer, p->model.n_head, d, d}, sizeof cov.shape);
    memcpy(filter.shape, (int32_t[4]){p->model.n_layer, p->model.n_head_kv, d}, sizeof filter.shape);
    WNW_TRY(optional(&p->query_filter, f, "filter", filter));
    WNW_TRY(optional(&p->query_mean, f, "query_mean", mean));
    if (!p->query_mean && !p->query_filter)
        return wnw__profile_bad(f, "results has neither query_mean nor filter");
    if (!p->query_mean)
        return WNW_OK;
    WNW_TRY(optional(&p->query_cov, f, "query_cov", cov));
    return p->query_cov ? WNW_OK : read_correlations(f, p);
}

/* The scorer's name is what comes before the options of a recipe's first part. */
static void read_scorer(const json_t *settings, char out[65])
{
    const char *recipe = json_string_value(json_object_get(settings, "policy"));
    const size_t n = recipe ? strcspn(recipe, ":+") : 0;
    out[0] = '\0';
    if (n == 0 || n > 64)
        return;
    memcpy(out, recipe, n);
    out[n] = '\0';
}

/* Reads results[key], numbers between 0 and 1 that all rise, or all fall. */
static int read_steps(const struct wnw__profile_file *f, const char *key, bool rise, double **out, int32_t *n)
{
    const json_t *v = json_object_get(json_object_get(f->root, "results"), key);
    const size_t size = json_array_size(v);
    if (!json_is_array(v) || size < 1 || size > MAX_BINS)
        return wnw__profile_bad(f, "results.%s is not an array of 1 to %d numbers", key, MAX_BINS);
    WNW_TRY(wnw__profile_array(out, f, v,
                               &(struct wnw__array_spec){.name = key,
                                                         .element = WNW_ELEMENT_F64,
                                                         .rank = 1,
                                                         .shape = {(int32_t)size},
                                                         .min = 1e-6,
                                                         .max = 1 - 1e-6}));
    for (size_t i = 1; i < size; i++)
        if (!(rise ? (*out)[i] > (*out)[i - 1] : (*out)[i] < (*out)[i - 1]))
            return wnw__profile_bad(f, "%s[%zu] is not %s the one before it", key, i,
                                    rise ? "above" : "below");
    *n = (int32_t)size;
    return WNW_OK;
}

/* Reads results[key], shares [n][n_layer][n_head_kv] that do not rise from one of the n to the next; `before` names
 * the list with one item for each of the n. */
static int read_falling(const struct wnw__profile_file *f, const char *key, const char *before, int32_t n,
                        const wnw_profile *p, float **out)
{
    const size_t n_row = (size_t)p->model.n_layer * (size_t)p->model.n_head_kv;
    WNW_TRY(required(out, f, key,
                     (struct wnw__array_spec){.element = WNW_ELEMENT_F32,
                                              .rank = 3,
                                              .shape = {n, p->model.n_layer, p->model.n_head_kv},
                                              .max = 1}));
    for (size_t i = n_row; i < (size_t)n * n_row; i++)
        if ((*out)[i] > (*out)[i - n_row])
            return wnw__profile_bad(f, "%s[%zu][%zu][%zu] is above that of the %s before it", key, i / n_row,
                                    i % n_row / (size_t)p->model.n_head_kv, i % (size_t)p->model.n_head_kv,
                                    before);
    return WNW_OK;
}

static int read_curves(const struct wnw__profile_file *f, const json_t *settings, wnw_profile *p)
{
    WNW_TRY(read_steps(f, "ratio", true, &p->curve_ratio, &p->n_curve));
    WNW_TRY(read_falling(f, "keep", "ratio", p->n_curve, p, &p->curve_keep));
    read_scorer(settings, p->curve_scorer);
    return WNW_OK;
}

/* Reads results.layers, the numbers of the layers that were measured, ascending, to measured[n_layer]. */
static int read_measured(const struct wnw__profile_file *f, const wnw_profile *p, bool *measured,
                         int32_t *n_measured)
{
    const json_t *v = json_object_get(json_object_get(f->root, "results"), "layers");
    const size_t n = json_array_size(v);
    int32_t *il = NULL;
    if (!json_is_array(v) || n < 1 || n > (size_t)p->model.n_layer)
        return wnw__profile_bad(f, "results.layers is not an array of 1 to %d numbers",
                                (int)p->model.n_layer);
    int rc = wnw__profile_array(&il, f, v,
                                &(struct wnw__array_spec){.name = "layers",
                                                          .element = WNW_ELEMENT_I32,
                                                          .rank = 1,
                                                          .shape = {(int32_t)n},
                                                          .max = p->model.n_layer - 1});
    for (size_t i = 0; rc == WNW_OK && i < n; i++) {
        if (i > 0 && il[i] <= il[i - 1])
            rc = wnw__profile_bad(f, "layers[%zu] is not above the one before it", i);
        measured[il[i]] = true;
    }
    free(il);
    *n_measured = (int32_t)n;
    return rc;
}

/* The best entries of the model are as many as the size says: the shares of measured heads have it as their mean. */
static int check_means(const struct wnw__profile_file *f, const wnw_profile *p, const bool *measured,
                       int32_t n_measured)
{
    const float *share = p->best_share;
    for (int32_t i = 0; i < p->n_best; i++) {
        double sum = 0;
        for (int32_t r = 0; r < p->model.n_layer * p->model.n_head_kv; r++, share++)
            sum += measured[r / p->model.n_head_kv] ? (double)*share : 0;
        const double mean = sum / ((double)n_measured * p->model.n_head_kv);
        if (!(fabs(mean - p->best_size[i]) <= 0.001 * p->best_size[i]))
            return wnw__profile_bad(f, "the shares of share[%d] have the mean %.6g, not their size %.6g",
                                    (int)i, mean, p->best_size[i]);
    }
    return WNW_OK;
}

static int read_shares(const struct wnw__profile_file *f, const json_t *settings, wnw_profile *p)
{
    (void)settings;
    bool measured[MAX_LAYERS] = {false};
    int32_t n_measured = 0;
    WNW_TRY(read_steps(f, "size", false, &p->best_size, &p->n_best));
    WNW_TRY(read_falling(f, "share", "size", p->n_best, p, &p->best_share));
    WNW_TRY(read_measured(f, p, measured, &n_measured));
    return check_means(f, p, measured, n_measured);
}

/* Reads settings.features, a list of the names of all features or of the scalars among them. */
static int read_features(const struct wnw__profile_file *f, const json_t *settings, wnw_profile *p)
{
    const json_t *names = json_object_get(settings, "features");
    size_t n_all = 0, n = json_array_size(names);
    while (wnw__gate_features[n_all])
        n_all++;
    bool good = json_is_array(names) && (n == n_all || n == WNW_GATE_SCALARS);
    for (size_t i = 0; good && i < n; i++) {
        const char *name = json_string_value(json_array_get(names, i));
        good = name && strcmp(name, wnw__gate_features[n_all - n + i]) == 0;
    }
    if (!good)
        return wnw__profile_bad(f, "settings.features is neither [\"key\", \"value\", \"lk\", \"keydiff\", "
                                   "\"ea\", \"lev\"] nor the last four of these");
    p->n_gate_feature = n == n_all ? wnw__gate_all(p->model.d) : WNW_GATE_SCALARS;
    return WNW_OK;
}

/* Reads the smallest share of the entries that gates are for, which may be missing. */
static int read_least(const struct wnw__profile_file *f, const json_t *settings, wnw_profile *p)
{
    const json_t *least = json_object_get(settings, "least");
    p->gate_least = least ? json_number_value(least) : 0;
    if (least && (!json_is_number(least) || !(p->gate_least >= 0 && p->gate_least <= 1)))
        return wnw__profile_bad(f, "settings.least is not a number from 0 to 1");
    return WNW_OK;
}

static int read_gate(const struct wnw__profile_file *f, const json_t *settings, wnw_profile *p)
{
    WNW_TRY(read_features(f, settings, p));
    WNW_TRY(read_least(f, settings, p));
    struct wnw__array_spec spec = {.element = WNW_ELEMENT_F32,
                                   .rank = 3,
                                   .shape = {p->model.n_layer, p->model.n_head_kv, p->n_gate_feature},
                                   .min = -1e6,
                                   .max = 1e6};
    WNW_TRY(required(&p->gate_weight, f, "weight", spec));
    spec.rank = 2;
    return required(&p->gate_bias, f, "bias", spec);
}

const struct wnw__quality_scorer wnw__quality_scorers[WNW_N_QUALITY] = {
    [WNW_QUALITY_REPLAY] = {"replay", -1},
    [WNW_QUALITY_KVGATE] = {"kvgate", WNW_PROFILE_GATE},
    [WNW_QUALITY_INPUTGATE] = {"inputgate", WNW_PROFILE_INPUTGATE}};

int32_t wnw__quality_scorer(const char *name)
{
    for (int32_t i = 0; i < WNW_N_QUALITY; i++)
        if (strcmp(name, wnw__quality_scorers[i].name) == 0)
            return i;
    return -1;
}

int32_t wnw__quality_share(const double *loss, int32_t n, double quality)
{
    int32_t k = -1;
    while (k + 1 < n && loss[k + 1] <= 1 - quality)
        k++;
    return k;
}

/* Reads which gates a scorer was measured with: a hash under the name of their kind, which may be missing. */
static int read_quality_of(const struct wnw__profile_file *f, const json_t *settings, int32_t scorer,
                           uint64_t *out)
{
    const int32_t kind = wnw__quality_scorers[scorer].kind;
    const char *name = kind < 0 ? NULL : wnw_profile_kind_name(kind);
    const json_t *hash = name ? json_object_get(settings, name) : NULL;
    if (!hash)
        return WNW_OK;
    const char *text = json_is_string(hash) ? json_string_value(hash) : "";
    if (strspn(text, "0123456789abcdef") != 16 || text[16])
        return wnw__profile_bad(f, "settings.%s is not 16 hexadecimal digits", name);
    *out = strtoull(text, NULL, 16);
    return WNW_OK;
}

/* Reads results.dropped, and of each scorer that was measured what is lost, under its name. */
static int read_quality(const struct wnw__profile_file *f, const json_t *settings, wnw_profile *p)
{
    const json_t *results = json_object_get(f->root, "results");
    int32_t n_measured = 0;
    WNW_TRY(read_steps(f, "dropped", true, &p->quality_dropped, &p->n_quality));
    for (int32_t i = 0; i < WNW_N_QUALITY; i++) {
        const char *name = wnw__quality_scorers[i].name;
        double **loss = &p->quality_loss[i];
        if (!json_object_get(results, name))
            continue;
        char kept[32];
        const struct wnw__array_spec spec = {
            .element = WNW_ELEMENT_F64, .rank = 1, .shape = {p->n_quality}, .max = 1};
        snprintf(kept, sizeof kept, "%s_kept", name);
        WNW_TRY(required(loss, f, name, spec));
        WNW_TRY(required(&p->quality_kept[i], f, kept, spec));
        WNW_TRY(read_quality_of(f, settings, i, &p->quality_of[i]));
        for (int32_t k = 1; k < p->n_quality; k++)
            if ((*loss)[k] < (*loss)[k - 1])
                return wnw__profile_bad(f, "%s[%d] is below the one before it", name, (int)k);
        n_measured++;
    }
    if (n_measured == 0)
        return wnw__profile_bad(f, "it has losses of none of replay, kvgate and inputgate");
    return WNW_OK;
}

static int read_gradient(const struct wnw__profile_file *f, const json_t *settings, wnw_profile *p)
{
    (void)settings;
    return required(&p->layer_gradient, f, "gradient",
                    (struct wnw__array_spec){
                        .element = WNW_ELEMENT_F64, .rank = 1, .shape = {p->model.n_layer}, .max = 1e30});
}

int wnw__profile_read_kind(const struct wnw__profile_file *f, wnw_profile *fresh)
{
    static int (*const readers[WNW_N_PROFILE_KINDS])(const struct wnw__profile_file *, const json_t *,
                                                     wnw_profile *) = {
        [WNW_PROFILE_SRH] = read_srh,
        [WNW_PROFILE_LAYERS] = read_layers,
        [WNW_PROFILE_COMPILER] = read_compiler,
        [WNW_PROFILE_HEADS] = read_heads,
        [WNW_PROFILE_STATS] = read_stats,
        [WNW_PROFILE_CURVES] = read_curves,
        [WNW_PROFILE_SHARES] = read_shares,
        [WNW_PROFILE_GATE] = read_gate,
        [WNW_PROFILE_INPUTGATE] = wnw__profile_read_inputs,
        [WNW_PROFILE_QUALITY] = read_quality,
        [WNW_PROFILE_GRADIENT] = read_gradient,
    };
    const char *format = json_string_value(json_object_get(f->root, "format"));
    const char *name = json_string_value(json_object_get(f->root, "kind"));
    const json_t *settings = json_object_get(f->root, "settings");
    int32_t kind = 0;
    if (!format || strcmp(format, FORMAT) != 0)
        return wnw__profile_bad(f, "its format is %s%.40s%s; " FORMAT " is expected", format ? "\"" : "",
                                format ? format : "no string", format ? "\"" : "");
    while (kind < WNW_N_PROFILE_KINDS && (!name || strcmp(name, wnw_profile_kind_name(kind)) != 0))
        kind++;
    if (kind == WNW_N_PROFILE_KINDS)
        return wnw__profile_bad(f, "its kind is not srh, layers, compiler, heads, stats, curves, shares, "
                                   "gate, inputgate, quality or gradient");
    if (settings && !json_is_object(settings))
        return wnw__profile_bad(f, "settings is not an object");
    WNW_TRY(check_model(f, fresh, kind == WNW_PROFILE_COMPILER));
    WNW_TRY(readers[kind](f, settings, fresh));
    fresh->kinds = 1u << kind;
    return WNW_OK;
}
