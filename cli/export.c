/* SPDX-License-Identifier: MIT */
/* winnow export: a stored document as a slot of `winnow serve`. */
#include "app/args.h"
#include "app/console.h"
#include "app/models.h"
#include "app/output.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/slot_of.h"
#include "cli/stored.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is exported. */
struct export
{
    const char *path;
    char *model_path;
    wnw_stored *st;
    wnw_model *model;
    struct cli_slot slot;
};

/* Compares the model with that of the document. */
static int check_model(struct export *x)
{
    const wnw_model_params params = {WNW_INIT(wnw_model_params), .repack = false};
    int status = app_model_open(&x->model, x->model_path, &params, NULL);
    if (status == WNW_OK)
        status = wnw_stored_check_model(x->st, x->model);
    return app_status_code(status);
}

static int write_slot(struct export *x, const char *path)
{
    struct app_inputs inputs = {0};
    const struct serve_slot_form any = {.type_k = -1, .type_v = -1};
    int32_t n;
    size_t bytes;
    app_inputs_add(&inputs, x->path);
    app_inputs_add(&inputs, x->model_path);
    const int rc = app_out_check(path, &inputs);
    if (rc != APP_OK)
        return rc;
    const int32_t *tokens = wnw_stored_tokens(x->st, &n);
    int status = serve_slot_file_check(&x->slot.file, tokens, x->slot.state, &any);
    if (status == WNW_OK)
        status = serve_slot_file_write(&bytes, path, &x->slot.file, tokens, x->slot.state);
    return app_status_code(status);
}

/* ---- Parking ---- */

/* Notes the largest number of a folder's files. */
static int take_number(const struct serve_park_found *found, void *user)
{
    uint64_t *most = user;
    *most = found->id > *most ? found->id : *most;
    serve_park_about_clear(found->about);
    return WNW_OK;
}

static int park(const struct export *x, const char *path)
{
    struct serve_park_folder folder = {0};
    char fingerprint[WNW_FINGERPRINT_SIZE];
    uint64_t most = 0;
    wnw_model_fingerprint(x->model, fingerprint);
    const int status = serve_park_folder_open(&folder, path, fingerprint, take_number, &most);
    const struct cli_slot_place to = {.folder = &folder, .id = most + 1};
    int rc = APP_OK;
    if (status == WNW_OK)
        rc = cli_slot_park(&to, x->st, x->model, x->path);
    else
        rc =
            status == WNW_E_NOMEM ? app_fail_status(status) : app_fail(APP_BAD_INPUT, "%s", wnw_last_error());
    serve_park_folder_close(&folder);
    return rc;
}

int cli_export(const struct app_args *app)
{
    const struct cli_args *args = (const struct cli_args *)app;
    struct export x = {.path = app->n_rest == 1 ? app->rest[0] : NULL};
    int32_t n = 0;
    if (!x.path)
        return app_fail(APP_BAD_INPUT, "which document? Name a stored one");
    if (!args->slot && !args->state)
        return app_fail(APP_BAD_INPUT,
                        "where is the slot to be written? Name a file with --slot, or a folder with --state");
    if (args->slot && args->state)
        return app_fail(APP_BAD_INPUT, "--slot and --state exclude each other; give one of them");
    int rc = args->slot ? app_out_check(args->slot, NULL) : APP_OK;
    if (rc == APP_OK)
        rc = cli_stored_open(&x.st, x.path);
    if (rc == APP_OK)
        rc = app_model_path(&x.model_path, app->model);
    if (rc == APP_OK)
        rc = check_model(&x);
    if (rc == APP_OK && args->slot)
        rc = cli_slot_make(&x.slot, x.st, x.path);
    if (rc == APP_OK)
        rc = args->slot ? write_slot(&x, args->slot) : park(&x, args->state);
    (void)wnw_stored_tokens(x.st, &n);
    if (rc == APP_OK && args->state)
        app_note("'%s': %d tokens, for chats of `winnow serve --state %s`", x.path, (int)n, args->state);
    else if (rc == APP_OK)
        app_note("'%s': %d tokens, for `winnow serve --save`", args->slot, (int)n);
    cli_slot_clear(&x.slot);
    wnw_model_free(x.model);
    wnw_stored_free(x.st);
    free(x.model_path);
    return rc;
}
