/* SPDX-License-Identifier: MIT */
/* winnow plan: which entries a policy keeps, as a JSON file. */
#include "app/args.h"
#include "app/console.h"
#include "app/job.h"
#include "app/json.h"
#include "app/names.h"
#include "app/output.h"
#include "base/err.h"
#include "base/json.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/on_devices.h"
#include "winnow_method.h"

#include <jansson.h>
#include <string.h>

static json_t *head_json(const wnw_plan *plan, int32_t il, int32_t ih)
{
    const int32_t *positions;
    const int32_t n = wnw_plan_head(plan, il, ih, &positions);
    return wnw__json_i32s(positions, n);
}

/* [[from,to,n_to,weight],..]: the value at position `from` is merged into n_to kept ones, the first at
 * `to`. */
static json_t *merges_json(const wnw_plan *plan, int32_t il, int32_t ih)
{
    const wnw_merge *merges;
    const int32_t n = wnw_plan_merges(plan, il, ih, &merges);
    json_t *list = json_array();
    for (int32_t i = 0; i < n; i++)
        if (!app_json_append(&list, json_pack("[i,i,i,f]", (int)merges[i].from, (int)merges[i].to,
                                              (int)merges[i].n_to, (double)merges[i].weight)))
            return NULL;
    return list;
}

/* {"keep":n,"zero":[c0,c1,..]}: channels that are 0 in all but the last n keys. */
static json_t *channels_json(const wnw_plan *plan, int32_t il, int32_t ih)
{
    const int32_t *channels;
    int32_t n_spared;
    const int32_t n = wnw_plan_channels(plan, il, ih, &channels, &n_spared);
    return json_pack("{s:i, s:o}", "keep", (int)n_spared, "zero", wnw__json_i32s(channels, n));
}

static json_t *reals_json(const float *x, int32_t n)
{
    json_t *list = json_array();
    for (int32_t i = 0; x && i < n; i++)
        if (!app_json_append(&list, json_real((double)x[i])))
            return NULL;
    return list;
}

/* [b0,b1,..]: what attention adds to the logits of the kept entries; [] where it adds nothing. */
static json_t *bias_json(const wnw_plan *plan, int32_t il, int32_t ih)
{
    const wnw_fitted f = wnw_plan_fitted(plan, il, ih);
    return reals_json(f.bias, f.n);
}

/* [v00,v01,..]: the values that take the place of those of the kept entries, one after the other; [] where they stay. */
static json_t *values_json(const wnw_plan *plan, int32_t il, int32_t ih)
{
    const wnw_fitted f = wnw_plan_fitted(plan, il, ih);
    return reals_json(f.values, f.n * f.n_embd_head);
}

/* Adds a list over the heads of layer il to `layer`. */
static bool add_heads(json_t *layer, const char *key, const wnw_plan *plan, int32_t il,
                      json_t *(*head)(const wnw_plan *plan, int32_t il, int32_t ih))
{
    json_t *heads = json_array();
    for (int32_t ih = 0; ih < wnw_plan_n_head_kv(plan); ih++)
        if (!app_json_append(&heads, head(plan, il, ih)))
            return false;
    return json_object_set_new(layer, key, heads) == 0;
}

static bool has_heads(const wnw_plan *plan, int32_t il, int32_t ih)
{
    (void)plan;
    (void)il;
    (void)ih;
    return true;
}
static bool has_merges(const wnw_plan *plan, int32_t il, int32_t ih)
{
    const wnw_merge *merges;
    return wnw_plan_merges(plan, il, ih, &merges) > 0;
}
static bool has_channels(const wnw_plan *plan, int32_t il, int32_t ih)
{
    const int32_t *channels;
    int32_t n_spared;
    return wnw_plan_channels(plan, il, ih, &channels, &n_spared) > 0;
}
static bool has_bias(const wnw_plan *plan, int32_t il, int32_t ih)
{
    return wnw_plan_fitted(plan, il, ih).bias != NULL;
}
static bool has_values(const wnw_plan *plan, int32_t il, int32_t ih)
{
    return wnw_plan_fitted(plan, il, ih).values != NULL;
}

/* Lists over the heads of a layer, which it has where one of its heads has something to list. */
static const struct {
    const char *key;
    bool (*has)(const wnw_plan *plan, int32_t il, int32_t ih);
    json_t *(*head)(const wnw_plan *plan, int32_t il, int32_t ih);
} lists[] = {{"heads", has_heads, head_json},
             {"merges", has_merges, merges_json},
             {"channels", has_channels, channels_json},
             {"bias", has_bias, bias_json},
             {"values", has_values, values_json}};

/* {"heads":[[p0,p1,..],..]}, and "merges", "channels", "bias" or "values" where there are any. */
static json_t *layer_json(const wnw_plan *plan, int32_t il)
{
    json_t *layer = json_object();
    bool good = layer != NULL;
    for (size_t i = 0; good && i < sizeof lists / sizeof *lists; i++) {
        bool any = false;
        for (int32_t ih = 0; ih < wnw_plan_n_head_kv(plan); ih++)
            any = any || lists[i].has(plan, il, ih);
        good = !any || add_heads(layer, lists[i].key, plan, il, lists[i].head);
    }
    if (good)
        return layer;
    json_decref(layer);
    return NULL;
}

