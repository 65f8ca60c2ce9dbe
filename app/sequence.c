/* SPDX-License-Identifier: MIT */
#include "app/sequence.h"

#include "app/process.h"
#include "base/dropped.h"
#include "base/err.h"
#include "base/kv_types.h"
#include "base/said.h"
#include "winnow_bridge.h"
#include "winnow_calibrate.h"
#include "winnow_store.h"

#include <ggml-backend.h>
#include <llama.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 512, MOST_DEVICES = 64 };

struct app_sequence {
    struct model {
        struct llama_model *llama;
        int32_t n_users; /* sequences that have it; the last one frees it */
        char *devices;   /* names with commas between */
    } * shared;
    struct llama_model *model; /* that of `shared` */
    struct llama_context *ctx;
    wnw_bridge *cache;
    struct llama_batch batch;
    const wnw_policy *policy;
    int32_t n_ctx, n_vocab;
    int32_t *cell; /* [n] of the tokens, in their order */
    int32_t n;     /* tokens whose cells are known */
    int32_t n_read;
    int32_t n_loaded;    /* of these, the first, which came with a state: their cells are not known */
    int32_t n_judged;    /* of these, the first, which a compression has judged */
    int32_t n_settled;   /* first entries of every head that a recursive policy has settled */
    bool failed;         /* cells were not told */
    bool is_f32;         /* the type of keys and values, which libllama casts: its layers stay whole */
    uint64_t bytes_most; /* while chunks were read */
    double compress_ms;  /* of them */
    float *logits;
    bool has_logits;
    bool (*progress)(int32_t done, int32_t total, void *user);
    void *user;
};

/* What came of something on the devices. Where a worker of theirs is lost, that is the reason, and nothing that came back since then
 * counts. Something may also fail because a worker was lost to which ggml has connected again. */
static int settled(int rc, const char *devices)
{
    WNW_TRY(rc == WNW_E_BACKEND ? wnw_bridge_lost_workers(devices) : wnw_bridge_check_workers(devices));
    return rc;
}

/* ---- Opening ---- */

/* Reads numbers with commas between; later elements stay 0. */
static void read_split(float *share, const char *split)
{
    for (int i = 0; split && i < MOST_DEVICES; i++) {
        share[i] = strtof(split, NULL);
        split = strchr(split, ',');
        split = split ? split + 1 : NULL;
    }
}

static int find_devices(ggml_backend_dev_t *found, const char *names)
{
    char one[GGML_MAX_NAME];
    int n = 0;
    for (const char *at = names; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        const size_t len = strcspn(at, ",");
        if (len >= sizeof one || n == MOST_DEVICES)
            return wnw__fail(WNW_E_ARG, "'%.60s' are no devices of winnow's", names);
        memcpy(one, at, len);
        one[len] = '\0';
        if (!(found[n++] = ggml_backend_dev_by_name(one)))
            return wnw__fail(WNW_E_ARG, "there is no device %s", one);
    }
    found[n] = NULL;
    return WNW_OK;
}

static int open_model(struct app_sequence *s, const struct app_sequence_params *p)
{
    ggml_backend_dev_t devices[MOST_DEVICES + 1];
    float share[128] = {0}; /* llama_max_devices() may be more than ours */
    struct llama_model_params m = llama_model_default_params();
    WNW_TRY(find_devices(devices, p->devices));
    WNW_TRY(wnw_bridge_check_model(p->model));
    if (llama_max_devices() > sizeof share / sizeof *share)
        return wnw__fail(WNW_E_BACKEND, "this libllama shares layers out among more devices than are known");
    read_split(share, p->split);
    s->shared = calloc(1, sizeof *s->shared);
    if (!s->shared)
        return wnw__fail(WNW_E_NOMEM, "no memory for a model");
    s->shared->n_users = 1;
    s->shared->devices = strdup(p->devices);
    if (!s->shared->devices)
        return wnw__fail(WNW_E_NOMEM, "no memory for a model");
    m.devices = devices;
    m.n_gpu_layers = -1;
    m.tensor_split = p->split ? share : NULL;
    struct wnw__said said;
    wnw__said_begin(&said);
    s->model = s->shared->llama = llama_model_load_from_file(p->model, m);
    wnw__said_end(&said);
    if (!s->model)
        return wnw__fail(WNW_E_BACKEND,
                         "libllama cannot open %s on %s%s; `winnow doctor` lists the memory of devices",
                         p->model, p->devices, said.reason);
    if (!llama_model_has_decoder(s->model) || llama_model_has_encoder(s->model))
        return wnw__fail(WNW_E_UNSUPPORTED, "%s is no model that continues a text", p->model);
    s->n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(s->model));
    return WNW_OK;
}

