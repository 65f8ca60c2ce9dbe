/* SPDX-License-Identifier: MIT */
/* Masked heads: a session with masks computes what a model computes whose output projection has no weights for
 * these heads; and lists of heads. */
#include "files.h"
#include "gguf_edit.h"
#include "helpers.h"
#include "peek_session.h"
#include "winnow_calibrate.h"
#include "winnow_study.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_PROMPT = 70, N_STEP = 3, N_TOKEN = N_PROMPT + N_STEP };

static const struct row {
    const char *name, *arch;
    wnw_attn attn;
    int32_t n_mask;
    wnw_head mask[4]; /* n_mask 0: all heads of layer 1 */
    wnw_mask_form form;
} rows[] = {
    {"llama, a layer", "llama", WNW_ATTN_OWN, 0, {{0, 0}}, WNW_MASK_ZERO},
    {"llama, a layer, ggml", "llama", WNW_ATTN_GGML, 0, {{0, 0}}, WNW_MASK_ZERO},
    {"qwen2, one head", "qwen2", WNW_ATTN_OWN, 1, {{0, 1}}, WNW_MASK_ZERO},
    {"qwen3, heads of all layers", "qwen3", WNW_ATTN_OWN, 3, {{1, 0}, {0, 3}, {1, 2}}, WNW_MASK_ZERO},
    {"gemma3, a layer", "gemma3", WNW_ATTN_OWN, 0, {{0, 0}}, WNW_MASK_ZERO},
    {"gemma3, two heads, ggml", "gemma3", WNW_ATTN_GGML, 2, {{0, 1}, {1, 0}}, WNW_MASK_ZERO},
    {"llama, the mean of a layer's values", "llama", WNW_ATTN_OWN, 0, {{0, 0}}, WNW_MASK_MEAN},
    {"qwen2, the mean, biases of queries, ggml", "qwen2", WNW_ATTN_GGML, 2, {{0, 1}, {1, 0}}, WNW_MASK_MEAN},
    {"qwen3, the mean, norms of queries", "qwen3", WNW_ATTN_OWN, 3, {{1, 0}, {0, 3}, {1, 2}}, WNW_MASK_MEAN},
    {"gemma3, the mean in a window", "gemma3", WNW_ATTN_OWN, 0, {{0, 0}}, WNW_MASK_MEAN},
};

/* The heads of the row. Returns their number. */
static int32_t heads_of(const struct row *row, const wnw_model_info *info, wnw_head *heads)
{
    for (int32_t i = 0; i < row->n_mask; i++) {
        assert_cmp(row->mask[i].h, <, info->n_head);
        heads[i] = row->mask[i];
    }
    if (row->n_mask > 0)
        return row->n_mask;
    for (int32_t h = 0; h < info->n_head; h++)
        heads[h] = (wnw_head){1, h};
    return info->n_head;
}

static struct ggml_tensor *layer_tensor(const struct test_gguf *f, int32_t il, const char *what)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s", (int)il, what);
    struct ggml_tensor *t = test_gguf_tensor(f, name);
    assert_true(!t || t->type == GGML_TYPE_F32);
    return t;
}

/* Sets what makes the head's queries to 0. */
static void cut_query(const struct test_gguf *f, const wnw_model_info *info, wnw_head head)
{
    struct ggml_tensor *w = layer_tensor(f, head.il, "attn_q.weight"),
                       *b = layer_tensor(f, head.il, "attn_q.bias");
    const size_t d = (size_t)info->n_embd_head, first = (size_t)head.h * d;
    assert_non_null(w);
    memset((float *)w->data + first * (size_t)w->ne[0], 0, d * (size_t)w->ne[0] * sizeof(float));
    if (b)
        memset((float *)b->data + first, 0, d * sizeof(float));
}

/* Sets the weights after the heads, or those in front of their queries, to 0 in a copy of the model's file. */
static void cut_heads(const char *from, const char *to, const struct row *row, const wnw_model_info *info,
                      const wnw_head *heads, int32_t n)
{
    struct test_gguf f;
    test_gguf_read(&f, from);
    for (int32_t i = 0; i < n; i++) {
        struct ggml_tensor *t = layer_tensor(&f, heads[i].il, "attn_output.weight");
        assert_non_null(t);
        if (row->form == WNW_MASK_MEAN)
            cut_query(&f, info, heads[i]);
        for (int64_t k = 0; row->form == WNW_MASK_ZERO && k < t->ne[1]; k++)
            memset((float *)t->data + k * t->ne[0] + heads[i].h * info->n_embd_head, 0,
                   (size_t)info->n_embd_head * sizeof(float));
    }
    test_gguf_write(&f, to);
    test_gguf_free(&f);
}

