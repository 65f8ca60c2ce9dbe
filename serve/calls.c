/* SPDX-License-Identifier: MIT */
/*
 * libllama's functions, in front of libllama's own: this program exports them, so that the server and libllama-common call
 * these. Each calls the real one. From them we know which sequence a row belongs to and when its prompt has ended (its last
 * row wants logits), and which cells no sequence has any more.
 *
 * One context is watched, the first; a second one, of a draft model, is libllama's. All but the first function is called by
 * the thread that decodes.
 *
 * Sequences 0 .. n_slots-1 are the slots'. Behind them each document has one, in which nothing is ever written; a slot that begins with
 * the document shares its cells.
 */
#include "serve/documents.h"
#include "serve/inspect.h"
#include "serve/sequences.h"
#include "serve/serve.h"
#include "serve/slot_file.h"

#include <llama.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* New tokens of a prompt that make a sequence be compressed; tokens that the template may write around a document. */
enum { LEAST_NEW = 128, MAX_BATCHES = 16, ROOM_FOR_TEMPLATE = 512 };

/* A row of a batch that the server makes. */
struct row {
    uint64_t seqs; /* a bit for each */
    int32_t pos;
    bool output;
};
struct batch {
    const struct llama_batch_ext *of;
    struct row *row; /* [n] */
    int32_t n, room;
};

/* What we know of a slot's sequence besides its cells. */
struct state {
    int32_t n_new; /* tokens of prompts since it was compressed */
    bool reading;  /* a prompt, of which more will come */
    bool compressed;
    struct serve_want by;
    int64_t entries;   /* in all heads */
    int32_t n_done;    /* first tokens that it had when it was compressed last */
    int32_t at_prompt; /* the first token of the last prompt that it read */
    int32_t n_unknown; /* first tokens, read from a file, whose cells are not known yet */
    int32_t behind;    /* 1 + the document that it begins with, 0 = none */
};

/* One for the process; see above. */
static struct {
    struct llama_context *ctx;
    wnw_bridge *cache;
    struct serve_sequences sequences;
    struct state state[SERVE_MAX_SLOTS + SERVE_MAX_DOCUMENTS];
    struct batch batch[MAX_BATCHES];
    int32_t n_batches, n_slots, row_entries;
    bool blind;                  /* rows and sequences are not matched: the backend decides by itself */
    const struct batch *running; /* while the graph of a batch runs */
    int32_t at;                  /* its next row */
    int32_t n_purges;            /* times that room was asked for, since some was made */
    bool *marked;                /* [n_cells] scratch */
    bool asks[SERVE_MAX_SLOTS];  /* the slot's policy looks with queries */
    bool notes[SERVE_MAX_SLOTS]; /* and those of the batch that runs are a prompt's */
    char told[SERVE_TEXT];       /* why the fallback was taken last */
    char cannot[SERVE_RECIPE];   /* a recipe that this model's layers do not go with; "" = none yet */
} w;

/* The real function of that name. */
#define REAL(name) ((__typeof__(&name))real_function(#name))

typedef void any_function(void);

static any_function *real_function(const char *name)
{
    void *p = dlsym(RTLD_NEXT, name);
    any_function *f;
    char line[160];
    memcpy(&f, &p, sizeof f); /* ISO C has no cast for it */
    if (!f) {
        snprintf(line, sizeof line, "libllama has no %s", name);
        serve_refuse(line);
    }
    return f;
}

/* ---- What is in the cache ---- */

static uint64_t resident(void)
{
    uint64_t bytes = 0;
    for (int32_t i = 0; i < wnw_bridge_n_layers(w.cache); i++) {
        wnw_bridge_layer l = {WNW_INIT(wnw_bridge_layer)};
        bytes += wnw_bridge_get_layer(w.cache, i, &l) == WNW_OK ? l.bytes : 0;
    }
    return bytes;
}

/* Bytes of the queries of one token of a prompt, while a policy looks with those of all tokens; 0: none does. */
static uint64_t query_bytes(void)
{
    uint64_t bytes = 0;
    for (int32_t i = 0; i < wnw_bridge_n_layers(w.cache); i++) {
        wnw_bridge_layer l = {WNW_INIT(wnw_bridge_layer)};
        bytes += wnw_bridge_get_layer(w.cache, i, &l) == WNW_OK ? (uint64_t)l.query_bytes : 0;
    }
    return bytes;
}

/* Entries that a head has of marked cells. */
static int64_t count_marked(int32_t layer, int32_t head)
{
    int32_t n = 0, *cells;
    int64_t found = 0;
    if (wnw_bridge_cells(w.cache, layer, 0, head, NULL, 0, &n) != WNW_OK ||
        !(cells = malloc(((size_t)n + 1) * sizeof *cells)))
        return 0;
    if (wnw_bridge_cells(w.cache, layer, 0, head, cells, n, &n) == WNW_OK)
        for (int32_t k = 0; k < n; k++)
            found += w.marked[cells[k]];
    free(cells);
    return found;
}

static int32_t n_sequences(void)
{
    return w.n_slots + serve_documents_n();
}

static void count_entries(int32_t seq)
{
    const struct serve_sequence *q = &w.sequences.of[seq];
    w.state[seq].entries = 0;
    for (int32_t k = 0; k < q->n; k++)
        w.marked[q->cell[k]] = true;
    for (int32_t i = 0; q->n > 0 && i < wnw_bridge_n_layers(w.cache); i++) {
        wnw_bridge_layer l = {WNW_INIT(wnw_bridge_layer)};
        if (wnw_bridge_get_layer(w.cache, i, &l) == WNW_OK && l.ragged && l.n_cells == w.sequences.n_cells)
            for (int32_t ih = 0; ih < l.n_heads; ih++)
                w.state[seq].entries += count_marked(i, ih);
    }
    for (int32_t k = 0; k < q->n; k++)
        w.marked[q->cell[k]] = false;
}

