/* SPDX-License-Identifier: MIT */
/*
 * A context of libllama is given one batch at a time and forgets it: its cells hold the rows of that batch alone, at their
 * positions. So what is kept of a sequence is in the caches of winnow's sessions. Recurrent layers have a state in place
 * of a cache. It stays in the context, in one of its sequences, while that sequence goes on. The cell of the last position
 * stays, too, because libllama removes all cells with the state or all but that one. If another session needs the sequence,
 * or a copy of the state, it is taken out as libllama saves it.
 */
#include "llama/foreign.h"

#include "bridge/drive/drive.h"
#include "forward/engine_impl.h"
#include "text/llama_calls.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_SEQUENCES = 64 };

/* The state of a sequence's recurrent layers after n_read tokens. */
struct state {
    struct wnw__recurrent base;
    struct wnw__foreign_context *of;
    int32_t seq; /* its sequence of the context; -1 = none */
    int32_t n_read,
        n_saved;   /* n_read < 0: it is lost; n_saved: tokens after which `saved` was taken, or -1 */
    uint64_t used; /* the run in which it was used last */
    uint8_t *saved;
    size_t size, room;
};

struct wnw__foreign_context {
    wnw_engine *e;
    struct llama_context *ctx;
    wnw_bridge *bridge;
    struct wnw__drive *drive;
    int32_t n_seq;
    bool recurrent;
    bool all_logits; /* libllama gives those of the first rows for those that are asked for (cogvlm) */
    int32_t *row_of; /* [rows of a batch] the row of each logits that are asked for */
    struct state *holders[MOST_SEQUENCES]; /* [n_seq] the state in each sequence; NULL: free */
    uint64_t n_run;
    struct llama_batch batch;
};

static void close_context(void *x)
{
    wnw__foreign_context_free(x);
}

void wnw__foreign_context_free(struct wnw__foreign_context *f)
{
    if (!f)
        return;
    if (f->batch.token)
        llama_batch_free(f->batch);
    if (f->ctx)
        llama_free(f->ctx);
    wnw__drive_free(f->drive);
    free(f->row_of);
    free(f);
}

/* Decodes rows that are in the batch. */
static int decode(struct wnw__foreign_context *f)
{
    int32_t result;
    char reason[WNW_SAID_REASON];
    WNW_TRY(wnw__llama_decode(&result, reason, f->ctx, &f->batch));
    if (wnw__drive_status(f->drive) != WNW_OK)
        return wnw__drive_status(f->drive); /* with its message */
    if (result == 0)
        return WNW_OK;
    return wnw__fail(WNW_E_BACKEND, "libllama could not read a batch of %d tokens (%d)%s",
                     (int)f->batch.n_tokens, (int)result, reason);
}

static void add_row(struct wnw__foreign_context *f, int32_t token, int32_t pos, int32_t seq, bool out)
{
    const int32_t i = f->batch.n_tokens++;
    f->batch.token[i] = token;
    f->batch.pos[i] = pos;
    f->batch.n_seq_id[i] = 1;
    f->batch.seq_id[i][0] = seq;
    f->batch.logits[i] = out;
}

/* Sequences of a context. libllama 0.3.36 writes past the states of plamo2's layers where a batch has several. */
static int32_t sequences(const struct llama_model *model, int32_t n_row)
{
    char arch[64] = "";
    (void)llama_model_meta_val_str(model, "general.architecture", arch, sizeof arch);
    if (strcmp(arch, "plamo2") == 0)
        return 1;
    return n_row < MOST_SEQUENCES ? n_row : MOST_SEQUENCES;
}

int wnw__foreign_context_new(struct wnw__foreign_context **out, struct llama_model *model, int32_t n_row,
                             int32_t n_look, int32_t n_threads)
{
    struct wnw__foreign_context *f = *out = calloc(1, sizeof *f);
    if (!f)
        return wnw__fail(WNW_E_NOMEM, "no memory for an engine");
    f->n_seq = sequences(model, n_row);
    f->recurrent = llama_model_is_hybrid(model);
    const int32_t n_kept = f->recurrent ? f->n_seq : 0;
    const int32_t n_batch = n_look > n_row ? n_look : n_row;
    const struct wnw__llama_sizes sizes = {.n_cell = n_batch + n_kept,
                                           .n_batch = n_batch,
                                           .n_row = n_row,
                                           .n_seq = f->n_seq,
                                           .n_threads = n_threads};
    wnw__drive_expect(true);
    const int made = wnw__llama_context(&f->ctx, model, &sizes);
    wnw__drive_expect(false);
    WNW_TRY(made);
    WNW_TRY(wnw_bridge_find(&f->bridge, llama_synchronize, f->ctx));
    WNW_TRY(wnw__drive_new(&f->drive, f->bridge));
    f->batch = llama_batch_init(n_batch, 0, 1);
    f->row_of = calloc((size_t)n_row, sizeof *f->row_of);
    if (!f->batch.token || !f->row_of)
        return wnw__fail(WNW_E_NOMEM, "no memory for a batch of %d tokens", (int)n_row);
    llama_memory_clear(llama_get_memory(f->ctx), false);
    for (int32_t i = 0; i < n_look; i++)
        add_row(f, 0, i, 0, i == n_look - 1);
    const int rc = decode(f);
    llama_memory_clear(llama_get_memory(f->ctx), false);
    f->all_logits = wnw__drive_gives_all(f->drive, llama_vocab_n_tokens(llama_model_get_vocab(model)));
    const struct wnw__drive_layer *layers;
    int32_t n;
    return wnw__drive_status(f->drive) == WNW_OK && wnw__drive_layers(f->drive, &layers, &n) == WNW_OK
               ? WNW_OK
               : rc;
}