static void is_a_model_without_the_heads(void **state)
{
    const struct row *row = *state;
    char name[TEST_NAME_MAX], path[4096], cut_path[] = "/tmp/winnow-masks-XXXXXX";
    struct test_model t;
    wnw_model *cut;
    wnw_head heads[64];
    test_tiny_model_of(name, row->arch);
    test_model_path(path, sizeof path, name);
    test_open(&t, name, N_TOKEN, 5);
    const int32_t n = heads_of(row, &t.info, heads);
    test_file_new(cut_path);
    cut_heads(path, cut_path, row, &t.info, heads, n);
    assert_ok(wnw_model_open(&cut, cut_path, NULL));
    for (int32_t threads = 1; threads <= 2; threads++) {
        const struct test_session want = {
            .kv_type = WNW_KV_F32, .attn = row->attn, .n_ctx = N_TOKEN, .n_ubatch = 32, .n_threads = threads};
        wnw_session *a = test_session_new(t.m, &want), *b = test_session_new(cut, &want);
        wnw_session *plain = test_session_new(t.m, &want);
        assert_ok(wnw_session_mask_form(a, row->form));
        assert_ok(wnw_session_mask_heads(a, heads, n, WNW_MASK_ALL));
        test_prefill(a, t.tokens, N_PROMPT);
        test_prefill(b, t.tokens, N_PROMPT);
        test_prefill(plain, t.tokens, N_PROMPT);
        for (int32_t i = N_PROMPT;; i++) {
            assert_same_logits(a, b);
            if (i == N_TOKEN)
                break;
            assert_ok(wnw_session_decode(a, t.tokens[i]));
            assert_ok(wnw_session_decode(b, t.tokens[i]));
            assert_ok(wnw_session_decode(plain, t.tokens[i]));
        }
        assert_same_cache(a, b);
        assert_true(memcmp(wnw_session_logits(a), wnw_session_logits(plain),
                           (size_t)t.info.n_vocab * sizeof(float)) != 0);
        wnw_session_free(a);
        wnw_session_free(b);
        wnw_session_free(plain);
    }
    wnw_model_free(cut);
    test_close(&t);
    unlink(cut_path);
}

/* ---- When masks hold ---- */

static const wnw_head some[] = {{0, 0}, {1, 1}, {1, 3}};
enum { N_SOME = 3 };

struct fixture {
    struct test_model t;
    struct test_session want;
};

static wnw_session *new_session(const struct fixture *f, int32_t n_mask, wnw_mask_phase phase)
{
    wnw_session *s = test_session_new(f->t.m, &f->want);
    assert_ok(wnw_session_mask_heads(s, some, n_mask, phase));
    return s;
}

static void decode(wnw_session *s, const struct fixture *f)
{
    test_decode(s, f->t.tokens + N_PROMPT, N_TOKEN - N_PROMPT);
}

/* Present masks take a form that is set after them, and copies have it. */
static void forms_change(void **state)
{
    const struct fixture *f = *state;
    wnw_session *a = new_session(f, N_SOME, WNW_MASK_ALL), *b = test_session_new(f->t.m, &f->want), *copy;
    assert_ok(wnw_session_mask_form(a, WNW_MASK_MEAN));
    assert_ok(wnw_session_mask_form(b, WNW_MASK_MEAN));
    assert_ok(wnw_session_mask_heads(b, some, N_SOME, WNW_MASK_ALL));
    test_prefill(a, f->t.tokens, N_PROMPT);
    test_prefill(b, f->t.tokens, N_PROMPT);
    assert_same_logits(a, b);
    assert_error(wnw_session_mask_form(a, (wnw_mask_form)2), WNW_E_ARG);
    assert_ok(wnw_session_copy(&copy, a));
    decode(a, f);
    decode(copy, f);
    assert_same_logits(a, copy);
    assert_ok(wnw_session_mask_form(b, WNW_MASK_ZERO));
    decode(b, f);
    assert_true(
        memcmp(wnw_session_logits(a), wnw_session_logits(b), (size_t)f->t.info.n_vocab * sizeof(float)) != 0);
    wnw_session_free(a);
    wnw_session_free(b);
    wnw_session_free(copy);
}