/* NULL without memory. */
static json_t *plan_json(const struct app_job *job, const wnw_plan *plan)
{
    const int32_t n_tokens = wnw_plan_n_tokens(plan);
    char fingerprint[WNW_FINGERPRINT_SIZE];
    json_t *layers = json_array();
    wnw_model_fingerprint(job->model, fingerprint);
    for (int32_t il = 0; il < wnw_plan_n_layer(plan); il++)
        if (!app_json_append(&layers, layer_json(plan, il)))
            return NULL;
    return json_pack("{s:s, s:o, s:s, s:i, s:s, s:o*, s:o, s:o}", "format", "winnow-plan-1", "model",
                     app_json_text(job->info.name), "fingerprint", fingerprint, "n_tokens", (int)n_tokens,
                     "policy", wnw_policy_string(job->keep.policy), "choice", app_job_choice(job), "tokens",
                     wnw__json_i32s(job->tokens, n_tokens), "layers", layers);
}

static int write_plan(const struct app_job *job, const wnw_plan *plan)
{
    struct app_out out;
    WNW_TRY(app_out_open(&out, job->args->out, &job->inputs));
    json_t *o = plan_json(job, plan);
    int rc = app_out_json(&out, o);
    json_decref(o);
    const int status = rc == APP_OK ? wnw_model_check_files(job->model) : WNW_OK;
    if (status != WNW_OK)
        rc = app_fail_status(status);
    return rc == APP_OK ? app_out_commit(&out) : rc;
}

/* What is said once the file is there. */
static void tell(const struct app_job *job, const wnw_report *report)
{
    char *own;
    app_job_notes(job);
    if (*report->warning)
        app_note("warning: %s", report->warning);
    app_note("%s: kept %.1f of %d entries per head; %s", job->args->out, report->kept_mean,
             app_job_n_compressed(job), app_policy_text(job->keep.policy, &own));
    wnw_free(own);
}

static int make_plan(struct app_job *job)
{
    wnw_report report = {WNW_INIT(wnw_report)};
    wnw_plan *plan;
    WNW_TRY(app_job_read(job, 0, app_job_n_compressed(job), NULL, NULL));
    WNW_TRY(
        app_status_code(wnw_session_plan(job->session, job->keep.policy, &job->keep.size, &plan, &report)));
    const int rc = write_plan(job, plan);
    wnw_plan_free(plan);
    if (rc == APP_OK)
        tell(job, &report);
    return rc;
}

/* The same on --devices: what their cache holds once the prompt was compressed. */
static int plan_on_devices(struct cli_on_devices *d, struct app_job *job)
{
    wnw_plan *plan;
    if (wnw_policy_rewrites(job->keep.policy))
        return app_fail(APP_BAD_INPUT,
                        "%s changes entries that are kept, and a keep-plan made on --devices has positions "
                        "alone; leave out "
                        "--devices, or the policy's content rule",
                        wnw_policy_string(job->keep.policy));
    WNW_TRY(cli_on_devices_begin(d, job, (const struct cli_args *)job->args, 1));
    WNW_TRY(app_out_check(job->args->out, &job->inputs));
    WNW_TRY(cli_on_devices_read_first(d, job, app_job_n_compressed(job)));
    WNW_TRY(cli_on_devices_plan(d, job, &plan));
    const int rc = write_plan(job, plan);
    wnw_plan_free(plan);
    if (rc == APP_OK)
        tell(job, &(wnw_report){WNW_INIT(wnw_report), .kept_mean = job->kept_mean});
    return rc;
}

/* Up to a prompt that is known; without --devices, up to a session. */
static int start(struct app_job *job, const struct app_args *args)
{
    if (!args->devices)
        return app_job_start(job, args);
    WNW_TRY(app_job_check(job, args));
    WNW_TRY(app_job_open(job));
    return app_job_prompt(job);
}

static int plan(struct app_job *job, struct cli_on_devices *devices, const struct app_args *args)
{
    WNW_TRY(cli_on_devices_check((const struct cli_args *)args));
    WNW_TRY(start(job, args));
    if (args->devices)
        return plan_on_devices(devices, job);
    /* The output is checked once more before the work starts, because the profiles that were found are inputs
     * too. */
    WNW_TRY(app_out_check(args->out, &job->inputs));
    return make_plan(job);
}

int cli_plan(const struct app_args *args)
{
    struct app_job job = {.args = args};
    struct cli_on_devices devices = {.sequence = NULL};
    if (!args->out)
        return app_fail(APP_BAD_INPUT, "no output file; name one with -o");
    if (args->evict && strcmp(args->evict, "end") != 0)
        return app_fail(APP_BAD_INPUT,
                        "--evict %s: a keep-plan is made at the end of the prompt; use --evict end",
                        args->evict);
    if (args->evict_every)
        return app_fail(APP_BAD_INPUT, "plan generates nothing; leave out --evict-every");
    const int rc = plan(&job, &devices, args);
    cli_on_devices_end(&devices);
    app_job_close(&job);
    return rc;
}
