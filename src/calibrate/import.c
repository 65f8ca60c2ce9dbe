/* SPDX-License-Identifier: MIT */
/* Makes a profile of a file that another program wrote. The file is read as the kind that the user names. The profile
 * has the model's fingerprint, so that it is refused for other models from then on. */
#include "base/err.h"
#include "base/json.h"
#include "base/random.h"
#include "base/system.h"
#include "profile/input_gate.h"
#include "profile/profile.h"
#include "winnow_calibrate.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *model_of(const wnw_profile *p)
{
    return json_pack("{s:s, s:i, s:i, s:i, s:i}", "fingerprint", p->fingerprint, "n_layer", p->model.n_layer,
                     "n_head", p->model.n_head, "n_head_kv", p->model.n_head_kv, "n_embd_head", p->model.d);
}

/* v NULL = memory ran out. */
static bool add(json_t *results, const char *key, json_t *v)
{
    return v && json_object_set_new(results, key, v) == 0;
}

/* Add a table of n_layer rows that the profile has; NULL: it has not. */
static bool add_i32s(json_t *results, const char *key, const int32_t *x, int32_t n_layer, int32_t n)
{
    return !x || add(results, key, wnw__json_i32_rows(x, n_layer, n));
}
static bool add_f32s(json_t *results, const char *key, const float *x, int32_t n_layer, int32_t n)
{
    return !x || add(results, key, wnw__json_f32_rows(x, n_layer, n));
}
static bool add_f64s(json_t *results, const char *key, const double *x, int32_t n_layer, int32_t n)
{
    return !x || add(results, key, wnw__json_f64_rows(x, n_layer, n));
}

static bool add_layers(json_t *results, const wnw_profile *p)
{
    return !p->layer_share || add(results, "avg_score", wnw__json_f64s(p->layer_share, p->model.n_layer));
}

static bool add_inputs(json_t *results, const wnw_profile *p)
{
    return !p->inputs.number || add(results, "layers", wnw__profile_input_layers(&p->inputs, &p->model));
}

static json_t *results_of(const wnw_profile *p)
{
    const int32_t L = p->model.n_layer, H = p->model.n_head, G = p->model.n_head_kv;
    json_t *o = json_object();
    if (o && add_i32s(o, "srh", p->srh_rank, L, H) && add_f32s(o, "srh_mean", p->srh_mean, L, H) &&
        add_i32s(o, "trad", p->trad_rank, L, H) && add_f32s(o, "trad_mean", p->trad_mean, L, H) &&
        add_layers(o, p) && add_f64s(o, "score", p->head_score, L, H) && add_inputs(o, p) &&
        add_f64s(o, "alpha", p->head_alpha, L, G))
        return o;
    json_decref(o);
    return NULL;
}

static const char *kind_of(const wnw_profile *p)
{
    for (int32_t kind = 0; kind < WNW_N_PROFILE_KINDS; kind++)
        if (p->kinds >> kind & 1u)
            return wnw_profile_kind_name(kind);
    return "";
}

static json_t *settings_of(const wnw_profile *p, const wnw_import_params *params)
{
    json_t *o = json_pack("{s:s}", "imported_as", params->as);
    bool good = o != NULL;
    if (params->sink > 0)
        good = good && json_object_set_new(o, "sink", json_integer(params->sink)) == 0;
    if (params->recent > 0)
        good = good && json_object_set_new(o, "recent", json_integer(params->recent)) == 0;
    if (p->inputs.number)
        good = good && wnw__profile_input_settings(&p->inputs, o);
    if (good)
        return o;
    json_decref(o);
    return NULL;
}

static int hash_of(char out[17], const char *path)
{
    uint64_t hash = WNW_HASH_START;
    char block[16384];
    size_t n;
    FILE *f;
    int64_t size;
    WNW_TRY(wnw__open_stream(&f, &size, "profile", path));
    while ((n = fread(block, 1, sizeof block, f)) > 0)
        hash = wnw__hash(hash, block, n);
    const bool good = !ferror(f);
    fclose(f);
    snprintf(out, 17, "%016" PRIx64, hash);
    return good ? WNW_OK : wnw__fail(WNW_E_IO, "reading '%.200s' failed", path);
}

static int write_text(char **text, const wnw_profile *p, const char *path, const wnw_import_params *params)
{
    const char *slash = strrchr(path, '/');
    char hash[17];
    size_t len;
    WNW_TRY(hash_of(hash, path));
    json_t *name = json_string(slash ? slash + 1 : path);
    if (!name)
        return wnw__fail(WNW_E_ARG, "the name of the file '%.200s' is not UTF-8", path);
    json_t *v = json_pack("{s:s, s:s, s:o, s:o, s:{s:o, s:s}, s:o}", "format", "winnow-profile-1", "kind",
                          kind_of(p), "model", model_of(p), "settings", settings_of(p, params), "data",
                          "file", name, "hash", hash, "results", results_of(p));
    const int rc = wnw__json_text(text, &len, v, true);
    json_decref(v);
    return rc;
}

/* The shape of a profile does not say how many numbers a hidden state has. */
static int check_inputs(const wnw_profile *p, const wnw_model *m)
{
    wnw_model_info info = wnw_model_info_default();
    WNW_TRY(wnw_model_get_info(m, &info));
    if (!p->inputs.number || p->inputs.n_embd == info.n_embd)
        return WNW_OK;
    return wnw__fail(WNW_E_MISMATCH, "the gates read hidden states of %d numbers; those of the model have %d",
                     (int)p->inputs.n_embd, (int)info.n_embd);
}

int wnw_profile_import(char **text, const wnw_model *m, const char *path, const wnw_import_params *params)
{
    wnw_import_params own = wnw_import_default_params();
    wnw_profile *p;
    WNW_REQUIRE(text);
    *text = NULL;
    WNW_REQUIRE(m);
    WNW_REQUIRE(path);
    WNW_REQUIRE(params);
    WNW_TRY(WNW_SIZED_TAKE(wnw_import_params, &own, params));
    WNW_REQUIRE(own.as);
    if (own.sink < 0 || own.recent < 0)
        return wnw__fail(WNW_E_RANGE, "sink is %d and recent is %d; they must be at least 0", (int)own.sink,
                         (int)own.recent);
    WNW_TRY(wnw_profile_new(&p, m));
    int rc = wnw__profile_read_as(p, path, own.as);
    if (rc == WNW_OK)
        rc = check_inputs(p, m);
    if (rc == WNW_OK)
        rc = write_text(text, p, path, &own);
    wnw_profile_free(p);
    return rc;
}