/* Masks while decoding are masks that are set after the prompt. */
static void while_decoding_only(void **state)
{
    const struct fixture *f = *state;
    wnw_session *a = new_session(f, N_SOME, WNW_MASK_DECODE), *b = new_session(f, 0, WNW_MASK_ALL);
    test_prefill(a, f->t.tokens, N_PROMPT);
    test_prefill(b, f->t.tokens, N_PROMPT);
    assert_same_logits(a, b);
    wnw_session *plain;
    assert_ok(wnw_session_copy(&plain, b));
    assert_ok(wnw_session_mask_heads(b, some, N_SOME, WNW_MASK_ALL));
    decode(a, f);
    decode(b, f);
    decode(plain, f);
    assert_same_logits(a, b);
    assert_same_cache(a, b);
    assert_true(memcmp(wnw_session_logits(a), wnw_session_logits(plain),
                       (size_t)f->t.info.n_vocab * sizeof(float)) != 0);
    wnw_session_free(a);
    wnw_session_free(b);
    wnw_session_free(plain);
}

static void copies_and_resets_keep_masks(void **state)
{
    const struct fixture *f = *state;
    wnw_session *a = new_session(f, N_SOME, WNW_MASK_ALL), *b, *plain = new_session(f, 0, WNW_MASK_ALL);
    test_prefill(a, f->t.tokens, N_PROMPT);
    assert_ok(wnw_session_copy(&b, a));
    decode(a, f);
    decode(b, f);
    assert_same_logits(a, b);
    assert_ok(wnw_session_reset(b));
    test_prefill(b, f->t.tokens, N_PROMPT);
    decode(b, f);
    assert_same_logits(a, b);
    /* Without masks it is the session that never had any. */
    assert_ok(wnw_session_reset(b));
    assert_ok(wnw_session_mask_heads(b, NULL, 0, WNW_MASK_ALL));
    test_prefill(b, f->t.tokens, N_PROMPT);
    test_prefill(plain, f->t.tokens, N_PROMPT);
    decode(b, f);
    decode(plain, f);
    assert_same_logits(b, plain);
    assert_same_cache(b, plain);
    wnw_session_free(a);
    wnw_session_free(b);
    wnw_session_free(plain);
}

/* Reading layer by layer, with a compression, is reading through all layers. */
static void layer_by_layer(void **state)
{
    const struct fixture *f = *state;
    wnw_policy *policy = test_policy("snapkv:window=8");
    wnw_session *s[2];
    for (int i = 0; i < 2; i++) {
        const wnw_run run = {WNW_INIT(wnw_run), .phase = i ? WNW_PHASE_LAYER : WNW_PHASE_END,
                             .policy = policy, .size = size_budget(30)};
        s[i] = new_session(f, N_SOME, WNW_MASK_ALL);
        assert_ok(wnw_session_begin(s[i], &run));
        assert_ok(wnw_session_read(s[i], f->t.tokens, N_PROMPT, NULL));
        decode(s[i], f);
    }
    assert_same_logits(s[0], s[1]);
    assert_same_cache(s[0], s[1]);
    wnw_session_free(s[0]);
    wnw_session_free(s[1]);
    wnw_policy_free(policy);
}

/* Sessions of a batch have masks of their own. */
static void in_a_batch(void **state)
{
    const struct fixture *f = *state;
    enum { N = 3 };
    static const int32_t n_mask[N] = {N_SOME, 0, 1};
    static const wnw_mask_phase phase[N] = {WNW_MASK_ALL, WNW_MASK_ALL, WNW_MASK_DECODE};
    const wnw_engine_params params = {WNW_INIT(wnw_engine_params), .n_ubatch = 32, .n_threads = 2};
    wnw_session *together[N], *alone[N];
    wnw_engine *e;
    assert_ok(wnw_engine_new(&e, f->t.m, &params));
    for (int i = 0; i < N; i++) {
        const wnw_session_params p = {WNW_INIT(wnw_session_params), .n_ctx = N_TOKEN, .kv_type = WNW_KV_F32};
        alone[i] = new_session(f, n_mask[i], phase[i]);
        assert_ok(wnw_session_new_on(&together[i], e, &p));
        assert_ok(wnw_session_mask_heads(together[i], some, n_mask[i], phase[i]));
        test_prefill(alone[i], f->t.tokens + i, N_PROMPT - i);
        test_prefill(together[i], f->t.tokens + i, N_PROMPT - i);
    }
    for (int32_t k = 0; k < N_STEP; k++) {
        const int32_t tokens[N] = {f->t.tokens[k], f->t.tokens[k + 1], f->t.tokens[k + 2]};
        assert_ok(wnw_decode_batch(e, together, tokens, N));
        for (int i = 0; i < N; i++)
            assert_ok(wnw_session_decode(alone[i], tokens[i]));
    }
    for (int i = 0; i < N; i++) {
        /* Products of one row and of several round differently (decision 022). */
        assert_cmp(test_relative_error(wnw_session_logits(together[i]), wnw_session_logits(alone[i]),
                                       (size_t)f->t.info.n_vocab),
                   <, test_rounding(1e-4, 16));
        wnw_session_free(together[i]);
        wnw_session_free(alone[i]);
    }
    wnw_engine_free(e);
}

