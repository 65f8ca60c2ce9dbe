/* SPDX-License-Identifier: MIT */
/* The second pass against a slow double-precision softmax: the same tokens read by an ordinary session that
 * keeps its queries. The second pass also leaves no trace. */
#include "peek_session.h"

#include "helpers.h"
#include "peek_prompt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* float32 products and exponentials of scores of a few tens, and hidden states that passed through a graph of
 * other ubatches */
#define TOLERANCE test_rounding(5e-5, 8)

static void needs_context(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_SECOND_PASS;
    out->second_pass = WNW_PASS_CONTEXT;
}

static void needs_repeat(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_SECOND_PASS;
    out->second_pass = WNW_PASS_REPEAT;
}

static void needs_task(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_SECOND_PASS;
    out->second_pass = WNW_PASS_TASK;
}

static void needs_both(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_SECOND_PASS;
    out->second_pass = WNW_PASS_BOTH;
}

static void needs_everything(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_ATTN_SUM | WNW_NEED_ATTN_MAX | WNW_NEED_QUERIES | WNW_NEED_KEYS |
                 WNW_NEED_WINDOW_ATTN | WNW_NEED_QUERY_STATS | WNW_NEED_SECOND_PASS;
    out->window = 8;
    out->second_pass = WNW_PASS_CONTEXT;
}

static void needs_queries(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_QUERIES | WNW_NEED_KEYS;
}

/* Scores by what the second pass gave: it must be there. */
static int score_pass(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    const int32_t group = obs->n_head / obs->n_head_kv;
    (void)opts;
    (void)scratch;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++)
        for (int32_t i = 0; i < obs->n; i++)
            score[ih * obs->n + i] = obs->pass2_max ? obs->pass2_max[ih * group * obs->n + i] : 0.0f;
    return WNW_OK;
}

/* What a sample repeats. */
static const wnw_sample_size sample_size = {.least = 40, .most = 256, .every = 20, .place = 30};

static int run_pass(struct wnw__second_pass **out, wnw_session *s, wnw_second_pass kind, char *warning)
{
    const wnw_needs needs = {
        .flags = WNW_NEED_SECOND_PASS, .second_pass = (int32_t)kind, .sample = sample_size};
    return wnw__second_pass_run(out, s, &needs, warning);
}

enum { EVERYTHING = WNW_PASS_REPEAT + 1, QUERIES, N_WATCHERS = WNW_PASS_BOTH + 1 };

static wnw_policy *watcher(int which)
{
    static const wnw_scorer scorers[N_WATCHERS] = {
        {.part = {WNW_SCORER_INIT, .name = "watch_context", .needs = needs_context}, .score = score_pass},
        {.part = {WNW_SCORER_INIT, .name = "watch_task", .needs = needs_task}, .score = score_pass},
        {.part = {WNW_SCORER_INIT, .name = "watch_repeat", .needs = needs_repeat}, .score = score_pass},
        {.part = {WNW_SCORER_INIT, .name = "watch_all", .needs = needs_everything}, .score = score_pass},
        {.part = {WNW_SCORER_INIT, .name = "watch_queries", .needs = needs_queries}, .score = score_pass},
        {.part = {WNW_SCORER_INIT, .name = "watch_both", .needs = needs_both}, .score = score_pass},
    };
    return test_policy_with(&scorers[which].part, NULL);
}

struct setup {
    const char *arch;
    wnw_attn attn;
    wnw_kv_type kv_type;
    int32_t n, n_ubatch; /* context tokens */
    bool compact;        /* on a ragged cache */
};

/* What is fed after the context in one go. */
struct fed {
    int32_t *tokens, n;
    int32_t skip;               /* the first ones, which are fed and not counted */
    int32_t sinks, first, last; /* KVzip: positions that the softmax sees; last 0 = everything */
    bool all_seen;              /* of a sample it sees everything, and these are those whose columns count */
    const float
        *per_length; /* [n] KVzip+: 1 / length of what the layer's attention reads of a token; NULL = none */
};

static wnw_session *read_context(const wnw_model *m, const struct setup *c, const int32_t *tokens,
                                 int32_t n_ctx, int watch)
{
    wnw_session_params params = wnw_session_default_params();
    /* Statistics are compared with float32 ones. */
    params.attn = c->attn == WNW_ATTN_OWN ? WNW_ATTN_F32 : c->attn;
    params.kv_type = c->kv_type;
    params.n_ubatch = c->n_ubatch;
    params.n_threads = 1; /* spinning threads cost more than the tiny model */
    params.n_ctx = n_ctx;
    wnw_session *s;
    assert_ok(wnw_session_new(&s, m, &params));
    wnw_policy *p = watcher(watch);
    assert_ok(test_observe(s, (const wnw_policy *const[]){p}, 1));
    wnw_policy_free(p);
    test_prefill(s, tokens, c->n);
    if (c->compact) {
        wnw_policy *small = test_policy("knorm+adakv");
        assert_ok(wnw_session_compress(s, small, &(wnw_size){.kind = WNW_SIZE_RATIO, .ratio = 0.5}, NULL));
        wnw_policy_free(small);
    }
    return s;
}

