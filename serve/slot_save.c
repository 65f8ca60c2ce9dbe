/* SPDX-License-Identifier: MIT */
#include "serve/slot_save.h"

#include "base/err.h"
#include "serve/borders.h"
#include "serve/compress.h"
#include "serve/join_room.h"
#include "serve/libllama_real.h"
#include "serve/parks.h"
#include "serve/restores.h"
#include "serve/stretch.h"
#include "winnow_bridge.h"

#include <llama.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- What the context takes ---- */

static void set_model(const struct llama_context *ctx, uint64_t model[2])
{
    const struct llama_model *m = llama_get_model(ctx);
    model[0] = llama_model_n_params(m);
    model[1] = llama_model_size(m);
}

/* Adds the rows of a layer to those that are known; too many kinds, and none counts as known. */
static void add_rows(struct serve_slot_form *form, uint64_t k, uint64_t v)
{
    for (int32_t i = 0; i < form->n_rows; i++)
        if (form->rows[i].k == k && form->rows[i].v == v)
            return;
    if (form->n_rows >= 0 && form->n_rows < SERVE_MAX_ROW_KINDS)
        form->rows[form->n_rows++] = (struct serve_slot_rows){k, v};
    else
        form->n_rows = -1;
}

static void add_layer(struct serve_slot_form *form, const struct serve_watched *w, int32_t i)
{
    wnw_bridge_layer l = wnw_bridge_layer_default();
    if (wnw_bridge_get_layer(w->cache, i, &l) != WNW_OK || !l.ragged) {
        form->n_rows = -1;
        return;
    }
    const uint64_t heads = (uint64_t)l.n_heads, k = heads * (uint64_t)l.key_bytes;
    add_rows(form, k, heads * (uint64_t)l.entry_bytes - k);
    form->n_heads += l.n_heads;
    if (l.n_cells < w->sequences.n_cells)
        form->n_window_cells = l.n_cells;
}

/* Bytes that libllama stores for a cell in addition to its position. Models with positions of several parts have two more positions and
 * the token. */
static uint32_t ext_bytes(const struct llama_model *m)
{
    const enum llama_rope_type rope = llama_model_rope_type(m);
    return rope == LLAMA_ROPE_TYPE_MROPE || rope == LLAMA_ROPE_TYPE_IMROPE ? 3 * sizeof(int32_t) : 0;
}

/* Whether the model's files are those of its fingerprint. */
static int check_files(void)
{
    const struct serve_config *c = serve_settings();
    if (!c->files || app_model_files_kept(c->files))
        return WNW_OK;
    return wnw__fail(WNW_E_MISMATCH,
                     "the model's file was overwritten while it was in use; start the server again");
}

void serve_saved_open(const struct serve_watched *w)
{
    const struct llama_model *m = llama_get_model(w->ctx);
    const int32_t n_seq = (int32_t)REAL(llama_n_ctx_seq)(w->ctx), n_train = REAL(llama_model_n_ctx_train)(m);
    struct serve_slot_form form = {.n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(m)),
                                   .n_most = n_seq < n_train ? n_seq : n_train,
                                   .n_cells = w->sequences.n_cells,
                                   .n_layers = wnw_bridge_n_layers(w->cache),
                                   .type_k = w->type_k,
                                   .type_v = w->type_v,
                                   .row_bytes = serve_slots_row_bytes(),
                                   .window_bytes = serve_slots_window_bytes(),
                                   .ext_bytes = ext_bytes(m),
                                   .recurrent = llama_model_is_hybrid(m) || llama_model_is_recurrent(m)};
    set_model(w->ctx, form.model);
    snprintf(form.fingerprint, sizeof form.fingerprint, "%s", serve_settings()->fingerprint);
    for (int32_t i = 0; i < form.n_layers; i++)
        add_layer(&form, w, i);
    form.n_rows = form.n_rows > 0 ? form.n_rows : 0;
    serve_restores_open(&form);
    if (serve_settings()->files && !app_model_files_named(serve_settings()->files))
        serve_refuse("another file got the model's name while the server started: start it again");
}

/* ---- Writing ---- */

