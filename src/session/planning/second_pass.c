/* SPDX-License-Identifier: MIT */
#include "session/planning/second_pass.h"
#include "text/tokens_marked.h"

#include "observe/columns.h"
#include "observe/recorders.h"
#include "session/session.h"
#include "session/timeline/feed.h"
#include "winnow_tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What KVzip's programs ask for. REPEAT_CHUNK: tokens per chunk (kvpress; the authors' program takes 2000). REPEAT_HINT: last tokens of
 * what precedes a chunk, which the words end with. REPEAT_SINKS: sinks that every chunk's softmax sees where it does not see the
 * chat header. */
enum { REPEAT_CHUNK = 2048, REPEAT_HINT = 8, REPEAT_SINKS = 4 };
static const char repeat_all[] = "\n\nRepeat the previous context exactly.";
static const char repeat_part[] = "\n\nRepeat the part of the previous context exactly, starting with";
static const char repeat_suffix[] = "\n"; /* replaces the template's tail without a chat template */
/* The fewest tokens per piece where the tokens read do not fit a second time after themselves. */
enum { PIECE_MIN = 256 };

/* What is put back when the pass is over, and the state of the pass. */
struct pass {
    wnw_session *s;
    struct wnw__second_pass *out;
    int32_t n_past;
    struct wnw__recorders before;    /* the session's own recorders, which see nothing of the pass */
    struct wnw__recurrent *state;    /* the session's before the pass */
    struct wnw__cache_mark *mark;    /* of the cache before the pass; NULL = nothing to put back */
    int32_t *len;                    /* [n_layer][n_head_kv] before the pass */
    struct wnw__columns_want *wants; /* [n_layer] */
    struct wnw__range *columns;      /* [n_layer][n_head_kv] entries whose statistics are taken */
    struct wnw__range (*seen)[WNW_COLUMN_RANGES]; /* [n_layer][n_head_kv] entries that the softmax sees */
    /* REPEAT: positions that are repeated; positions that every chunk sees; of a SAMPLE all_seen */
    int32_t first, last, sinks;
    bool by_input, all_seen;
};

void wnw__second_pass_free(struct wnw__second_pass *p)
{
    if (!p)
        return;
    for (int32_t il = 0; p->sum && p->max && il < p->n_layer; il++) {
        free(p->sum[il]);
        free(p->max[il]);
    }
    free(p->sum);
    free(p->max);
    free(p->n);
    free(p);
}

static int new_result(struct wnw__second_pass **out, const wnw_session *s)
{
    const struct wnw__cache *c = &s->cache;
    struct wnw__second_pass *p = *out = calloc(1, sizeof *p);
    bool ok = p != NULL;
    if (ok) {
        p->n_layer = c->n_layer;
        p->n = calloc((size_t)c->n_layer, sizeof *p->n);
        p->sum = calloc((size_t)c->n_layer, sizeof *p->sum);
        p->max = calloc((size_t)c->n_layer, sizeof *p->max);
        ok = p->n && p->sum && p->max;
    }
    for (int32_t il = 0; ok && il < c->n_layer; il++) {
        for (int32_t ih = 0; ih < c->n_head_kv; ih++)
            p->n[il] = c->layers[il].len[ih] > p->n[il] ? c->layers[il].len[ih] : p->n[il];
        if (!wnw__layer_takes_part(&s->shape.model, il))
            continue;
        const size_t size = (size_t)s->m->hp.n_head * (size_t)p->n[il] + 1;
        p->sum[il] = calloc(size, sizeof(float));
        p->max[il] = calloc(size, sizeof(float));
        ok = p->sum[il] && p->max[il];
    }
    return ok ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for the statistics of a second pass");
}

static int save_cache(struct pass *p)
{
    const struct wnw__cache *c = &p->s->cache;
    const size_t n_kv = (size_t)c->n_head_kv;
    p->len = calloc((size_t)c->n_layer * n_kv, sizeof *p->len);
    if (!p->len)
        return wnw__fail(WNW_E_NOMEM, "no memory for a second pass");
    for (int32_t il = 0; il < c->n_layer; il++)
        memcpy(p->len + (size_t)il * n_kv, c->layers[il].len, n_kv * sizeof *p->len);
    WNW_TRY(wnw__recurrent_new(&p->state, p->s->engine));
    WNW_TRY(wnw__recurrent_copy(p->state, p->s->recurrent));
    return wnw__cache_mark_new(&p->mark, c);
}