/* Adds what head h's context entries receive from the fed tokens. */
static void reference_head(const wnw_observation *o, const struct fed *f, int32_t n_context, int32_t h,
                           double *sum, double *max)
{
    const int32_t d = o->n_embd_head, ih = h / (o->n_head / o->n_head_kv);
    const float *keys = o->keys(o, ih);
    const int32_t *pos = o->pos + (size_t)ih * (size_t)o->n;
    double *p = malloc((size_t)o->n * sizeof *p);
    assert_non_null(p);
    assert_cmp(o->n_queries, >=, f->n);
    for (int32_t t = f->skip; t < f->n; t++) {
        const float *q =
            o->queries + ((size_t)(o->n_queries - f->n + t) * (size_t)o->n_head + (size_t)h) * (size_t)d;
        double top = -INFINITY, total = 0.0;
        for (int32_t i = 0; i < o->n_entry[ih]; i++) {
            const bool in_chunk =
                f->last == 0 || f->all_seen || pos[i] < f->sinks || (pos[i] >= f->first && pos[i] < f->last);
            const bool sees = pos[i] < n_context ? in_chunk : pos[i] <= n_context + t;
            p[i] = sees ? test_dot(q, keys + (size_t)i * (size_t)d, d) * (double)o->attn_scale : -INFINITY;
            top = fmax(top, p[i]);
        }
        for (int32_t i = 0; i < o->n_entry[ih]; i++)
            total += p[i] = exp(p[i] - top);
        for (int32_t i = 0; i < o->n_entry[ih] && pos[i] < n_context; i++) {
            if (f->last > 0 && !(pos[i] >= f->first && pos[i] < f->last))
                continue;
            const double a = p[i] / total * (f->per_length ? (double)f->per_length[t] : 1);
            sum[i] += a;
            max[i] = fmax(max[i], a);
        }
    }
    free(p);
}

/* 1 / length of the hidden states that layer il of a session, which has recorded them, read of its last n tokens. */
static float *per_length(const wnw_session *s, int32_t il, int32_t n, int32_t n_embd)
{
    const struct wnw__token_rows *inputs = wnw__recorders_find(&s->recorders, &wnw__inputs_recorder);
    const struct wnw__token_rows_layer *l = &inputs->layers[il];
    float *out = malloc((size_t)n * sizeof *out);
    assert_non_null(out);
    assert_cmp(l->n, >=, n);
    for (int32_t t = 0; t < n; t++) {
        const float *x = wnw__token_rows_at(inputs, il, l->n - n + t);
        double sum = 0;
        for (int32_t c = 0; c < n_embd; c++)
            sum += (double)x[c] * (double)x[c];
        out[t] = (float)(1 / sqrt(sum));
    }
    return out;
}

/* What the entries of a layer received by the reference: a sum and a maximum for each query head and entry. */
struct want {
    double *sum, *max; /* [n_head][n] of the pass; NULL where the layer is not compared */
};

/* Whether the layer is compared: of a long context the last one alone. */
static bool is_compared(const wnw_model *m, const struct setup *c, const wnw_model_info *info, int32_t il)
{
    return !wnw_model_layer_is_swa(m, il) && (il == info->n_layer - 1 || c->n < 1000);
}

/* Adds what one piece that was fed gives to every layer that is compared. */
static void add_piece(const wnw_model *m, const struct setup *c, const int32_t *tokens, const struct fed *fed,
                      bool by_input, const struct wnw__second_pass *got, const struct want *want)
{
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_ok(wnw_model_get_info(m, &info));
    wnw_session *s = read_context(m, c, tokens, 0, QUERIES);
    if (by_input)
        assert_ok(wnw__session_record(s, "inputs", true));
    test_prefill(s, fed->tokens, fed->n);
    struct wnw__plan_source src;
    assert_ok(wnw__session_source(&src, s));
    for (int32_t il = 0; il < info.n_layer; il++) {
        if (!want[il].sum)
            continue;
        struct fed f = *fed;
        float *lengths = by_input ? per_length(s, il, f.n, info.n_embd) : NULL;
        f.per_length = lengths;
        const wnw_needs needs = {.flags = WNW_NEED_QUERIES | WNW_NEED_KEYS};
        wnw_observation o;
        assert_ok(src.observe(&src, il, &needs, NULL, &o));
        for (int32_t h = 0; h < info.n_head; h++) {
            const size_t at = (size_t)h * (size_t)got->n[il];
            reference_head(&o, &f, c->n, h, want[il].sum + at, want[il].max + at);
        }
        free(lengths);
    }
    wnw__source_close(&src);
    wnw_session_free(s);
}

static void compare_layer(const struct setup *c, const struct wnw__second_pass *got, int32_t il,
                          size_t n_head, const struct want *want)
{
    const size_t n = (size_t)got->n[il];
    for (size_t i = 0; i < n_head * n; i++) {
        const double e0 = fabs((double)got->sum[il][i] - want->sum[i]),
                     e1 = fabs((double)got->max[il][i] - want->max[i]);
        if (!(e0 <= TOLERANCE * fmax(1.0, want->sum[i])) || !(e1 <= TOLERANCE))
            fail_msg("%s layer %d head %d entry %d: sum %g max %g, expected %g %g", c->arch, (int)il,
                     (int)(i / n), (int)(i % n), (double)got->sum[il][i], (double)got->max[il][i],
                     want->sum[i], want->max[i]);
    }
}

