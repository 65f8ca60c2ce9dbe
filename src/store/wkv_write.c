/* SPDX-License-Identifier: MIT */
/* Writing a session to a file. */
#include "policy/policy.h"
#include "store/wkv.h"
#include "winnow_tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* What a block is made of: bytes, or a layer of the session. */
struct part {
    enum wnw__wkv_kind kind;
    const void *bytes; /* NULL = layer `number` */
    uint64_t n;
    int32_t number;
};

struct writing {
    const wnw_session *s;
    struct wnw__whole_file *file;
    struct part *parts; /* [n_part] */
    struct wnw__wkv_block *table;
    int32_t n_part;
    char *meta;
    int32_t *counts;
    XXH3_state_t *hash; /* of the current block */
};

/* ---- What is written ---- */

static void add_part(struct writing *w, enum wnw__wkv_kind kind, const void *bytes, uint64_t n)
{
    w->parts[w->n_part++] = (struct part){.kind = kind, .bytes = bytes, .n = n};
}

/* The counts of all layers, as in the block. */
static size_t write_counts(int32_t *to, const struct wnw__cache *c)
{
    int32_t *at = to;
    const size_t n = (size_t)c->n_head_kv;
    for (int32_t il = 0; il < c->n_layer; il++) {
        const struct wnw__stored_counts counts = wnw__cache_stored_counts(c, il);
        *at++ = c->layers[il].n_swa;
        *at++ = counts.n_settled;
        *at++ = counts.n_ambiguous;
        const int32_t *const lists[] = {counts.len, counts.n_first, counts.n_quantised};
        for (int i = 0; i < (c->n_tail > 0 ? 3 : 1); i++, at += n)
            memcpy(at, lists[i], n * sizeof *at);
    }
    return (size_t)(at - to) * sizeof *to;
}

/* A policy with parts from outside the library cannot be made again when the file is opened. */
static int check_policy(const wnw_policy *p)
{
    wnw_policy *again;
    if (!p)
        return WNW_OK;
    const int rc = wnw_policy_parse(&again, wnw_policy_string(p), NULL);
    wnw_policy_free(again);
    if (rc == WNW_OK || rc == WNW_E_NOMEM)
        return rc;
    return wnw__fail(WNW_E_UNSUPPORTED,
                     "a session is stored with its recipe, and %.200s has parts from outside the library",
                     wnw_policy_string(p));
}

/* The tokens are as many as were read, and can be those. */
static int check_tokens(const struct wnw__session_state *state, const wnw_store_params *p, int32_t n_vocab)
{
    char why[300];
    const int rc = wnw__session_check_read(state, p->tokens ? p->tokens : state->ids,
                                           p->tokens ? p->n_tokens : state->n_past, n_vocab);
    if (rc != WNW_E_FORMAT)
        return rc;
    snprintf(why, sizeof why, "%s", wnw_last_error());
    return wnw__fail(WNW_E_ARG, "%s", why);
}

static int check_params(const wnw_session *s, const wnw_store_params *p)
{
    if (p->text && p->text->n_messages > 0)
        return wnw__fail(WNW_E_UNSUPPORTED, "a text with %d earlier turns is not stored",
                         (int)p->text->n_messages);
    if (p->tokens && p->n_tokens < 1)
        return wnw__fail(WNW_E_ARG, "%d tokens; give those that were read", (int)p->n_tokens);
    if (p->tokens && (int64_t)p->n_tokens != s->n_past + s->pos_shift)
        return wnw__fail(WNW_E_ARG, "%d tokens are given, and the session has read %lld", (int)p->n_tokens,
                         (long long)s->n_past + s->pos_shift);
    if (!p->tokens && s->pos_shift > 0)
        return wnw__fail(WNW_E_ARG, "the session has given its tokens new positions and no longer knows all "
                                    "of them; give those that were read");
    return check_policy(s->rules.ev.policy);
}