/* Gives the session, whose own recorders are set aside, one recorder of column statistics. */
static int begin_columns(struct pass *p)
{
    struct wnw__columns *columns;
    WNW_TRY(wnw__columns_new(&columns, &p->s->shape, p->wants));
    const int rc = wnw__recorders_add(
        &p->s->recorders, &(struct wnw__recorder){.type = &wnw__columns_recorder, .rec = columns});
    if (rc != WNW_OK)
        wnw__columns_free(columns);
    return rc;
}

/* Begins the pass; also after a failure, `end` must put back what was changed. */
static int begin(struct pass *p, wnw_session *s)
{
    const struct wnw__cache *c = &s->cache;
    const size_t n = (size_t)c->n_layer * (size_t)c->n_head_kv;
    *p = (struct pass){.s = s, .n_past = s->n_past, .before = s->recorders};
    s->recorders = (struct wnw__recorders){0};
    WNW_TRY(save_cache(p));
    WNW_TRY(new_result(&p->out, s));
    p->out->n_places = 1;
    p->out->place[0].to = s->n_past;
    p->wants = calloc((size_t)c->n_layer, sizeof *p->wants);
    p->columns = calloc(n, sizeof *p->columns);
    p->seen = calloc(n, sizeof *p->seen);
    if (!p->wants || !p->columns || !p->seen)
        return wnw__fail(WNW_E_NOMEM, "no memory for a second pass");
    for (int32_t il = 0; il < c->n_layer; il++) {
        const size_t at = (size_t)il * (size_t)c->n_head_kv;
        for (int32_t ih = 0; ih < c->n_head_kv; ih++)
            p->columns[at + (size_t)ih].to = p->len[at + (size_t)ih];
        p->wants[il] = (struct wnw__columns_want){
            .sum = p->out->sum[il], .max = p->out->max[il], .n = p->out->n[il], .columns = p->columns + at};
    }
    return begin_columns(p);
}

/* Drops all tokens fed so far. */
static int drop(struct pass *p)
{
    wnw__cache_mark_rewind(&p->s->cache, p->mark);
    p->s->n_past = p->n_past;
    return wnw__recurrent_copy(p->s->recurrent, p->state);
}

/* Puts everything back, also after a failure of the pass. If this fails itself, the memory of the cache may
 * stay larger. */
static int end(struct pass *p)
{
    wnw_session *s = p->s;
    int rc = WNW_OK;
    if (p->mark) {
        const int rc_state = drop(p);
        rc = wnw__cache_mark_release(&s->cache, p->mark);
        rc = rc_state != WNW_OK ? rc_state : rc;
    }
    wnw__recurrent_free(p->state);
    wnw__recorders_free(&s->recorders);
    s->recorders = p->before;
    wnw__cache_mark_free(p->mark);
    free(p->len);
    free(p->wants);
    free(p->columns);
    free(p->seen);
    return rc;
}

/* Reads tokens at the next positions. */
static int feed(struct pass *p, const int32_t *tokens, int32_t n)
{
    wnw_session *s = p->s;
    for (int32_t il = 0; il < s->cache.n_layer; il++)
        WNW_TRY(wnw__cache_expect_layer(&s->cache, il, n, s->params.n_ubatch));
    for (int32_t at = 0; at < n;) {
        const int32_t n_now = n - at < s->params.n_ubatch ? n - at : s->params.n_ubatch;
        const struct wnw__span span = {.to = s->cache.n_layer, .tokens = tokens + at, .n = n_now, .n_out = 1};
        WNW_TRY(wnw__feed_span(s, &span));
        s->n_past += n_now;
        at += n_now;
    }
    p->out->n_queries += n;
    return WNW_OK;
}

static void warn_beyond(const struct pass *p, int32_t n, char *warning)
{
    const int32_t most = p->s->m->hp.n_ctx_train;
    if (n > most - p->s->n_past)
        snprintf(warning, 256,
                 "the second pass reaches position %lld, the model was trained for %d: scores may be poor",
                 (long long)p->s->n_past + n - 1, (int)most);
}