/* Compares the pass with one reference session per piece fed. */
static void check_pass(const wnw_model *m, const struct setup *c, const int32_t *tokens, wnw_session *s,
                       wnw_second_pass kind, const struct fed *fed, int32_t n_fed)
{
    struct wnw__second_pass *p;
    char warning[256] = "";
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_ok(wnw_model_get_info(m, &info));
    assert_ok(run_pass(&p, s, kind, warning));
    struct want *want = calloc((size_t)info.n_layer, sizeof *want);
    assert_non_null(want);
    int32_t n_queries = 0;
    for (int32_t il = 0; il < info.n_layer; il++) {
        if (wnw_model_layer_is_swa(m, il)) {
            assert_null(p->sum[il]);
            assert_null(p->max[il]);
        } else if (is_compared(m, c, &info, il)) {
            const size_t n = (size_t)info.n_head * ((size_t)p->n[il] + 1);
            want[il] = (struct want){calloc(n, sizeof(double)), calloc(n, sizeof(double))};
            assert_non_null(want[il].sum);
            assert_non_null(want[il].max);
        }
    }
    for (int32_t k = 0; k < n_fed; k++) {
        n_queries += fed[k].n - fed[k].skip;
        add_piece(m, c, tokens, &fed[k], kind & WNW_PASS_BY_INPUT, p, want);
    }
    assert_int_equal(p->n_queries, n_queries);
    for (int32_t il = 0; il < info.n_layer; il++) {
        if (want[il].sum)
            compare_layer(c, p, il, (size_t)info.n_head, &want[il]);
        free(want[il].sum);
        free(want[il].max);
    }
    free(want);
    wnw__second_pass_free(p);
}

/* Long contexts go in pieces, and what fits where is decided by numbers of tokens, with any kernels. */
static bool is_repeated(const struct setup *c)
{
    return c->n >= 1000 && test_other_kernels();
}

static wnw_model *open_model(const char *arch)
{
    return strstr(arch, "tiny") ? test_model_open(arch) : test_tiny_open(arch);
}

static int32_t *tokens_of(const wnw_model *m, int32_t n, uint64_t seed)
{
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_ok(wnw_model_get_info(m, &info));
    return test_random_tokens(n, info.n_vocab, seed);
}

/* The same tokens once more, the later ones seeing the earlier ones, beyond the session's own n_ctx. */
static void check_context(const struct setup *c)
{
    wnw_model *m = open_model(c->arch);
    int32_t *tokens = tokens_of(m, c->n, 7);
    wnw_session *s = read_context(m, c, tokens, c->n, WNW_PASS_CONTEXT);
    check_pass(m, c, tokens, s, WNW_PASS_CONTEXT, &(struct fed){.tokens = tokens, .n = c->n}, 1);
    wnw_session_free(s);
    wnw_model_free(m);
    free(tokens);
}

static void test_context(void **state)
{
    (void)state;
    static const char *const arch[] = {"llama", "qwen2", "qwen3", "gemma3", "tiny/tiny-llama-mqa.gguf"};
    for (size_t a = 0; a < sizeof arch / sizeof *arch; a++)
        for (int attn = WNW_ATTN_OWN; attn <= WNW_ATTN_GGML; attn++) {
            check_context(&(struct setup){arch[a], (wnw_attn)attn, WNW_KV_F32, 130, 512, false});
            check_context(&(struct setup){arch[a], (wnw_attn)attn, WNW_KV_F16, 130, 64, false});
        }
    check_context(&(struct setup){"llama", WNW_ATTN_OWN, WNW_KV_F16, 150, 40, true});
    check_context(&(struct setup){"llama", WNW_ATTN_GGML, WNW_KV_F16, 150, 40, true});
    check_context(&(struct setup){"qwen3", WNW_ATTN_OWN, WNW_KV_Q8_0, 97, 32, false});
}

/* A context that does not fit after itself goes in pieces that do not see each other. */
static void test_context_in_pieces(void **state)
{
    (void)state;
    const struct setup c = {"llama", WNW_ATTN_OWN, WNW_KV_F32, 300, 100, false};
    wnw_model *m = open_model(c.arch);
    int32_t *tokens = tokens_of(m, c.n, 7);
    m->hp.n_ctx_train = 570;
    wnw_session *s = read_context(m, &c, tokens, 0, WNW_PASS_CONTEXT);
    const struct fed fed[] = {{.tokens = tokens, .n = 270}, {.tokens = tokens + 270, .n = 30}};
    check_pass(m, &c, tokens, s, WNW_PASS_CONTEXT, fed, 2);

    wnw_policy *p = watcher(WNW_PASS_CONTEXT);
    wnw_plan *plan;
    wnw_report report = {WNW_INIT(wnw_report)};
    assert_ok(wnw_session_plan(s, p, &(wnw_size){.kind = WNW_SIZE_RATIO, .ratio = 0.5}, &plan, &report));
    assert_contains(report.warning, "pieces of 270");
    wnw_plan_free(plan);
    m->hp.n_ctx_train = 600;
    assert_ok(wnw_session_plan(s, p, &(wnw_size){.kind = WNW_SIZE_RATIO, .ratio = 0.5}, &plan, &report));
    assert_string_equal(report.warning, "");
    wnw_plan_free(plan);
    wnw_policy_free(p);
    wnw_session_free(s);
    wnw_model_free(m);
    free(tokens);
}

/* Tells a session that read_context made more of what it has read. */
static int tell(wnw_session *s, int watch, const wnw_prompt *prompt, wnw_run_more more)
{
    wnw_policy *p = watcher(watch);
    const wnw_run run = {WNW_INIT(wnw_run), .prompt = prompt, .more = &more};
    more.struct_size = (uint32_t)sizeof more;
    more.policies = (const wnw_policy *const[]){p};
    more.n_policies = 1;
    const int rc = wnw_session_begin(s, &run);
    wnw_policy_free(p);
    return rc;
}

