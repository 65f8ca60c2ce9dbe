/* SPDX-License-Identifier: MIT */
/* winnow profile import: a profile of a file that another program wrote. */
#include "app/args.h"
#include "app/console.h"
#include "app/models.h"
#include "app/output.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "winnow_calibrate.h"

#include <stdlib.h>

static int import(const struct cli_args *args, const char *model_path, const struct app_inputs *inputs)
{
    wnw_import_params params = wnw_import_default_params();
    struct app_out out;
    wnw_model *m;
    char *text = NULL;
    params.as = args->kind;
    params.sink = args->sink == APP_UNSET ? 0 : (int32_t)args->sink;
    params.recent = args->recent == APP_UNSET ? 0 : (int32_t)args->recent;
    int status = app_model_open(&m, model_path, NULL, NULL);
    if (status == WNW_OK)
        status = wnw_profile_import(&text, m, args->app.rest[0], &params);
    wnw_model_free(m);
    if (status == WNW_E_IO) /* a file that is not there is the user's mistake here */
        return app_fail(APP_BAD_INPUT, "%s", wnw_last_error());
    if (status != WNW_OK)
        return app_fail_status(status);
    int rc = app_out_open(&out, args->app.out, inputs);
    if (rc == APP_OK) {
        fputs(text, out.f);
        rc = app_out_commit(&out);
    }
    wnw_free(text);
    return rc;
}

int cli_profile_import(const struct app_args *app)
{
    const struct cli_args *args = (const struct cli_args *)app;
    struct app_inputs inputs = {.n = 0};
    char *model_path = NULL;
    if (app->n_rest != 1)
        return app_fail(APP_BAD_INPUT, "no file; write `winnow profile import --kind KIND FILE -o PROFILE`");
    if (!args->kind)
        return app_fail(
            APP_BAD_INPUT,
            "no kind; say what the file is with --kind: srh, trad, heads, duo, layers, kvzap or fastkvzip");
    if (!app->out)
        return app_fail(APP_BAD_INPUT, "no output; name the profile to write with -o");
    int rc = app_model_path(&model_path, app->model);
    app_inputs_add(&inputs, app->rest[0]);
    app_inputs_add(&inputs, model_path);
    if (rc == APP_OK)
        rc = app_out_check(app->out, &inputs);
    if (rc == APP_OK)
        rc = import(args, model_path, &inputs);
    free(model_path);
    return rc;
}
