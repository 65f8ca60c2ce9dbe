/* SPDX-License-Identifier: MIT */
/*
 * libllama's functions, in front of libllama's own: this program exports them, so that the server and libllama-common call
 * these. Each calls the real one. From them we know which sequence a row belongs to and when its prompt has ended (its last
 * row wants logits), and which cells no sequence has any more.
 *
 * All but the first function is called by the thread that decodes.
 */
#include "serve/borders.h"
#include "serve/breaks.h"
#include "serve/common_prefix.h"
#include "serve/decode.h"
#include "serve/document_cells.h"
#include "serve/grammar.h"
#include "serve/inspect.h"
#include "serve/join_cells.h"
#include "serve/libllama_real.h"
#include "serve/parks.h"
#include "serve/plain.h"
#include "serve/slot_save.h"
#include "serve/slot_view.h"
#include "serve/stretch.h"
#include "serve/watched.h"

#include <llama.h>

#include <stdio.h>

/* One for the process: libllama's functions have no other place for it. */
static struct serve_watched w;

/* ---- Contexts ---- */

struct llama_context *llama_init_from_model(struct llama_model *model, struct llama_context_params params)
{
    if (!w.ctx)
        serve_document_cells_room(model, &params);
    struct llama_context *ctx = REAL(llama_init_from_model)(model, params);
    if (ctx && !w.ctx) {
        w.no_flash = params.flash_attn_type == LLAMA_FLASH_ATTN_TYPE_DISABLED;
        w.type_k = (int32_t)params.type_k;
        w.type_v = (int32_t)params.type_v;
        serve_watch(&w, ctx, serve_decode_rows);
        serve_saved_open(&w);
        serve_document_cells_try(&w);
        serve_joins_refuse(serve_join_cells_refused(&w));
        serve_stretch_open(&w);
    } else if (ctx) {
        serve_stretch_close(&w);
    }
    return ctx;
}

void llama_free(struct llama_context *ctx)
{
    if (ctx && ctx == w.ctx) {
        serve_borders_clear(&w);
        serve_breaks_clear(&w);
        serve_unwatch(&w);
    }
    REAL(llama_free)(ctx);
}

/* The server's loop has ended, and its context is still there. */
void serve_park_slots(void)
{
    if (w.ctx)
        serve_saved_park_all(&w);
}

/* ---- Batches ---- */

void llama_batch_ext_clear(struct llama_batch_ext *batch)
{
    struct serve_batch *b = serve_batches_find(&w.batches, batch);
    if (b)
        b->n = 0;
    REAL(llama_batch_ext_clear)(batch);
}

void llama_batch_ext_free(struct llama_batch_ext *batch)
{
    serve_batches_forget(&w.batches, batch);
    REAL(llama_batch_ext_free)(batch);
}

int32_t llama_batch_ext_add_token(struct llama_batch_ext *batch, llama_seq_id seq_id, llama_token id)
{
    const int32_t i = REAL(llama_batch_ext_add_token)(batch, seq_id, id);
    serve_batch_add(serve_batches_find(&w.batches, batch), i, seq_id, id);
    return i;
}

int32_t llama_batch_ext_add_embd(struct llama_batch_ext *batch, llama_seq_id seq_id, struct llama_embd embd)
{
    const int32_t i = REAL(llama_batch_ext_add_embd)(batch, seq_id, embd);
    serve_batch_add(serve_batches_find(&w.batches, batch), i, seq_id, -1);
    return i;
}

bool llama_batch_ext_add_seq(struct llama_batch_ext *batch, int32_t idx, llama_seq_id seq_id)
{
    struct serve_row *row = serve_batch_row(serve_batches_find(&w.batches, batch), idx);
    if (row && seq_id >= 0 && seq_id < SERVE_MAX_SLOTS)
        row->seqs |= UINT64_C(1) << seq_id;
    return REAL(llama_batch_ext_add_seq)(batch, idx, seq_id);
}

bool llama_batch_ext_set_pos(struct llama_batch_ext *batch, int32_t idx, const llama_pos *pos)
{
    struct serve_row *row = serve_batch_row(serve_batches_find(&w.batches, batch), idx);
    if (row)
        row->pos = row->at = pos[0];
    return REAL(llama_batch_ext_set_pos)(batch, idx, pos);
}

bool llama_batch_ext_set_output_logits(struct llama_batch_ext *batch, int32_t idx, bool value)
{
    struct serve_row *row = serve_batch_row(serve_batches_find(&w.batches, batch), idx);
    if (row)
        row->output = value;
    return REAL(llama_batch_ext_set_output_logits)(batch, idx, value);
}