static int tell_tasks(wnw_session *s, int watch, const int32_t *const *tasks, const int32_t *n_tokens,
                      int32_t n)
{
    return tell(s, watch, NULL,
                (wnw_run_more){.n_tasks = n, .task_tokens = tasks, .n_task_tokens = n_tokens});
}

static wnw_prompt template_of(int32_t n_prefix, const int32_t *suffix, int32_t n)
{
    return (wnw_prompt){.n_prefix = n_prefix, .suffix = (int32_t *)(uintptr_t)suffix, .n_suffix = n};
}

static void test_tasks(void **state)
{
    (void)state;
    for (int attn = WNW_ATTN_OWN; attn <= WNW_ATTN_GGML; attn++) {
        const struct setup c = {"llama", (wnw_attn)attn, WNW_KV_F32, 120, 50, attn == WNW_ATTN_OWN};
        wnw_model *m = open_model(c.arch);
        int32_t *tokens = tokens_of(m, c.n, 7), *a = tokens_of(m, 60, 8), *b = tokens_of(m, 1, 9);
        wnw_session *s = read_context(m, &c, tokens, 0, WNW_PASS_TASK);
        wnw_policy *p = watcher(WNW_PASS_TASK);
        wnw_plan *plan;
        const wnw_size half = {.kind = WNW_SIZE_RATIO, .ratio = 0.5};
        assert_error(wnw_session_plan(s, p, &half, &plan, NULL), WNW_E_ARG);
        assert_says("wnw_run");
        assert_error(tell_tasks(s, WNW_PASS_TASK, (const int32_t *const[]){a}, (const int32_t[]){0}, 1),
                     WNW_E_ARG);
        assert_error(tell_tasks(s, WNW_PASS_TASK, (const int32_t *const[]){(const int32_t[]){-1}},
                                (const int32_t[]){1}, 1),
                     WNW_E_RANGE);
        assert_ok(tell_tasks(s, WNW_PASS_TASK, (const int32_t *const[]){a, b}, (const int32_t[]){60, 1}, 2));
        wnw_session *copy;
        assert_ok(wnw_session_copy(&copy, s));
        wnw_session_free(s);
        const struct fed fed[] = {{.tokens = a, .n = 60}, {.tokens = b, .n = 1}};
        check_pass(m, &c, tokens, copy, WNW_PASS_TASK, fed, 2);
        assert_ok(tell_tasks(copy, WNW_PASS_TASK, NULL, NULL, 0));
        assert_error(wnw_session_plan(copy, p, &half, &plan, NULL), WNW_E_ARG);
        wnw_policy_free(p);
        wnw_session_free(copy);
        wnw_model_free(m);
        free(tokens);
        free(a);
        free(b);
    }
}

static int32_t *behind_context(const int32_t *tokens, int32_t n, const int32_t *task, int32_t n_task)
{
    int32_t *both = malloc((size_t)(n + n_task) * sizeof *both);
    assert_non_null(both);
    memcpy(both, tokens, (size_t)n * sizeof *both);
    memcpy(both + n, task, (size_t)n_task * sizeof *both);
    return both;
}

/* The context once more, and each task after that copy of it; a task that the context ends with is in it.
 * n_ctx_train > 0: too little for that, so that the tasks come after the last of two pieces. */
static void check_both(const struct setup *c, int32_t n_ctx_train, int32_t piece)
{
    enum { A = 60, B = 3, END = 20 };
    wnw_model *m = open_model(c->arch);
    int32_t *tokens = tokens_of(m, c->n, 7), *a = tokens_of(m, A, 8), *b = tokens_of(m, B, 9);
    const int32_t last = c->n - piece; /* tokens of the piece that precedes the tasks */
    if (n_ctx_train > 0)
        m->hp.n_ctx_train = n_ctx_train;
    wnw_session *s = read_context(m, c, tokens, 0, WNW_PASS_BOTH);
    wnw_policy *p = watcher(WNW_PASS_BOTH);
    wnw_plan *plan;
    assert_error(wnw_session_plan(s, p, &(wnw_size){.kind = WNW_SIZE_RATIO, .ratio = 0.5}, &plan, NULL),
                 WNW_E_ARG);
    assert_ok(tell_tasks(s, WNW_PASS_BOTH, (const int32_t *const[]){a, tokens + c->n - END, b},
                         (const int32_t[]){A, END, B}, 3));
    const struct fed fed[] = {
        {.tokens = behind_context(tokens + piece, last, a, A), .n = last + A},
        {.tokens = behind_context(tokens + piece, last, b, B), .n = last + B, .skip = last},
        {.tokens = tokens, .n = piece},
    };
    check_pass(m, c, tokens, s, WNW_PASS_BOTH, fed, piece > 0 ? 3 : 2);
    wnw_policy_free(p);
    wnw_session_free(s);
    wnw_model_free(m);
    free(fed[0].tokens);
    free(fed[1].tokens);
    free(tokens);
    free(a);
    free(b);
}

static void test_context_and_tasks(void **state)
{
    (void)state;
    check_both(&(struct setup){"llama", WNW_ATTN_OWN, WNW_KV_F32, 120, 50, true}, 0, 0);
    check_both(&(struct setup){"llama", WNW_ATTN_GGML, WNW_KV_F32, 120, 50, false}, 0, 0);
    check_both(&(struct setup){"llama", WNW_ATTN_OWN, WNW_KV_F32, 300, 100, false}, 300 + 270 + 60, 270);
}

/* KVzip: chunks of 2048 tokens after the header, the last 8 ids of the chunk before, what ends the turn. The
 * softmax sees the header, or 4 sinks where there is none or kvpress' form is asked for. */
