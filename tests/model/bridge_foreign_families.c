/* SPDX-License-Identifier: MIT */
/*
 * Sessions of families that winnow has no graphs for, on models that llama.cpp's test of its architectures writes and on
 * those of scripts/tiny_foreign.py. For each: logits against libllama alone; what policies see of the attention; copies. A cache
 * from which policies dropped entries is compared with one where the same entries are hidden. There this file computes the
 * attention from the full cache, in double precision.
 */
#include "generated.h"
#include "helpers.h"
#include "llamas.h"
#include "peek_session.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_PROMPT = 100, N_AFTER = 6, N = N_PROMPT + N_AFTER, KEEP = 40, MOST_D = 640 };

static const struct test_session exact = {
    .kv_type = WNW_KV_F32, .attn = WNW_ATTN_F32, .n_ctx = 128, .n_ubatch = 40};

/* ---- Hidden entries ---- */

static struct {
    const wnw_session *s; /* whose attention is computed here; NULL = nobody's */
    const wnw_plan *plan; /* prompt tokens that heads see; NULL = all */
} hidden;

static bool is_kept(int32_t il, int32_t ih, int32_t pos)
{
    const int32_t *keep;
    if (!hidden.plan || pos >= N_PROMPT || !wnw__layer_takes_part(&hidden.s->shape.model, il))
        return true;
    const int32_t n = wnw_plan_head(hidden.plan, il, ih, &keep);
    for (int32_t i = 0; i < n; i++)
        if (keep[i] == pos)
            return true;
    return false;
}

/* All entries of a KV head, those of the present rows among them. */
struct entries {
    int32_t n, pos[2 * N];
    bool kept[2 * N];
    float *keys, *values; /* [n][d] */
};

static struct entries read_entries(const struct wnw__attend_op *op, int32_t ih)
{
    const struct wnw__attend_slice *slice = &op->batch->slice[0];
    const struct wnw__cache *c = slice->cache;
    const struct wnw__kv_layer *l = &c->layers[op->il];
    struct entries e = {.n = l->len[ih] + op->batch->n_row};
    const size_t bytes = (size_t)e.n * (size_t)c->d * sizeof(float);
    assert_cmp(e.n, <=, 2 * N);
    assert_cmp(c->d, <=, MOST_D);
    for (int32_t i = 0; i < e.n; i++) {
        e.pos[i] = i < l->len[ih] ? l->pos[l->off[ih] + i] : slice->n_past + i - l->len[ih];
        e.kept[i] = is_kept(op->il, ih, e.pos[i]);
    }
    e.keys = malloc(bytes);
    e.values = malloc(bytes);
    assert_non_null(e.keys);
    assert_non_null(e.values);
    wnw__cache_read(c, op->il, WNW_KEYS, ih, 0, e.n, e.keys);
    wnw__cache_read(c, op->il, WNW_VALUES, ih, 0, e.n, e.values);
    return e;
}

/* Attention of query head h of row t over the entries that are not hidden. */
static void attend_one(const struct wnw__attend_op *op, const struct entries *e, int32_t h, int32_t t,
                       const float *q, float *out)
{
    const struct wnw__attend_slice *slice = &op->batch->slice[0];
    const struct wnw__kv_layer *l = &slice->cache->layers[op->il];
    const struct wnw__shape *shape = &hidden.s->shape.model;
    const struct wnw__score_form *f = wnw__shape_form(shape, op->il);
    const int32_t d = slice->cache->d, query = slice->n_past + t, n = e->n - op->batch->n_row + t + 1;
    double acc[MOST_D] = {0}, score[2 * N], top = f && f->sinks ? (double)f->sinks[h] : -INFINITY;
    for (int32_t i = 0; i < n; i++) {
        double x = test_dot(q, e->keys + (size_t)i * (size_t)d, d) * (double)op->scale;
        if (f && f->cap > 0.0f)
            x = (double)f->cap * tanh(x / (double)f->cap);
        if (f && f->max_bias > 0.0f)
            x -= (double)wnw__form_slope(f->max_bias, shape->n_head, h) * (query - e->pos[i]);
        score[i] = e->kept[i] && (l->n_swa == 0 || query - e->pos[i] < l->n_swa) ? x : -INFINITY;
        top = fmax(top, score[i]);
    }
    double sum = f && f->sinks ? exp((double)f->sinks[h] - top) : 0;
    for (int32_t i = 0; i < n; i++) {
        const float *value = e->values + (size_t)i * (size_t)d;
        const double p = exp(score[i] - top);
        sum += p;
        for (int32_t k = 0; k < d; k++)
            acc[k] += p * (double)value[k];
    }
    for (int32_t k = 0; k < d; k++)
        out[k] = (float)(acc[k] / sum);
}

