/* SPDX-License-Identifier: MIT */
/* winnow export: a stored document as a slot of `winnow serve`. */
#include "app/args.h"
#include "app/console.h"
#include "app/models.h"
#include "app/output.h"
#include "base/err.h"
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
    WNW_TRY(app_status_code(app_model_open(&x->model, x->model_path, &params, NULL)));
    return app_status_code(wnw_stored_check_model(x->st, x->model));
}

static int write_slot(struct export *x, const char *path)
{
    struct app_inputs inputs = {0};
    const struct serve_slot_form any = {.type_k = -1, .type_v = -1};
    int32_t n;
    size_t bytes;
    app_inputs_add(&inputs, x->path);
    app_inputs_add(&inputs, x->model_path);
    WNW_TRY(app_out_check(path, &inputs));
    const int32_t *tokens = wnw_stored_tokens(x->st, &n);
    WNW_TRY(app_status_code(serve_slot_file_check(&x->slot.file, tokens, x->slot.state, &any)));
    return app_status_code(serve_slot_file_write(&bytes, path, &x->slot.file, tokens, x->slot.state));
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
    else if (status == WNW_E_NOMEM)
        rc = app_fail_status(status);
    else
        rc = app_fail(APP_BAD_INPUT, "%s", wnw_last_error());
    serve_park_folder_close(&folder);
    return rc;
}

/* Opens the document and its model, and writes the slot, or parks it. */
static int export_document(struct export *x, const struct cli_args *args)
{
    int32_t n;
    if (args->slot)
        WNW_TRY(app_out_check(args->slot, NULL));
    WNW_TRY(cli_stored_open(&x->st, x->path));
    WNW_TRY(app_model_path(&x->model_path, args->app.model));
    WNW_TRY(check_model(x));
    (void)wnw_stored_tokens(x->st, &n);
    if (args->state) {
        WNW_TRY(park(x, args->state));
        app_note("'%s': %d tokens, for chats of `winnow serve --state %s`", x->path, (int)n, args->state);
        return APP_OK;
    }
    WNW_TRY(cli_slot_make(&x->slot, x->st, x->path));
    WNW_TRY(write_slot(x, args->slot));
    app_note("'%s': %d tokens, for `winnow serve --save`", args->slot, (int)n);
    return APP_OK;
}

int cli_export(const struct app_args *app)
{
    const struct cli_args *args = (const struct cli_args *)app;
    struct export x = {.path = app->n_rest == 1 ? app->rest[0] : NULL};
    if (!x.path)
        return app_fail(APP_BAD_INPUT, "which document? Name a stored one");
    if (!args->slot && !args->state)
        return app_fail(APP_BAD_INPUT,
                        "where is the slot to be written? Name a file with --slot, or a folder with --state");
    if (args->slot && args->state)
        return app_fail(APP_BAD_INPUT, "--slot and --state exclude each other; give one of them");
    const int rc = export_document(&x, args);
    cli_slot_clear(&x.slot);
    wnw_model_free(x.model);
    wnw_stored_free(x.st);
    free(x.model_path);
    return rc;
}