static int open_context(struct app_sequence *s, const struct app_sequence_params *p)
{
    struct llama_context_params c = llama_context_default_params();
    c.n_ctx = (uint32_t)p->n_ctx;
    c.n_batch = c.n_ubatch = BATCH;
    c.n_threads = c.n_threads_batch = p->n_threads > 0 ? p->n_threads : wnw_usable_cores();
    c.type_k = c.type_v = wnw__ggml_kv_type(p->kv_type);
    c.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    c.kv_unified = true;
    c.no_perf = true;
    struct wnw__said said;
    wnw__said_begin(&said);
    s->ctx = llama_init_from_model(s->model, c);
    wnw__said_end(&said);
    if (!s->ctx)
        return wnw__fail(WNW_E_BACKEND, "libllama cannot make a context of %d tokens of type %s on %s%s",
                         (int)p->n_ctx, wnw_kv_type_name(p->kv_type), p->devices, said.reason);
    s->n_ctx = (int32_t)llama_n_ctx(s->ctx) < p->n_ctx ? (int32_t)llama_n_ctx(s->ctx) : p->n_ctx;
    s->batch = llama_batch_init(BATCH, 0, 1);
    s->cell = malloc((size_t)p->n_ctx * sizeof *s->cell);
    s->logits = malloc((size_t)s->n_vocab * sizeof *s->logits);
    return s->batch.token && s->cell && s->logits
               ? WNW_OK
               : wnw__fail(WNW_E_NOMEM, "no memory for a context of %d tokens", (int)p->n_ctx);
}

static void rows_told(const int32_t *cells, int32_t n, int32_t n_cells, void *user)
{
    struct app_sequence *s = user;
    (void)n_cells;
    if (n < 1 || n > s->n_ctx - s->n) {
        s->failed = true;
        return;
    }
    memcpy(s->cell + s->n, cells, (size_t)n * sizeof *cells);
    s->n += n;
}

/* Layers that the backend leaves as libllama has them hold every token, and no policy acts on them. */
static bool any_ragged(const struct app_sequence *s)
{
    wnw_bridge_layer l = wnw_bridge_layer_default();
    for (int32_t i = 0; i < wnw_bridge_n_layers(s->cache); i++)
        if (wnw_bridge_get_layer(s->cache, i, &l) == WNW_OK && l.ragged)
            return true;
    return false;
}

static int begin(struct app_sequence *s, const struct app_sequence_params *p)
{
    WNW_TRY(wnw_bridge_find(&s->cache, llama_synchronize, s->ctx));
    WNW_TRY(wnw_bridge_set_profiles(s->cache, p->profiles));
    WNW_TRY(wnw_bridge_tell_rows(s->cache, rows_told, s));
    s->is_f32 = p->kv_type == WNW_KV_F32;
    return app_sequence_set_policy(s, p->policy);
}

int app_sequence_set_policy(struct app_sequence *s, const wnw_policy *policy)
{
    s->policy = policy && !wnw_policy_is_full(policy) ? policy : NULL;
    WNW_TRY(wnw_bridge_unobserve(s->cache));
    if (!s->policy)
        return WNW_OK;
    if (s->is_f32)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "keys and values in f32 cannot be dropped on devices: take --kv-type f16, or "
                         "--policy full");
    if (llama_model_is_hybrid(s->model) || llama_model_is_recurrent(s->model))
        return wnw__fail(
            WNW_E_UNSUPPORTED,
            "the model has recurrent layers, and is compressed on devices by `winnow serve` alone: "
            "take --policy full here");
    return wnw_bridge_observe(s->cache, wnw_policy_string(s->policy));
}