void __real_wnw__attend_run(const struct wnw__attend_op *op, const float *q, const float *k, const float *v,
                            float *out, int ith, int nth);
void __wrap_wnw__attend_run(const struct wnw__attend_op *op, const float *q, const float *k, const float *v,
                            float *out, int ith, int nth);

void __wrap_wnw__attend_run(const struct wnw__attend_op *op, const float *q, const float *k, const float *v,
                            float *out, int ith, int nth)
{
    if (!hidden.s || op->batch->slice[0].cache != &hidden.s->cache) {
        __real_wnw__attend_run(op, q, k, v, out, ith, nth);
        return;
    }
    const struct wnw__shape *shape = &hidden.s->shape.model;
    if (ith > 0)
        return;
    if (k)
        wnw__attend_store(op, k, v, 0, 1);
    for (int32_t ih = 0; ih < shape->n_head_kv; ih++) {
        struct entries e = read_entries(op, ih);
        for (int32_t t = 0; t < op->batch->n_row; t++)
            for (int32_t h = ih * wnw__shape_group(shape); h < (ih + 1) * wnw__shape_group(shape); h++) {
                const int64_t at = ((int64_t)t * shape->n_head + h) * shape->d;
                attend_one(op, &e, h, t, q + at, out + at);
            }
        free(e.keys);
        free(e.values);
    }
}

/* ---- Families ---- */

/* Of llama.cpp's generator. The first N_FORMS have every form of attention that is among them: plain, in chunks, with a window, a
 * cap, sinks, a bias by distance, and with heads of 576 numbers. With the kernels of another CPU, or its rounding, these alone are tried:
 * what else differs between families libllama computes. */
enum { N_FORMS = 7 };
static const char *const generated[] = {
    "mistral3-dense",  "llama4-moe",      "cohere2-dense",       "gemma2-dense",     "gpt-oss-moe",
    "deepseek2-moe",   "bloom-dense",     "jais-dense",          "grok-moe",         "llama-moe",
    "qwen3moe-moe",    "phi3-dense",      "granite-dense",       "glm4-dense",       "smollm3-dense",
    "olmo2-dense",     "command-r-dense", "internlm2-dense",     "starcoder2-dense", "minicpm3-dense",
    "mistral4-moe",    "mpt-dense",       "refact-dense",        "cogvlm-dense",     "qwen3next-moe",
    "qwen35-dense",    "qwen35moe-moe",   "granitehybrid-dense", "lfm2-dense",       "jamba-dense",
    "falcon-h1-dense", "nemotron_h-dense"};
/* Of scripts/tiny_foreign.py. */
static const char *const ours[] = {"olmo2",        "phi3",   "lfm2",    "gemma3n",       "gemma4",
                                   "gemma4-heads", "llama4", "gpt-oss", "granitehybrid", "qwen35"};

/* Generated ones that cannot be opened, and what the sentence says why. */
static const struct refusal {
    const char *name, *why;
} refused[] = {{"mamba-dense", "recurrent layers alone"}};

enum {
    N_GENERATED = sizeof generated / sizeof *generated,
    N_OURS = sizeof ours / sizeof *ours,
    N_REFUSED = sizeof refused / sizeof *refused
};

static void set_tokens(int32_t *tokens)
{
    for (int32_t i = 0; i < N; i++)
        tokens[i] = 1 + (i * 7919 + i * i) % 120;
}