/* ---- Decoding ---- */

/* Notes the tokens of a batch that was computed, where nothing else of it is followed. */
static void say(const struct serve_batch *b)
{
    for (int32_t i = 0; i < b->n; i++)
        for (int32_t seq = 0; seq < w.n_slots; seq++)
            if (b->row[i].seqs >> seq & 1)
                (void)serve_stretch_say(&w, seq, b->row[i].at, &b->row[i].token, 1);
}

int32_t llama_process(struct llama_context *ctx, enum llama_process_type type, struct llama_batch_ext *batch)
{
    struct serve_batch *b = serve_batches_find(&w.batches, batch);
    if (ctx != w.ctx || type != LLAMA_PROCESS_TYPE_DECODE || !b)
        return REAL(llama_process)(ctx, type, batch);
    if (w.unmatched) {
        serve_breaks_begin(&w, b);
        const int32_t status = REAL(llama_process)(ctx, type, batch);
        if (status == 0) {
            say(b);
            serve_breaks_end(&w, b);
        }
        return status;
    }
    serve_decode_begin(&w, b);
    serve_stretch_place(&w, b, batch);
    const int32_t rc = REAL(llama_process)(ctx, type, batch);
    serve_decode_end(&w, b, rc == 0);
    return rc;
}

/* ---- Lengths ---- */

/* What a slot may have: once room can be made, more than the cache holds. The server takes the least of both. */
uint32_t llama_n_ctx_seq(const struct llama_context *ctx)
{
    return ctx == w.ctx && w.most > 0 ? (uint32_t)serve_stretch_length(&w) : REAL(llama_n_ctx_seq)(ctx);
}

int32_t llama_model_n_ctx_train(const struct llama_model *model)
{
    return w.ctx && w.most > 0 && llama_get_model(w.ctx) == model ? serve_stretch_length(&w)
                                                                  : REAL(llama_model_n_ctx_train)(model);
}

/* ---- Tokens: for any thread ---- */

int32_t llama_tokenize(const struct llama_vocab *vocab, const char *text, int32_t text_len,
                       llama_token *tokens, int32_t n_tokens_max, bool add_special, bool parse_special)
{
    return serve_plain_tokenize(REAL(llama_tokenize), vocab, text, text_len, tokens, n_tokens_max,
                                add_special, parse_special);
}

/* ---- Grammars ---- */

/* Whether libllama can read a grammar without an end to it: here come those that are made of schemas and tools, too. */
static bool is_bounded(const char *grammar)
{
    char why[SERVE_TEXT];
    const bool bounded = !grammar || serve_grammar_check(grammar, why);
    if (!bounded)
        fprintf(stderr, "winnow: a request's grammar is refused: %s\n", why);
    return bounded;
}

struct llama_sampler *llama_sampler_init_grammar(const struct llama_vocab *vocab, const char *grammar_str,
                                                 const char *grammar_root)
{
    return is_bounded(grammar_str) ? REAL(llama_sampler_init_grammar)(vocab, grammar_str, grammar_root)
                                   : NULL;
}

struct llama_sampler *
llama_sampler_init_grammar_lazy_patterns(const struct llama_vocab *vocab, const char *grammar_str,
                                         const char *grammar_root, const char **trigger_patterns,
                                         size_t num_trigger_patterns, const llama_token *trigger_tokens,
                                         size_t num_trigger_tokens)
{
    return is_bounded(grammar_str)
               ? REAL(llama_sampler_init_grammar_lazy_patterns)(vocab, grammar_str, grammar_root,
                                                                trigger_patterns, num_trigger_patterns,
                                                                trigger_tokens, num_trigger_tokens)
               : NULL;
}

/* ---- Memory ---- */

static bool is_watched(llama_memory_t mem)
{
    return w.ctx && !w.unmatched && llama_get_memory(w.ctx) == mem;
}

/* Whether it is a slot of the watched context, of any model. */
static bool is_slot_of(llama_memory_t mem, llama_seq_id seq)
{
    return w.ctx && llama_get_memory(w.ctx) == mem && seq >= 0 && seq < w.n_slots;
}

size_t serve_common_prefix_of(const void *tokens, size_t n)
{
    return serve_borders_common(&w, tokens, n);
}

