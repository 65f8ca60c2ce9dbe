/* SPDX-License-Identifier: MIT */
/* winnow calibrate srh: retrieval heads. */
#include "calibration/commands.h"

#include "app/console.h"
#include "app/heatmap.h"
#include "calibration/job.h"

#include <jansson.h>
#include <stdlib.h>

static const struct app_option probes_options[] = {
    {"export-probes", 0, APP_TEXT, "FILE", NULL, "none",
     "write the probes that count, JSONL: id, prompt_tokens, target_first, target_len, generated_tokens",
     offsetof(struct srh_args, probes), 0, 0, NULL},
};
APP_GROUP(calibrate_group_probes, "Probes", probes_options);

/* Numbers [L][H] of the profile; the caller frees them. NULL: out of memory. */
static double *read_rows(const json_t *rows)
{
    const size_t n_row = json_array_size(rows), n = json_array_size(json_array_get(rows, 0));
    double *out = calloc(n_row * n + 1, sizeof *out);
    for (size_t i = 0; out && i < n_row * n; i++)
        out[i] = json_number_value(json_array_get(json_array_get(rows, i / n), i % n));
    return out;
}

static int draw(FILE *f, const json_t *results)
{
    static const char *const keys[2] = {"srh_mean", "trad_mean"};
    static const char *const titles[2] = {"Semantic retrieval score: attention on the answer",
                                          "Traditional retrieval score: share of the answer that is copied"};
    struct app_heatmap maps[2];
    double *values[2];
    for (int i = 0; i < 2; i++) {
        const json_t *rows = json_object_get(results, keys[i]);
        values[i] = read_rows(rows);
        maps[i] = (struct app_heatmap){.title = titles[i],
                                       .row = "layer",
                                       .column = "head",
                                       .value = values[i],
                                       .n_row = (int32_t)json_array_size(rows),
                                       .n_column = (int32_t)json_array_size(json_array_get(rows, 0))};
    }
    const bool good = values[0] && values[1];
    if (good)
        app_heatmap_svg(f, maps, 2);
    free(values[0]);
    free(values[1]);
    return good ? APP_OK : app_fail(APP_FAILED, "out of memory for the picture");
}

static int write_map(const struct calibrate_job *job)
{
    struct app_out out;
    if (!job->args->map)
        return APP_OK;
    json_t *profile = json_loads(wnw_calibration_profile(job->result, 0, NULL), 0, NULL);
    int rc = profile ? app_out_open(&out, job->args->map, &job->inputs)
                     : app_fail(APP_FAILED, "out of memory for the picture");
    if (rc == APP_OK) {
        rc = draw(out.f, json_object_get(profile, "results"));
        if (rc == APP_OK)
            rc = app_out_commit(&out);
        else
            app_out_abort(&out);
    }
    json_decref(profile);
    return rc;
}

/* The caller closes the job in any case. */
static int find_heads(struct calibrate_job *job)
{
    WNW_TRY(calibrate_job_open(job));
    WNW_TRY(calibrate_job_run(job));
    WNW_TRY(write_map(job));
    return calibrate_job_write(job);
}

int calibrate_run_srh(const struct app_args *app)
{
    const struct srh_args *args = (const struct srh_args *)app;
    struct calibrate_job job = {.args = &args->common,
                                .kind = "srh",
                                .outputs = {{"dump", args->common.dump}, {"probes", args->probes}}};
    const int rc = find_heads(&job);
    calibrate_job_close(&job);
    return rc;
}