/* Logits of libllama alone: after the prompt, and after each token that is decoded after it. [N_AFTER + 1][n_vocab] */
static float *plain_logits(const char *path, const int32_t *tokens, bool flash)
{
    struct test_llama t;
    test_llama_open(&t, path, &(struct test_llama_params){.f32 = true, .flash = flash, .n_ctx = 128});
    const size_t row = (size_t)t.n_vocab;
    float *all = malloc(N_PROMPT * row * sizeof *all), *last = malloc((N_AFTER + 1) * row * sizeof *last);
    assert_non_null(all);
    assert_non_null(last);
    test_llama_decode(&t, 0, 0, tokens, N_PROMPT, all);
    memcpy(last, all + (N_PROMPT - 1) * row, row * sizeof *last);
    for (int32_t i = 0; i < N_AFTER; i++)
        test_llama_decode(&t, 0, N_PROMPT + i, tokens + N_PROMPT + i, 1, last + (size_t)(i + 1) * row);
    free(all);
    test_llama_close(&t);
    return last;
}

static double further(const wnw_session *s, const float *want, double worst)
{
    const double d = test_nmse(wnw_session_logits(s), want, s->m->hp.n_vocab);
    return d > worst ? d : worst;
}

/* How far logits of a session are from libllama's, and how far they may be. */
struct distance {
    double worst, bound;
};

static struct distance compare_logits(const wnw_model *m, const char *path, const int32_t *tokens)
{
    wnw_session *s = test_session_new(m, &exact);
    float *want = plain_logits(path, tokens, false), *other = plain_logits(path, tokens, true);
    test_prefill(s, tokens, N_PROMPT);
    double worst = further(s, want, 0);
    for (int32_t i = 0; i < N_AFTER; i++) {
        assert_ok(wnw_session_decode(s, tokens[N_PROMPT + i]));
        worst = further(s, want + (size_t)(i + 1) * (size_t)m->hp.n_vocab, worst);
    }
    double own = 0; /* that libllama's two ways of computing attention differ by */
    for (int32_t i = 0; i <= N_AFTER; i++) {
        const size_t at = (size_t)i * (size_t)m->hp.n_vocab;
        const double d = test_nmse(other + at, want + at, m->hp.n_vocab);
        own = d > own ? d : own;
    }
    free(want);
    free(other);
    wnw_session_free(s);
    /* ggml's GELU reads a table of f16, so that the last bit of a sum can change an activation by a thousandth. Noise parts a session
     * from libllama further in families that amplify it; libllama's two ways share most of it, and do not tell. */
    const double arithmetic = own / 10 > 1e-8 ? own / 10 : 1e-8;
    return (struct distance){.worst = worst,
                             .bound = (test_noise() > 0 ? 4 : 1) * test_nmse_most(arithmetic)};
}

/* Whether policies act on any layer. */
static bool acts(const wnw_session *s)
{
    for (int32_t il = 0; il < s->cache.n_layer; il++)
        if (wnw__layer_takes_part(&s->shape.model, il))
            return true;
    return false;
}

struct subject {
    const wnw_model *m;
    const char *name;
    const int32_t *tokens;
    double bound;           /* on what logits may differ by */
    const wnw_session *ref; /* has read the prompt with the attention of this file */
};

static wnw_session *read_in_double(const wnw_model *m, const int32_t *tokens)
{
    wnw_session *s = test_session_new(m, &exact);
    hidden.s = s;
    test_prefill(s, tokens, N_PROMPT);
    hidden.s = NULL;
    return s;
}