static void check_repeat(const struct setup *c, int32_t n_prefix, wnw_second_pass kind)
{
    const int32_t pass = (int32_t)kind & ~(int32_t)WNW_PASS_BY_INPUT;
    if (is_repeated(c))
        return;
    wnw_model *m = open_model(c->arch);
    int32_t *tokens = tokens_of(m, c->n, 7);
    wnw_session *s = read_context(m, c, tokens, 0, WNW_PASS_REPEAT);
    static const int32_t tail[] = {11, 7, 11};
    const int32_t start = pass == WNW_PASS_REPEAT_ALL ? 0 : n_prefix, end = c->n;
    struct fed fed[2] = {{0}};
    int32_t n_fed = 0;
    const wnw_prompt told = template_of(n_prefix, tail, n_prefix > 0 ? 3 : 0);
    assert_ok(tell(s, WNW_PASS_REPEAT, &told, (wnw_run_more){.n_tasks = 0}));
    for (int32_t at = start; at < end; at += 2048, n_fed++) {
        const bool inside = at > start;
        const char *text = !inside ? "\n\nRepeat the previous context exactly."
                                   : "\n\nRepeat the part of the previous context exactly, starting with";
        int32_t *prompt, *suffix, n_prompt, n_suffix;
        assert_ok(wnw_tokenize(m, text, strlen(text), false, false, &prompt, &n_prompt));
        assert_ok(wnw_tokenize(m, "\n", 1, false, false, &suffix, &n_suffix));
        if (n_prefix > 0) {
            wnw_free(suffix);
            n_suffix = 3;
            suffix = malloc(sizeof tail);
            assert_non_null(suffix);
            memcpy(suffix, tail, sizeof tail);
        }
        struct fed *f = &fed[n_fed];
        *f = (struct fed){
            .first = at,
            .last = at + 2048 < end ? at + 2048 : end,
        };
        f->sinks = pass == WNW_PASS_REPEAT && n_prefix > 0 ? n_prefix : at < 4 ? at : 4;
        const int32_t hint = inside ? 8 : 0;
        f->tokens = malloc((size_t)(n_prompt + hint + n_suffix + f->last - at) * sizeof *f->tokens);
        assert_non_null(f->tokens);
        for (int32_t i = 0; i < n_prompt; i++)
            f->tokens[f->n++] = prompt[i];
        for (int32_t i = at - hint; i < at; i++)
            f->tokens[f->n++] = tokens[i];
        for (int32_t i = 0; i < n_suffix; i++)
            f->tokens[f->n++] = suffix[i];
        for (int32_t i = at; i < f->last; i++)
            f->tokens[f->n++] = tokens[i];
        wnw_free(prompt);
        wnw_free(suffix);
    }
    check_pass(m, c, tokens, s, kind, fed, n_fed);
    for (int32_t k = 0; k < n_fed; k++)
        free(fed[k].tokens);
    wnw_session_free(s);
    wnw_model_free(m);
    free(tokens);
}

static void test_repeat(void **state)
{
    (void)state;
    static const char *const arch[] = {"llama", "qwen2", "gemma3", "tiny/tiny-llama-mqa.gguf"};
    for (size_t a = 0; a < sizeof arch / sizeof *arch; a++)
        check_repeat(&(struct setup){arch[a], WNW_ATTN_OWN, WNW_KV_F32, 130, 512, false}, 0, WNW_PASS_REPEAT);
    check_repeat(&(struct setup){"llama", WNW_ATTN_GGML, WNW_KV_F16, 130, 64, false}, 0, WNW_PASS_REPEAT);
    check_repeat(&(struct setup){"llama", WNW_ATTN_OWN, WNW_KV_F16, 150, 40, true}, 0, WNW_PASS_REPEAT);
    check_repeat(&(struct setup){"llama", WNW_ATTN_OWN, WNW_KV_F16, 2180, 512, false}, 0, WNW_PASS_REPEAT);
}

/* With a chat header in front of the context: shorter and longer than the 4 sinks, on a whole and on a ragged
 * cache, in one chunk and in two. */
static void test_repeat_with_header(void **state)
{
    (void)state;
    static const struct setup whole = {"llama", WNW_ATTN_OWN, WNW_KV_F32, 130, 512, false},
                              ragged = {"gemma3", WNW_ATTN_GGML, WNW_KV_F16, 130, 64, true},
                              chunks = {"llama", WNW_ATTN_OWN, WNW_KV_F16, 2180, 512, false};
    for (int pass = WNW_PASS_REPEAT; pass <= WNW_PASS_REPEAT_ALL; pass++) {
        check_repeat(&whole, 11, (wnw_second_pass)pass);
        check_repeat(&whole, 2, (wnw_second_pass)pass);
        check_repeat(&ragged, 11, (wnw_second_pass)pass);
        check_repeat(&chunks, 11, (wnw_second_pass)pass);
    }
}