static int make_meta(struct writing *w, const wnw_store_params *p, const char *form,
                     const struct wnw__session_state *state)
{
    const wnw_session *s = w->s;
    const struct wnw__cache *c = &s->cache;
    wnw_model_info info = wnw_model_info_default();
    char print[WNW_FINGERPRINT_SIZE];
    size_t len = 0;
    struct wnw__wkv_meta m = {.n_layer = c->n_layer,
                              .n_head_kv = c->n_head_kv,
                              .n_embd_head = c->d,
                              .n_vocab = s->m->hp.n_vocab,
                              .kv_type = c->type,
                              .kv_tail = c->n_tail,
                              .k_block = c->k_block,
                              .v_block = c->v_block,
                              .state = *state,
                              .has_text = p->text != NULL,
                              .pieces = p->pieces,
                              .note = p->note,
                              .form = form};
    WNW_TRY(wnw_model_get_info(s->m, &info));
    wnw_model_fingerprint(s->m, print);
    m.model = info.name;
    m.arch = info.arch;
    m.fingerprint = print;
    m.policy = state->rules.policy ? wnw_policy_string(state->rules.policy) : NULL;
    memcpy(m.aux_planes, c->aux_planes, sizeof m.aux_planes);
    if (p->text)
        m.text = *p->text;
    WNW_TRY(wnw__wkv_meta_text(&w->meta, &len, &m));
    add_part(w, WNW_WKV_META, w->meta, len);
    return WNW_OK;
}

/* What a reader will refuse, or what no rows can be taken from. */
static int cannot_read(void)
{
    char why[400];
    snprintf(why, sizeof why, "%s", wnw_last_error());
    return wnw__fail(WNW_E_IO, "what is written could not be read, and is not stored: %s", why);
}

/* Whether the cache is as readers will ask of it, before its rows are written. */
static int check_cache(const wnw_session *s)
{
    int rc = wnw__cache_check(&s->cache);
    for (int32_t il = 0; rc == WNW_OK && il < s->cache.n_layer; il++) {
        const struct wnw__stored_counts counts = wnw__cache_stored_counts(&s->cache, il);
        rc = wnw__cache_stored_check(&s->cache, il, &counts, s->n_past);
    }
    return rc == WNW_OK ? WNW_OK : cannot_read();
}

static int make_parts(struct writing *w, const wnw_store_params *p, const char *form)
{
    const struct wnw__cache *c = &w->s->cache;
    const size_t n_block = (size_t)c->n_layer + WNW_WKV_N_KINDS, n_head = (size_t)c->n_head_kv;
    struct wnw__session_state state;
    WNW_TRY(wnw__session_get_state(&state, w->s));
    WNW_TRY(check_tokens(&state, p, w->s->m->hp.n_vocab));
    WNW_TRY(check_cache(w->s));
    w->parts = calloc(n_block, sizeof *w->parts);
    w->table = calloc(n_block, sizeof *w->table);
    w->counts = calloc((size_t)c->n_layer * (3 + 3 * n_head), sizeof *w->counts);
    w->hash = XXH3_createState();
    if (!w->parts || !w->table || !w->counts || !w->hash)
        return wnw__fail(WNW_E_NOMEM, "no memory to store a session");
    WNW_TRY(make_meta(w, p, form, &state));
    const size_t each = sizeof *state.ids, n_tokens = (size_t)(p->tokens ? p->n_tokens : state.n_past);
    add_part(w, WNW_WKV_TOKENS, p->tokens ? p->tokens : state.ids, n_tokens * each);
    if (state.pos_shift > 0 || state.n_ambiguous > 0)
        add_part(w, WNW_WKV_IDS, state.ids, (size_t)state.n_past * each);
    if (p->text && p->text->document)
        add_part(w, WNW_WKV_DOCUMENT, p->text->document, strlen(p->text->document));
    if (state.recurrent)
        add_part(w, WNW_WKV_RECURRENT, state.recurrent, state.n_recurrent);
    add_part(w, WNW_WKV_COUNTS, w->counts, write_counts(w->counts, c));
    if (state.slide_counts)
        add_part(w, WNW_WKV_HELD, state.slide_counts,
                 (size_t)state.n_slide_counts * sizeof *state.slide_counts);
    for (int32_t il = 0; il < c->n_layer; il++) {
        const struct wnw__stored_counts counts = wnw__cache_stored_counts(c, il);
        w->parts[w->n_part++] =
            (struct part){.kind = WNW_WKV_LAYER, .n = wnw__cache_stored_bytes(c, &counts), .number = il};
    }
    return WNW_OK;
}

/* ---- Writing it ---- */

static int put(void *to, const void *bytes, size_t n)
{
    struct writing *w = to;
    XXH3_64bits_update(w->hash, bytes, n);
    return wnw__whole_file_write(w->file, bytes, n);
}

static int put_zeros(struct writing *w, uint64_t n)
{
    static const uint8_t zeros[WNW_STORED_PAGE];
    for (; n > 0; n -= n < sizeof zeros ? n : sizeof zeros)
        WNW_TRY(put(w, zeros, n < sizeof zeros ? (size_t)n : sizeof zeros));
    return WNW_OK;
}