int wnw__foreign_context_layers(const struct wnw__foreign_context *f, const struct wnw__drive_layer **layers,
                                int32_t *n)
{
    return wnw__drive_layers(f->drive, layers, n);
}

/* ---- Recurrent layers ---- */

static int new_state(struct wnw__recurrent **out, void *x)
{
    struct wnw__foreign_context *f = x;
    *out = NULL;
    if (!f->recurrent)
        return WNW_OK;
    struct state *s = calloc(1, sizeof *s);
    if (!s)
        return wnw__fail(WNW_E_NOMEM, "no memory for the state of recurrent layers");
    *s = (struct state){.base.by = &wnw__foreign_executor, .of = f, .seq = -1, .n_saved = -1};
    *out = &s->base;
    return WNW_OK;
}

static struct state *state_of(struct wnw__recurrent *r)
{
    return (struct state *)(void *)r;
}

/* Takes it out of the context. */
static void leave(struct state *s)
{
    if (s->seq < 0)
        return;
    (void)llama_memory_seq_rm(llama_get_memory(s->of->ctx), s->seq, -1, -1);
    s->of->holders[s->seq] = NULL;
    s->seq = -1;
}

static void free_state(struct wnw__recurrent *r)
{
    struct state *s = state_of(r);
    leave(s);
    free(s->saved);
    free(s);
}

static void clear_state(struct wnw__recurrent *r)
{
    struct state *s = state_of(r);
    leave(s);
    s->n_read = 0;
    s->n_saved = -1;
}

static int need_room(struct state *s, size_t size)
{
    if (size <= s->room)
        return WNW_OK;
    uint8_t *more = realloc(s->saved, size);
    if (!more)
        return wnw__fail(WNW_E_NOMEM, "no memory for the state of recurrent layers, %zu bytes", size);
    s->saved = more;
    s->room = size;
    return WNW_OK;
}

/* Sets `saved` to the present state. */
static int save(struct state *s)
{
    if (s->seq < 0 || s->n_saved == s->n_read)
        return WNW_OK;
    const llama_state_seq_flags flags = LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY;
    const size_t size = llama_state_seq_get_size_ext(s->of->ctx, s->seq, flags);
    s->n_saved = -1;
    WNW_TRY(need_room(s, size));
    s->size = llama_state_seq_get_data_ext(s->of->ctx, s->saved, size, s->seq, flags);
    if (s->size == 0)
        return wnw__fail(WNW_E_BACKEND, "libllama did not save the state of recurrent layers");
    s->n_saved = s->n_read;
    return WNW_OK;
}

static int copy_state(struct wnw__recurrent *to, struct wnw__recurrent *from)
{
    struct state *t = state_of(to), *f = state_of(from);
    clear_state(to);
    t->n_read = -1;
    if (f->n_read > 0) {
        WNW_TRY(save(f));
        WNW_TRY(need_room(t, f->size));
        memcpy(t->saved, f->saved, f->size);
        t->size = f->size;
        t->n_saved = f->n_read;
    }
    t->n_read = f->n_read;
    return WNW_OK;
}

static int get_state(struct wnw__recurrent *r, const uint8_t **bytes, size_t *n)
{
    struct state *s = state_of(r);
    WNW_TRY(save(s));
    if (s->n_saved < 0 || s->n_saved != s->n_read)
        return wnw__fail(WNW_E_BACKEND, "the state of recurrent layers was lost in a batch that failed; read "
                                        "from the beginning");
    *bytes = s->saved;
    *n = s->size;
    return WNW_OK;
}

static int set_state(struct wnw__recurrent *r, const uint8_t *bytes, size_t n, int32_t n_read)
{
    struct state *s = state_of(r);
    clear_state(r);
    WNW_TRY(need_room(s, n));
    memcpy(s->saved, bytes, n);
    s->size = n;
    s->n_saved = s->n_read = n_read;
    return WNW_OK;
}

/* A sequence of the context for another state: one that is free, or whose state was used before this run the longest
 * time ago and is saved now. */
static int find_seq(struct wnw__foreign_context *f, int32_t *seq)
{
    *seq = 0;
    for (int32_t i = 0; i < f->n_seq; i++) {
        if (!f->holders[i]) {
            *seq = i;
            return WNW_OK;
        }
        *seq = f->holders[i]->used < f->holders[*seq]->used ? i : *seq;
    }
    WNW_TRY(save(f->holders[*seq]));
    leave(f->holders[*seq]);
    return WNW_OK;
}

