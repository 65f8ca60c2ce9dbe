/* SPDX-License-Identifier: MIT */
/*
 * Reading a piece of a prompt under the rules of the session. They say when entries are dropped:
 *
 *     END:    the piece is read, then compressed once
 *     LAYER:  each layer is compressed after it has read the piece (layer_major.c)
 *     CHUNK:  a chunk is read and compressed, then the next is read, which does not see dropped entries
 *
 * What happens while decoding is in rules/: every.c, blocks.c, slide.c.
 */
#include "base/err.h"
#include "base/system.h"
#include "plan/compress.h"
#include "policy/policy.h"
#include "session/rules/rules.h"
#include "session/run/layer_major.h"
#include "session/run/run.h"
#include "session/session.h"
#include "session/timeline/feed.h"

#include <limits.h>

/* ---- By chunk, by layer, at the end ---- */

static struct wnw__compression compression_of(const wnw_session *s, int32_t n_coming)
{
    return wnw__rule_of(s->rules.ev.policy)->compression(s, n_coming);
}

/* Reads tokens at .. at + n - 1 of a prompt of n_all tokens and adds the time to the report. */
static int feed(wnw_session *s, const int32_t *tokens, int32_t n, int32_t at, int32_t n_all,
                wnw_report *report)
{
    const double start = wnw__now_ms();
    WNW_TRY(wnw__feed_prompt(s, tokens, n, at, n_all, NULL, NULL));
    report->read_ms += wnw__now_ms() - start;
    return WNW_OK;
}

static int32_t next_chunk(const wnw_session *s, int32_t n_left)
{
    const struct wnw__eviction *ev = &s->rules.ev;
    const int32_t chunk = ev->chunk > 0 ? ev->chunk : wnw__rule_of(ev->policy)->next_chunk(s);
    return chunk < n_left ? chunk : n_left;
}

/* Compresses what was read, and has the report say which entries could not go. room: that of wnw__session_apply; for the
 * next chunk, or -1 after the last. */
static int compress(wnw_session *s, int32_t room, wnw_report *report)
{
    struct wnw__compression compression = compression_of(s, 0);
    if (room >= 0 && s->rules.ev.slack > 1)
        compression.size = wnw__rules_size_between(&s->rules.ev);
    report->protected_first = s->n_past; /* unless something can */
    report->protected_last = 0;
    return wnw__rules_compress(s, &compression, room, report);
}

/* The first and last entries of what was read that no compression so far could drop. */
struct protected_ends {
    int32_t first, last;
    bool all; /* nothing could go yet */
};

/* Takes into account what a compression says that came after n_new more tokens. */
static void intersect(struct protected_ends *u, int32_t n_past, int32_t n_new, const wnw_report *report)
{
    const int32_t first = report->protected_first, last = report->protected_last;
    u->last += n_new;
    if (first >= n_past)
        return;
    u->first = u->all || first < u->first ? first : u->first;
    u->last = last < u->last ? last : u->last;
    u->all = false;
}

static int read_chunks(wnw_session *s, const int32_t *tokens, int32_t n, wnw_report *report)
{
    struct protected_ends u = {.all = true};
    for (int32_t at = 0; at < n;) {
        const int32_t n_now = next_chunk(s, n - at);
        WNW_TRY(wnw__session_check_room(s, n_now)); /* only an endless prompt can fail here */
        WNW_TRY(feed(s, tokens + at, n_now, at, n, report));
        at += n_now;
        WNW_TRY(compress(s, at < n ? next_chunk(s, n - at) : -1, report));
        intersect(&u, s->n_past, n_now, report);
    }
    report->protected_first = u.all ? s->n_past : u.first;
    report->protected_last = u.all ? 0 : u.last;
    return WNW_OK;
}

static int read_layers(wnw_session *s, const int32_t *tokens, int32_t n, wnw_report *report)
{
    const struct wnw__compression compression = compression_of(s, n);
    WNW_TRY(wnw__read_layer_major(s, tokens, n, &compression, report));
    const double start = wnw__now_ms();
    const int rc = wnw_policy_rerotates(compression.policy) ? wnw_session_renumber(s) : WNW_OK;
    report->compact_ms += wnw__now_ms() - start;
    if (rc != WNW_OK)
        (void)wnw_session_reset(s); /* as after any failure in phase LAYER */
    return rc;
}

static int read_piece(wnw_session *s, const int32_t *tokens, int32_t n, wnw_report *report)
{
    const wnw_phase phase = s->rules.ev.phase;
    if (phase == WNW_PHASE_CHUNK && !wnw_policy_is_full(s->rules.ev.policy))
        return read_chunks(s, tokens, n, report);
    if (phase == WNW_PHASE_LAYER)
        return read_layers(s, tokens, n, report);
    WNW_TRY(feed(s, tokens, n, 0, n, report));
    return compress(s, -1, report);
}

/* ---- What fits ---- */