/* Tells how much there is. */
static void count(bool compressed_one, bool failed_one)
{
    int64_t n = w.sequences.n_live;
    for (int32_t i = 0; i < w.n_slots; i++)
        n += w.state[i].n_unknown > 0 && w.sequences.of[i].n == 0 ? w.state[i].n_unknown : 0;
    serve_slots_count(compressed_one, failed_one, resident(), n);
    serve_slots_set_query_bytes(query_bytes());
}

/* Tells what a slot, or a document, holds. */
static void report(int32_t seq)
{
    const struct state *s = &w.state[seq];
    if (seq >= w.n_slots) {
        if (w.sequences.of[seq].n > 0)
            serve_document_kept(seq - w.n_slots, s->entries, &s->by);
        return;
    }
    serve_slots_report(seq, &(struct serve_content){.n_tokens = w.sequences.of[seq].n + s->n_unknown,
                                                    .entries = s->entries,
                                                    .behind = s->behind,
                                                    .reading = s->reading,
                                                    .compressed_by = s->compressed ? &s->by : NULL});
}

/* ---- Compressing ---- */

/* Entries that stay besides a header, however small the size. */
enum { LEAST_KEPT = 32 };

/* First tokens of a slot whose cells are a document's. */
static int32_t count_shared(int32_t seq)
{
    const struct serve_sequence *q = &w.sequences.of[seq];
    const int32_t behind = w.state[seq].behind;
    const struct serve_sequence *d = behind > 0 ? &w.sequences.of[w.n_slots + behind - 1] : q;
    int32_t n = 0;
    while (behind > 0 && n < q->n && n < d->n && q->cell[n] == d->cell[n])
        n++;
    return n;
}

/* The size of what comes after the header, which no policy sees. A budget is of both, but not of a document. */
static wnw_size size_of_rest(const struct serve_want *want, int32_t n_header, int32_t n_shared)
{
    wnw_size size = want->size;
    const int64_t rest = size.budget - (n_header - n_shared);
    if (size.kind == WNW_SIZE_BUDGET)
        size.budget = rest > LEAST_KEPT ? rest : LEAST_KEPT;
    return size;
}

static void count_all_entries(void)
{
    for (int32_t i = 0; i < n_sequences(); i++) /* several may share cells */
        if (w.sequences.of[i].n > 0)
            count_entries(i);
}

static int compress_by(const wnw_bridge_cells_of *cells, const char *recipe)
{
    wnw_bridge_cells_of of = *cells;
    wnw_policy *policy = NULL;
    int rc = wnw_policy_parse(&policy, recipe, NULL);
    of.policy = policy;
    rc = rc == WNW_OK ? wnw_bridge_compress_cells(w.cache, &of) : rc;
    wnw_policy_free(policy);
    return rc;
}

/* Says why the fallback is taken, once for each reason. */
static void tell_fallback(const char *recipe, int rc)
{
    if (rc == WNW_E_UNSUPPORTED)
        snprintf(w.cannot, sizeof w.cannot, "%s", recipe);
    if (strcmp(w.told, wnw_last_error()) == 0)
        return;
    snprintf(w.told, sizeof w.told, "%s", wnw_last_error());
    fprintf(stderr, "winnow: %s is taken in place of %s where that cannot be had: %s\n", SERVE_FALLBACK,
            recipe, w.told);
}

/* Tokens of a slot that are compressed together, behind a header that is whole. */
struct part {
    int32_t n_prefix, from, to;
    wnw_size size; /* of what follows the header */
};

/* By the recipe, or where that refuses by the fallback: a slot that stays whole would be the worse surprise. */
static int compress_part(int32_t seq, const struct part *part, const char *recipe)
{
    const int32_t *cell = w.sequences.of[seq].cell;
    const size_t n_prefix = (size_t)part->n_prefix, n = (size_t)(part->to - part->from);
    int32_t *cells = malloc((n_prefix + n + 1) * sizeof *cells);
    if (!cells)
        return WNW_E_NOMEM;
    memcpy(cells, cell, n_prefix * sizeof *cells);
    memcpy(cells + n_prefix, cell + part->from, n * sizeof *cells);
    const wnw_bridge_cells_of of = {WNW_INIT(wnw_bridge_cells_of), .n_cells = (int32_t)(n_prefix + n),
                                    .cells = cells, .size = &part->size, .n_prefix = part->n_prefix};
    int rc = compress_by(&of, recipe);
    if (rc != WNW_OK && rc != WNW_E_NOMEM && strcmp(recipe, SERVE_FALLBACK) != 0) {
        tell_fallback(recipe, rc);
        serve_slots_count_fallback();
        rc = compress_by(&of, SERVE_FALLBACK);
    }
    free(cells);
    return rc;
}

/* A policy that looks with every query has those of the last prompt alone, which would leave little of what earlier turns have
 * kept. So it judges that prompt, if it is long enough; a ratio takes nothing more of what was compressed before, and the
 * fallback compresses what lies between; of a budget each part has the share that it has of the tokens. */