/* A session that has dropped what a recipe drops goes on as one that hides the same entries, and as its copy. */
static void check_recipe(const struct subject *t, const char *recipe)
{
    const wnw_model *m = t->m;
    const int32_t *tokens = t->tokens;
    wnw_session *s = test_session_new(m, &exact), *ref, *copy;
    wnw_policy *policy = test_policy(recipe);
    const wnw_size size = size_budget(KEEP);
    const wnw_run run = {WNW_INIT(wnw_run), .policy = policy};
    wnw_plan *plan;
    double apart = 0, full = 0;
    assert_ok(wnw_session_begin(s, &run));
    test_prefill(s, tokens, N_PROMPT);
    assert_ok(wnw_session_plan(s, policy, &size, &plan, NULL));
    assert_ok(wnw_session_copy(&ref, t->ref));
    hidden.s = ref;
    hidden.plan = plan;
    assert_ok(wnw_session_copy(&copy, s)); /* it keeps all */
    assert_ok(wnw_session_apply(s, plan, NULL));
    if (acts(s))
        assert_cmp(test_mean_entries(s), <, KEEP + 20.0);
    for (int32_t i = 0; i < N_AFTER; i++) {
        wnw_session *const each[] = {s, ref, copy};
        for (int k = 0; k < 3; k++)
            assert_ok(wnw_session_decode(each[k], tokens[N_PROMPT + i]));
        apart = further(s, wnw_session_logits(ref), apart);
        full = further(s, wnw_session_logits(copy), full);
    }
    print_message("%s, %s: %.2g beside the hidden, %.2g beside the full cache\n", t->name, recipe, apart,
                  full);
    assert_cmp(apart, <, t->bound);
    if (acts(s))
        assert_cmp(full, >, (test_noise() > 0 ? 0 : 100) * apart); /* noise hides what little is dropped */
    hidden.s = NULL;
    hidden.plan = NULL;
    wnw_plan_free(plan);
    wnw_session_free(s);
    wnw_session_free(ref);
    wnw_session_free(copy);
    wnw_policy_free(policy);
}

/* A copy goes on as its original, one after the other and both in one batch, also when more sessions than libllama has
 * sequences for take turns. */
static void check_copies(const struct subject *t)
{
    const wnw_model *m = t->m;
    const int32_t *tokens = t->tokens;
    enum { MANY = 4 };
    const wnw_engine_params of_engine = {WNW_INIT(wnw_engine_params), .n_ubatch = 3, .n_threads = 2,
                                         .attn = WNW_ATTN_F32};
    const wnw_session_params params = {WNW_INIT(wnw_session_params), .n_ctx = 128, .kv_type = WNW_KV_F32,
                                       .attn = WNW_ATTN_F32};
    wnw_engine *e;
    wnw_session *s[MANY], *alone = test_session_new(m, &exact);
    assert_ok(wnw_engine_new(&e, m, &of_engine));
    assert_ok(wnw_session_new_on(&s[0], e, &params));
    test_prefill(s[0], tokens, 30);
    for (int i = 1; i < MANY; i++) {
        assert_ok(wnw_session_copy(&s[i], s[i - 1]));
        assert_ok(wnw_session_decode(s[i], tokens[30 + i]));
    }
    for (int32_t turn = 0; turn < 3; turn++)
        for (int i = 0; i < MANY; i++)
            assert_ok(wnw_session_decode(s[i], tokens[40 + turn]));
    const int32_t next[2] = {tokens[50], tokens[50]};
    assert_ok(wnw_decode_batch(e, s, next, 2));
    for (int i = 0; i < 2; i++) {
        assert_ok(wnw_session_reset(alone));
        test_prefill(alone, tokens, 30);
        if (i == 1)
            assert_ok(wnw_session_decode(alone, tokens[31]));
        test_decode(alone, tokens + 40, 3);
        assert_ok(wnw_session_decode(alone, tokens[50]));
        assert_cmp(test_nmse(wnw_session_logits(s[i]), wnw_session_logits(alone), m->hp.n_vocab), <,
                   t->bound);
    }
    for (int i = 0; i < MANY; i++)
        wnw_session_free(s[i]);
    wnw_engine_free(e);
    wnw_session_free(alone);
}

/* ---- What policies see ---- */

/* Adds up the window's attention of one query head: row sums of at most 1, which a sink lowers, and columns that are the sums
 * that another part of the code has added up while it read. */