static void refuses(void **state)
{
    const struct fixture *f = *state;
    wnw_session *s = new_session(f, N_SOME, WNW_MASK_ALL), *same = new_session(f, N_SOME, WNW_MASK_ALL);
    const wnw_head bad[] = {{f->t.info.n_layer, 0}, {0, f->t.info.n_head}, {-1, 0}, {0, -1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_error(wnw_session_mask_heads(s, &bad[i], 1, WNW_MASK_ALL), WNW_E_RANGE);
        assert_says("no query head");
    }
    assert_error(wnw_session_mask_heads(s, some, -1, WNW_MASK_ALL), WNW_E_RANGE);
    assert_error(wnw_session_mask_heads(s, some, 1, (wnw_mask_phase)2), WNW_E_ARG);
    assert_error(wnw_session_mask_heads(s, NULL, 1, WNW_MASK_ALL), WNW_E_ARG);
    assert_error(wnw_session_mask_heads(NULL, some, 1, WNW_MASK_ALL), WNW_E_ARG);
    test_prefill(s, f->t.tokens, N_PROMPT); /* the earlier masks hold */
    test_prefill(same, f->t.tokens, N_PROMPT);
    assert_same_logits(s, same);
    wnw_session_free(s);
    wnw_session_free(same);
}

/* ---- Lists of heads ---- */

/* The list as text "il-h il-h ...", or the error's sentence. */
static const char *listed(const struct fixture *f, const char *text, const wnw_profile *p)
{
    static char out[512];
    wnw_head *heads;
    int32_t n;
    const int rc = wnw_heads_parse(&heads, &n, text, f->t.m, p);
    *out = '\0';
    for (int32_t i = 0; i < n; i++)
        snprintf(out + strlen(out), sizeof out - strlen(out), "%s%d-%d", i ? " " : "", (int)heads[i].il,
                 (int)heads[i].h);
    if (rc != WNW_OK) {
        assert_null(heads);
        return wnw_last_error();
    }
    wnw_free(heads);
    return out;
}

static void lists_of_heads(void **state)
{
    const struct fixture *f = *state;
    const int32_t n_head = f->t.info.n_head, n_all = f->t.info.n_layer * n_head;
    wnw_profile *p;
    assert_ok(wnw_profile_new(&p, f->t.m));
    assert_string_equal(listed(f, "1-0", NULL), "1-0");
    assert_string_equal(listed(f, "1-3,0-2,1-1", NULL), "1-3 0-2 1-1");
    assert_contains(listed(f, "srh:top2", p), "needs a profile of kind srh");
    p->kinds = 1u << WNW_PROFILE_SRH;
    assert_contains(listed(f, "srh:top2", p), "no srh_mean");
    p->srh_mean = calloc((size_t)n_all, sizeof *p->srh_mean);
    p->trad_mean = calloc((size_t)n_all, sizeof *p->trad_mean);
    p->srh_mean[n_head + 1] = 3;
    p->srh_mean[2] = p->srh_mean[n_head] = 2; /* equal: the lower layer first */
    p->trad_mean[3] = 1;
    assert_string_equal(listed(f, "srh:top3", p), "1-1 0-2 1-0");
    assert_string_equal(listed(f, "trad:top2", p), "0-3 0-0"); /* zeros in the order of layers and heads */
    assert_int_equal(wnw_heads_profiles("srh:top3"), 1u << WNW_PROFILE_SRH);
    assert_int_equal(wnw_heads_profiles("trad:top3"), 1u << WNW_PROFILE_SRH);
    assert_int_equal(wnw_heads_profiles("random:3:1:9"), 1u << WNW_PROFILE_SRH);
    assert_int_equal(wnw_heads_profiles("random:3:1"), 0);
    assert_int_equal(wnw_heads_profiles("1-1"), 0);
    assert_int_equal(wnw_heads_profiles(NULL), 0);
    char rest[512] = "", random[32];
    for (int32_t i = 0; i < n_all; i++) /* all but the three best can only be drawn in one way */
        if (i != 2 && i != n_head && i != n_head + 1)
            snprintf(rest + strlen(rest), sizeof rest - strlen(rest), "%s%d-%d", *rest ? " " : "",
                     (int)(i / n_head), (int)(i % n_head));
    snprintf(random, sizeof random, "random:%d:5:3", (int)n_all - 3);
    assert_string_equal(listed(f, random, p), rest);
    snprintf(random, sizeof random, "random:%d:5:4", (int)n_all - 3);
    assert_contains(listed(f, random, p), "without the 4 best");
    assert_contains(listed(f, "random:1:5:0", p), "without the 0 best");
    assert_contains(listed(f, "random:1:5:2", NULL), "needs a profile of kind srh");
    p->model.n_layer++;
    assert_contains(listed(f, "srh:top3", p), "the profile has");
    wnw_profile_free(p);
}

static void lists_that_are_refused(void **state)
{
    const struct fixture *f = *state;
    static const char *const malformed[] = {"",
                                            "1",
                                            "1-",
                                            "-1",
                                            "1-1,",
                                            "1-1 1-2",
                                            "1-1;1-2",
                                            "1--1",
                                            "a-1",
                                            "srh:5",
                                            "srh:top",
                                            "srh:top5x",
                                            "srh:top-1",
                                            "top5",
                                            "random:3",
                                            "random:",
                                            "random:3:x",
                                            "random:3:4 ",
                                            "random:3:-4",
                                            "1-99999999999",
                                            "random:3:4:",
                                            "random:3:4:x",
                                            "random:3:4:-1"};
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++)
        assert_contains(listed(f, malformed[i], NULL), "is not a list of heads");
    assert_contains(listed(f, "1-1,1-1", NULL), "twice");
    assert_contains(listed(f, "0-64", NULL), "no query head");
    assert_contains(listed(f, "64-0", NULL), "no query head");
    assert_contains(listed(f, "random:0:1", NULL), "0 heads");
    assert_contains(listed(f, "random:9999:1", NULL), "9999 heads");
    assert_contains(listed(f, "srh:top9999", NULL), "9999 heads");
}