/* By what a slot's entries were compressed: its own, or those of the document before them; NULL: they are all there. */
static const struct serve_keep_rule *by_of(const struct serve_watched *w, int32_t seq)
{
    const struct serve_slot_cache *s = &w->slot_cache[seq];
    const int32_t document = s->document_plus_1 > 0 ? serve_watched_document(w, s->document_plus_1) : -1;
    if (s->compressed)
        return &s->by;
    return document >= 0 ? &w->slot_cache[document].by : NULL;
}

static void describe(struct serve_slot_file *file, const struct serve_watched *w, int32_t seq)
{
    const struct serve_slot_cache *s = &w->slot_cache[seq];
    const struct serve_keep_rule *by = by_of(w, seq);
    file->entries = s->entries;
    file->n_sequence = w->sequences.of[seq].n + s->n_unknown;
    file->compressed = by != NULL;
    file->n_settled = s->compressed ? s->n_settled : 0;
    if (by) {
        strcpy(file->by.recipe, by->recipe);
        file->by.size = by->size;
        /* A prompt may have gone back to a part of the header. */
        file->by.n_protected = by->n_protected < file->n_sequence ? by->n_protected : file->n_sequence;
    }
}

int serve_saved_state(uint8_t **state, uint64_t *n, const struct serve_watched *w, int32_t seq)
{
    const size_t room = llama_state_seq_get_size(w->ctx, seq);
    *state = malloc(room + 1);
    if (!*state)
        return wnw__fail(WNW_E_NOMEM, "no memory for a state of %zu bytes", room);
    *n = llama_state_seq_get_data(w->ctx, *state, room, seq);
    WNW_TRY(wnw_bridge_check_workers(NULL)); /* what a lost one did not give is no state */
    return *n > 0 ? serve_restore_sort(*state, *n)
                  : wnw__fail(WNW_E_BACKEND, "libllama gives no state of it");
}

/* The notes, and where room was made, the positions of the tokens that are left. */
static int take_notes(struct serve_slot_read *x, const struct serve_watched *w, int32_t seq,
                      const int32_t *notes, size_t n_notes)
{
    struct serve_slot_file *file = &x->file;
    file->n_at = !w->unmatched && serve_watched_removed(w, seq) > 0 ? file->n_sequence : 0;
    x->notes = malloc((n_notes + (size_t)file->n_at) * sizeof *notes + 1);
    if (!x->notes)
        return wnw__fail(WNW_E_NOMEM, "no memory for its tokens");
    memcpy(x->notes, notes, n_notes * sizeof *notes);
    for (int32_t k = 0; k < file->n_at; k++)
        x->notes[n_notes + (size_t)k] = serve_watched_at(w, seq, k);
    return WNW_OK;
}

/* What is written of a slot, which the caller clears; *n_tokens is 0 where nothing is there. */
static int take_slot(struct serve_slot_read *x, int32_t *n_tokens, const struct serve_watched *w, int32_t seq,
                     const int32_t *notes, size_t n_notes)
{
    struct serve_slot_file *file = &x->file;
    *n_tokens = 0;
    memset(x, 0, sizeof *x); /* with what lies between members of the file, since it is written */
    WNW_TRY(check_files());
    file->n_tokens = n_notes;
    WNW_TRY(serve_restore_count(n_tokens, notes, n_notes));
    if (w->unmatched)
        file->n_sequence = *n_tokens;
    else
        describe(file, w, seq);
    WNW_TRY(take_notes(x, w, seq, notes, n_notes));
    set_model(w->ctx, file->model);
    snprintf(file->fingerprint, sizeof file->fingerprint, "%s", serve_settings()->fingerprint);
    if (*n_tokens > 0)
        WNW_TRY(serve_saved_state(&x->state, &file->state_bytes, w, seq));
    return serve_restore_check(file, x->notes, x->state);
}

size_t serve_saved_write(const struct serve_watched *w, const char *path, int32_t seq, const int32_t *notes,
                         size_t n_notes)
{
    struct serve_slot_read x;
    size_t bytes = 0;
    int32_t n_tokens;
    int rc = take_slot(&x, &n_tokens, w, seq, notes, n_notes);
    if (rc == WNW_OK)
        rc = serve_slot_file_write(&bytes, path, &x.file, x.notes, x.state);
    if (rc != WNW_OK)
        fprintf(stderr, "winnow: slot %d cannot be saved: %s\n", (int)seq, wnw_last_error());
    serve_slot_read_clear(&x);
    return bytes;
}

