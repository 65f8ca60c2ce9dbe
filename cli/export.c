/* SPDX-License-Identifier: MIT */
/* winnow export: a stored document as a slot of `winnow serve`. */
#include "app/args.h"
#include "app/console.h"
#include "app/models.h"
#include "app/output.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "cli/stored.h"
#include "serve/park_folder.h"
#include "serve/slot_file.h"

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
    const bool whole = info.n_entries == (int64_t)info.n_tokens * info.n_layer * info.n_head_kv ||
                       !info.policy || strncmp(info.policy, "full+", 5) == 0;
    slot->compressed = !whole;
    strcpy(slot->by.recipe, slot->compressed ? info.policy : "full");
    slot->by.size = slot->compressed ? info.size : (wnw_size){0};
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

/* ---- Parking ---- */

/* Notes the largest number of a folder's files. */
static int take_number(const struct serve_park_found *found, void *user)
{
    uint64_t *most = user;
    *most = found->id > *most ? found->id : *most;
    serve_park_about_clear(found->about);
    return WNW_OK;
}

/* The text of the document's tokens as a server renders it: with control tokens, but for the first one of a text. NULL: no memory. */
static char *text_of(const struct export *x, size_t *len)
{
    int32_t n, n_first = 0, *first = NULL; /* what the vocabulary puts before each text */
    size_t size = 0;
    char *text = NULL;
    const int32_t *ids = wnw_stored_tokens(x->st, &n);
    FILE *f = open_memstream(&text, &size);
    bool good = f && wnw_tokenize(x->model, "", 0, true, false, &first, &n_first) == WNW_OK;
    for (int32_t i = 0; good && i < n; i++) {
        char *piece = NULL;
        good = wnw_token_piece(x->model, ids[i], &piece) == WNW_OK;
        if (good && !(i == 0 && n_first > 0 && ids[0] == first[0]))
            fputs(piece, f);
        wnw_free(piece);
    }
    good = good && !ferror(f);
    if (f && fclose(f) != 0)
        good = false;
    wnw_free(first);
    *len = good ? size : 0;
    if (good)
        return text;
    free(text);
    return NULL;
}

/* What a server looks a parked prompt up by. */
static int describe(struct serve_park_about *about, const struct export *x)
{
    const struct serve_slot_by *by = &x->slot.by;
    *about = (struct serve_park_about){.n_tokens = x->slot.n_sequence, .compressed = x->slot.compressed != 0};
    if (serve_keep_rule_set(&about->keep_rule, by->recipe, NULL) != WNW_OK)
        return app_fail(APP_BAD_INPUT, "'%s' is no prompt of a server: %s", x->path, wnw_last_error());
    about->keep_rule.size = by->size;
    about->keep_rule.n_protected = by->n_protected;
    about->by = about->keep_rule;
    about->key = text_of(x, &about->key_len);
    return about->key ? APP_OK : app_fail(APP_FAILED, "out of memory for the text of '%s'", x->path);
}

/* The slot, packed. */
static int pack(uint8_t **image, size_t *n, const struct export *x)
{
    const struct serve_slot_form any = {.type_k = -1, .type_v = -1};
    int32_t n_tokens;
    const int32_t *tokens = wnw_stored_tokens(x->st, &n_tokens);
    struct serve_slot_read slot = {.file = x->slot, .state = x->state}; /* the state stays ours */
    const int status = serve_slot_file_check(&x->slot, tokens, x->state, &any);
    slot.notes = (int32_t *)(uintptr_t)tokens; /* they are only read */
    return status == WNW_OK ? serve_slot_file_pack(image, n, &slot) : status;
}

static int park(const struct export *x, const char *path)
{
    struct serve_park_folder folder = {0};
    struct serve_park_about about;
    uint8_t *image = NULL;
    uint64_t most = 0;
    size_t n = 0, bytes;
    int rc = describe(&about, x);
    if (rc != APP_OK)
        return rc;
    int status = pack(&image, &n, x);
    status = status == WNW_OK ? serve_park_folder_open(&folder, path, x->slot.fingerprint, take_number, &most)
                              : status;
    status = status == WNW_OK ? serve_park_folder_write(&bytes, &folder, most + 1, &about, image, n) : status;
    serve_park_folder_close(&folder);
    serve_park_about_clear(&about);
    free(image);
    return status == WNW_OK ? APP_OK : app_fail_status(status);
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
    int rc = args->slot ? app_out_check(args->slot, NULL) : APP_OK;
    if (rc == APP_OK)
        rc = cli_stored_open(&x.st, x.path);
    if (rc == APP_OK)
        rc = app_model_path(&x.model_path, app->model);
    if (rc == APP_OK)
        rc = check_model(&x);
    if (rc == APP_OK)
        rc = make_slot(&x);
    if (rc == APP_OK)
        rc = args->slot ? write_slot(&x, args->slot) : park(&x, args->state);
    if (rc == APP_OK && args->state)
        app_note("'%s': %d tokens, for chats of `winnow serve --state %s`", x.path, (int)x.slot.n_sequence,
                 args->state);
    else if (rc == APP_OK)
        app_note("'%s': %d tokens, for `winnow serve --save`", args->slot, (int)x.slot.n_sequence);
    wnw_free(x.state);
    wnw_model_free(x.model);
    wnw_stored_free(x.st);
    free(x.model_path);
    return rc;
}