/* All heads are drawn about as often, each once in a list; a seed determines the list. */
static void random_heads(void **state)
{
    const struct fixture *f = *state;
    enum { N_SEED = 400, N_DRAW = 3, MOST = 256 };
    const int32_t n_all = f->t.info.n_layer * f->t.info.n_head;
    int32_t count[MOST] = {0};
    assert_cmp(n_all, <=, MOST);
    for (int seed = 0; seed < N_SEED; seed++) {
        char text[32];
        wnw_head *heads, *again;
        int32_t n;
        snprintf(text, sizeof text, "random:%d:%d", N_DRAW, seed);
        assert_ok(wnw_heads_parse(&heads, &n, text, f->t.m, NULL));
        assert_int_equal(n, N_DRAW);
        for (int32_t i = 0; i < n; i++) {
            const int32_t at = heads[i].il * f->t.info.n_head + heads[i].h;
            if (i > 0)
                assert_cmp(at, >, heads[i - 1].il * f->t.info.n_head + heads[i - 1].h);
            count[at]++;
        }
        assert_ok(wnw_heads_parse(&again, &n, text, f->t.m, NULL));
        assert_memory_equal((int32_t *)heads, (int32_t *)again, sizeof *heads * N_DRAW);
        wnw_free(heads);
        wnw_free(again);
    }
    const double mean = (double)N_SEED * N_DRAW / n_all;
    for (int32_t i = 0; i < n_all; i++)
        assert_near(count[i], mean, mean / 2);
    char all[32];
    wnw_head *heads;
    int32_t n;
    snprintf(all, sizeof all, "random:%d:7", (int)n_all);
    assert_ok(wnw_heads_parse(&heads, &n, all, f->t.m, NULL));
    assert_int_equal(n, n_all);
    wnw_free(heads);
}

static int open_fixture(void **state)
{
    static struct fixture f;
    test_open_tiny(&f.t, "llama", N_TOKEN, 5);
    f.want = (struct test_session){.kv_type = WNW_KV_F32, .n_ctx = N_TOKEN, .n_ubatch = 32};
    *state = &f;
    return 0;
}

static int close_fixture(void **state)
{
    test_close(&((struct fixture *)*state)->t);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(while_decoding_only),
        cmocka_unit_test(forms_change),
        cmocka_unit_test(copies_and_resets_keep_masks),
        cmocka_unit_test(layer_by_layer),
        cmocka_unit_test(in_a_batch),
        cmocka_unit_test(refuses),
        cmocka_unit_test(lists_of_heads),
        cmocka_unit_test(random_heads),
        cmocka_unit_test(lists_that_are_refused),
    };
    const int failed = run_rows(is_a_model_without_the_heads, rows);
    return failed + cmocka_run_group_tests(tests, open_fixture, close_fixture);
}