static void check_head(const wnw_observation *obs, int32_t n_reader, bool sinks, int32_t h)
{
    double column[N] = {0};
    for (int32_t i = 0; i < obs->n_window; i++) {
        const float *row = obs->window_attn + ((int64_t)h * obs->n_window + i) * obs->n;
        double sum = 0;
        for (int32_t e = 0; e < obs->n; e++) {
            sum += (double)row[e];
            column[e] += (double)row[e] * n_reader;
        }
        assert_cmp(sum, <, 1.0 + 1e-5);
        if (sinks)
            assert_cmp(sum, <, 1.0 - 1e-7);
        else
            assert_cmp(sum, >, 1.0 - 1e-5);
    }
    for (int32_t e = 0; e < obs->n; e++)
        assert_float_equal(obs->attn_sum[(int64_t)h * obs->n + e], (float)column[e],
                           (float)test_rounding(1e-3, 16));
}

/* The attention of the last queries, row by row against double precision, for layers that one attention reads. */
static void check_rows(const wnw_session *s, const wnw_observation *obs, int32_t h)
{
    const struct wnw__score_form *f = wnw__shape_form(&s->shape.model, obs->il);
    const int32_t d = obs->n_embd_head, ih = h / wnw__shape_group(&s->shape.model);
    const float *keys = obs->keys(obs, ih);
    for (int32_t i = 0; i < obs->n_window; i++) {
        const float *q = obs->window_queries + ((int64_t)h * obs->n_window + i) * d;
        const float *got = obs->window_attn + ((int64_t)h * obs->n_window + i) * obs->n;
        const int32_t query = obs->n_past - obs->n_window + i;
        double score[N], sum = f && f->sinks ? exp((double)f->sinks[h]) : 0;
        for (int32_t e = 0; e <= query; e++) {
            score[e] = 0;
            for (int32_t k = 0; k < d; k++)
                score[e] += (double)q[k] * (double)keys[(int64_t)e * d + k] * (double)obs->attn_scale;
            if (f && f->cap > 0.0f)
                score[e] = (double)f->cap * tanh(score[e] / (double)f->cap);
            if (f && f->max_bias > 0.0f)
                score[e] -= (double)wnw__form_slope(f->max_bias, obs->n_head, h) * (query - e);
            sum += exp(score[e]);
        }
        for (int32_t e = 0; e <= query; e++)
            assert_float_equal(got[e], (float)(exp(score[e]) / sum), (float)test_rounding(1e-5, 8));
    }
}

/* Says which methods a model refuses, as docs/reference/families.md has it. */
static const char *refusals(const wnw_model *m)
{
    bool slides = false, all = true, shared = false;
    for (int32_t il = 0; il < m->hp.n_layer; il++) {
        slides = slides || wnw_model_layer_is_swa(m, il);
        all = all && wnw_model_layer_is_swa(m, il);
        shared = shared || (m->n_reader && m->n_reader[il] > 1 && !wnw_model_layer_is_swa(m, il));
    }
    if (all)
        return "all: every layer slides";
    if (shared)
        return "R, Q";
    if (m->hp.rope_unknown)
        return "R, Q";
    return slides || llama_model_is_hybrid(m->vocab) ? "R" : "-";
}

/* ---- What attention reads ---- */

/* Hidden states of all rows that libllama computes, in its order. Where it names the norms in front of the attention, these
 * alone. */
enum { MOST_STATES = 1024 };
struct states {
    float *of[MOST_STATES];
    int32_t n, n_embd;
    bool named;
};

static void free_states(struct states *s)
{
    while (s->n > 0)
        free(s->of[--s->n]);
}

static bool keep_state(struct ggml_tensor *t, bool ask, void *user)
{
    struct states *s = user;
    const bool named = strstr(t->name, "attn_norm-") || strstr(t->name, "operator_norm-");
    if (t->type != GGML_TYPE_F32 || t->ne[0] != s->n_embd || t->ne[1] != N_PROMPT ||
        ggml_nrows(t) != N_PROMPT || !ggml_is_contiguous(t) || (s->named && !named))
        return !ask;
    if (ask)
        return true;
    if (named && !s->named)
        free_states(s);
    s->named = named;
    assert_cmp(s->n, <, MOST_STATES);
    s->of[s->n] = malloc(ggml_nbytes(t));
    assert_non_null(s->of[s->n]);
    ggml_backend_tensor_get(t, s->of[s->n++], 0, ggml_nbytes(t));
    return true;
}