/* ---- The context, once more ---- */

/* Feeds the tokens read. n_more: tokens that will be fed after the last piece, which then stays; 0 =
 * none. */
static int feed_context(struct pass *p, int32_t n_more, char *warning)
{
    const int32_t *tokens = p->s->token_log.tokens, n = p->n_past,
                  room = p->s->m->hp.n_ctx_train - n - n_more;
    const int32_t part = room > PIECE_MIN ? room : PIECE_MIN, piece = n <= room ? n : part;
    if (piece < n)
        snprintf(warning, 256,
                 "%d tokens do not fit after themselves into the %d the model was trained for: the second "
                 "pass fed them in pieces of %d that do not see each other",
                 (int)n, (int)p->s->m->hp.n_ctx_train, (int)piece);
    for (int32_t at = 0; at < n; at += piece) {
        WNW_TRY(feed(p, tokens + at, n - at < piece ? n - at : piece));
        if (n_more == 0 || n - at > piece)
            WNW_TRY(drop(p));
    }
    return WNW_OK;
}

/* ---- Tasks ---- */

/* Whether the tokens read end with the task, so that feeding them again has fed the task. */
static bool ends_with_task(const struct pass *p, const int32_t *task, int32_t n)
{
    const int32_t *end = p->s->token_log.tokens + p->n_past;
    return n <= p->n_past && memcmp(end - n, task, (size_t)n * sizeof *task) == 0;
}

/* mark and state: what the cache and the recurrent state return to after each task. state is filled here. */
static int feed_each(struct pass *p, bool with_context, char *warning, const struct wnw__cache_mark *mark,
                     struct wnw__recurrent *state)
{
    const struct wnw__token_log *t = &p->s->token_log;
    const int32_t base = p->s->n_past;
    WNW_TRY(wnw__recurrent_copy(state, p->s->recurrent));
    for (int32_t i = 0, at = 0; i < t->n_tasks; at += t->task_n[i++]) {
        if (with_context && ends_with_task(p, t->task_tokens + at, t->task_n[i]))
            continue;
        warn_beyond(p, t->task_n[i], warning);
        WNW_TRY(feed(p, t->task_tokens + at, t->task_n[i]));
        wnw__cache_mark_rewind(&p->s->cache, mark);
        p->s->n_past = base;
        WNW_TRY(wnw__recurrent_copy(p->s->recurrent, state));
    }
    return WNW_OK;
}

/* Feeds each task by itself on the cache as it is. with_context: a task that the context ends with was fed. */
static int feed_each_task(struct pass *p, bool with_context, char *warning)
{
    struct wnw__cache_mark *mark;
    struct wnw__recurrent *state;
    WNW_TRY(wnw__cache_mark_new(&mark, &p->s->cache));
    int rc = wnw__recurrent_new(&state, p->s->engine);
    if (rc == WNW_OK)
        rc = feed_each(p, with_context, warning, mark, state);
    wnw__recurrent_free(state);
    wnw__cache_mark_free(mark);
    return rc;
}

/* Feeds the tasks, on the bare cache or after the context's second copy. */
static int feed_tasks(struct pass *p, bool with_context, char *warning)
{
    const struct wnw__token_log *t = &p->s->token_log;
    int32_t most = 0;
    if (t->n_tasks == 0)
        return wnw__fail(WNW_E_ARG,
                         "the policy looks at the cache through expected questions, and none were given: set "
                         "them in wnw_run");
    for (int32_t i = 0; i < t->n_tasks; i++)
        most = t->task_n[i] > most ? t->task_n[i] : most;
    if (with_context)
        WNW_TRY(feed_context(p, most, warning));
    return feed_each_task(p, with_context, warning);
}

/* ---- Repeating ---- */