static void share_model(struct app_sequence *s, const struct app_sequence *like)
{
    s->shared = like->shared;
    s->shared->n_users++;
    s->model = s->shared->llama;
    s->n_vocab = like->n_vocab;
}

static void leave_model(struct model *shared)
{
    if (!shared || --shared->n_users > 0)
        return;
    if (shared->llama)
        llama_model_free(shared->llama);
    free(shared->devices);
    free(shared);
}

int app_sequence_check_policy(const wnw_policy *policy, const wnw_profile *profile)
{
    const wnw_needs needs = wnw_policy_needs(policy);
    if (wnw_policy_is_full(policy))
        return WNW_OK;
    if (needs.flags & WNW_NEED_SECOND_PASS)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "the policy reads the prompt a second time, which sequences on --devices do "
                         "not; take another, such as auto or snapkv");
    return wnw_bridge_check_policy_on("WINNOW0", policy, profile);
}

static int open_all(struct app_sequence *s, const struct app_sequence_params *params)
{
    if (params->like) {
        share_model(s, params->like);
    } else {
        (void)wnw_bridge_lost_workers(params->devices); /* what was lost before does not count */
        WNW_TRY(open_model(s, params));
    }
    WNW_TRY(open_context(s, params));
    return begin(s, params);
}

int app_sequence_new(struct app_sequence **out, const struct app_sequence_params *params)
{
    struct app_sequence *s = calloc(1, sizeof *s);
    *out = s;
    if (!s)
        return wnw__fail(WNW_E_NOMEM, "no memory for a sequence");
    s->progress = params->progress;
    s->user = params->user;
    int rc = open_all(s, params);
    const char *devices = s->shared && s->shared->devices ? s->shared->devices : params->devices;
    rc = settled(rc, devices);
    if (rc == WNW_OK) {
        /* Nor does what was lost while it was opened, and came back. */
        (void)wnw_bridge_lost_workers(devices);
        return WNW_OK;
    }
    app_sequence_free(s);
    *out = NULL;
    return rc;
}

void app_sequence_free(struct app_sequence *s)
{
    if (!s)
        return;
    if (s->batch.token)
        llama_batch_free(s->batch);
    if (s->ctx)
        llama_free(s->ctx);
    leave_model(s->shared);
    free(s->cell);
    free(s->logits);
    free(s);
}

int app_sequence_load(struct app_sequence *s, const uint8_t *state, size_t n, int32_t n_past)
{
    if (!any_ragged(s) && wnw__may_have_dropped(state, n))
        return wnw__fail(
            WNW_E_UNSUPPORTED,
            "what is stored was compressed, and these devices keep a cache of this type as libllama "
            "has it: leave the devices out, or store it with --kv-type f16");
    if (n_past >= s->n_ctx)
        return wnw__fail(WNW_E_FULL, "%d tokens do not fit the context of %d", (int)n_past, (int)s->n_ctx);
    struct wnw__said said;
    wnw__said_begin(&said);
    const bool taken = llama_state_seq_set_data(s->ctx, state, n, 0) != 0;
    wnw__said_end(&said);
    int rc = WNW_OK;
    if (!taken)
        rc = wnw__fail(WNW_E_BACKEND, "libllama does not take the %d stored tokens on these devices%s",
                       (int)n_past, said.reason);
    WNW_TRY(settled(rc, s->shared->devices));
    s->n_read = s->n_loaded = n_past;
    return WNW_OK;
}

bool app_sequence_rotates(int32_t n_embd_head)
{
    enum { MULTIPLE = 64 };
    return n_embd_head % MULTIPLE == 0;
}