/* Families whose keys are made of something that is made of what the attention reads (MLA). */
static const char *const latent[] = {"deepseek2-moe", "minicpm3-dense", "mistral4-moe"};

static bool is_latent(const char *name)
{
    for (size_t i = 0; i < sizeof latent / sizeof *latent; i++)
        if (strcmp(name, latent[i]) == 0)
            return true;
    return false;
}

/* The hidden states that recorders get of each layer with a cache are libllama's, layer by layer. */
static void check_inputs(const struct subject *t, const char *path)
{
    struct states states = {.n_embd = t->m->hp.n_embd};
    struct test_llama llama;
    wnw_session *s = test_session_new(t->m, &exact);
    assert_ok(wnw__session_record(s, "inputs", true));
    const int rc = wnw_session_prefill(s, t->tokens, N_PROMPT, NULL, NULL);
    if (is_latent(t->name)) {
        assert_int_equal(rc, WNW_E_UNSUPPORTED);
        assert_says("its keys are not made by one product");
        wnw_session_free(s);
        return;
    }
    assert_ok(rc);
    test_llama_open(
        &llama, path,
        &(struct test_llama_params){.f32 = true, .n_ctx = 128, .eval = keep_state, .user = &states});
    test_llama_decode(&llama, 0, 0, t->tokens, N_PROMPT, NULL);
    const struct wnw__token_rows *got = wnw__recorders_find(&s->recorders, &wnw__inputs_recorder);
    int32_t next = 0;
    for (int32_t il = 0; il < t->m->hp.n_layer; il++) {
        const struct wnw__token_rows_layer *l = &got->layers[il];
        double d = INFINITY;
        assert_int_equal(l->n, N_PROMPT);
        for (; next < states.n && !(d < t->bound); next++)
            d = test_nmse(l->q, states.of[next], (int64_t)N_PROMPT * states.n_embd);
        if (!(d < t->bound))
            fail_msg("%s: layer %d reads what none of libllama's layers from there on reads", t->name,
                     (int)il);
    }
    print_message("%s: what attention reads is %s\n", t->name,
                  states.named ? "behind the norms that libllama names" : "among its hidden states");
    free_states(&states);
    test_llama_close(&llama);
    wnw_session_free(s);
}

/* ---- New positions ---- */

/* Keys of the first layer depend on their token and its position alone: those of kept tokens at new positions are those of
 * a session that has read nothing else. */
static void check_renumbered(const struct subject *t)
{
    wnw_session *s = test_session_new(t->m, &exact), *alone = test_session_new(t->m, &exact);
    wnw_policy *policy = test_policy("streaming_llm+rerotate");
    const wnw_size size = size_budget(KEEP);
    /* Angles of up to N_PROMPT radians, with frequencies that ggml makes by one product after the other. */
    const double angle = N_PROMPT * (t->m->hp.n_rot / 2) * 0x1p-24;
    int32_t kept[KEEP];
    float a[MOST_D], b[MOST_D];
    test_prefill(s, t->tokens, N_PROMPT);
    const int rc = wnw_session_compress(s, policy, &size, NULL);
    print_message("%s, new positions: %s\n", t->name, rc == WNW_OK ? "yes" : wnw_last_error());
    if (strcmp(refusals(t->m), "-") == 0)
        assert_ok(rc);
    else
        assert_int_equal(rc, WNW_E_UNSUPPORTED);
    if (rc == WNW_OK) {
        for (int32_t i = 0; i < KEEP; i++)
            kept[i] = t->tokens[i < 4 ? i : N_PROMPT - KEEP + i];
        test_prefill(alone, kept, KEEP);
        for (int32_t ih = 0; ih < t->m->hp.n_head_kv; ih++)
            for (int32_t i = 0; i < KEEP; i++) {
                assert_int_equal(wnw_cache_positions(s, 0, ih)[i], i);
                test_read_row(s, true, 0, ih, i, a);
                test_read_row(alone, true, 0, ih, i, b);
                assert_cmp(test_nmse(a, b, t->m->hp.n_embd_head), <,
                           4 * angle * angle + test_nmse_most(1e-10));
            }
        for (int32_t i = 0; i < N_AFTER; i++)
            assert_ok(wnw_session_decode(s, t->tokens[N_PROMPT + i]));
        assert_int_equal(wnw_cache_n(s, 0, 0), KEEP + N_AFTER);
    }
    wnw_policy_free(policy);
    wnw_session_free(s);
    wnw_session_free(alone);
}