/* A sample: places of the text, each after the tokens that lead to it, and everything is seen. */
static void check_sample(const struct setup *c, int32_t n_prefix, int32_t n_places)
{
    if (is_repeated(c))
        return;
    wnw_model *m = open_model(c->arch);
    int32_t *tokens = tokens_of(m, c->n, 7);
    wnw_session *s = read_context(m, c, tokens, 0, WNW_PASS_REPEAT);
    const wnw_prompt told = template_of(n_prefix, NULL, 0);
    wnw_sample_place place[WNW_SAMPLE_PLACES];
    assert_ok(tell(s, WNW_PASS_REPEAT, &told, (wnw_run_more){.n_tasks = 0}));
    assert_int_equal(wnw_sample_places(&sample_size, n_prefix, c->n, place), n_places);
    struct fed fed = {.tokens = malloc((size_t)c->n * sizeof *fed.tokens),
                      .first = place[0].from,
                      .last = place[n_places - 1].to,
                      .all_seen = true};
    assert_non_null(fed.tokens);
    for (int32_t k = 0; k < n_places; k++)
        for (int32_t t = place[k].lead; t < place[k].to; t++)
            fed.tokens[fed.n++] = tokens[t];
    check_pass(m, c, tokens, s, WNW_PASS_SAMPLE, &fed, 1);
    free(fed.tokens);
    wnw_session_free(s);
    wnw_model_free(m);
    free(tokens);
}

static void test_sample(void **state)
{
    (void)state;
    static const struct {
        struct setup setup;
        int32_t n_places;
    } rows[] = {{{"llama", WNW_ATTN_OWN, WNW_KV_F32, 130, 512, false}, 1},
                {{"gemma3", WNW_ATTN_GGML, WNW_KV_F16, 130, 64, true}, 1},
                {{"qwen2", WNW_ATTN_OWN, WNW_KV_F16, 30, 40, false}, 1},
                {{"llama", WNW_ATTN_OWN, WNW_KV_F16, 1390, 64, false}, 2},
                {{"llama", WNW_ATTN_OWN, WNW_KV_F16, 2180, 512, false}, 3}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        check_sample(&rows[i].setup, 0, rows[i].n_places);
        check_sample(&rows[i].setup, 11, rows[i].n_places);
    }
}