static int write_block(struct writing *w, int32_t i, uint64_t at)
{
    const struct part *part = &w->parts[i];
    XXH3_64bits_reset(w->hash);
    WNW_TRY(part->kind == WNW_WKV_LAYER ? wnw__cache_store_layer(&w->s->cache, part->number, put, w)
                                        : put(w, part->bytes, (size_t)part->n));
    WNW_TRY(put_zeros(w, wnw__wkv_round(part->n) - part->n));
    w->table[i] = (struct wnw__wkv_block){.kind = (uint32_t)part->kind,
                                          .number = (uint32_t)part->number,
                                          .at = at,
                                          .bytes = part->n,
                                          .sum = XXH3_64bits_digest(w->hash)};
    return WNW_OK;
}

/* The head is written last, so that a file without it is none. */
static int write_head(struct writing *w, uint64_t front, uint64_t file_bytes)
{
    uint8_t *page = calloc(1, (size_t)front);
    struct wnw__wkv_head head = {.magic = WNW_WKV_MAGIC,
                                 .byte_order = WNW_WKV_BYTE_ORDER,
                                 .version = WNW_STORED_VERSION,
                                 .file_bytes = file_bytes,
                                 .page = WNW_STORED_PAGE,
                                 .n_block = (uint32_t)w->n_part};
    if (!page)
        return wnw__fail(WNW_E_NOMEM, "no memory for the table of a stored session");
    memcpy(page + sizeof head, w->table, (size_t)w->n_part * sizeof *w->table);
    head.table_sum = XXH3_64bits(page + sizeof head, (size_t)front - sizeof head);
    head.sum = XXH3_64bits(&head, offsetof(struct wnw__wkv_head, sum));
    memcpy(page, &head, sizeof head);
    const int rc = wnw__whole_file_rewrite(w->file, page, (size_t)front, 0);
    free(page);
    return rc;
}

static int write_file(struct writing *w)
{
    const uint64_t front =
        wnw__wkv_round(sizeof(struct wnw__wkv_head) + (uint64_t)w->n_part * sizeof *w->table);
    uint64_t at = front;
    XXH3_64bits_reset(w->hash);
    WNW_TRY(put_zeros(w, front));
    for (int32_t i = 0; i < w->n_part; i++) {
        WNW_TRY(write_block(w, i, at));
        at += wnw__wkv_round(w->parts[i].n);
    }
    return write_head(w, front, at);
}

/* Opens what was written as every reader will: a file that cannot be opened is never said to be stored. */
static int verify(const struct writing *w)
{
    struct wnw_stored *st;
    int rc = wnw__wkv_open(&st, w->file->fd);
    if (rc == WNW_OK)
        rc = wnw__wkv_check_session(st, w->s);
    wnw_stored_free(st);
    return rc == WNW_OK || rc == WNW_E_NOMEM ? rc : cannot_read();
}

static int write_all(struct writing *w, const wnw_store_params *params, const char *form, const char *path)
{
    WNW_TRY(make_parts(w, params, form));
    WNW_TRY(wnw__whole_file_open(w->file, path));
    WNW_TRY(write_file(w));
    WNW_TRY(wnw_model_check_files(w->s->m));
    return verify(w);
}

int wnw__wkv_write(struct wnw__whole_file *file, const wnw_session *s, const char *path,
                   const wnw_store_params *params, const char *form)
{
    wnw_store_params own = wnw_store_default_params();
    wnw_prompt_params text = wnw_prompt_default_params();
    *file = (struct wnw__whole_file){.fd = -1};
    WNW_TRY(WNW_SIZED_TAKE(wnw_store_params, &own, params));
    WNW_TRY(WNW_SIZED_TAKE(wnw_prompt_params, &text, own.text));
    own.text = own.text ? &text : NULL;
    WNW_TRY(check_params(s, &own));
    struct writing w = {.s = s, .file = file};
    const int rc = write_all(&w, &own, form, path);
    XXH3_freeState(w.hash);
    free(w.counts);
    free(w.meta);
    free(w.table);
    free(w.parts);
    return rc;
}

int wnw_session_store(const wnw_session *s, const char *path, const wnw_store_params *params)
{
    struct wnw__whole_file file;
    WNW_REQUIRE(s);
    WNW_REQUIRE(path);
    int rc = wnw__wkv_write(&file, s, path, params, NULL);
    if (rc == WNW_OK)
        rc = wnw__whole_file_commit(&file);
    wnw__whole_file_abort(&file);
    return rc;
}