static void check_seen(const wnw_model *m, const int32_t *tokens)
{
    wnw_session *s = test_session_new(m, &exact);
    wnw_policy *policies[] = {test_policy("snapkv:window=100"), test_policy("h2o")};
    struct wnw__plan_source src;
    assert_ok(test_observe(s, (const wnw_policy *const *)policies, 2));
    test_prefill(s, tokens, N_PROMPT);
    assert_ok(wnw__session_source(&src, s));
    const wnw_needs needs = {.flags = WNW_NEED_WINDOW_ATTN | WNW_NEED_KEYS | WNW_NEED_ATTN_SUM,
                             .window = N_PROMPT};
    for (int32_t il = 0; il < m->hp.n_layer; il++) {
        wnw_observation obs;
        if (!wnw__layer_takes_part(&src.shape, il))
            continue;
        assert_ok(src.observe(&src, il, &needs, NULL, &obs));
        const struct wnw__score_form *f = wnw__shape_form(&src.shape, il);
        for (int32_t h = 0; h < obs.n_head; h++) {
            check_head(&obs, wnw__shape_readers(&src.shape, il), f && f->sinks, h);
            if (wnw__shape_readers(&src.shape, il) == 1)
                check_rows(s, &obs, h);
        }
    }
    wnw__source_close(&src);
    wnw_session_free(s);
    for (int i = 0; i < 2; i++)
        wnw_policy_free(policies[i]);
}

/* ---- All families ---- */

static void check_family(const char *path, const char *name, const int32_t *tokens)
{
    wnw_model *m;
    memset(&hidden, 0, sizeof hidden);
    assert_ok(wnw_model_open(&m, path, NULL));
    assert_non_null(m->executor);
    const struct distance d = compare_logits(m, path, tokens);
    print_message("%s: logits differ from libllama's by %.2g\n", name, d.worst);
    assert_cmp(d.worst, <, d.bound);
    wnw_session *ref = read_in_double(m, tokens);
    const struct subject subject = {.m = m, .name = name, .tokens = tokens, .bound = d.bound, .ref = ref};
    check_recipe(&subject, "snapkv+adakv");
    check_recipe(&subject, "keydiff");
    if (m->tokenizer)
        check_recipe(&subject, "kvzip"); /* it asks for the text again, in words */
    check_recipe(&subject, "kvcompose");
    wnw_session_free(ref);
    check_inputs(&subject, path);
    check_renumbered(&subject);
    check_copies(&subject);
    check_seen(m, tokens);
    wnw_model_free(m);
}

static void test_generated(void **state)
{
    (void)state;
    const char *names[N_GENERATED + N_REFUSED];
    struct test_generated g;
    char path[4096];
    int32_t tokens[N];
    const int n = test_other_kernels() ? N_FORMS : N_GENERATED;
    for (int i = 0; i < n + N_REFUSED; i++)
        names[i] = i < n ? generated[i] : refused[i - n].name;
    set_tokens(tokens);
    test_generate(&g, names, (size_t)n + N_REFUSED);
    for (int i = 0; i < n; i++) {
        assert_true(test_generated_path(&g, path, sizeof path, generated[i]));
        check_family(path, generated[i], tokens);
    }
    for (int i = 0; i < N_REFUSED; i++) {
        wnw_model *m;
        assert_true(test_generated_path(&g, path, sizeof path, refused[i].name));
        assert_error(wnw_model_open(&m, path, NULL), WNW_E_UNSUPPORTED);
        assert_says(refused[i].why);
    }
    test_generated_remove(&g);
}