/* Frees what died, and tells what is left. */
static void free_dead_cells(int32_t seq)
{
    serve_watched_bury(&w);
    for (int32_t i = seq < 0 ? 0 : seq; i < (seq < 0 ? w.n_slots : seq + 1); i++) {
        if (w.sequences.of[i].n == 0 && w.slot_cache[i].n_unknown == 0)
            w.slot_cache[i] = (struct serve_slot_cache){0};
        else if (w.slot_cache[i].n_unknown == 0)
            serve_watched_count(&w, i);
        const int32_t n = w.sequences.of[i].n + w.slot_cache[i].n_unknown;
        const int64_t most =
            (int64_t)n * w.row_entries; /* of cells that are not known nobody counts what is left */
        if (w.slot_cache[i].entries > most)
            w.slot_cache[i].entries = most;
        if (n < w.slot_cache[i].n_judged) {
            w.slot_cache[i].n_judged = n;
            w.slot_cache[i].n_settled = 0;
        }
        serve_document_cells_check(&w, i);
        serve_watched_report(&w, i);
    }
    serve_watched_tell(&w, false, false);
}

bool llama_memory_seq_rm(llama_memory_t mem, llama_seq_id seq_id, llama_pos p0, llama_pos p1)
{
    if (is_slot_of(mem, seq_id) && p1 < 0)
        w.copied[seq_id] = false;
    if (w.unmatched && is_slot_of(mem, seq_id) && p0 < 0 && p1 < 0 && serve_slots_how(seq_id).claim == 0)
        w.said[seq_id].n = 0; /* it is emptied, and nobody reads it again */
    if (is_slot_of(mem, seq_id) && p1 < 0 && p0 > 0)
        serve_borders_go_back(&w, seq_id, p0);
    if (is_watched(mem) && seq_id >= 0 && seq_id < w.n_slots && p1 < 0) {
        serve_breaks_note(&w, seq_id, p0);
        p0 = serve_stretch_pos(&w, seq_id, p0);
    }
    const bool removed = REAL(llama_memory_seq_rm)(mem, seq_id, p0, p1);
    for (int32_t i = 0; removed && w.ctx && p1 < 0 && i < w.n_slots; i++)
        if ((seq_id < 0 || seq_id == i) && is_slot_of(mem, i))
            serve_borders_cut(&w, i, p0 > 0 ? p0 : 0);
    if (removed && is_watched(mem) && seq_id < w.n_slots) {
        const int32_t n = seq_id >= 0 ? w.sequences.of[seq_id].n : -1;
        bool lost = false;
        for (int32_t i = seq_id < 0 ? 0 : seq_id; i < (seq_id < 0 ? w.n_slots : seq_id + 1) && p1 < 0; i++)
            lost = serve_watched_lose(&w, i, p0 > 0 ? p0 : 0) || lost;
        serve_sequences_rm(&w.sequences, seq_id, p0, p1);
        if (n < 0 || w.sequences.of[seq_id].n < n || lost)
            free_dead_cells(seq_id);
    }
    return removed;
}

/* The first position of a sequence. The server compares it with the position at which a prompt continues. */
llama_pos llama_memory_seq_pos_min(llama_memory_t mem, llama_seq_id seq_id)
{
    enum { BEFORE_ALL = -2 }; /* the server then looks for no state of its own */
    if (!is_slot_of(mem, seq_id))
        return REAL(llama_memory_seq_pos_min)(mem, seq_id);
    const bool goes_on = serve_borders_goes_on(&w, seq_id), goes_back = serve_borders_goes_back(&w, seq_id);
    return goes_on || goes_back ? BEFORE_ALL : serve_borders_first(&w, seq_id);
}

/* The last position of a sequence, as the server counts it. */
llama_pos llama_memory_seq_pos_max(llama_memory_t mem, llama_seq_id seq_id)
{
    const llama_pos pos = REAL(llama_memory_seq_pos_max)(mem, seq_id);
    return is_watched(mem) && seq_id >= 0 && seq_id < w.n_slots ? pos + serve_watched_removed(&w, seq_id)
                                                                : pos;
}

