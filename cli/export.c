/* SPDX-License-Identifier: MIT */
/* winnow export: a stored document as a slot of `winnow serve`. */
#include "app/args.h"
#include "app/console.h"
#include "app/models.h"
#include "app/output.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/stored.h"
#include "serve/slot_file.h"

#include <stdlib.h>
#include <string.h>

/* What is exported. */
struct export
{
    const char *path;
    char *model_path;
    wnw_stored *st;
    wnw_model *model;
    uint8_t *state; /* as libllama has it, owned */
    struct serve_slot_file slot;
};

/* Compares the model with that of the document. */
static int check_model(struct export *x)
{
    const wnw_model_params params = {WNW_INIT(wnw_model_params), .repack = false};
    int status = app_model_open(&x->model, x->model_path, &params, NULL);
    if (status == WNW_OK)
        status = wnw_stored_check_model(x->st, x->model);
    return status == WNW_OK ? APP_OK : app_fail_status(status);
}

static int make_slot(struct export *x)
{
    wnw_stored_info info = wnw_stored_info_default();
    struct serve_slot_file *slot = &x->slot;
    size_t n;
    memset(slot, 0, sizeof *slot);           /* with what lies between its members, since it is written */
    (void)wnw_stored_get_info(x->st, &info); /* this call does not fail for an open file */
    const int status = wnw_stored_sequence(x->st, &x->state, &n);
    if (status == WNW_E_UNSUPPORTED)
        return app_fail(APP_BAD_INPUT, "'%s' is no slot of a server: %s", x->path, wnw_last_error());
    if (status != WNW_OK)
        return app_fail_status(status);
    if (info.policy && strlen(info.policy) >= sizeof slot->by.recipe)
        return app_fail(APP_BAD_INPUT, "'%s' is no slot of a server: its recipe has more than %zu characters",
                        x->path, sizeof slot->by.recipe - 1);
    snprintf(slot->fingerprint, sizeof slot->fingerprint, "%s", info.fingerprint);
    slot->n_tokens = (uint64_t)info.n_tokens;
    slot->n_sequence = info.n_tokens;
    slot->state_bytes = n;
    slot->entries = info.n_entries;
    slot->compressed = info.policy != NULL;
    strcpy(slot->by.recipe, info.policy ? info.policy : "full");
    slot->by.size = info.size;
    slot->by.n_protected = info.n_prefix;
    return APP_OK;
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
    int status = serve_slot_file_check(&x->slot, tokens, x->state, &any);
    status = status == WNW_OK ? serve_slot_file_write(&bytes, path, &x->slot, tokens, x->state) : status;
    return status == WNW_OK ? APP_OK : app_fail_status(status);
}

int cli_export(const struct app_args *app)
{
    const struct cli_args *args = (const struct cli_args *)app;
    struct export x = {.path = app->n_rest == 1 ? app->rest[0] : NULL};
    if (!x.path)
        return app_fail(APP_BAD_INPUT, "which document? Name a stored one");
    if (!args->slot)
        return app_fail(APP_BAD_INPUT, "where is the slot to be written? Name a file with --slot");
    int rc = app_out_check(args->slot, NULL);
    if (rc == APP_OK)
        rc = cli_stored_open(&x.st, x.path);
    if (rc == APP_OK)
        rc = app_model_path(&x.model_path, app->model);
    if (rc == APP_OK)
        rc = check_model(&x);
    if (rc == APP_OK)
        rc = make_slot(&x);
    if (rc == APP_OK)
        rc = write_slot(&x, args->slot);
    if (rc == APP_OK)
        app_note("'%s': %d tokens, for `winnow serve --save`", args->slot, (int)x.slot.n_sequence);
    wnw_free(x.state);
    wnw_model_free(x.model);
    wnw_stored_free(x.st);
    free(x.model_path);
    return rc;
}