static void test_ours(void **state)
{
    (void)state;
    int32_t tokens[N];
    set_tokens(tokens);
    for (int i = 0; i < N_OURS; i++) {
        char path[4096], name[64];
        snprintf(name, sizeof name, "tiny/foreign/%s.gguf", ours[i]);
        test_model_path(path, sizeof path, name);
        check_family(path, ours[i], tokens);
    }
}

/* Beyond the first chunk, layers see what libllama's see, and hold no more. */
static void test_chunks(void **state)
{
    (void)state;
    enum { CHUNK = 8192, LONG = CHUNK + 100, MORE = 3, BATCH = 512 };
    char path[4096];
    struct test_llama t;
    test_model_path(path, sizeof path, "tiny/foreign/llama4.gguf");
    memset(&hidden, 0, sizeof hidden);
    test_llama_open(&t, path,
                    &(struct test_llama_params){.f32 = true, .n_ctx = LONG + MORE, .n_batch = BATCH});
    wnw_model *m = test_model_open("tiny/foreign/llama4.gguf");
    wnw_session *s = test_session_new(
        m, &(struct test_session){
               .kv_type = WNW_KV_F32, .attn = WNW_ATTN_F32, .n_ctx = LONG + MORE, .n_ubatch = 300});
    int32_t *tokens = test_random_tokens(LONG + MORE, m->hp.n_vocab, 3);
    float *rows = malloc((size_t)BATCH * (size_t)t.n_vocab * sizeof *rows);
    assert_non_null(rows);
    for (int32_t i = 0; i < LONG; i += BATCH)
        test_llama_decode(&t, 0, i, tokens + i, LONG - i < BATCH ? LONG - i : BATCH, rows);
    test_prefill(s, tokens, LONG);
    assert_true(s->cache.chunked);
    assert_cmp(
        test_nmse(wnw_session_logits(s), rows + (size_t)((LONG - 1) % BATCH) * (size_t)t.n_vocab, t.n_vocab),
        <, test_nmse_most(1e-8));
    for (int32_t i = LONG; i < LONG + MORE; i++) {
        test_llama_decode(&t, 0, i, tokens + i, 1, rows);
        assert_ok(wnw_session_decode(s, tokens[i]));
        assert_cmp(test_nmse(wnw_session_logits(s), rows, t.n_vocab), <, test_nmse_most(1e-8));
    }
    for (int32_t il = 0; il < m->hp.n_layer; il++)
        assert_cmp(wnw_cache_n(s, il, 0), <=, il == 3 ? LONG + MORE : LONG + MORE - CHUNK + WNW_CACHE_GROWTH);
    free(rows);
    free(tokens);
    wnw_session_free(s);
    wnw_model_free(m);
    test_llama_close(&t);
}

/* WNW_FAMILIES=FOLDER: writes a table of all models there, as records/families.csv has it. */
static void test_table(void **state)
{
    (void)state;
    const char *folder = getenv("WNW_FAMILIES");
    struct dirent **file;
    int32_t tokens[N];
    if (!folder) {
        skip();
        return;
    }
    set_tokens(tokens);
    const int n = scandir(folder, &file, NULL, alphasort);
    assert_cmp(n, >=, 0);
    for (int i = 0; i < n; free(file[i++])) {
        const char *name = file[i]->d_name, *end = strstr(name, ".gguf");
        char path[4096];
        wnw_model *m;
        snprintf(path, sizeof path, "%s/%s", folder, name);
        if (!end)
            continue;
        if (wnw_model_open(&m, path, NULL) != WNW_OK) {
            print_message("| %.*s | refused | %s |\n", (int)(end - name), name, wnw_last_error());
            continue;
        }
        const struct distance d = m->executor ? compare_logits(m, path, tokens) : (struct distance){0};
        print_message("| %.*s | %.0e%s | %s |\n", (int)(end - name), name, d.worst,
                      d.worst < d.bound ? "" : " TOO FAR", refusals(m));
        wnw_model_free(m);
    }
    free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ours), cmocka_unit_test(test_generated),
                                       cmocka_unit_test(test_chunks), cmocka_unit_test(test_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