static int compress_last(int32_t seq, const struct part *rest, const char *recipe)
{
    const struct state *s = &w.state[seq];
    struct part old = *rest, last = *rest;
    const int32_t n = rest->to - rest->from, at = s->at_prompt > rest->from ? s->at_prompt : rest->from;
    old.to = last.from = rest->to - at < LEAST_NEW ? rest->to : at;
    if (rest->size.kind == WNW_SIZE_BUDGET) {
        const int64_t share = rest->size.budget * (old.to - old.from) / n;
        old.size.budget = share > 0 ? share : 1;
        last.size.budget = rest->size.budget - share > 0 ? rest->size.budget - share : 1;
    } else if (old.from < s->n_done) {
        old.from = s->n_done < old.to ? s->n_done : old.to;
    }
    int rc = old.from < old.to ? compress_part(seq, &old, SERVE_FALLBACK) : WNW_OK;
    if (rc == WNW_OK && last.from < last.to)
        rc = compress_part(seq, &last, recipe);
    return rc;
}

/* Compresses a slot, if it is time. False: it could not be. */
static bool compress(int32_t seq)
{
    struct state *s = &w.state[seq];
    const struct serve_sequence *q = &w.sequences.of[seq];
    struct serve_want want;
    serve_slots_want(seq, &want);
    const int32_t n_shared = count_shared(seq);
    const int32_t n_header = want.n_protected > n_shared ? want.n_protected : n_shared;
    if (s->n_unknown > 0 || serve_keeps_all(&want) || s->n_new < LEAST_NEW || q->n <= n_header)
        return true;
    const struct part rest = {.n_prefix = n_shared > 0 ? 0 : n_header,
                              .from = n_header,
                              .to = q->n,
                              .size = size_of_rest(&want, n_header, n_shared)};
    const bool cannot = strcmp(want.recipe, w.cannot) == 0;
    const char *recipe = cannot ? SERVE_FALLBACK : want.recipe;
    if (cannot)
        serve_slots_count_fallback();
    const int rc =
        serve_looks_with_all(recipe) ? compress_last(seq, &rest, recipe) : compress_part(seq, &rest, recipe);
    s->n_new = 0;
    if (rc != WNW_OK) {
        fprintf(stderr, "winnow: slot %d is not compressed: %s\n", (int)seq, wnw_last_error());
    } else {
        s->compressed = true;
        s->n_done = q->n;
        s->by = want;
        count_all_entries();
        report(seq);
    }
    count(rc == WNW_OK, rc != WNW_OK);
    return rc == WNW_OK;
}

/* ---- Documents ---- */

/* Keeps what a slot has read as a document. */
static void store_document(int32_t seq, int32_t d)
{
    const int32_t to = w.n_slots + d;
    REAL(llama_memory_seq_cp)(llama_get_memory(w.ctx), seq, to, -1, -1);
    if (!serve_sequences_cp(&w.sequences, seq, to, -1, -1))
        serve_refuse("no memory for the cells of a document");
    w.state[to] = w.state[seq];
    serve_slots_want(seq, &w.state[to].by);
    w.state[seq].behind = d + 1;
    w.state[seq].compressed = false; /* nothing of its own is */
    report(to);
    report(seq);
}

/* The cell of the first token of what was stored, of which libllama has just been given the state: its entries are those in cells
 * that no sequence has, and their cells follow each other as their positions do. -1: they do not. */
