/* SPDX-License-Identifier: MIT */
/* Profiles: calibration results of one model, and the names in them. docs/reference/profiles.md has the format. */
#include "profile/profile_impl.h"
#include "winnow_calibrate.h"

#include <stdlib.h>
#include <string.h>

const char *const wnw__alpha_scopes[] = {"global", "layer", "head", NULL};
const char *const wnw__score_norms[] = {"mean", "max", "median", NULL};
const char *const wnw__alpha_pools[] = {"none", "avg", "max", NULL};
const char *const wnw__utilities[] = {"full", "raw", "attention", NULL};
const char *const wnw__gate_modes[] = {"elastic", "strict", "pooled", NULL};

const char *const wnw__gate_features[] = {"key", "value", "lk", "keydiff", "ea", "lev", NULL};

const char *wnw_profile_kind_name(int32_t kind)
{
    static const char *const names[WNW_N_PROFILE_KINDS] = {"srh",       "layers",  "compiler", "heads",
                                                           "stats",     "curves",  "shares",   "gate",
                                                           "inputgate", "quality", "gradient"};
    return kind >= 0 && kind < WNW_N_PROFILE_KINDS ? names[kind] : NULL;
}

void wnw_profile_set_found(wnw_profile *p, uint32_t kinds)
{
    if (p)
        p->found = kinds;
}

const char *wnw_profile_fingerprint(const wnw_profile *p)
{
    return p ? p->fingerprint : "";
}

uint32_t wnw_profile_kinds(const wnw_profile *p)
{
    return p ? p->kinds : 0;
}

int wnw__profile_new(wnw_profile **out, const struct wnw__profile_shape *shape)
{
    wnw_profile *p = calloc(1, sizeof *p);
    *out = p;
    if (!p)
        return wnw__fail(WNW_E_NOMEM, "out of memory for a profile");
    p->model = shape->model;
    memcpy(p->fingerprint, shape->fingerprint, sizeof p->fingerprint);
    return WNW_OK;
}

int wnw_profile_new(wnw_profile **out, const wnw_model *m)
{
    wnw_model_info info = wnw_model_info_default();
    WNW_REQUIRE(out);
    *out = NULL;
    WNW_REQUIRE(m);
    WNW_TRY(wnw_model_get_info(m, &info));
    struct wnw__profile_shape shape = {.model = {.n_layer = info.n_layer,
                                                 .n_head = info.n_head,
                                                 .n_head_kv = info.n_head_kv,
                                                 .d = info.n_embd_head}};
    wnw_model_fingerprint(m, shape.fingerprint);
    return wnw__profile_new(out, &shape);
}

void wnw__profile_free_compiler(struct wnw__compiler_table *t)
{
    free(t->entropy_edge);
    free(t->ppl_edge);
    free(t->weight);
    free(t->tau);
}

void wnw_profile_free(wnw_profile *p)
{
    if (!p)
        return;
    free(p->srh_rank);
    free(p->trad_rank);
    free(p->srh_mean);
    free(p->trad_mean);
    free(p->layer_share);
    free(p->head_score);
    free(p->head_alpha);
    wnw__profile_free_compiler(&p->compiler);
    free(p->query_mean);
    free(p->query_cov);
    free(p->query_filter);
    free(p->curve_ratio);
    free(p->curve_keep);
    free(p->best_size);
    free(p->best_share);
    free(p->quality_dropped);
    for (int i = 0; i < WNW_N_QUALITY; i++)
        free(p->quality_loss[i]);
    for (int i = 0; i < WNW_N_QUALITY; i++)
        free(p->quality_kept[i]);
    free(p->layer_gradient);
    free(p->gate_weight);
    free(p->gate_bias);
    wnw__input_gate_free(&p->inputs);
    free(p);
}