int app_sequence_give(struct app_sequence *s, wnw_session *to, const int32_t *tokens)
{
    const size_t n = llama_state_seq_get_size(s->ctx, 0);
    uint8_t *state = malloc(n + 1);
    if (!state)
        return wnw__fail(WNW_E_NOMEM, "no memory for a state of %zu bytes", n);
    struct wnw__said said;
    wnw__said_begin(&said);
    const size_t got = llama_state_seq_get_data(s->ctx, state, n, 0);
    wnw__said_end(&said);
    int rc = settled(WNW_OK, s->shared->devices);
    if (rc == WNW_OK && got == 0)
        rc = wnw__fail(WNW_E_BACKEND, "libllama does not give the state of %d tokens%s", (int)s->n_read,
                       said.reason);
    if (rc == WNW_OK)
        rc = wnw_session_take_sequence(to, state, got, tokens, s->n_read, s->n_settled);
    free(state);
    return rc;
}

/* ---- Reading ---- */

static bool all_finite(const float *x, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

/* Takes the logits of row i of the last batch. Another device may make numbers of what a lost one did not give. */
static int take_logits(struct app_sequence *s, int32_t i)
{
    const float *logits = llama_get_logits_ith(s->ctx, i);
    s->has_logits = false;
    WNW_TRY(settled(WNW_OK, s->shared->devices));
    if (!logits || !all_finite(logits, s->n_vocab))
        return wnw__fail(WNW_E_BACKEND,
                         "a device gave values that are no numbers after %d tokens: the model's weights are "
                         "damaged",
                         (int)s->n_read);
    s->has_logits = true;
    memcpy(s->logits, logits, (size_t)s->n_vocab * sizeof *s->logits);
    return WNW_OK;
}

static int read_batch(struct app_sequence *s, const int32_t *tokens, int32_t n, bool all_logits)
{
    s->batch.n_tokens = n;
    for (int32_t i = 0; i < n; i++) {
        s->batch.token[i] = tokens[i];
        s->batch.pos[i] = s->n_read + i;
        s->batch.n_seq_id[i] = 1;
        s->batch.seq_id[i][0] = 0;
        s->batch.logits[i] = all_logits || i == n - 1;
    }
    s->has_logits = false;
    struct wnw__said said;
    wnw__said_begin(&said);
    const int32_t rc = llama_decode(s->ctx, s->batch);
    wnw__said_end(&said);
    int status = WNW_OK;
    if (rc != 0)
        status = wnw__fail(WNW_E_BACKEND,
                           "the devices could not read a batch of %d tokens after %d (libllama says %d%s)",
                           (int)n, (int)s->n_read, (int)rc, said.reason);
    WNW_TRY(settled(status, s->shared->devices));
    s->n_read += n;
    return WNW_OK;
}

int app_sequence_read(struct app_sequence *s, const int32_t *tokens, int32_t n, wnw_logits_fn on_logits,
                      void *user)
{
    if (n > s->n_ctx - s->n_read)
        return wnw__fail(WNW_E_FULL, "%d tokens do not fit the context of %d", (int)n, (int)s->n_ctx);
    for (int32_t at = 0; at < n;) {
        const int32_t n_now = n - at < BATCH ? n - at : BATCH;
        WNW_TRY(read_batch(s, tokens + at, n_now, on_logits));
        for (int32_t i = 0; on_logits && i < n_now; i++) {
            WNW_TRY(take_logits(s, i));
            if (!on_logits(at + i, s->logits, user))
                return wnw__fail(WNW_E_CANCELLED, "cancelled at token %d", (int)(at + i));
        }
        at += n_now;
        if (s->progress && !s->progress(at, n, s->user))
            return wnw__fail(WNW_E_CANCELLED, "cancelled after %d of %d tokens", (int)at, (int)n);
    }
    return take_logits(s, -1);
}

/* ---- Compressing ---- */

/* Tokens of the sequence that are compressed together. They follow a header of n_prefix tokens. */
static int compress_part(struct app_sequence *s, const wnw_turns_part *part, int32_t n_prefix)
{
    const bool whole = part->from == n_prefix;
    int32_t n_settled =
        s->n_settled > n_prefix ? s->n_settled - n_prefix : 0; /* of what follows the header */
    const wnw_bridge_cells_of of = {WNW_INIT(wnw_bridge_cells_of),
                                    .n_cells = part->to - part->from,
                                    .cells = s->cell + part->from,
                                    .policy = s->policy,
                                    .size = part->size.kind == WNW_SIZE_NONE ? NULL : &part->size,
                                    .n_prefix = n_prefix,
                                    .prefix = s->cell,
                                    .n_settled = whole ? &n_settled : NULL};
    WNW_TRY(settled(wnw_bridge_compress_cells(s->cache, &of), s->shared->devices));
    s->n_judged = s->n_read;
    if (whole)
        s->n_settled = n_settled > 0 ? n_prefix + n_settled : 0;
    return WNW_OK;
}

/* No layer can be compressed. */
static int say_whole(const struct app_sequence *s)
{
    const int32_t cell = 0;
    char why[512] = "the devices have no layer";
    if (wnw_bridge_n_layers(s->cache) > 0 && wnw_bridge_drop(s->cache, 0, 0, 0, &cell, 1) != WNW_OK)
        snprintf(why, sizeof why, "%s", wnw_last_error());
    return wnw__fail(WNW_E_UNSUPPORTED, "%s; take --policy full", why);
}

static int compress(struct app_sequence *s, const wnw_turns *turns)
{
    wnw_turns_part parts[2];
    if (!s->policy)
        return WNW_OK;
    if (!any_ragged(s))
        return say_whole(s);
    if (s->failed || s->n != s->n_read)
        return wnw__fail(WNW_E_BACKEND, "libllama did not say where it keeps %d tokens", (int)s->n_read);
    const int32_t n = wnw_turns_parts(parts, turns);
    for (int32_t i = 0; i < n; i++)
        WNW_TRY(compress_part(s, &parts[i], turns->n_header));
    return WNW_OK;
}

/* What was read. A size counts the header, too. */
static wnw_turns turns_of(const struct app_sequence *s, const wnw_size *size, int32_t n_prefix)
{
    return (wnw_turns){WNW_INIT(wnw_turns),
                       .n_header = n_prefix,
                       .n = s->n_read,
                       .n_judged = s->n_judged,
                       .compressed = s->n_judged > n_prefix,
                       .size = *size,
                       .n_counted = n_prefix,
                       .n_least = 1};
}

int app_sequence_compress(struct app_sequence *s, const wnw_size *size, int32_t n_prefix)
{
    wnw_turns turns = turns_of(s, size, n_prefix);
    if (n_prefix >= s->n_read) /* there is nothing else */
        turns.n_header = turns.n_counted = 0;
    turns.keeps_previous = size->kind == WNW_SIZE_RATIO;
    turns.ratio = WNW_TURNS_OF_ALL;
    return compress(s, &turns);
}

/* Compresses what was read so far of a prompt. */
static int compress_chunk(struct app_sequence *s, const struct app_sequence_chunks *chunks, bool is_last)
{
    wnw_turns turns = turns_of(s, chunks->size, chunks->n_prefix);
    turns.ratio = WNW_TURNS_OF_READ;
    turns.slack = chunks->slack;
    turns.more_follows = !is_last;
    turns.rounds_up = true;
    return turns.n > turns.n_header ? compress(s, &turns) : WNW_OK;
}

/* Notes what the cache takes, if it never took as much. */
static void note_most(struct app_sequence *s)
{
    struct app_sequence_size size;
    app_sequence_measure(s, &size);
    s->bytes_most = size.bytes > s->bytes_most ? size.bytes : s->bytes_most;
}

/* Reads a chunk and compresses what is there. */
static int read_chunk(struct app_sequence *s, const int32_t *tokens, int32_t n,
                      const struct app_sequence_chunks *chunks, bool last)
{
    int rc = app_sequence_read(s, tokens, n, NULL, NULL);
    note_most(s);
    const double start = app_now_ms();
    if (rc == WNW_OK)
        rc = compress_chunk(s, chunks, last);
    s->compress_ms += app_now_ms() - start;
    return rc;
}

int app_sequence_read_chunks(struct app_sequence *s, const int32_t *tokens, int32_t n,
                             const struct app_sequence_chunks *chunks)
{
    const int32_t most = chunks->chunk > 0 ? chunks->chunk : BATCH;
    bool (*const progress)(int32_t done, int32_t total, void *user) = s->progress;
    const char *reason;
    int rc = WNW_OK;
    if (s->policy && wnw_policy_has_own_size(s->policy))
        return wnw__fail(
            WNW_E_UNSUPPORTED,
            "the policy settles what it keeps by itself, which fits no chunks on --devices: take "
            "--evict end, or another policy such as keydiff");
    if (s->policy && !wnw_policy_allows(s->policy, WNW_PHASE_CHUNK, &reason))
        return wnw__fail(WNW_E_UNSUPPORTED, "%s", reason);
    s->progress = NULL; /* a chunk is not the whole */
    for (int32_t at = 0; rc == WNW_OK && at < n;) {
        const int32_t n_now = n - at < most ? n - at : most;
        rc = read_chunk(s, tokens + at, n_now, chunks, at + n_now == n);
        at += n_now;
        if (rc == WNW_E_RANGE && at < n) /* too short for the policy: it waits for the next chunk */
            rc = WNW_OK;
        if (rc == WNW_OK && progress && !progress(at, n, s->user))
            rc = wnw__fail(WNW_E_CANCELLED, "cancelled after %d of %d tokens", (int)at, (int)n);
    }
    s->progress = progress;
    return rc;
}

int app_sequence_rewind(struct app_sequence *s, int32_t n)
{
    if (n == s->n_read)
        return WNW_OK;
    if (n < s->n_loaded)
        return wnw__fail(WNW_E_UNSUPPORTED, "the first %d tokens were stored together", (int)s->n_loaded);
    if (n > 0 && n < s->n_judged)
        return wnw__fail(WNW_E_UNSUPPORTED, "the first %d tokens were compressed together", (int)s->n_judged);
    if (!llama_memory_seq_rm(llama_get_memory(s->ctx), 0, n, -1))
        return wnw__fail(WNW_E_UNSUPPORTED, "libllama cannot take back tokens of this model");
    const int32_t left = n - s->n_loaded;
    const int rc = left < s->n ? wnw_bridge_forget(s->cache, s->cell + left, s->n - left) : WNW_OK;
    s->n = s->n < left ? s->n : left;
    s->n_read = n;
    s->n_judged = n > 0 ? s->n_judged : 0;
    s->n_settled = n > 0 ? s->n_settled : 0;
    s->failed = s->failed && n > 0;
    s->has_logits = false;
    return rc;
}

int32_t app_sequence_n_read(const struct app_sequence *s)
{
    return s->n_read;
}

double app_sequence_compress_ms(const struct app_sequence *s)
{
    return s->compress_ms;
}

void app_sequence_measure(const struct app_sequence *s, struct app_sequence_size *out)
{
    int64_t entries = 0, heads = 0;
    *out = (struct app_sequence_size){.bytes_most = s->bytes_most};
    for (int32_t i = 0; i < wnw_bridge_n_layers(s->cache); i++) {
        wnw_bridge_layer l = wnw_bridge_layer_default();
        if (wnw_bridge_get_layer(s->cache, i, &l) != WNW_OK)
            continue;
        out->bytes += l.bytes;
        if (!l.ragged) { /* it holds everything */
            out->bytes_full += l.bytes;
            continue;
        }
        out->bytes_swa += l.sliding ? l.bytes : 0;
        out->n_entries += l.n_entries;
        out->bytes_entries += (uint64_t)l.n_entries * (uint64_t)l.entry_bytes;
        const int64_t most = l.sliding && l.n_cells < s->n_read ? l.n_cells : s->n_read;
        out->bytes_full += (uint64_t)most * (uint64_t)l.n_heads * (uint64_t)l.entry_bytes;
        entries += l.sliding ? 0 : l.n_entries;
        heads += l.sliding ? 0 : l.n_heads;
    }
    out->kept_mean = heads > 0 ? (double)entries / (double)heads : s->n_read;
}

/* ---- What heads hold ---- */

/* The number, in the bridge's list, of layer il as sessions count layers: those that have a cache. -1: there is none. */
static int32_t layer_of(const struct app_sequence *s, int32_t il)
{
    wnw_bridge_layer l = wnw_bridge_layer_default(), other = wnw_bridge_layer_default();
    const int32_t n = wnw_bridge_n_layers(s->cache);
    for (int32_t i = 0; i < n; i++) {
        int32_t n_before = 0;
        if (wnw_bridge_get_layer(s->cache, i, &l) != WNW_OK)
            return -1;
        for (int32_t k = 0; k < n; k++)
            n_before += wnw_bridge_get_layer(s->cache, k, &other) == WNW_OK && other.layer < l.layer;
        if (n_before == il)
            return i;
    }
    return -1;
}

/* Lists the last n of the tokens that were read. */
static int32_t list_last(const struct app_sequence *s, int32_t n, int32_t *positions)
{
    for (int32_t k = 0; k < n; k++)
        positions[k] = s->n_read - n + k;
    return n;
}

/* The numbers of the tokens whose entries are in cells[n], which ascend: positions[] ascends, too, and may be cells[]. */
static int find_tokens(const struct app_sequence *s, const int32_t *cells, int32_t n, int32_t *positions)
{
    int32_t *token = malloc(((size_t)s->n_ctx + 1) * sizeof *token);
    bool *held = calloc((size_t)s->n_read + 1, sizeof *held);
    int32_t found = 0;
    if (token && held) {
        for (int32_t c = 0; c < s->n_ctx; c++)
            token[c] = -1;
        for (int32_t t = 0; t < s->n; t++)
            if (s->cell[t] < s->n_ctx)
                token[s->cell[t]] = s->n_loaded + t;
        for (int32_t k = 0; k < n; k++)
            if (cells[k] < s->n_ctx && token[cells[k]] >= 0)
                held[token[cells[k]]] = true;
        for (int32_t t = 0; t < s->n_read; t++)
            if (held[t])
                positions[found++] = t;
    }
    const bool good = token && held;
    free(token);
    free(held);
    return good ? found : -1;
}

int app_sequence_head(const struct app_sequence *s, int32_t il, int32_t ih, int32_t n_swa, int32_t *positions,
                      int32_t *n)
{
    wnw_bridge_layer l = wnw_bridge_layer_default();
    const int32_t i = layer_of(s, il);
    if (i >= 0)
        WNW_TRY(wnw_bridge_get_layer(s->cache, i, &l));
    if (i < 0 || !l.ragged || l.sliding) {
        /* The next token sees itself and these. */
        *n = list_last(s, l.sliding && n_swa - 1 < s->n_read ? n_swa - 1 : s->n_read, positions);
        return WNW_OK;
    }
    int32_t n_cells, *cells = malloc(((size_t)l.n_cells + 1) * sizeof *cells);
    if (!cells)
        return wnw__fail(WNW_E_NOMEM, "no memory for the cells of a head");
    const int rc = wnw_bridge_cells(s->cache, i, 0, ih, cells, l.n_cells, &n_cells);
    *n = rc == WNW_OK ? find_tokens(s, cells, n_cells, positions) : 0;
    free(cells);
    return rc == WNW_OK && *n < 0 ? wnw__fail(WNW_E_NOMEM, "no memory for the tokens of a head") : rc;
}

/* ---- Answering ---- */

const float *app_sequence_logits(const struct app_sequence *s)
{
    return s->has_logits ? s->logits : NULL;
}

static const float *logits_of(void *user)
{
    return app_sequence_logits(user);
}

static int decode(int32_t token, void *user)
{
    struct app_sequence *s = user;
    WNW_TRY(read_batch(s, &token, 1, false));
    return take_logits(s, -1);
}

static int32_t n_left(void *user)
{
    const struct app_sequence *s = user;
    return s->n_ctx - s->n_read;
}

wnw_decoder app_sequence_decoder(struct app_sequence *s, const wnw_model *model)
{
    return (wnw_decoder){WNW_INIT(wnw_decoder), .model = model,   .logits = logits_of,
                         .decode = decode,      .n_left = n_left, .user = s};
}