/* Number of entries of KV head ih, among its first len, at positions below pos. */
static int32_t entries_before(const struct wnw__kv_layer *l, int32_t ih, int32_t len, int32_t pos)
{
    int32_t lo = 0, hi = len;
    while (lo < hi) {
        const int32_t mid = lo + (hi - lo) / 2;
        if (l->pos[l->off[ih] + mid] < pos)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Decides what is repeated chunk by chunk, and what is seen of the chat header, whose length the session may not know. */
static void set_range(struct pass *p, wnw_second_pass kind)
{
    const int32_t n = p->s->n_prefix < p->n_past ? p->s->n_prefix : p->n_past;
    p->first = kind == WNW_PASS_REPEAT_ALL ? 0 : n;
    p->last = p->n_past;
    p->sinks = kind == WNW_PASS_REPEAT && n > 0 ? n : REPEAT_SINKS;
    p->out->n_places = 1;
    p->out->place[0] = (wnw_sample_place){.lead = p->first, .from = p->first, .to = p->last};
}

/* Lets the softmax see the sinks, positions first .. last - 1 (the chunk) and the repeat input, or all that the attention sees,
 * whose softmax is there already; and takes statistics of the chunk's columns only. */
static void restrict_to(struct pass *p, int32_t first, int32_t last)
{
    const struct wnw__cache *c = &p->s->cache;
    for (int32_t il = 0; il < c->n_layer; il++) {
        const struct wnw__kv_layer *l = &c->layers[il];
        const size_t at = (size_t)il * (size_t)c->n_head_kv;
        for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
            const int32_t len = p->len[at + (size_t)ih];
            const struct wnw__range chunk = {.from = entries_before(l, ih, len, first),
                                             .to = entries_before(l, ih, len, last)};
            const int32_t sinks = first < p->sinks ? first : p->sinks;
            p->seen[at + (size_t)ih][0] = (struct wnw__range){.to = entries_before(l, ih, len, sinks)};
            p->seen[at + (size_t)ih][1] = chunk;
            p->columns[at + (size_t)ih] = chunk;
        }
        p->wants[il].seen =
            p->all_seen ? NULL : (const struct wnw__range(*)[WNW_COLUMN_RANGES])(p->seen + at);
        p->wants[il].own = p->len + at;
        p->wants[il].by_input = p->by_input;
    }
}

struct ids {
    int32_t *ids, n;
};

/* Feeds the words, `hint` tokens that precede the chunk, what ends the turn, and the chunk. */
static int repeat_chunk(struct pass *p, const struct ids *prompt, int32_t hint, const struct ids *suffix,
                        int32_t first, int32_t last, char *warning)
{
    const int32_t *tokens = p->s->token_log.tokens;
    const int32_t n = prompt->n + hint + suffix->n + last - first;
    int32_t *ids = malloc((size_t)n * sizeof *ids), *to = ids;
    if (!ids)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d token ids", (int)n);
    memcpy(to, prompt->ids, (size_t)prompt->n * sizeof *ids);
    to += prompt->n;
    memcpy(to, tokens + first - hint, (size_t)hint * sizeof *ids);
    to += hint;
    memcpy(to, suffix->ids, (size_t)suffix->n * sizeof *ids);
    to += suffix->n;
    memcpy(to, tokens + first, (size_t)(last - first) * sizeof *ids);
    warn_beyond(p, n, warning);
    restrict_to(p, first, last);
    const int rc = feed(p, ids, n), rc_drop = drop(p);
    free(ids);
    return rc != WNW_OK ? rc : rc_drop;
}

/* Tokens of a text that goes on after the token `before`, -1 for some text. */
static int tokenize(const wnw_session *s, struct ids *out, const char *text, int32_t before)
{
    return wnw__tokenize_plain(s->m, text, strlen(text), &before, &out->ids, &out->n);
}

/* The tokens that end the user's turn and open the model's, in *out, whose ids the caller frees. */
static int end_turn(const wnw_session *s, struct ids *out)
{
    const struct wnw__token_log *t = &s->token_log;
    if (t->n_suffix == 0)
        return tokenize(s, out, repeat_suffix, -1);
    out->ids = malloc((size_t)t->n_suffix * sizeof *out->ids);
    if (!out->ids)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d token ids", (int)t->n_suffix);
    memcpy(out->ids, t->suffix, (size_t)t->n_suffix * sizeof *out->ids);
    out->n = t->n_suffix;
    return WNW_OK;
}

/* What is fed around the repeated chunks: what asks for the first one and for the next ones, and the end of a turn. */
struct around {
    struct ids first, next, suffix;
};

static int repeat_all_chunks(struct pass *p, struct around *a, char *warning)
{
    const int32_t last_read = p->n_past > 0 ? p->s->token_log.tokens[p->n_past - 1] : -1;
    WNW_TRY(tokenize(p->s, &a->first, repeat_all, last_read));
    WNW_TRY(tokenize(p->s, &a->next, repeat_part, last_read));
    WNW_TRY(end_turn(p->s, &a->suffix));
    for (int32_t at = p->first; at < p->last; at += REPEAT_CHUNK) {
        const int32_t last = p->last - at < REPEAT_CHUNK ? p->last : at + REPEAT_CHUNK;
        WNW_TRY(at > p->first ? repeat_chunk(p, &a->next, REPEAT_HINT, &a->suffix, at, last, warning)
                              : repeat_chunk(p, &a->first, 0, &a->suffix, at, last, warning));
    }
    return WNW_OK;
}

static int feed_repeats(struct pass *p, char *warning)
{
    struct around a = {0};
    const int rc = repeat_all_chunks(p, &a, warning);
    wnw_free(a.first.ids);
    wnw_free(a.next.ids);
    wnw_free(a.suffix.ids);
    return rc;
}

/* What came before a place leads to it: nobody need ask for more, and each token would cost. Of what was compressed before, heads have
 * too little left to learn from. */
static int feed_sample(struct pass *p, const wnw_sample_size *size, char *warning)
{
    const wnw_session *s = p->s;
    const int32_t n = p->n_past;
    const wnw_turns turns = {WNW_INIT(wnw_turns), .n_header = s->n_prefix < n ? s->n_prefix : n, .n = n,
                             .n_judged = s->n_judged,
                             .compressed = s->n_judged < n}; /* where nothing is new, all of it is repeated */
    const int32_t from = wnw_turns_first_new(&turns);
    wnw_sample_place *place = p->out->place;
    const int32_t k = p->out->n_places = wnw_sample_places(size, from, n, place);
    const int32_t n_fed = wnw_sample_fed(size, n - from);
    int32_t at = 0;
    int32_t *ids = malloc(((size_t)n_fed + 1) * sizeof *ids);
    if (!ids)
        return wnw__fail(WNW_E_NOMEM, "no memory for a sample of %d tokens", (int)n_fed);
    for (int32_t i = 0; i < k; i++)
        for (int32_t t = place[i].lead; t < place[i].to; t++)
            ids[at++] = s->token_log.tokens[t];
    p->all_seen = true;
    warn_beyond(p, n_fed, warning);
    restrict_to(p, k > 0 ? place[0].from : n, k > 0 ? place[k - 1].to : n);
    const int rc = feed(p, ids, n_fed), rc_drop = drop(p);
    free(ids);
    return rc != WNW_OK ? rc : rc_drop;
}

static int feed_kind(struct pass *p, wnw_second_pass kind, const wnw_sample_size *sample, char *warning)
{
    if (kind == WNW_PASS_CONTEXT)
        return feed_context(p, 0, warning);
    if (kind == WNW_PASS_TASK || kind == WNW_PASS_BOTH)
        return feed_tasks(p, kind == WNW_PASS_BOTH, warning);
    if (kind == WNW_PASS_SAMPLE)
        return feed_sample(p, sample, warning);
    set_range(p, kind);
    return feed_repeats(p, warning);
}

int wnw__second_pass_run(struct wnw__second_pass **out, wnw_session *s, const wnw_needs *needs, char *warning)
{
    struct pass p;
    const wnw_second_pass kind = (wnw_second_pass)(needs->second_pass & ~(int32_t)WNW_PASS_BY_INPUT);
    *out = NULL;
    if (kind != WNW_PASS_TASK && s->token_log.n_ambiguous > 0)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "the policy feeds what was read a second time, but since the kept tokens got new "
                         "positions the first %d are other tokens in every head",
                         (int)s->token_log.n_ambiguous);
    int rc = begin(&p, s);
    p.by_input = (needs->second_pass & WNW_PASS_BY_INPUT) != 0;
    if (rc == WNW_OK)
        rc = feed_kind(&p, kind, &needs->sample, warning);
    const int rc_end = end(&p);
    rc = rc != WNW_OK ? rc : rc_end;
    if (rc == WNW_OK)
        *out = p.out;
    else
        wnw__second_pass_free(p.out);
    return rc;
}