/* KVzip+: the same attention, of each query divided by the length of what the layer read of its token. */
static void test_repeat_by_input(void **state)
{
    (void)state;
    static const struct setup rows[] = {{"llama", WNW_ATTN_OWN, WNW_KV_F32, 130, 512, false},
                                        {"gemma3", WNW_ATTN_GGML, WNW_KV_F16, 130, 64, true},
                                        {"qwen2", WNW_ATTN_OWN, WNW_KV_F16, 150, 40, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int pass = WNW_PASS_REPEAT; pass <= WNW_PASS_REPEAT_ALL; pass++)
            check_repeat(&rows[i], 11, (wnw_second_pass)(pass | WNW_PASS_BY_INPUT));
}

/* A prompt that is nothing but its header: nothing is repeated, and no trace is left. */
static void test_header_alone(void **state)
{
    (void)state;
    const struct setup c = {"llama", WNW_ATTN_OWN, WNW_KV_F16, 40, 512, false};
    wnw_model *m = open_model(c.arch);
    int32_t *tokens = tokens_of(m, c.n, 7);
    wnw_session *s = read_context(m, &c, tokens, 0, WNW_PASS_REPEAT);
    struct wnw__second_pass *p;
    char warning[256] = "";
    const wnw_prompt told = template_of(50, NULL, 0);
    assert_ok(tell(s, WNW_PASS_REPEAT, &told, (wnw_run_more){.n_tasks = 0}));
    assert_ok(run_pass(&p, s, WNW_PASS_REPEAT, warning));
    assert_int_equal(p->n_queries, 0);
    for (int32_t i = 0; i < c.n; i++) {
        assert_cmp(p->max[0][i], ==, 0.0f);
        assert_cmp(p->sum[0][i], ==, 0.0f);
    }
    assert_int_equal(wnw_session_n_past(s), c.n);
    wnw__second_pass_free(p);
    wnw_session_free(s);
    wnw_model_free(m);
    free(tokens);
}

/* Ids of KVzip's instruction on SmolLM2, as kvpress feeds them. */
static void test_instruction_of_smollm2(void **state)
{
    (void)state;
    static const int32_t want[] = {198, 198, 48010, 260, 2672, 2468, 3869, 30};
    wnw_model *m = test_model_open("smollm2-135m.gguf");
    const char *text = "\n\nRepeat the previous context exactly.";
    int32_t *ids, n;
    assert_ok(wnw_tokenize(m, text, strlen(text), false, false, &ids, &n));
    assert_int_equal(n, 8);
    assert_memory_equal(ids, want, sizeof want);
    wnw_free(ids);
    assert_ok(wnw_tokenize(m, "\n", 1, false, false, &ids, &n));
    assert_int_equal(n, 1);
    assert_int_equal(ids[0], 198);
    wnw_free(ids);
    wnw_model_free(m);
}

/* ---- No trace is left ---- */

static void assert_same_storage(const struct wnw__cache *a, const struct wnw__cache *b)
{
    assert_ok(wnw__cache_check(a));
    assert_int_equal(wnw__cache_bytes(a), wnw__cache_bytes(b));
    assert_memory_equal(a->aux_planes, b->aux_planes, sizeof a->aux_planes);
    for (int32_t il = 0; il < a->n_layer; il++) {
        const struct wnw__kv_layer *x = &a->layers[il], *y = &b->layers[il];
        assert_int_equal(x->n_settled, y->n_settled);
        for (int32_t ih = 0; ih < a->n_head_kv; ih++) {
            assert_int_equal(x->len[ih], y->len[ih]);
            assert_int_equal(x->cap[ih], y->cap[ih]);
            assert_int_equal(x->off[ih], y->off[ih]);
            const size_t n = (size_t)x->len[ih], at = (size_t)x->off[ih];
            if (n == 0)
                continue;
            assert_memory_equal(x->pos + at, y->pos + at, n * sizeof *x->pos);
            assert_memory_equal(x->k + at * a->row_bytes, y->k + at * a->row_bytes, n * a->row_bytes);
            assert_memory_equal(x->v + at * a->row_bytes, y->v + at * a->row_bytes, n * a->row_bytes);
            for (int kind = 0; kind < WNW_N_AUX; kind++)
                for (int32_t p = 0; p < a->aux_planes[kind]; p++)
                    assert_memory_equal(wnw__cache_aux(x, (enum wnw__aux)kind, p) + at,
                                        wnw__cache_aux(y, (enum wnw__aux)kind, p) + at, n * sizeof(float));
        }
    }
}

static void assert_same_stats(const wnw_session *a, const wnw_session *b)
{
    const size_t n_mean = (size_t)a->m->hp.n_head * (size_t)a->m->hp.n_embd_head,
                 n_cov = n_mean * (size_t)a->m->hp.n_embd_head;
    float *x = malloc((n_mean + n_cov) * sizeof *x), *y = malloc((n_mean + n_cov) * sizeof *y);
    assert_non_null(x);
    assert_non_null(y);
    const struct wnw__qstats *of_a = wnw__recorders_find(&a->recorders, &wnw__qstats_recorder),
                             *of_b = wnw__recorders_find(&b->recorders, &wnw__qstats_recorder);
    assert_int_equal(of_a != NULL, of_b != NULL);
    for (int32_t il = 0; of_a && il < a->m->hp.n_layer; il++) {
        if (wnw_model_layer_is_swa(a->m, il))
            continue;
        assert_int_equal(wnw__qstats_end(of_a, il), wnw__qstats_end(of_b, il));
        assert_int_equal(wnw__qstats_get(of_a, il, x, x + n_mean), wnw__qstats_get(of_b, il, y, y + n_mean));
        assert_memory_equal(x, y, (n_mean + n_cov) * sizeof *x);
    }
    free(x);
    free(y);
}

static void assert_same_window(const struct wnw__window *a, const struct wnw__window *b)
{
    assert_int_equal(a->cap, b->cap);
    assert_memory_equal(a->layers, b->layers, (size_t)a->n_layer * sizeof *a->layers);
    assert_memory_equal(a->q, b->q, (size_t)a->n_layer * (size_t)a->cap * a->row * sizeof *a->q);
}

static void assert_same_queries(const struct wnw__token_rows *a, const struct wnw__token_rows *b)
{
    for (int32_t il = 0; il < a->n_layer; il++) {
        const struct wnw__token_rows_layer *x = &a->layers[il], *y = &b->layers[il];
        assert_int_equal(x->n, y->n);
        assert_int_equal(x->end, y->end);
        assert_int_equal(a->type, b->type);
        if (x->n > 0)
            assert_memory_equal(x->q, y->q,
                                (size_t)x->n * a->row *
                                    (a->type == WNW_KV_F16 ? sizeof(uint16_t) : sizeof(float)));
    }
}

static void assert_same_session(const wnw_session *a, const wnw_session *b)
{
    assert_same_storage(&a->cache, &b->cache);
    assert_int_equal(a->n_past, b->n_past);
    assert_memory_equal(wnw_session_logits(a), wnw_session_logits(b),
                        (size_t)a->m->hp.n_vocab * sizeof(float));
    assert_memory_equal(a->token_log.tokens, b->token_log.tokens, (size_t)a->n_past * sizeof(int32_t));
    assert_int_equal(a->recorders.n, b->recorders.n);
    for (int32_t i = 0; i < a->recorders.n; i++) {
        const struct wnw__recorder *x = &a->recorders.list[i], *y = &b->recorders.list[i];
        assert_ptr_equal(x->type, y->type);
        if (x->type == &wnw__window_recorder)
            assert_same_window(x->rec, y->rec);
        else if (x->type == &wnw__queries_recorder)
            assert_same_queries(x->rec, y->rec);
    }
    assert_same_stats(a, b);
}

static void check_nothing_stays(const struct setup *c, wnw_second_pass kind, int watch, int32_t n_prefix)
{
    wnw_model *m = open_model(c->arch);
    int32_t *tokens = tokens_of(m, c->n + 4, 7);
    wnw_session *s = read_context(m, c, tokens, c->n + 4, watch), *before;
    const wnw_prompt told = template_of(n_prefix, tokens, 3);
    assert_ok(tell(s, watch, &told,
                   (wnw_run_more){.n_tasks = 1,
                                  .task_tokens = (const int32_t *const[]){tokens},
                                  .n_task_tokens = (const int32_t[]){20}}));
    assert_ok(wnw_session_copy(&before, s));
    wnw_policy *p = watcher((int)kind);
    wnw_plan *plan;
    wnw_report report = {WNW_INIT(wnw_report)};
    assert_ok(wnw_session_plan(s, p, &(wnw_size){.kind = WNW_SIZE_RATIO, .ratio = 0.3}, &plan, &report));
    assert_int_equal(report.kv_bytes_before, wnw__cache_bytes(&before->cache));
    wnw_plan_free(plan);
    assert_same_session(s, before);
    for (int32_t i = 0; i < 4; i++) { /* and both go on alike */
        assert_ok(wnw_session_decode(s, tokens[c->n + i]));
        assert_ok(wnw_session_decode(before, tokens[c->n + i]));
        assert_same_session(s, before);
    }
    wnw_policy_free(p);
    wnw_session_free(s);
    wnw_session_free(before);
    wnw_model_free(m);
    free(tokens);
}

static void test_nothing_stays_behind(void **state)
{
    (void)state;
    if (test_other_kernels()) /* copies are compared, byte by byte */
        skip();
    static const char *const arch[] = {"llama", "gemma3"};
    for (size_t a = 0; a < 2; a++)
        for (int kind = WNW_PASS_CONTEXT; kind <= WNW_PASS_BOTH;
             kind = kind == WNW_PASS_REPEAT ? WNW_PASS_BOTH : kind + 1)
            for (int attn = WNW_ATTN_OWN; attn <= WNW_ATTN_GGML; attn++)
                for (int compact = 0; compact < 2; compact++) {
                    const struct setup c = {arch[a], (wnw_attn)attn, WNW_KV_F16, 120, 50, compact};
                    check_nothing_stays(&c, (wnw_second_pass)kind, EVERYTHING, 0);
                    check_nothing_stays(&c, (wnw_second_pass)kind, kind, 9);
                }
}

/* A pass that fails leaves no trace either. */
static void test_nothing_stays_after_failure(void **state)
{
    (void)state;
    const struct setup c = {"llama", WNW_ATTN_OWN, WNW_KV_F16, 60, 50, false};
    wnw_model *m = open_model(c.arch);
    int32_t *tokens = tokens_of(m, c.n, 7);
    wnw_session *s = read_context(m, &c, tokens, 0, EVERYTHING), *before;
    assert_ok(wnw_session_copy(&before, s));
    wnw_policy *p = watcher(WNW_PASS_TASK); /* no tasks are set */
    wnw_plan *plan;
    assert_error(wnw_session_plan(s, p, &(wnw_size){.kind = WNW_SIZE_RATIO, .ratio = 0.3}, &plan, NULL),
                 WNW_E_ARG);
    assert_same_session(s, before);
    wnw_policy_free(p);
    wnw_session_free(s);
    wnw_session_free(before);
    wnw_model_free(m);
    free(tokens);
}

/* Cut into other ubatches, the pass gives the same up to rounding; threads change nothing at all. */
static void test_ubatches_do_not_matter(void **state)
{
    (void)state;
    struct wnw__second_pass *p[3];
    wnw_model *m = open_model("llama");
    int32_t *tokens = tokens_of(m, 200, 7);
    static const int32_t n_ubatch[] = {512, 33, 33}, n_threads[] = {1, 1, 2};
    for (int i = 0; i < 3; i++) {
        wnw_session_params params = wnw_session_default_params();
        params.n_ubatch = n_ubatch[i];
        params.n_threads = n_threads[i];
        params.kv_type = WNW_KV_F32;
        wnw_session *s;
        char warning[256] = "";
        assert_ok(wnw_session_new(&s, m, &params));
        test_prefill(s, tokens, 200);
        assert_ok(run_pass(&p[i], s, WNW_PASS_REPEAT, warning));
        wnw_session_free(s);
    }
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_ok(wnw_model_get_info(m, &info));
    const size_t n = (size_t)info.n_head * 200;
    for (int32_t il = 0; il < info.n_layer; il++) {
        for (size_t i = 0; i < n; i++) {
            assert_near(p[0]->sum[il][i], p[1]->sum[il][i],
                        test_rounding(1e-3, 16) * fmax(1, (double)p[1]->sum[il][i]));
            assert_near(p[0]->max[il][i], p[1]->max[il][i], test_rounding(1e-4, 16));
        }
        assert_memory_equal(p[1]->sum[il], p[2]->sum[il], n * sizeof(float));
        assert_memory_equal(p[1]->max[il], p[2]->max[il], n * sizeof(float));
    }
    for (int i = 0; i < 3; i++)
        wnw__second_pass_free(p[i]);
    wnw_model_free(m);
    free(tokens);
}

/* Policies of one run share the pass, so they must agree on it. */
static void test_passes_must_agree(void **state)
{
    (void)state;
    const struct setup c = {"llama", WNW_ATTN_OWN, WNW_KV_F16, 60, 50, false};
    wnw_model *m = open_model(c.arch);
    int32_t *tokens = tokens_of(m, c.n, 7);
    wnw_session *s = read_context(m, &c, tokens, 0, WNW_PASS_CONTEXT);
    wnw_policy *p[2] = {watcher(WNW_PASS_CONTEXT), watcher(WNW_PASS_REPEAT)};
    wnw_plan *plans[2];
    const wnw_size sizes[2] = {{.kind = WNW_SIZE_RATIO, .ratio = 0.5},
                               {.kind = WNW_SIZE_RATIO, .ratio = 0.5}};
    assert_error(wnw_session_plan_many(s, (const wnw_policy *const *)p, sizes, 2, plans, NULL), WNW_E_ARG);
    assert_null(plans[0]);
    assert_null(plans[1]);
    wnw_policy_free(p[0]);
    wnw_policy_free(p[1]);
    wnw_session_free(s);
    wnw_model_free(m);
    free(tokens);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_context),
        cmocka_unit_test(test_context_in_pieces),
        cmocka_unit_test(test_tasks),
        cmocka_unit_test(test_context_and_tasks),
        cmocka_unit_test(test_repeat),
        cmocka_unit_test(test_repeat_with_header),
        cmocka_unit_test(test_repeat_by_input),
        cmocka_unit_test(test_sample),
        cmocka_unit_test(test_header_alone),
        cmocka_unit_test(test_instruction_of_smollm2),
        cmocka_unit_test(test_nothing_stays_behind),
        cmocka_unit_test(test_nothing_stays_after_failure),
        cmocka_unit_test(test_ubatches_do_not_matter),
        cmocka_unit_test(test_passes_must_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
