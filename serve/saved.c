/* SPDX-License-Identifier: MIT */
#include "serve/saved.h"

#include "serve/slot_file.h"

#include <llama.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void set_model(const struct serve_watched *w, uint64_t model[2])
{
    const struct llama_model *m = llama_get_model(w->ctx);
    model[0] = llama_model_n_params(m);
    model[1] = llama_model_size(m);
}

/* By what a slot's entries were compressed: its own, or those of the document before them; NULL: they are all there. */
static const struct serve_want *by_of(const struct serve_watched *w, int32_t seq)
{
    const struct serve_held *s = &w->held[seq];
    return s->compressed ? &s->by : s->behind > 0 ? &w->held[w->n_slots + s->behind - 1].by : NULL;
}

size_t serve_saved_write(const struct serve_watched *w, const char *path, int32_t seq, const int32_t *notes,
                         size_t n_notes)
{
    const struct serve_held *s = &w->held[seq];
    const struct serve_want *by = by_of(w, seq);
    struct serve_slot_file file;
    memset(&file, 0, sizeof file); /* with what lies between its members, since it is written */
    file.n_tokens = n_notes;
    file.entries = s->entries;
    file.n_sequence = w->sequences.of[seq].n + s->n_unknown;
    file.compressed = by != NULL;
    if (by) {
        strcpy(file.by.recipe, by->recipe);
        file.by.size = by->size;
        file.by.n_protected = by->n_protected;
    }
    set_model(w, file.model);
    snprintf(file.fingerprint, sizeof file.fingerprint, "%s", serve_settings()->fingerprint);
    const size_t room = llama_state_seq_get_size(w->ctx, seq);
    uint8_t *state = malloc(room + 1);
    size_t bytes = 0;
    if (state && (file.state_bytes = llama_state_seq_get_data(w->ctx, state, room, seq)) > 0)
        bytes = serve_slot_file_write(path, &file, notes, state);
    free(state);
    return bytes;
}

/* What a slot holds that was read from a file: its cells are not known until it is asked. */
static struct serve_held held_of(const struct serve_slot_file *file)
{
    struct serve_held held = {.restored = true,
                              .n_unknown = file->n_sequence,
                              .entries = file->entries,
                              .n_done = file->compressed ? file->n_sequence : 0,
                              .compressed = file->compressed != 0};
    if (!held.compressed)
        return held;
    (void)serve_want_set(&held.by, file->by.recipe,
                         NULL); /* of another version it may not be a recipe here */
    held.by.size = file->by.size;
    held.by.n_protected = file->by.n_protected;
    return held;
}

/* Puts the state that a file has into a slot. Returns the file's bytes, 0 on failure. */
static size_t put(struct serve_watched *w, const char *path, const struct serve_slot_file *file, int32_t seq,
                  int32_t *notes)
{
    uint8_t *state = notes ? malloc(file->state_bytes + 1) : NULL;
    size_t bytes = state ? serve_slot_file_read(path, file, notes, state) : 0;
    serve_sequences_rm(&w->sequences, seq, -1, -1); /* libllama replaces the sequence */
    serve_watched_lose(w, seq, 0);
    serve_watched_bury(w);
    w->held[seq] = (struct serve_held){0};
    if (bytes > 0 && llama_state_seq_set_data(w->ctx, state, file->state_bytes, seq) == 0)
        bytes = 0;
    if (bytes > 0)
        w->held[seq] = held_of(file);
    serve_watched_report(w, seq);
    serve_watched_tell(w, false, false);
    free(state);
    return bytes;
}

size_t serve_saved_read(struct serve_watched *w, const char *path, int32_t seq, int32_t *notes, size_t room,
                        size_t *n_notes)
{
    struct serve_slot_file file;
    uint64_t model[2];
    char why[SERVE_TEXT];
    if (!serve_slot_file_look(path, &file, serve_slots_row_bytes(), serve_slots_window_bytes()))
        return 0;
    set_model(w, model);
    if (!serve_slot_file_fits(&file, model, serve_settings()->fingerprint)) {
        fprintf(stderr, "winnow: %s: it is of another model\n", path);
        return 0;
    }
    *n_notes = file.n_tokens;
    if (!notes) /* the server asks for their number first */
        return sizeof file;
    /* Restored slots count as requests do: a file may bring more than the others leave. */
    if (serve_slots_comes_in(seq, file.n_sequence, why) != SERVE_CLAIMED) {
        fprintf(stderr, "winnow: %s: %s\n", path, why);
        return 0;
    }
    const size_t bytes = put(w, path, &file, seq, file.n_tokens <= room ? notes : NULL);
    serve_slots_came_in(seq);
    return bytes;
}
