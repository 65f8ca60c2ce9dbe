/* SPDX-License-Identifier: MIT */
#include "eval/run/plans.h"

#include "app/console.h"
#include "app/files.h"
#include "app/plan_file.h"
#include "eval/base/grow.h"
#include "winnow_tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether the ids that a plan may have are those of the prompt. */
static bool same_tokens(const json_t *tokens, const int32_t *ids)
{
    size_t i;
    const json_t *x;
    json_array_foreach(tokens, i, x)
    {
        if (json_integer_value(x) != ids[i])
            return false;
    }
    return true;
}

static int check_fit(const json_t *o, const struct eval_entry *e, const struct eval_reading *r,
                     const char *path)
{
    const json_int_t n = json_integer_value(json_object_get(o, "n_tokens"));
    if (n != e->n_part)
        return app_fail(APP_BAD_INPUT,
                        "'%s' is a plan of %lld tokens, and mode %s compresses %d of this sample; make it of "
                        "these",
                        path, (long long)n, eval_mode_name(e->config->mode), (int)e->n_part);
    if (!same_tokens(json_object_get(o, "tokens"), r->first[0].ids))
        return app_fail(APP_BAD_INPUT, "'%s' is a plan of another text: its tokens are not the sample's",
                        path);
    return APP_OK;
}

/* Mean over the heads of the layers that policies compress. */
static double mean_kept(const wnw_plan *plan, const wnw_model *m)
{
    double sum = 0, n = 0;
    const int32_t *positions;
    for (int32_t il = 0; il < wnw_plan_n_layer(plan); il++)
        for (int32_t ih = 0; !wnw_model_layer_is_swa(m, il) && ih < wnw_plan_n_head_kv(plan); ih++, n++)
            sum += wnw_plan_head(plan, il, ih, &positions);
    return n > 0 ? sum / n : 0;
}

/* Makes the entry's plan of a file's object. */
static int make_plan(struct eval_entry *e, const json_t *o, const struct eval_reading *r,
                     const wnw_model_info *info, const char *path)
{
    WNW_TRY(check_fit(o, e, r, path));
    WNW_TRY(app_plan_make(&e->plan, o, path));
    if (wnw_plan_n_layer(e->plan) != info->n_layer || wnw_plan_n_head_kv(e->plan) != info->n_head_kv)
        return app_fail(APP_BAD_INPUT,
                        "'%s' is a plan of %d layers with %d heads, and the model has %d with %d", path,
                        (int)wnw_plan_n_layer(e->plan), (int)wnw_plan_n_head_kv(e->plan), (int)info->n_layer,
                        (int)info->n_head_kv);
    return APP_OK;
}

int eval_plans_load(struct eval_entry *e, const struct eval_reading *r, const wnw_model *m,
                    const wnw_model_info *info)
{
    const struct eval_sample *s = r->sample;
    char *path = NULL;
    json_t *o = NULL;
    if (asprintf(&path, "%s/%s-%d-%d.json", e->config->plans, s->task, (int)s->n_target, (int)s->index) < 0)
        return eval_no_memory("plans");
    int rc = app_plan_read(&o, path);
    if (rc == APP_OK)
        rc = make_plan(e, o, r, info, path);
    if (rc == APP_OK)
        e->kept_mean = mean_kept(e->plan, m);
    json_decref(o);
    free(path);
    return rc;
}
