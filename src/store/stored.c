/* SPDX-License-Identifier: MIT */
/* What an open file says, and sessions of it. */
#include "policy/policy.h"
#include "store/wkv.h"

#include <string.h>

/* The most entries after the header that every head of every layer has settled, but for layers that a policy left out. */
static int32_t count_settled(const wnw_stored *st)
{
    int32_t least = INT32_MAX;
    for (int32_t il = 0; il < st->meta.n_layer; il++) {
        const int32_t settled = wnw__wkv_counts(st, il).n_settled;
        for (int32_t ih = 0; settled > 0 && ih < st->meta.n_head_kv; ih++) {
            const int32_t *pos, n = wnw_stored_head(st, il, ih, &pos);
            int32_t n_header = 0;
            while (n_header < n && pos[n_header] < st->meta.state.n_prefix)
                n_header++;
            least = settled - n_header < least ? settled - n_header : least;
        }
    }
    return least == INT32_MAX || least < 0 ? 0 : least;
}

int wnw_stored_get_info(const wnw_stored *st, wnw_stored_info *out)
{
    wnw_stored_info info = wnw_stored_info_default();
    WNW_REQUIRE(out);
    WNW_TRY(WNW_SIZED_CHECK(wnw_stored_info, out));
    info.writer = info.model = info.arch = info.fingerprint = "";
    wnw__sized_give(out, &info);
    WNW_REQUIRE(st);
    const struct wnw__wkv_meta *m = &st->meta;
    info.version = (int32_t)st->head->version;
    info.writer = m->writer;
    info.model = m->model;
    info.arch = m->arch;
    info.fingerprint = m->fingerprint;
    info.n_layer = m->n_layer;
    info.n_head_kv = m->n_head_kv;
    info.n_embd_head = m->n_embd_head;
    info.kv_type = m->kv_type;
    info.kv_tail = m->kv_tail;
    info.kv_unrotated = m->k_block == 0;
    info.recurrent = m->state.recurrent != NULL;
    info.policy = m->policy;
    info.size = m->state.rules.size;
    info.phase = m->state.rules.phase;
    info.chunk = m->state.rules.chunk;
    info.chunk_slack = m->state.rules.slack;
    info.n_tokens = st->n_tokens;
    info.n_past = m->state.n_past;
    info.bytes_file = st->n_bytes;
    info.pieces = m->pieces;
    info.n_prefix = m->state.n_prefix;
    info.n_settled = count_settled(st);
    for (int32_t il = 0; il < m->n_layer; il++) {
        const struct wnw__stored_counts n = wnw__wkv_counts(st, il);
        for (int32_t ih = 0; ih < m->n_head_kv; ih++) {
            const uint64_t rows = (uint64_t)(m->kv_tail > 0 ? n.n_quantised[ih] : n.len[ih]);
            info.n_entries += n.len[ih];
            info.bytes_entries +=
                2 * (rows * st->form.row_bytes + ((uint64_t)n.len[ih] - rows) * st->form.tail_row_bytes);
        }
    }
    wnw__sized_give(out, &info);
    return WNW_OK;
}

const int32_t *wnw_stored_tokens(const wnw_stored *st, int32_t *n)
{
    if (n)
        *n = st ? st->n_tokens : 0;
    return st ? st->tokens : NULL;
}

int32_t wnw_stored_head(const wnw_stored *st, int32_t il, int32_t ih, const int32_t **positions)
{
    if (positions)
        *positions = NULL;
    if (!st || !positions || il < 0 || il >= st->meta.n_layer || ih < 0 || ih >= st->meta.n_head_kv)
        return 0;
    *positions = (const int32_t *)(const void *)wnw__wkv_bytes(st, st->layer[il]) +
                 st->before[(int64_t)il * st->meta.n_head_kv + ih];
    return wnw__wkv_counts(st, il).len[ih];
}

bool wnw_stored_get_text(const wnw_stored *st, wnw_prompt_params *out)
{
    if (!st || !st->meta.has_text || WNW_SIZED_CHECK(wnw_prompt_params, out) != WNW_OK || !out)
        return false;
    wnw__sized_give(out, &st->meta.text);
    return true;
}

const char *wnw_stored_note(const wnw_stored *st)
{
    return st ? st->meta.note : NULL;
}

/* ---- Sessions ---- */