/* Whether prompts may be longer than the context. */
static bool is_endless(const wnw_session *s)
{
    const struct wnw__eviction *ev = &s->rules.ev;
    return ev->policy && ev->phase == WNW_PHASE_CHUNK && wnw_policy_rerotates(ev->policy) &&
           !wnw_policy_is_full(ev->policy);
}

/* Checks that the kept part of a prompt and its next chunk always fit the context. A recursive policy is
 * checked while it reads, because its chunks follow from what it keeps. */
static int check_chunks(const wnw_session *s, int32_t n)
{
    const int64_t n_ctx = s->params.n_ctx, n_seen = (int64_t)s->n_past - s->rules.n_uncounted;
    struct wnw__eviction between = s->rules.ev;
    int64_t have = s->n_past;
    between.size = wnw__rules_size_between(&between);
    if (n_seen + n > INT32_MAX)
        return wnw__fail(WNW_E_FULL, "more than %d tokens in one timeline", INT32_MAX);
    for (int32_t at = 0; at < n && !wnw__rule_of(s->rules.ev.policy)->chunks_follow_blocks;) {
        const int32_t n_now = next_chunk(s, n - at);
        if (have + n_now > n_ctx)
            return wnw__fail(
                WNW_E_FULL,
                "%lld kept entries and a chunk of %d do not fit the context of %lld: keep less or "
                "read smaller chunks",
                (long long)have, (int)n_now, (long long)n_ctx);
        at += n_now;
        have += n_now;
        const int32_t n_keep = wnw__rules_n_keep(s, &between, (int32_t)(n_seen + at));
        have = n_keep < have ? n_keep : have;
    }
    return WNW_OK;
}

static int check_prompt(const wnw_session *s, const int32_t *tokens, int32_t n)
{
    if (!is_endless(s))
        return wnw__session_check_tokens(s, tokens, n);
    WNW_TRY(wnw__session_check_ids(s, tokens, n));
    return check_chunks(s, n);
}

/* ---- A piece of the prompt ---- */

/* Entries of all layers with (sliding) or without a sliding window; *n_heads is the number of their KV
 * heads. */
static int64_t count_entries(const wnw_session *s, bool sliding, int32_t *n_heads)
{
    int64_t n = 0;
    *n_heads = 0;
    for (int32_t il = 0; il < s->cache.n_layer; il++)
        for (int32_t ih = 0; ih < s->cache.n_head_kv && wnw__layer_takes_part(&s->shape.model, il) != sliding;
             ih++) {
            n += wnw_cache_n(s, il, ih);
            ++*n_heads;
        }
    return n;
}

/* Reads and compresses a piece under rules. */
static int follow_rules(wnw_session *s, const int32_t *tokens, int32_t n, wnw_report *report)
{
    struct wnw__rules *r = &s->rules;
    const struct wnw__rule *rule = wnw__rule_of(r->ev.policy);
    WNW_TRY(rule->before_piece ? rule->before_piece(s, n, report->warning) : WNW_OK);
    WNW_TRY(read_piece(s, tokens, n, report));
    const double start = wnw__now_ms();
    wnw__engine_release(s->engine); /* activations are the other large piece of a long prompt */
    report->read_ms += wnw__now_ms() - start;
    r->n_keep = wnw__rules_n_keep(s, &r->ev, s->n_past - r->n_uncounted);
    r->n_decoded = 0;
    WNW_TRY(rule->after_piece ? rule->after_piece(s) : WNW_OK);
    r->is_over = r->ev.once;
    if (r->is_over && !wnw__rules_replan(&r->ev))
        wnw__session_end_observing(s);
    return WNW_OK;
}

static int read_and_report(wnw_session *s, const int32_t *tokens, int32_t n, wnw_report *report)
{
    int32_t n_heads, n_sliding;
    WNW_REQUIRE(s);
    WNW_REQUIRE(tokens || n < 1);
    WNW_TRY(check_prompt(s, tokens, n));
    const int64_t present = count_entries(s, false, &n_heads);
    WNW_TRY(s->rules.ev.policy && !s->rules.is_over ? follow_rules(s, tokens, n, report)
                                                    : feed(s, tokens, n, 0, n, report));
    const int64_t kept = count_entries(s, false, &n_heads), sliding = count_entries(s, true, &n_sliding);
    report->kept_mean = n_heads > 0 ? (double)kept / n_heads : 0;
    report->entries_before = present + (int64_t)n * n_heads + sliding;
    report->entries_after = kept + sliding;
    report->kv_bytes_after = wnw__cache_bytes(&s->cache);
    if (report->kv_bytes_before < report->kv_bytes_after)
        report->kv_bytes_before = report->kv_bytes_after;
    return WNW_OK;
}

int wnw_session_read(wnw_session *s, const int32_t *tokens, int32_t n, wnw_report *report)
{
    wnw_report own = wnw_report_default();
    WNW_TRY(WNW_SIZED_CHECK(wnw_report, report));
    const int rc = read_and_report(s, tokens, n, &own);
    wnw__sized_give(report, &own);
    return rc;
}