static int32_t first_cell(const wnw_stored *st, int32_t *cells)
{
    int32_t first = -1, n;
    bool good = true;
    for (int32_t i = 0; i < wnw_bridge_n_layers(w.cache); i++) {
        wnw_bridge_layer l = {WNW_INIT(wnw_bridge_layer)};
        if (wnw_bridge_get_layer(w.cache, i, &l) != WNW_OK || !l.ragged || l.n_cells != w.sequences.n_cells)
            continue;
        for (int32_t ih = 0; good && ih < l.n_heads; ih++) {
            const int32_t *pos, n_pos = wnw_stored_head(st, l.layer, ih, &pos);
            int32_t k = 0;
            good = wnw_bridge_cells(w.cache, i, 0, ih, cells, l.n_cells, &n) == WNW_OK;
            for (int32_t e = 0; good && e < n; e++) {
                if (w.sequences.owners[cells[e]] > 0)
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
static const char *take_state(int32_t d, int32_t seq)
{
    uint8_t *state;
    size_t n;
    if (wnw_stored_sequence(serve_document_stored(d), &state, &n) != WNW_OK)
        return wnw_last_error();
    const bool taken = llama_state_seq_set_data(w.ctx, state, n, seq) > 0;
    wnw_free(state);
    return taken ? NULL
                 : "libllama does not take it: its cache is of another form (`-- -fa off` is one), or has no "
                   "room";
}

/* Fills a document's sequence from what was stored. Returns what is wrong, NULL = nothing. */
static const char *fill_document(int32_t d)
{
    const int32_t to = w.n_slots + d;
    const wnw_stored *st = serve_document_stored(d);
    int32_t n, *cells = malloc((size_t)w.sequences.n_cells * sizeof *cells);
    const char *fault = cells ? take_state(d, to) : "out of memory";
    const int32_t first = fault ? -1 : first_cell(st, cells);
    free(cells);
    if (fault)
        return fault;
    if (first < 0)
        return "its entries are not where they were put: the backend and libllama disagree";
    (void)wnw_stored_tokens(st, &n);
    for (int32_t i = 0; i < n; i++)
        if (!serve_sequences_add(&w.sequences, to, i, first + i))
            return "out of memory";
    const struct serve_want by = serve_document_stored_by(d);
    w.state[to] = (struct state){.compressed = !serve_keeps_all(&by), .by = by};
    serve_document_close(d);
    count_entries(to);
    report(to);
    return NULL;
}

/* Fills it when a slot begins with it for the first time. */
static void load_stored(int32_t d)
{
    char line[SERVE_TEXT];
    const char *fault = serve_document_stored(d) ? fill_document(d) : NULL;
    if (!fault)
        return;
    snprintf(line, sizeof line, "document %s: %.400s", serve_document_name(d), fault);
    serve_refuse(line);
}

/* Begins a slot with a document. */
static bool put_document(int32_t seq, int32_t d)
{
    llama_memory_t mem = llama_get_memory(w.ctx);
    const int32_t from = w.n_slots + d;
    if (w.sequences.of[from].n == 0 || !REAL(llama_memory_seq_rm)(mem, seq, -1, -1))
        return false;
    serve_sequences_rm(&w.sequences, seq, -1, -1);
    REAL(llama_memory_seq_cp)(mem, from, seq, -1, -1);
    if (!serve_sequences_cp(&w.sequences, from, seq, -1, -1)) {
        REAL(llama_memory_seq_rm)(mem, seq, -1, -1);
        serve_sequences_rm(&w.sequences, seq, -1, -1);
        return false;
    }
    w.state[seq] = (struct state){.behind = d + 1, .entries = w.state[from].entries};
    return true;
}

/* A slot that has lost a part of its document stands behind it no more, and holds what was dropped of the rest. */
static void check_behind(int32_t seq)
{
    struct state *s = &w.state[seq];
    if (s->behind == 0)
        return;
    const int32_t from = w.n_slots + s->behind - 1;
    if (count_shared(seq) + SERVE_SEAM >= w.sequences.of[from].n)
        return;
    s->behind = 0;
    s->n_done = w.sequences.of[seq].n;
    s->compressed = w.state[from].compressed;
    s->by = w.state[from].by;
}

/* ---- Contexts ---- */

/* Tokens of a document, without what a template writes around a text. */
static int32_t count_tokens(const struct llama_model *model, int32_t d)
{
    const char *text = serve_document_text(d);
    int32_t n;
    if (!serve_document_stored(d))
        return -llama_tokenize(llama_model_get_vocab(model), text, (int32_t)strlen(text), NULL, 0, false,
                               true);
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
        serve_refuse(line);
    }
    if (turns && atoi(turns) != 0 && (info.kv_type == WNW_KV_Q8_0 || info.kv_type == WNW_KV_Q4_0)) {
        snprintf(line, sizeof line, "document %s: LLAMA_ATTN_ROT_DISABLE has the server's rows not rotated",
                 serve_document_name(d));
        serve_refuse(line);
    }
}

/* Makes room for the documents' sequences and cells. */
static void make_room(const struct llama_model *model, struct llama_context_params *params)
{
    char line[SERVE_TEXT];
    const int32_t n_most = llama_model_n_ctx_train(model);
    if (serve_documents_n() == 0)
        return;
    if (llama_model_is_hybrid(model) || llama_model_is_recurrent(model))
        serve_refuse("models with recurrent layers cannot begin requests with a document");
    if (llama_model_n_swa(model) > 0 && !params->swa_full)
        serve_refuse("the model has layers with a sliding window; with documents it needs `-- --swa-full`");
    for (int32_t d = 0; d < serve_documents_n(); d++) {
        const int32_t n = count_tokens(model, d);
        check_type(params, d);
        if (n <= 0 || n > n_most - ROOM_FOR_TEMPLATE) {
            snprintf(line, sizeof line,
                     "document %s has %d tokens, and the model's context has %d, of which requests need %d",
                     serve_document_name(d), (int)n, (int)n_most, ROOM_FOR_TEMPLATE);
            serve_refuse(line);
        }
        params->n_ctx += (uint32_t)(n + ROOM_FOR_TEMPLATE);
    }
    params->n_seq_max += (uint32_t)serve_documents_n();
    if (params->n_outputs_max > 0) /* it is not less than the sequences */
        params->n_outputs_max += (uint32_t)serve_documents_n();
}

static bool open_sequences(void)
{
    uint64_t row_bytes = 0;
    int32_t n_cells = 0;
    w.row_entries = 0;
    for (int32_t i = 0; i < wnw_bridge_n_layers(w.cache); i++) {
        wnw_bridge_layer l = {WNW_INIT(wnw_bridge_layer)};
        if (wnw_bridge_get_layer(w.cache, i, &l) != WNW_OK || !l.ragged)
            continue;
        n_cells = l.n_cells > n_cells ? l.n_cells : n_cells;
        w.row_entries += l.n_heads;
        row_bytes += (uint64_t)l.n_heads * (uint64_t)l.entry_bytes;
    }
    w.n_slots = (int32_t)llama_n_seq_max(w.ctx) - serve_documents_n();
    if (w.n_slots > SERVE_MAX_SLOTS)
        serve_refuse("a server of winnow has 64 slots at most");
    if (!llama_get_memory(w.ctx) || llama_model_is_recurrent(llama_get_model(w.ctx)))
        serve_refuse(
            "the model has no cache of keys and values, of which a part could be kept: llama.cpp's own "
            "llama-server serves it");
    if (n_cells == 0)
        serve_refuse(
            "none of the model's keys and values is on the device WINNOW: `winnow serve` sets -dev WINNOW "
            "-ngl 99, and a model without any is served by llama.cpp's own llama-server");
    w.blind =
        llama_model_is_hybrid(llama_get_model(w.ctx)) || llama_model_is_recurrent(llama_get_model(w.ctx));
    w.marked = calloc((size_t)n_cells, sizeof *w.marked);
    serve_slots_open(w.n_slots, row_bytes, w.row_entries, !w.blind);
    return w.marked && serve_sequences_init(&w.sequences, n_sequences(), n_cells);
}

static void rows_told(const int32_t *cells, int32_t n, int32_t n_cells, void *user);

static int set_profiles(void)
{
    const char *list = serve_settings()->profiles;
    char path[4096];
    int rc = WNW_OK;
    while (rc == WNW_OK && *list) {
        const size_t n = strcspn(list, ":");
        snprintf(path, sizeof path, "%.*s", (int)n, list);
        rc = n > 0 ? wnw_bridge_set_profile(w.cache, path) : WNW_OK;
        list += n + (list[n] == ':');
    }
    return rc;
}

static void watch(struct llama_context *ctx)
{
    const struct serve_want *want = &serve_settings()->want;
    if (wnw_bridge_find(&w.cache, llama_synchronize, ctx) != WNW_OK)
        serve_refuse(wnw_last_error());
    w.ctx = ctx;
    if (!open_sequences())
        serve_refuse("no memory for the sequences of the slots");
    int rc = set_profiles();
    if (rc != WNW_OK)
        serve_refuse(wnw_last_error());
    if (w.blind && strcmp(serve_policy_of_all(false), want->recipe) != 0)
        fprintf(stderr, "winnow: %s is taken in place of %s, because the model has recurrent layers\n",
                serve_policy_of_all(false), want->recipe);
    rc = w.blind ? wnw_bridge_set_policy(w.cache, serve_keeps_all(want) ? NULL : serve_policy_of_all(false),
                                         &want->size, true)
                 : wnw_bridge_tell_rows(w.cache, rows_told, NULL);
    if (rc == WNW_OK && !w.blind && !serve_keeps_all(want))
        rc = wnw_bridge_observe(w.cache, want->recipe);
    if (rc != WNW_OK)
        serve_refuse(wnw_last_error());
}

struct llama_context *llama_init_from_model(struct llama_model *model, struct llama_context_params params)
{
    if (!w.ctx)
        make_room(model, &params);
    struct llama_context *ctx = REAL(llama_init_from_model)(model, params);
    if (ctx && !w.ctx)
        watch(ctx);
    return ctx;
}

void llama_free(struct llama_context *ctx)
{
    if (ctx && ctx == w.ctx) {
        w.ctx = NULL;
        w.cache = NULL;
        serve_sequences_free(&w.sequences);
        memset(w.state, 0, sizeof w.state);
        free(w.marked);
        w.marked = NULL;
    }
    REAL(llama_free)(ctx);
}

/* ---- Batches ---- */

/* What we know of a batch; NULL: there are too many. */
static struct batch *batch_of(const struct llama_batch_ext *of)
{
    for (int32_t i = 0; i < w.n_batches; i++)
        if (w.batch[i].of == of)
            return &w.batch[i];
    if (w.n_batches == MAX_BATCHES)
        return NULL;
    w.batch[w.n_batches].of = of;
    return &w.batch[w.n_batches++];
}

static struct row *row_of(const struct llama_batch_ext *of, int32_t i)
{
    struct batch *b = batch_of(of);
    return b && i >= 0 && i < b->n ? &b->row[i] : NULL;
}

static void add_row(const struct llama_batch_ext *of, int32_t i, int32_t seq)
{
    struct batch *b = batch_of(of);
    if (!b || i != b->n || seq < 0 || seq >= SERVE_MAX_SLOTS)
        return;
    if (b->n == b->room) {
        const int32_t room = b->room > 0 ? 2 * b->room : 512;
        struct row *row = realloc(b->row, (size_t)room * sizeof *row);
        if (!row)
            return;
        b->row = row;
        b->room = room;
    }
    b->row[b->n++] = (struct row){.seqs = UINT64_C(1) << seq};
}

void llama_batch_ext_clear(struct llama_batch_ext *batch)
{
    struct batch *b = batch_of(batch);
    if (b)
        b->n = 0;
    REAL(llama_batch_ext_clear)(batch);
}

void llama_batch_ext_free(struct llama_batch_ext *batch)
{
    for (int32_t i = 0; batch && i < w.n_batches; i++)
        if (w.batch[i].of == batch) {
            free(w.batch[i].row);
            w.batch[i] = w.batch[--w.n_batches];
            w.batch[w.n_batches] = (struct batch){0};
        }
    REAL(llama_batch_ext_free)(batch);
}

int32_t llama_batch_ext_add_token(struct llama_batch_ext *batch, llama_seq_id seq_id, llama_token id)
{
    const int32_t i = REAL(llama_batch_ext_add_token)(batch, seq_id, id);
    add_row(batch, i, seq_id);
    return i;
}

int32_t llama_batch_ext_add_embd(struct llama_batch_ext *batch, llama_seq_id seq_id, struct llama_embd embd)
{
    const int32_t i = REAL(llama_batch_ext_add_embd)(batch, seq_id, embd);
    add_row(batch, i, seq_id);
    return i;
}

bool llama_batch_ext_add_seq(struct llama_batch_ext *batch, int32_t idx, llama_seq_id seq_id)
{
    struct row *row = row_of(batch, idx);
    if (row && seq_id >= 0 && seq_id < SERVE_MAX_SLOTS)
        row->seqs |= UINT64_C(1) << seq_id;
    return REAL(llama_batch_ext_add_seq)(batch, idx, seq_id);
}

bool llama_batch_ext_set_pos(struct llama_batch_ext *batch, int32_t idx, const llama_pos *pos)
{
    struct row *row = row_of(batch, idx);
    if (row)
        row->pos = pos[0];
    return REAL(llama_batch_ext_set_pos)(batch, idx, pos);
}

bool llama_batch_ext_set_output_logits(struct llama_batch_ext *batch, int32_t idx, bool value)
{
    struct row *row = row_of(batch, idx);
    if (row)
        row->output = value;
    return REAL(llama_batch_ext_set_output_logits)(batch, idx, value);
}

/* ---- Decoding ---- */

static void bury_dead(void)
{
    if (w.sequences.n_dead > 0 && wnw_bridge_forget(w.cache, w.sequences.dead, w.sequences.n_dead) != WNW_OK)
        fprintf(stderr, "winnow: %s\n", wnw_last_error());
    w.sequences.n_dead = 0;
}

/* Learns the cells of a sequence that came from a file, from what its first row sees besides itself. libllama gives a
 * state cells that follow each other; where it found none such, the order of the tokens is not known, and the sequence
 * stays as it is. */
static void learn(int32_t seq, int32_t row, int32_t own, int32_t pos)
{
    struct state *s = &w.state[seq];
    int32_t n = 0, *cells = malloc(((size_t)w.sequences.n_cells + 1) * sizeof *cells);
    if (cells && wnw_bridge_seen(w.cache, row, cells, w.sequences.n_cells, &n) == WNW_OK && n == pos + 1) {
        int32_t k = 0;
        for (int32_t i = 0; i < n; i++)
            if (cells[i] != own)
                cells[k++] = cells[i];
        if (k == pos && (k == 0 || cells[k - 1] - cells[0] == k - 1)) {
            for (int32_t i = 0; i < k; i++)
                serve_sequences_add(&w.sequences, seq, i, cells[i]);
            s->n_unknown = 0;
        }
    }
    free(cells);
}

static void rows_told(const int32_t *cells, int32_t n, int32_t n_cells, void *user)
{
    (void)n_cells;
    (void)user;
    for (int32_t i = 0; w.running && i < n && w.at < w.running->n; i++, w.at++) {
        const struct row *row = &w.running->row[w.at];
        bool noted = false;
        for (int32_t seq = 0; seq < w.n_slots; seq++)
            if (row->seqs >> seq & 1) {
                if (w.state[seq].n_unknown > 0 && w.sequences.of[seq].n == 0)
                    learn(seq, i, cells[i], row->pos);
                serve_sequences_add(&w.sequences, seq, row->pos, cells[i]);
                noted = noted || w.notes[seq];
            }
        if (!noted)
            wnw_bridge_skip_query(w.cache, i);
    }
}

/* Rows of a slot in a batch. */
struct rows {
    int32_t n, n_silent; /* all, and those that want no logits: they are a prompt's */
    bool ends;           /* the last one wants them */
};

static struct rows rows_of(const struct batch *b, int32_t seq)
{
    struct rows r = {0};
    for (int32_t i = 0; i < b->n; i++)
        if (b->row[i].seqs >> seq & 1) {
            r.ends = b->row[i].output;
            r.n_silent += !r.ends;
            r.n++;
        }
    return r;
}

/* Whether these rows are a prompt's, which may be alone behind others of it. */
static bool reads_prompt(int32_t seq, const struct rows *r)
{
    return r->n > 0 && (w.state[seq].reading || r->n_silent > 0);
}

/* Has what a slot's policy needs observed. */
static void begin(int32_t seq, const struct serve_want *want)
{
    w.asks[seq] = serve_looks_with_queries(want->recipe) && strcmp(want->recipe, w.cannot) != 0;
    if (!serve_keeps_all(want) && wnw_bridge_observe(w.cache, want->recipe) != WNW_OK)
        fprintf(stderr, "winnow: slot %d: %s\n", (int)seq, wnw_last_error());
}

/* Begins what is new. */
static void before(const struct batch *b)
{
    struct serve_want want;
    for (int32_t seq = 0; seq < w.n_slots; seq++) {
        const struct rows r = rows_of(b, seq);
        if (r.n > 0 && serve_slots_want(seq, &want))
            begin(seq, &want);
        w.notes[seq] = w.asks[seq] && reads_prompt(seq, &r);
    }
}

/* Whether the cap asks for room that a slot without a request can make: the server then clears one. It is asked as often as
 * there are such slots, and no more until one has been cleared. */
static bool needs_room(const struct batch *b)
{
    const uint64_t cap = serve_settings()->cap;
    int32_t n_idle = 0;
    if (cap == 0 || resident() + (uint64_t)b->n * serve_slots_row_bytes() <= cap)
        return false;
    for (int32_t seq = 0; seq < w.n_slots; seq++)
        n_idle += w.sequences.of[seq].n > 0 && rows_of(b, seq).n == 0 && !serve_slots_is_claimed(seq);
    return w.n_purges++ < n_idle;
}

/* Compresses a prompt whose last row was computed, before its first token is sampled from the logits that are there: so the time goes to that of
 * the prompt, and the tokens come evenly. */
static void finish_prompt(int32_t seq)
{
    const int32_t stores = serve_slots_stores(seq);
    char line[SERVE_TEXT];
    REAL(llama_synchronize)(w.ctx);
    const bool good = compress(seq);
    if (w.asks[seq]) /* what was too short keeps none either */
        wnw_bridge_forget_queries(w.cache, w.sequences.of[seq].cell, w.sequences.of[seq].n);
    if (stores > 0 && !good) {
        snprintf(line, sizeof line, "document %s cannot be compressed: %s", serve_document_name(stores - 1),
                 wnw_last_error());
        serve_refuse(line);
    }
    if (stores > 0)
        store_document(seq, stores - 1);
}

static void after(const struct batch *b)
{
    for (int32_t seq = 0; seq < w.n_slots; seq++) {
        struct state *s = &w.state[seq];
        const struct rows r = rows_of(b, seq);
        if (r.n == 0)
            continue;
        const bool reads = reads_prompt(seq, &r), ended = reads && r.ends;
        if (reads && !s->reading)
            s->at_prompt = w.sequences.of[seq].n - r.n;
        s->entries += (int64_t)r.n * w.row_entries;
        s->n_new += r.n_silent + ended;
        s->reading = !r.ends;
        report(seq);
        if (ended)
            finish_prompt(seq);
    }
    count(false, false);
}

int32_t llama_process(struct llama_context *ctx, enum llama_process_type type, struct llama_batch_ext *batch)
{
    const struct batch *b = batch_of(batch);
    if (ctx != w.ctx || type != LLAMA_PROCESS_TYPE_DECODE || w.blind || !b)
        return REAL(llama_process)(ctx, type, batch);
    before(b);
    if (needs_room(b))
        return 1; /* as where no cells are free: the server clears a slot and tries again */
    int32_t n_before[SERVE_MAX_SLOTS];
    for (int32_t seq = 0; seq < w.n_slots; seq++)
        n_before[seq] = w.sequences.of[seq].n;
    w.running = b;
    w.at = 0;
    const int32_t rc = REAL(llama_process)(ctx, type, batch);
    w.running = NULL;
    if (rc == 0) {
        after(b);
        return rc;
    }
    /* libllama takes back the rows that it could not compute. */
    for (int32_t seq = 0; seq < w.n_slots; seq++)
        serve_sequences_cut(&w.sequences, seq, n_before[seq]);
    bury_dead();
    return rc;
}

/* ---- Memory ---- */

static bool is_watched(llama_memory_t mem)
{
    return w.ctx && !w.blind && llama_get_memory(w.ctx) == mem;
}

/* Frees what died, and tells what is left. */
static void bury(int32_t seq)
{
    bury_dead();
    w.n_purges = 0;
    for (int32_t i = seq < 0 ? 0 : seq; i < (seq < 0 ? w.n_slots : seq + 1); i++) {
        if (w.sequences.of[i].n == 0 && w.state[i].n_unknown == 0)
            w.state[i] = (struct state){0};
        else if (w.state[i].n_unknown == 0)
            count_entries(i);
        const int32_t n = w.sequences.of[i].n + w.state[i].n_unknown;
        w.state[i].n_done = w.state[i].n_done < n ? w.state[i].n_done : n;
        check_behind(i);
        report(i);
    }
    count(false, false);
}

bool llama_memory_seq_rm(llama_memory_t mem, llama_seq_id seq_id, llama_pos p0, llama_pos p1)
{
    const bool removed = REAL(llama_memory_seq_rm)(mem, seq_id, p0, p1);
    if (removed && is_watched(mem) && seq_id < w.n_slots) {
        const int32_t n = seq_id >= 0 ? w.sequences.of[seq_id].n : -1;
        for (int32_t i = seq_id < 0 ? 0 : seq_id; i < (seq_id < 0 ? w.n_slots : seq_id + 1); i++)
            if (w.state[i].n_unknown > 0 && p1 < 0)
                w.state[i].n_unknown = p0 <= 0 ? 0 : w.state[i].n_unknown < p0 ? w.state[i].n_unknown : p0;
        serve_sequences_rm(&w.sequences, seq_id, p0, p1);
        if (n < 0 || w.sequences.of[seq_id].n < n)
            bury(seq_id);
    }
    return removed;
}

void llama_memory_seq_cp(llama_memory_t mem, llama_seq_id src, llama_seq_id dst, llama_pos p0, llama_pos p1)
{
    REAL(llama_memory_seq_cp)(mem, src, dst, p0, p1);
    if (!is_watched(mem) || src == dst || src >= w.n_slots || dst >= w.n_slots)
        return;
    serve_sequences_cp(&w.sequences, src, dst, p0, p1);
    w.state[dst] = w.state[src];
    w.state[dst].n_new = 0;
    report(dst);
}

void llama_memory_seq_add(llama_memory_t mem, llama_seq_id seq_id, llama_pos p0, llama_pos p1,
                          llama_pos delta)
{
    REAL(llama_memory_seq_add)(mem, seq_id, p0, p1, delta);
    if (is_watched(mem) && seq_id < w.n_slots)
        serve_sequences_shift(&w.sequences, seq_id, p0, p1, delta);
}

/* Whether positions may be moved: not those of cells that slots share with a document. */
bool llama_memory_can_shift(llama_memory_t mem)
{
    return !(is_watched(mem) && serve_documents_n() > 0) && REAL(llama_memory_can_shift)(mem);
}

void llama_memory_clear(llama_memory_t mem, bool data)
{
    REAL(llama_memory_clear)(mem, data);
    if (is_watched(mem)) {
        serve_sequences_rm(&w.sequences, -1, -1, -1);
        bury(-1);
    }
}

/* ---- Files ---- */

static void set_model(uint64_t model[2])
{
    const struct llama_model *m = llama_get_model(w.ctx);
    model[0] = llama_model_n_params(m);
    model[1] = llama_model_size(m);
}

/* The ids of a slot's tokens in what the server notes of it: they follow a mark, a version and their number, or stand alone. */
static const llama_token *ids_of(const llama_token *notes, size_t n_notes, int32_t *n)
{
    enum { HEAD = 3 };
    const bool marked = n_notes >= HEAD && notes[0] == LLAMA_TOKEN_NULL;
    const size_t most = marked ? n_notes - HEAD : n_notes;
    const size_t said = marked && notes[2] >= 0 ? (size_t)notes[2] : most;
    *n = (int32_t)(said < most ? said : most);
    return marked ? notes + HEAD : notes;
}

/* Shows a slot that is being saved, or a document. */
static size_t inspect(int32_t ticket, int32_t d, int32_t seq, const llama_token *tokens, size_t n_tokens)
{
    char model[128] = "";
    const struct state *s = &w.state[d >= 0 ? w.n_slots + d : seq];
    const struct serve_sequence *q = &w.sequences.of[d >= 0 ? w.n_slots + d : seq];
    int32_t n;
    const int32_t *ids = d >= 0 ? serve_document_tokens(d, &n) : ids_of(tokens, n_tokens, &n);
    (void)llama_model_meta_val_str(llama_get_model(w.ctx), "general.name", model, sizeof model);
    struct serve_inspected x = {.cache = w.cache,
                                .vocab = llama_model_get_vocab(llama_get_model(w.ctx)),
                                .cells = q->cell,
                                .ids = n >= q->n ? ids : NULL,
                                .n = q->n,
                                .n_cells = w.sequences.n_cells,
                                .model = model,
                                .by = s->compressed ? &s->by : NULL};
    if (!s->compressed && s->behind > 0 && w.state[w.n_slots + s->behind - 1].compressed)
        x.by = &w.state[w.n_slots + s->behind - 1].by;
    if (d >= 0)
        snprintf(x.name, sizeof x.name, "%s", serve_document_name(d));
    else
        snprintf(x.name, sizeof x.name, "slot %d", (int)seq);
    serve_inspect_look(ticket, &x,
                       q->n > 0 ? NULL
                       : s->n_unknown > 0
                           ? "it was restored from a file, and shows what it holds once it is asked"
                       : d >= 0 ? "it is being read"
                                : "it is empty");
    return 1;
}

size_t llama_state_seq_save_file(struct llama_context *ctx, const char *filepath, llama_seq_id seq_id,
                                 const llama_token *tokens, size_t n_token_count)
{
    int32_t ticket, d;
    if (ctx == w.ctx && !w.blind && seq_id >= 0 && seq_id < w.n_slots &&
        serve_inspect_of_file(filepath, &ticket, &d))
        return inspect(ticket, d < serve_documents_n() ? d : -1, seq_id, tokens, n_token_count);
    if (ctx != w.ctx || w.blind || seq_id < 0 || seq_id >= w.n_slots)
        return REAL(llama_state_seq_save_file)(ctx, filepath, seq_id, tokens, n_token_count);
    const struct state *s = &w.state[seq_id];
    struct serve_slot_file file;
    memset(&file, 0, sizeof file); /* with what lies between its members, since it is written */
    file.n_tokens = n_token_count;
    file.entries = s->entries;
    file.n_sequence = w.sequences.of[seq_id].n + s->n_unknown;
    file.compressed = s->compressed || s->behind > 0;
    if (file.compressed)
        file.by = s->compressed ? s->by : w.state[w.n_slots + s->behind - 1].by;
    set_model(file.model);
    snprintf(file.fingerprint, sizeof file.fingerprint, "%s", serve_settings()->fingerprint);
    const size_t room = llama_state_seq_get_size(ctx, seq_id);
    uint8_t *state = malloc(room + 1);
    size_t bytes = 0;
    if (state && (file.state_bytes = llama_state_seq_get_data(ctx, state, room, seq_id)) > 0)
        bytes = serve_slot_file_write(filepath, &file, tokens, state);
    free(state);
    return bytes;
}

/* As if the document were in a file. */
static size_t load_document(int32_t d, int32_t seq, llama_token *tokens_out, size_t room, size_t *n_out)
{
    int32_t n;
    const int32_t *tokens = serve_document_tokens(d, &n);
    *n_out = (size_t)n;
    if (!tokens_out)
        return n > 0;
    if (n == 0 || (size_t)n > room)
        return 0;
    load_stored(d);
    if (!put_document(seq, d))
        return 0;
    memcpy(tokens_out, tokens, (size_t)n * sizeof *tokens_out);
    bury_dead();
    w.n_purges = 0;
    report(seq);
    count(false, false);
    return (size_t)n;
}

size_t llama_state_seq_load_file(struct llama_context *ctx, const char *filepath, llama_seq_id dest_seq_id,
                                 llama_token *tokens_out, size_t n_token_capacity, size_t *n_token_count_out)
{
    struct serve_slot_file file;
    uint64_t model[2];
    const int32_t d = serve_document_of_file(filepath);
    if (d >= 0 && ctx == w.ctx && dest_seq_id >= 0 && dest_seq_id < w.n_slots)
        return load_document(d, dest_seq_id, tokens_out, n_token_capacity, n_token_count_out);
    if (ctx != w.ctx || w.blind || dest_seq_id < 0 || dest_seq_id >= w.n_slots)
        return REAL(llama_state_seq_load_file)(ctx, filepath, dest_seq_id, tokens_out, n_token_capacity,
                                               n_token_count_out);
    if (!serve_slot_file_look(filepath, &file, serve_slots_row_bytes()))
        return 0;
    set_model(model);
    if (!serve_slot_file_fits(&file, model, serve_settings()->fingerprint)) {
        fprintf(stderr, "winnow: %s: it is of another model\n", filepath);
        return 0;
    }
    *n_token_count_out = file.n_tokens;
    if (!tokens_out) /* the server asks for their number first */
        return sizeof file;
    uint8_t *state = file.n_tokens <= n_token_capacity ? malloc(file.state_bytes + 1) : NULL;
    size_t bytes = state ? serve_slot_file_read(filepath, &file, tokens_out, state) : 0;
    serve_sequences_rm(&w.sequences, dest_seq_id, -1, -1); /* libllama replaces the sequence */
    bury_dead();
    w.state[dest_seq_id] = (struct state){0};
    if (bytes > 0 && llama_state_seq_set_data(ctx, state, file.state_bytes, dest_seq_id) == 0)
        bytes = 0;
    if (bytes > 0)
        w.state[dest_seq_id] = (struct state){.n_unknown = file.n_sequence,
                                              .entries = file.entries,
                                              .n_done = file.compressed ? file.n_sequence : 0,
                                              .compressed = file.compressed != 0,
                                              .by = file.by};
    report(dest_seq_id);
    count(false, false);
    free(state);
    return bytes;
}