static int load_layers(wnw_session *s, const struct wnw_stored *st, int32_t room, bool copied)
{
    struct wnw__cache *c = &s->cache;
    for (int kind = 0; kind < WNW_N_AUX; kind++)
        WNW_TRY(wnw__cache_set_aux(c, (enum wnw__aux)kind, st->meta.aux_planes[kind]));
    for (int32_t il = 0; il < c->n_layer; il++) {
        const struct wnw__stored_counts n = wnw__wkv_counts(st, il);
        const uint64_t at = st->layer[il]->at;
        const struct wnw__stored_block block = {.fd = st->fd, .at = at, .copied = copied};
        WNW_TRY(wnw__cache_load_layer(c, il, &n, &block, room, s->params.n_ubatch));
    }
    return WNW_OK;
}

static int fill_session(wnw_session *s, const struct wnw_stored *st, int32_t room, bool copied)
{
    const int32_t n_past = st->meta.state.n_past, n_ctx = s->params.n_ctx;
    if (n_past > n_ctx)
        return wnw__fail(WNW_E_FULL, "the stored cache has read %d tokens, the context has %d", (int)n_past,
                         (int)n_ctx);
    WNW_TRY(wnw__wkv_check_session(st, s));
    const int32_t n_more = room < n_ctx - n_past ? room : n_ctx - n_past;
    WNW_TRY(load_layers(s, st, copied ? 0 : n_more, copied));
    return wnw__session_set_state(s, &st->meta.state);
}

int wnw_stored_session(wnw_session **out, const wnw_stored *st, wnw_engine *e,
                       const wnw_stored_session_params *params)
{
    enum { ROOM = 512 };
    wnw_stored_session_params own = wnw_stored_session_default_params();
    WNW_REQUIRE(out);
    *out = NULL;
    WNW_REQUIRE(st);
    WNW_REQUIRE(e);
    WNW_TRY(WNW_SIZED_TAKE(wnw_stored_session_params, &own, params));
    if (own.room < 0)
        return wnw__fail(WNW_E_RANGE, "room for %d tokens; give at least 0", (int)own.room);
    WNW_TRY(wnw__wkv_unchanged(st));
    WNW_TRY(wnw_stored_check_model(st, wnw__engine_model(e)));
    const wnw_session_params how = {WNW_INIT(wnw_session_params),          .n_ctx = own.n_ctx,
                                    .kv_type = st->meta.kv_type,           .kv_tail = st->meta.kv_tail,
                                    .kv_unrotated = st->meta.k_block == 0, .progress = own.progress,
                                    .progress_user = own.progress_user};
    wnw_session *s;
    WNW_TRY(wnw_session_new_on(&s, e, &how));
    int rc = fill_session(s, st, own.room > 0 ? own.room : ROOM, own.copied);
    if (rc == WNW_OK) /* nor while it was read */
        rc = wnw__wkv_unchanged(st);
    if (rc != WNW_OK) {
        wnw_session_free(s);
        return rc;
    }
    *out = s;
    return WNW_OK;
}

static bool same_size(const wnw_size *a, const wnw_size *b)
{
    if (a->kind != b->kind)
        return false;
    if (a->kind == WNW_SIZE_BUDGET)
        return a->budget == b->budget;
    if (a->kind == WNW_SIZE_RATIO)
        return a->ratio == b->ratio;
    if (a->kind == WNW_SIZE_BYTES)
        return a->bytes == b->bytes;
    return true;
}

/* 0 and 1 are the same: the size stays after each chunk. */
static bool same_slack(double a, double b)
{
    return (a > 1 ? a : 1) == (b > 1 ? b : 1);
}

int wnw_stored_resume(wnw_session *s, const wnw_stored *st, const wnw_run *run)
{
    wnw_run own = wnw_run_default();
    wnw_run_more more = wnw_run_more_default();
    WNW_REQUIRE(s);
    WNW_REQUIRE(st);
    WNW_REQUIRE(run);
    WNW_TRY(WNW_SIZED_TAKE(wnw_run, &own, run));
    WNW_TRY(WNW_SIZED_TAKE(wnw_run_more, &more, own.more));
    const struct wnw__eviction *ev = &st->meta.state.rules;
    const char *policy = own.policy ? wnw_policy_string(own.policy) : "",
               *stored = st->meta.policy ? st->meta.policy : "";
    if (strcmp(policy, stored) != 0 || !same_size(&own.size, &ev->size) || own.phase != ev->phase ||
        own.chunk != ev->chunk || !same_slack(more.chunk_slack, ev->slack))
        return wnw__fail(WNW_E_ARG,
                         "the stored cache was compressed with '%.200s', its size, phase and chunks; the "
                         "same are needed to go on",
                         stored);
    WNW_TRY(wnw_session_begin(s, run));
    wnw__session_resume_rules(s, &st->meta.state);
    return WNW_OK;
}
