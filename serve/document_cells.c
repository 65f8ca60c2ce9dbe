/* SPDX-License-Identifier: MIT */
#include "serve/document_cells.h"

#include "serve/libllama_real.h"
#include "serve/plain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tokens that the template may write around a document. */
enum { ROOM_FOR_TEMPLATE = 512 };

/* ---- Room ---- */

/* Tokens of a document, without what a template writes around a text. */
static int32_t count_tokens(const struct llama_model *model, int32_t d)
{
    const char *text = serve_document_text(d);
    int32_t n;
    if (!serve_document_stored(d))
        return -serve_plain_tokenize(REAL(llama_tokenize), llama_model_get_vocab(model), text,
                                     (int32_t)strlen(text), NULL, 0, false, false);
    (void)wnw_stored_tokens(serve_document_stored(d), &n);
    return n;
}

/* What is stored is taken as it is. */
static void check_type(const struct llama_context_params *params, int32_t d)
{
    wnw_stored_info info = wnw_stored_info_default();
    char line[SERVE_TEXT];
    if (!serve_document_stored(d))
        return;
    (void)wnw_stored_get_info(serve_document_stored(d), &info);
    const char *type = wnw_kv_type_name(info.kv_type), *turns = getenv("LLAMA_ATTN_ROT_DISABLE");
    if (strcmp(type, ggml_type_name(params->type_k)) != 0 ||
        strcmp(type, ggml_type_name(params->type_v)) != 0) {
        snprintf(
            line, sizeof line,
            "document %s: its keys and values are %s, and the server's cache has %s and %s: start it with "
            "`-- -ctk %s -ctv %s`",
            serve_document_name(d), type, ggml_type_name(params->type_k), ggml_type_name(params->type_v),
            type, type);
        serve_refuse_input(line);
    }
    if (turns && atoi(turns) != 0 && (info.kv_type == WNW_KV_Q8_0 || info.kv_type == WNW_KV_Q4_0)) {
        snprintf(line, sizeof line, "document %s: LLAMA_ATTN_ROT_DISABLE has the server's rows not rotated",
                 serve_document_name(d));
        serve_refuse_input(line);
    }
}

void serve_document_cells_room(const struct llama_model *model, struct llama_context_params *params)
{
    char line[SERVE_TEXT];
    const int32_t n_most = REAL(llama_model_n_ctx_train)(model);
    uint32_t n_all = 0;
    if (serve_documents_n() == 0)
        return;
    if (llama_model_is_hybrid(model) || llama_model_is_recurrent(model))
        serve_refuse_input("models with recurrent layers cannot begin requests with a document");
    if (llama_model_n_swa(model) > 0 && !params->swa_full)
        serve_refuse_input(
            "the model has layers with a sliding window; with documents it needs `-- --swa-full`");
    for (int32_t d = 0; d < serve_documents_n(); d++) {
        const int32_t n = count_tokens(model, d);
        check_type(params, d);
        if (n <= 0 || n > n_most - ROOM_FOR_TEMPLATE) {
            snprintf(line, sizeof line,
                     "document %s has %d tokens, and the model's context has %d, of which requests need %d",
                     serve_document_name(d), (int)n, (int)n_most, ROOM_FOR_TEMPLATE);
            serve_refuse_input(line);
        }
        params->n_ctx += (uint32_t)(n + ROOM_FOR_TEMPLATE);
        n_all += (uint32_t)(n + ROOM_FOR_TEMPLATE);
    }
    const uint32_t n = (uint32_t)(serve_documents_n() + serve_joins_n());
    params->n_ctx += serve_joins_n() > 0 ? n_all : 0; /* what is copied where documents follow each other */
    params->n_seq_max += n;
    if (params->n_outputs_max > 0) /* it is not less than the sequences */
        params->n_outputs_max += n;
}

/* ---- Texts, which a slot reads ---- */

void serve_document_cells_keep(struct serve_watched *w, int32_t seq, int32_t d)
{
    const int32_t to = w->n_slots + d;
    REAL(llama_memory_seq_cp)(llama_get_memory(w->ctx), seq, to, -1, -1);
    if (!serve_sequences_cp(&w->sequences, seq, to, -1, -1))
        serve_refuse("no memory for the cells of a document");
    w->slot_cache[to] = w->slot_cache[seq];
    if (!w->slot_cache[to].compressed)
        w->slot_cache[to].by = w->rule[seq].keep_rule;
    w->slot_cache[seq].document_plus_1 = d + 1;
    w->slot_cache[seq].compressed = false; /* nothing of its own is */
    serve_watched_report(w, to);
    serve_watched_report(w, seq);
}