void serve_saved_park(struct serve_watched *w, int32_t ticket, bool replaced, int32_t seq,
                      const int32_t *notes, size_t n_notes)
{
    struct serve_slot_read slot;
    int32_t n_tokens;
    if (replaced && !w->unmatched && serve_settings()->park_ratio > 0.0)
        serve_compress_parked(w, seq);
    int rc = take_slot(&slot, &n_tokens, w, seq, notes, n_notes);
    if (rc == WNW_OK && !serve_borders_save(&slot, w, seq, n_tokens))
        rc = wnw__fail(WNW_E_NOMEM, "no memory for the borders of its turns");
    if (rc == WNW_OK && n_tokens > 0) {
        serve_park_give(ticket, &slot);
        return;
    }
    if (rc != WNW_OK)
        fprintf(stderr, "winnow: slot %d is not parked: %s\n", (int)seq, wnw_last_error());
    serve_slot_read_clear(&slot);
}

/* Writes the tokens of a slot, whose middle is whole, to to[n]. False: not all are known. */
static bool write_tokens(int32_t *to, int32_t n, const struct serve_watched *w, int32_t seq)
{
    const int32_t n_file = w->slot_cache[seq].n_unknown; /* those whose cells nobody has learnt */
    const struct serve_restored *r = &w->restored[seq];
    const struct serve_sequence *q = &w->sequences.of[seq];
    if (n_file > r->n || n_file + q->n != n)
        return false;
    if (n_file > 0)
        memcpy(to, r->token, (size_t)n_file * sizeof *to);
    if (q->n > 0)
        memcpy(to + n_file, q->token, (size_t)q->n * sizeof *to);
    return true;
}

/* The tokens of a slot as the server notes them, [*n], which the caller frees; NULL: not all are known, or no memory. */
static int32_t *copy_tokens(const struct serve_watched *w, int32_t seq, size_t *n)
{
    const int32_t n_all = w->unmatched ? REAL(llama_memory_seq_pos_max)(llama_get_memory(w->ctx), seq) + 1
                                       : serve_watched_counted(w, seq);
    const int32_t *said =
        w->unmatched || serve_watched_removed(w, seq) > 0 ? serve_stretch_said(w, seq, n_all) : NULL;
    int32_t *copy = n_all > 0 ? malloc((size_t)n_all * sizeof *copy) : NULL;
    bool known = copy && (said || (!w->unmatched && write_tokens(copy, n_all, w, seq)));
    *n = (size_t)(n_all > 0 ? n_all : 0);
    if (known && said)
        memcpy(copy, said, *n * sizeof *copy);
    for (size_t i = 0; known && i < *n; i++)
        known = copy[i] >= 0;
    if (known)
        return copy;
    free(copy);
    return NULL;
}

void serve_saved_park_slot(struct serve_watched *w, int32_t seq, struct serve_park_about *about)
{
    struct serve_slot_read slot = {0};
    size_t n;
    int32_t n_tokens;
    int32_t *notes = copy_tokens(w, seq, &n);
    if (notes && take_slot(&slot, &n_tokens, w, seq, notes, n) == WNW_OK &&
        serve_borders_save(&slot, w, seq, n_tokens))
        serve_parks_put(about, &slot);
    else
        fprintf(stderr, "winnow: slot %d is not parked: %s\n", (int)seq,
                notes ? wnw_last_error() : "it has images, or its tokens are not known");
    free(notes);
    serve_slot_read_clear(&slot);
    serve_park_about_clear(about);
}

void serve_saved_park_all(struct serve_watched *w)
{
    struct serve_park_about about;
    for (int32_t seq = 0; seq < w->n_slots; seq++)
        if (serve_slots_take_prompt(seq, &about))
            serve_saved_park_slot(w, seq, &about);
}

/* ---- Reading ---- */

/* What a slot holds that was read from a file: its cells are not known until it is asked. */
static struct serve_slot_cache slot_cache_of(const struct serve_slot_file *file)
{
    struct serve_slot_cache slot_cache = {.restored = true,
                                          .n_unknown = file->n_sequence,
                                          .entries = file->entries,
                                          .n_judged = file->compressed ? file->n_sequence : 0,
                                          .n_settled = file->n_settled,
                                          .compressed = file->compressed != 0};
    if (!slot_cache.compressed)
        return slot_cache;
    (void)serve_keep_rule_set(&slot_cache.by, file->by.recipe,
                              NULL); /* of another version it may not be a recipe here */
    slot_cache.by.size = file->by.size;
    slot_cache.by.n_protected = file->by.n_protected;
    return slot_cache;
}