/* Brings a state that has read n_past tokens into the context. */
static int enter(struct wnw__foreign_context *f, struct state *s, int32_t n_past)
{
    if (s->n_read < 0)
        return wnw__fail(WNW_E_BACKEND, "the state of recurrent layers was lost in a batch that failed; read "
                                        "from the beginning");
    if (s->n_read != n_past)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "recurrent layers have read %d tokens and cannot go on after %d of them",
                         (int)s->n_read, (int)n_past);
    s->used = f->n_run;
    if (s->seq >= 0)
        return WNW_OK;
    int32_t seq;
    WNW_TRY(find_seq(f, &seq));
    if (n_past > 0 && llama_state_seq_set_data_ext(f->ctx, s->saved, s->size, seq,
                                                   LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY) == 0) {
        (void)llama_memory_seq_rm(llama_get_memory(f->ctx), seq, -1, -1);
        return wnw__fail(WNW_E_BACKEND, "libllama did not take the state of recurrent layers back");
    }
    s->seq = seq;
    f->holders[seq] = s;
    return WNW_OK;
}

/* Counts tokens that were read, and removes their cells but the last one's. */
static void count(struct state *s, int32_t n)
{
    s->n_read += n;
    (void)llama_memory_seq_rm(llama_get_memory(s->of->ctx), s->seq, 0, s->n_read - 1);
}

/* After a batch that failed: what was saved before it is there still. */
static void lose(struct state *s)
{
    leave(s);
    s->n_read = s->n_saved == s->n_read || s->n_read == 0 ? s->n_read : -1;
}

/* ---- The executor ---- */

static int open_engine(void **x, wnw_engine *e)
{
    struct wnw__foreign_context *f = NULL;
    const int rc = wnw__foreign_context_new(&f, e->m->vocab, e->params.n_ubatch,
                                            e->params.n_ubatch > 1 ? 2 : 1, e->params.n_threads);
    *x = f;
    if (rc != WNW_OK)
        return rc;
    const struct wnw__drive_layer *layers;
    int32_t n;
    f->e = e;
    WNW_TRY(wnw__drive_layers(f->drive, &layers, &n));
    for (int32_t il = 0; il < e->m->hp.n_layer; il++)
        e->ops[il].scale = layers[il].scale;
    return wnw__drive_set_engine(f->drive, e);
}

/* The sequence of the context for slice i, with what it needs. */
static int sequence_of(struct wnw__foreign_context *f, int32_t i, int32_t *seq)
{
    const struct wnw__slice *slice = &f->e->batch->slice[i];
    *seq = i;
    if (!f->recurrent)
        return WNW_OK;
    if (!slice->recurrent)
        return wnw__fail(WNW_E_ARG, "a batch without the state of recurrent layers");
    struct state *s = state_of(slice->recurrent);
    WNW_TRY(enter(f, s, slice->n_past));
    *seq = s->seq;
    return WNW_OK;
}

static int set_rows(struct wnw__foreign_context *f)
{
    const struct wnw__batch *b = f->e->batch;
    f->batch.n_tokens = 0;
    for (int32_t i = 0, row = 0, k = 0; i < b->n_slice; i++) {
        int32_t seq;
        WNW_TRY(sequence_of(f, i, &seq));
        for (int32_t t = 0; t < b->slice[i].n_row; t++, row++) {
            const bool out = b->n_out == b->n_row || (k < b->n_out && b->out_row[k] == row);
            f->row_of[k] = f->all_logits ? row : k;
            k += out;
            add_row(f, b->token[row], b->slice[i].n_past + t, seq, out || f->all_logits);
        }
    }
    return WNW_OK;
}

static int run(void *x)
{
    struct wnw__foreign_context *f = x;
    const struct wnw__batch *b = f->e->batch;
    if (b->n_slice > f->n_seq)
        return wnw__fail(WNW_E_RANGE, "a batch of %d sessions: libllama's graphs take %d here",
                         (int)b->n_slice, (int)f->n_seq);
    f->n_run++;
    WNW_TRY(wnw__drive_check(f->drive));
    WNW_TRY(set_rows(f));
    if (!f->recurrent)
        llama_memory_clear(llama_get_memory(f->ctx), false);
    const int rc = decode(f);
    for (int32_t i = 0; f->recurrent && i < b->n_slice; i++) {
        if (rc == WNW_OK)
            count(state_of(b->slice[i].recurrent), b->slice[i].n_row);
        else
            lose(state_of(b->slice[i].recurrent));
    }
    return rc;
}

static const float *logits(const void *x, int32_t i)
{
    const struct wnw__foreign_context *f = x;
    return llama_get_logits(f->ctx) + (size_t)f->row_of[i] * (size_t)f->e->m->hp.n_vocab;
}

const struct wnw__executor wnw__foreign_executor = {.open = open_engine,
                                                    .free = close_context,
                                                    .run = run,
                                                    .logits = logits,
                                                    .recurrent_new = new_state,
                                                    .recurrent_free = free_state,
                                                    .recurrent_copy = copy_state,
                                                    .recurrent_clear = clear_state,
                                                    .recurrent_get = get_state,
                                                    .recurrent_set = set_state};