/* ---- Stored caches ---- */

/* The cell of the first token of a stored document whose state libllama has just loaded. Its entries are in cells that are not of others
 * [n_cells], and the cells follow each other as the positions do. -1: they do not. */
static int32_t first_cell(const struct serve_watched *w, const wnw_stored *st, const bool *others,
                          int32_t *cells)
{
    int32_t first = -1, n;
    bool good = true;
    for (int32_t i = 0; i < wnw_bridge_n_layers(w->cache); i++) {
        wnw_bridge_layer l;
        if (!serve_watched_whole_layer(w, i, &l))
            continue;
        for (int32_t ih = 0; good && ih < l.n_heads; ih++) {
            const int32_t *pos, n_pos = wnw_stored_head(st, l.layer, ih, &pos);
            int32_t k = 0;
            good = wnw_bridge_cells(w->cache, i, 0, ih, cells, l.n_cells, &n) == WNW_OK;
            for (int32_t e = 0; good && e < n; e++) {
                if (others[cells[e]])
                    continue;
                first = first < 0 && k < n_pos ? cells[e] - pos[k] : first;
                good = k < n_pos && cells[e] - pos[k] == first;
                k++;
            }
            good = good && k == n_pos;
        }
    }
    return good ? first : -1;
}

/* Has libllama take what was stored of a document. Returns what is wrong, NULL = nothing. */
static const char *take_state(const struct serve_watched *w, int32_t d, int32_t seq)
{
    uint8_t *state;
    size_t n;
    if (wnw_stored_sequence(serve_document_stored(d), &state, &n) != WNW_OK)
        return wnw_last_error();
    const bool taken = llama_state_seq_set_data(w->ctx, state, n, seq) > 0;
    wnw_free(state);
    return taken ? NULL
                 : "libllama does not take it: its cache is of another form (`-- -fa off` is one), or has no "
                   "room";
}

void serve_document_cells_try(struct serve_watched *w)
{
    char line[SERVE_TEXT];
    int32_t *cells = malloc((size_t)w->sequences.n_cells * sizeof *cells);
    if (!cells)
        serve_refuse("no memory for the cells of a document");
    for (int32_t i = 0; i < w->sequences.n_cells; i++)
        cells[i] = i;
    for (int32_t d = 0; d < serve_documents_n(); d++) {
        const char *fault = serve_document_stored(d) ? take_state(w, d, w->n_slots + d) : NULL;
        if (fault) {
            snprintf(line, sizeof line, "document %s: %.400s", serve_document_name(d), fault);
            serve_refuse_input(line);
        }
        REAL(llama_memory_seq_rm)(llama_get_memory(w->ctx), w->n_slots + d, -1, -1);
        (void)wnw_bridge_forget(w->cache, cells, w->sequences.n_cells);
    }
    free(cells);
}

/* Fills a document's sequence from what was stored. Returns what is wrong, NULL = nothing. */
static const char *fill_document(struct serve_watched *w, int32_t d)
{
    const int32_t to = w->n_slots + d;
    const wnw_stored *st = serve_document_stored(d);
    const int32_t n_cells = w->sequences.n_cells;
    int32_t n, first = -1, *cells = malloc((size_t)n_cells * sizeof *cells);
    bool *others = calloc((size_t)n_cells, sizeof *others);
    const char *fault = "out of memory";
    if (cells && others) {
        serve_watched_mark_held(w, others, cells);
        fault = take_state(w, d, to);
    }
    if (!fault)
        first = first_cell(w, st, others, cells);
    if (!fault && first < 0 && !serve_watched_has_unknown(w)) {
        /* Cells were given that held entries of what is gone. */
        for (int32_t i = 0; i < n_cells; i++)
            others[i] = w->sequences.owners[i] > 0;
        first = first_cell(w, st, others, cells);
    }
    free(cells);
    free(others);
    if (fault)
        return fault;
    if (first < 0)
        return "its entries are not where they were put: the backend and libllama disagree";
    (void)wnw_stored_tokens(st, &n);
    for (int32_t i = 0; i < n; i++)
        if (!serve_sequences_add(&w->sequences, to, i, first + i, -1))
            return "out of memory";
    const struct serve_keep_rule by = serve_document_stored_by(d);
    w->slot_cache[to] = (struct serve_slot_cache){.compressed = !serve_keeps_all(&by), .by = by};
    serve_document_close(d);
    serve_watched_count(w, to);
    serve_watched_report(w, to);
    return NULL;
}