static bool set_state(struct serve_watched *w, const struct serve_slot_read *x, int32_t seq)
{
    if (x->file.n_sequence == 0) /* nothing is there, and libllama has no state of nothing */
        return REAL(llama_memory_seq_rm)(llama_get_memory(w->ctx), seq, -1, -1);
    (void)serve_join_make_way(w, x->file.n_sequence); /* what else is in its way was counted before */
    return llama_state_seq_set_data(w->ctx, x->state, x->file.state_bytes, seq) > 0;
}

/* In the server's own form of notes: a mark, a version and the number of tokens; a number of images follows them. */
enum { HEAD = 3 };

/* Notes the tokens that are left, and where the server counts them. */
static bool note_left(struct serve_watched *w, const struct serve_slot_read *x, int32_t seq)
{
    const int32_t n = x->file.n_at, *at = x->notes + x->file.n_tokens;
    const bool headed = x->file.n_tokens > 0 && x->notes[0] < 0;
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    for (int32_t k = 0; ids && k < n; k++)
        ids[k] = x->notes[(headed ? HEAD : 0) + at[k]];
    const bool good = ids && serve_watched_restored(w, seq, ids, at, n);
    free(ids);
    return good && serve_stretch_say(w, seq, 0, x->notes + (headed ? HEAD : 0), at[n - 1] + 1);
}

/* Notes the tokens that a slot has now, unless there are images among them. False: no memory for what must be known. */
static bool note_tokens(struct serve_watched *w, const struct serve_slot_read *x, int32_t seq)
{
    const int32_t n = x->file.n_sequence;
    const uint64_t n_notes = x->file.n_tokens;
    if (x->file.n_at > 0)
        return note_left(w, x, seq);
    const int32_t *ids = NULL;
    if (n_notes == (uint64_t)n)
        ids = x->notes;
    else if (n_notes == (uint64_t)n + HEAD + 1)
        ids = x->notes + HEAD;
    (void)serve_watched_restored(w, seq, ids, NULL, ids ? n : 0);
    (void)serve_stretch_say(w, seq, 0, ids, ids ? n : 0);
    return true;
}

/* Puts what was read into a slot. Returns the file's bytes, 0 on failure. */
static size_t put(struct serve_watched *w, const struct serve_slot_read *x, int32_t seq, int32_t *notes)
{
    if (!w->unmatched) {
        serve_sequences_rm(&w->sequences, seq, -1, -1); /* libllama replaces the sequence */
        serve_watched_lose(w, seq, 0);
        serve_watched_bury(w);
        w->slot_cache[seq] = (struct serve_slot_cache){0};
    }
    w->said[seq].n = 0;
    serve_borders_restore(w, seq, x);
    bool good = note_tokens(w, x, seq);
    if (good && !w->unmatched)
        serve_watched_note_free(w, seq);
    good = good && set_state(w, x, seq);
    if (good)
        memcpy(notes, x->notes, (size_t)x->file.n_tokens * sizeof *notes);
    if (!w->unmatched) {
        w->slot_cache[seq] = good ? slot_cache_of(&x->file) : (struct serve_slot_cache){0};
        serve_watched_report(w, seq);
        serve_watched_tell(w, false, false);
    }
    return good ? x->bytes : 0;
}

size_t serve_saved_read(struct serve_watched *w, const char *path, int32_t seq, int32_t *notes, size_t room,
                        size_t *n_notes)
{
    struct serve_slot_read *x = &w->reading;
    size_t bytes = 0;
    if (!notes) { /* the server asks for their number first */
        serve_slot_read_clear(x);
        if (check_files() != WNW_OK ||
            (!serve_restore_take(x, seq, path) && serve_restore_read(x, path) != WNW_OK)) {
            fprintf(stderr, "winnow: slot %d cannot be restored: %s\n", (int)seq, wnw_last_error());
            return 0;
        }
        *n_notes = (size_t)x->file.n_tokens;
        return x->bytes;
    }
    if (x->notes && x->file.n_tokens <= room)
        bytes = put(w, x, seq, notes);
    *n_notes = (size_t)x->file.n_tokens;
    serve_slot_read_clear(x);
    return bytes;
}
