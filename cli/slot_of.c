/* SPDX-License-Identifier: MIT */
#include "cli/slot_of.h"

#include "app/console.h"
#include "base/err.h"
#include "winnow_tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cli_slot_make(struct cli_slot *slot, const wnw_stored *st, const char *path)
{
    wnw_stored_info info = wnw_stored_info_default();
    struct serve_slot_file *file = &slot->file;
    size_t n;
    memset(file, 0, sizeof *file);        /* with what lies between its members, since it is written */
    (void)wnw_stored_get_info(st, &info); /* this call does not fail for an open file */
    const int status = wnw_stored_sequence(st, &slot->state, &n);
    if (status == WNW_E_UNSUPPORTED)
        return app_fail(APP_BAD_INPUT, "'%s' is no slot of a server: %s", path, wnw_last_error());
    if (status != WNW_OK)
        return app_fail_status(status);
    if (info.policy && strlen(info.policy) >= sizeof file->by.recipe)
        return app_fail(APP_BAD_INPUT, "'%s' is no slot of a server: its recipe has more than %zu characters",
                        path, sizeof file->by.recipe - 1);
    snprintf(file->fingerprint, sizeof file->fingerprint, "%s", info.fingerprint);
    file->n_tokens = (uint64_t)info.n_tokens;
    file->n_sequence = info.n_tokens;
    file->state_bytes = n;
    file->entries = info.n_entries;
    const bool whole = info.n_entries == (int64_t)info.n_tokens * info.n_layer * info.n_head_kv ||
                       !info.policy || strncmp(info.policy, "full+", 5) == 0;
    file->compressed = !whole;
    file->n_settled = info.n_settled;
    strcpy(file->by.recipe, file->compressed ? info.policy : "full");
    file->by.size = file->compressed ? info.size : (wnw_size){0};
    file->by.n_protected = info.n_prefix;
    return APP_OK;
}

void cli_slot_clear(struct cli_slot *slot)
{
    wnw_free(slot->state);
    *slot = (struct cli_slot){0};
}

/* ---- Texts ---- */

char *cli_slot_text(const wnw_model *model, const int32_t *tokens, int32_t n, size_t *at)
{
    char *text = NULL;
    char *own = wnw_text_of(model, tokens, n, at, &text) == WNW_OK ? strdup(text) : NULL;
    wnw_free(text);
    return own;
}

int32_t cli_slot_n_begin(const wnw_model *model, const int32_t *tokens, int32_t n)
{
    int32_t *first = NULL, n_first = 0, found = 0;
    if (wnw_tokenize(model, "", 0, true, false, &first, &n_first) == WNW_OK)
        found = n > 0 && n_first > 0 && tokens[0] == first[0];
    wnw_free(first);
    return found;
}

/* ---- Parking ---- */

/* What a server looks a parked prompt up by. Its text is owned by the caller. */
static int describe(struct serve_park_about *about, const struct cli_slot *slot,
                    const struct cli_slot_place *to, const wnw_stored *st, const wnw_model *model,
                    const char *path)
{
    int32_t n;
    const int32_t *tokens = wnw_stored_tokens(st, &n), n_begin = cli_slot_n_begin(model, tokens, n);
    const struct serve_slot_by *by = &slot->file.by;
    *about = (struct serve_park_about){
        .owner = to->owner, .n_tokens = slot->file.n_sequence, .compressed = slot->file.compressed != 0};
    if (serve_keep_rule_set(&about->by, by->recipe, NULL) != WNW_OK)
        return app_fail(APP_BAD_INPUT, "'%s' is no prompt of a server: %s", path, wnw_last_error());
    about->by.size = by->size;
    about->by.n_protected = by->n_protected;
    about->keep_rule = to->like ? to->like->keep_rule : about->by;
    if (to->like && to->like->compressed && about->compressed) /* "auto", and what it has taken */
        about->by = to->like->by;
    about->key = cli_slot_text(model, tokens + n_begin, n - n_begin, NULL);
    if (!about->key)
        return app_fail(APP_FAILED, "out of memory for the text of '%s'", path);
    about->key_len = strlen(about->key);
    return APP_OK;
}

/* The slot, packed. */
static int pack(uint8_t **image, size_t *n, const struct cli_slot *slot, const wnw_stored *st)
{
    const struct serve_slot_form any = {.type_k = -1, .type_v = -1};
    int32_t n_tokens;
    const int32_t *tokens = wnw_stored_tokens(st, &n_tokens);
    struct serve_slot_read read = {.file = slot->file, .state = slot->state}; /* the state stays ours */
    const int status = serve_slot_file_check(&slot->file, tokens, slot->state, &any);
    read.notes = (int32_t *)(uintptr_t)tokens; /* they are only read */
    return status == WNW_OK ? serve_slot_file_pack(image, n, &read) : status;
}

/* Packs the slot and writes it. Returns a status. */
static int write_parked(const struct cli_slot_place *to, const struct serve_park_about *about,
                        const struct cli_slot *slot, const wnw_stored *st)
{
    uint8_t *image = NULL;
    size_t n = 0, bytes;
    int status = pack(&image, &n, slot, st);
    if (status == WNW_OK)
        status = serve_park_folder_write(&bytes, to->folder, to->id, about, image, n);
    free(image);
    return status;
}

int cli_slot_park(const struct cli_slot_place *to, const wnw_stored *st, const wnw_model *model,
                  const char *path)
{
    struct cli_slot slot = {0};
    struct serve_park_about about = {0};
    int rc = cli_slot_make(&slot, st, path);
    if (rc == APP_OK)
        rc = describe(&about, &slot, to, st, model, path);
    if (rc == APP_OK)
        rc = app_status_code(write_parked(to, &about, &slot, st));
    serve_park_about_clear(&about);
    cli_slot_clear(&slot);
    return rc;
}