void llama_memory_seq_cp(llama_memory_t mem, llama_seq_id src, llama_seq_id dst, llama_pos p0, llama_pos p1)
{
    REAL(llama_memory_seq_cp)(mem, src, dst, p0, p1);
    if (is_slot_of(mem, src) && is_slot_of(mem, dst) && src != dst) {
        w.copied[dst] = true;
        serve_slots_was_copied(dst);
        serve_borders_copy(&w, src, dst);
        (void)serve_stretch_say(&w, dst, 0, w.said[src].token, w.said[src].n);
    }
    if (!is_watched(mem) || src == dst || src >= w.n_slots || dst >= w.n_slots)
        return;
    serve_sequences_cp(&w.sequences, src, dst, p0, p1);
    w.slot_cache[dst] = w.slot_cache[src];
    w.slot_cache[dst].n_new = 0;
    if (w.slot_cache[src].n_unknown > 0)
        serve_watched_copy_restored(&w, src, dst);
    serve_watched_report(&w, dst);
}

void llama_memory_seq_add(llama_memory_t mem, llama_seq_id seq_id, llama_pos p0, llama_pos p1,
                          llama_pos delta)
{
    REAL(llama_memory_seq_add)(mem, seq_id, p0, p1, delta);
    if (is_watched(mem) && seq_id < w.n_slots)
        serve_sequences_shift(&w.sequences, seq_id, p0, p1, delta);
}

/* Whether the server may move positions: not those of cells that slots share with a document, nor where they are moved here. */
bool llama_memory_can_shift(llama_memory_t mem)
{
    return !(is_watched(mem) && (serve_documents_n() > 0 || w.most > 0)) && REAL(llama_memory_can_shift)(mem);
}

void llama_memory_clear(llama_memory_t mem, bool data)
{
    REAL(llama_memory_clear)(mem, data);
    for (int32_t i = 0; w.ctx && llama_get_memory(w.ctx) == mem && i < w.n_slots; i++)
        w.said[i].n = 0;
    if (is_watched(mem)) {
        serve_sequences_rm(&w.sequences, -1, -1, -1);
        free_dead_cells(-1);
    }
}

/* ---- States ---- */

size_t llama_state_seq_get_data_ext(struct llama_context *ctx, uint8_t *dst, size_t size, llama_seq_id seq_id,
                                    llama_state_seq_flags flags)
{
    const size_t n = REAL(llama_state_seq_get_data_ext)(ctx, dst, size, seq_id, flags);
    if (n > 0 && ctx == w.ctx && seq_id >= 0 && seq_id < w.n_slots &&
        flags == LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY)
        serve_borders_add(&w, seq_id, dst, n);
    return n;
}

/* ---- Files ---- */

/* Whether it is a slot of the watched context. */
static bool is_slot(const struct llama_context *ctx, llama_seq_id seq)
{
    return ctx == w.ctx && seq >= 0 && seq < w.n_slots;
}

size_t llama_state_seq_save_file(struct llama_context *ctx, const char *filepath, llama_seq_id seq_id,
                                 const llama_token *tokens, size_t n_token_count)
{
    int32_t ticket, document;
    bool replaced;
    const char *why;
    if (!is_slot(ctx, seq_id))
        return REAL(llama_state_seq_save_file)(ctx, filepath, seq_id, tokens, n_token_count);
    if (serve_park_of_file(filepath, &ticket, &replaced)) {
        serve_saved_park(&w, ticket, replaced, seq_id, tokens, n_token_count);
        return 1;
    }
    if (!serve_inspect_of_file(filepath, &ticket, &document))
        return serve_saved_write(&w, filepath, seq_id, tokens, n_token_count);
    json_t *seen = NULL;
    if (w.unmatched)
        why = "the slots of models with recurrent layers are not told apart";
    else
        seen = serve_look(&w, document < serve_documents_n() ? document : -1, seq_id, tokens, n_token_count,
                          &why);
    serve_inspect_give(ticket, seen, why);
    return 1;
}

size_t llama_state_seq_load_file(struct llama_context *ctx, const char *filepath, llama_seq_id dest_seq_id,
                                 llama_token *tokens_out, size_t n_token_capacity, size_t *n_token_count_out)
{
    const int32_t document = serve_document_of_file(filepath);
    if (!is_slot(ctx, dest_seq_id))
        return REAL(llama_state_seq_load_file)(ctx, filepath, dest_seq_id, tokens_out, n_token_capacity,
                                               n_token_count_out);
    if (document >= 0 && !w.unmatched && tokens_out && serve_document_is_join(document) &&
        !serve_join_cells_make(&w, dest_seq_id, document))
        return 0;
    if (document >= 0 && !w.unmatched)
        return serve_document_cells_restore(&w, dest_seq_id, document, tokens_out, n_token_capacity,
                                            n_token_count_out);
    return serve_saved_read(&w, filepath, dest_seq_id, tokens_out, n_token_capacity, n_token_count_out);
}