/* Fills it unless that was done. */
static void load_stored(struct serve_watched *w, int32_t d)
{
    char line[SERVE_TEXT];
    if (serve_document_is_join(d))
        return;
    const char *fault = serve_document_stored(d) ? fill_document(w, d) : NULL;
    if (!fault)
        return;
    snprintf(line, sizeof line, "document %s: %.400s", serve_document_name(d), fault);
    serve_refuse(line);
}

/* ---- Slots that begin with a document ---- */

static bool put(struct serve_watched *w, int32_t seq, int32_t d)
{
    llama_memory_t mem = llama_get_memory(w->ctx);
    const int32_t from = serve_watched_document(w, d + 1);
    if (from < 0 || w->sequences.of[from].n == 0 || !REAL(llama_memory_seq_rm)(mem, seq, -1, -1))
        return false;
    serve_watched_lose(w, seq, 0);
    serve_sequences_rm(&w->sequences, seq, -1, -1);
    REAL(llama_memory_seq_cp)(mem, from, seq, -1, -1);
    if (!serve_sequences_cp(&w->sequences, from, seq, -1, -1)) {
        REAL(llama_memory_seq_rm)(mem, seq, -1, -1);
        serve_sequences_rm(&w->sequences, seq, -1, -1);
        return false;
    }
    w->slot_cache[seq] =
        (struct serve_slot_cache){.document_plus_1 = d + 1, .entries = w->slot_cache[from].entries};
    return true;
}

size_t serve_document_cells_restore(struct serve_watched *w, int32_t seq, int32_t d, int32_t *tokens,
                                    size_t room, size_t *n)
{
    int32_t n_own;
    const int32_t *own = serve_document_tokens(d, &n_own);
    *n = (size_t)n_own;
    if (!tokens)
        return n_own > 0;
    if (n_own == 0 || *n > room)
        return 0;
    load_stored(w, d);
    if (!put(w, seq, d))
        return 0;
    memcpy(tokens, own, *n * sizeof *tokens);
    serve_watched_bury(w);
    serve_watched_report(w, seq);
    serve_watched_tell(w, false, false);
    return *n;
}

int32_t serve_document_cells_shared(const struct serve_watched *w, int32_t seq)
{
    const struct serve_sequence *q = &w->sequences.of[seq];
    const int32_t document_plus_1 = w->slot_cache[seq].document_plus_1,
                  from = document_plus_1 > 0 ? serve_watched_document(w, document_plus_1) : -1;
    const struct serve_sequence *d = from >= 0 ? &w->sequences.of[from] : q;
    int32_t n = 0;
    while (from >= 0 && n < q->n && n < d->n && q->cell[n] == d->cell[n])
        n++;
    return n;
}

void serve_document_cells_check(struct serve_watched *w, int32_t seq)
{
    struct serve_slot_cache *s = &w->slot_cache[seq];
    if (s->document_plus_1 == 0)
        return;
    const int32_t from = serve_watched_document(w, s->document_plus_1);
    if (from < 0 || serve_document_cells_shared(w, seq) + SERVE_DOCUMENT_OVERLAP < w->sequences.of[from].n)
        serve_document_cells_end(w, seq);
}

void serve_document_cells_end(struct serve_watched *w, int32_t seq)
{
    struct serve_slot_cache *s = &w->slot_cache[seq];
    const int32_t from = serve_watched_document(w, s->document_plus_1);
    s->of_list = serve_document_is_join(s->document_plus_1 - 1);
    s->document_plus_1 = 0;
    s->n_judged = w->sequences.of[seq].n;
    s->compressed = from >= 0 && w->slot_cache[from].compressed;
    if (s->compressed)
        s->by = w->slot_cache[from].by;
}
