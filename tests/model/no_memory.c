/* SPDX-License-Identifier: MIT */
/*
 * Memory that runs out at every single allocation of winnow, one run each: the call must succeed or return
 * E_NOMEM with a message, leak nothing, and leave the session usable for the same call. Half of the
 * runs have one allocation fail, half that one and all that follow.
 */
#include "calibrations.h"
#include "failing_alloc.h"
#include "gguf_copy.h"
#include "helpers.h"
#include "peek_arrays.h"
#include "peek_prompt.h"
#include "peek_session.h"
#include "winnow_calibrate.h"
#include "winnow_chat.h"
#include "winnow_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_PROMPT = 40, N_TOKENS = 64, N_CTX = 160, MAX_RUNS = 4000, N_NOTED = 40 };

struct fixture {
    wnw_model *model;
    wnw_model_info info;
    wnw_profile *profile;
    int32_t *tokens; /* [N_TOKENS] */
    char profile_path[WNW_N_PROFILE_KINDS][64];
    int64_t n_failed; /* allocations that were let fail */
};

/* ---- Trying an action ---- */

/* What is tried: ready and done run with memory, act may run out of it. rc of `done` is what act returned. */
struct action {
    const char *name;
    void (*ready)(struct fixture *fx, void *state);
    int (*act)(struct fixture *fx, void *state);
    void (*done)(struct fixture *fx, void *state, int rc);
    void *state;
};

/* Runs the action with its n-th allocation failing; false when it makes fewer. */
static bool run_one(struct fixture *fx, const struct action *a, int64_t n, bool for_good)
{
    const int64_t live = alloc_live();
    if (a->ready)
        a->ready(fx, a->state);
    alloc_arm(n, for_good);
    const int rc = a->act(fx, a->state);
    const int64_t n_seen = alloc_disarm();
    if (rc != WNW_OK && rc != WNW_E_NOMEM)
        fail_msg("%s, allocation %d fails%s: %s: %s", a->name, (int)n, for_good ? " and all after it" : "",
                 wnw_strerror(rc), wnw_last_error());
    if (rc == WNW_E_NOMEM && (n_seen < n || !wnw_last_error()[0]))
        fail_msg("%s: out of memory without a failed allocation, or without a sentence", a->name);
    if (a->done)
        a->done(fx, a->state, rc);
    if (alloc_live() != live)
        fail_msg("%s, allocation %d of %d fails%s: %d blocks are left", a->name, (int)n, (int)n_seen,
                 for_good ? " and all after it" : "", (int)(alloc_live() - live));
    fx->n_failed += n_seen >= n;
    return n_seen >= n;
}

/* All of the first allocations, then ever fewer of the later ones, so that the time is bounded: of n each n / part-th. */
static void run_parts(struct fixture *fx, const struct action *a, int64_t n_first, int64_t part)
{
    for (int64_t n = 1; n < MAX_RUNS * 1000; n += n < n_first ? 1 : 1 + n / part)
        if (!run_one(fx, a, n, n % 2 == 0))
            return;
    fail_msg("%s does not come to an end", a->name);
}

/* A sanitizer sees what blocks that are left do not tell; it takes four times as long. */
static void run_all(struct fixture *fx, const struct action *a)
{
    if (test_looks_at_memory())
        run_parts(fx, a, N_NOTED / 2, 8);
    else
        run_parts(fx, a, N_NOTED, 24);
}

/* ---- Policies, registries, the method list, plans from data ---- */

static int parse(struct fixture *fx, void *state)
{
    wnw_policy *p;
    (void)fx;
    const int rc = wnw_policy_parse(&p, state, NULL);
    if ((rc == WNW_OK) != (p != NULL))
        fail_msg("%s: a status and a policy that disagree", (const char *)state);
    wnw_policy_free(p);
    return rc;
}

static void policies_are_parsed(void **state)
{
    struct fixture *fx = *state;
    wnw_method_info info = {WNW_INIT(wnw_method_info)};
    for (int32_t i = 0; wnw_method_get(i, &info); i++)
        if (strstr(info.kind, "preset")) {
            char name[128];
            snprintf(name, sizeof name, "%s", info.name);
            run_all(fx, &(struct action){.name = info.name, .act = parse, .state = name});
        }
}

static int list_methods(struct fixture *fx, void *state)
{
    wnw_method_info info = {WNW_INIT(wnw_method_info)};
    (void)fx;
    (void)state;
    for (int32_t i = 0; i < 12 && wnw_method_get(i, &info); i++)
        if (!info.name[0] || !info.recipe || !info.layout)
            return WNW_E_ARG;
    return WNW_OK;
}

static int no_score(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    (void)opts;
    (void)obs;
    (void)score;
    (void)scratch;
    return WNW_OK;
}

static int fill_registry(struct fixture *fx, void *state)
{
    static char names[20][16];
    static wnw_scorer scorers[20];
    wnw_registry *r;
    (void)fx;
    (void)state;
    int rc = wnw_registry_new(&r);
    for (int i = 0; rc == WNW_OK && i < 20; i++) {
        snprintf(names[i], sizeof names[i], "mine%d", i);
        scorers[i] = (wnw_scorer){.part = {WNW_SCORER_INIT, .name = names[i]}, .score = no_score};
        rc = wnw_registry_add(r, &scorers[i].part);
    }
    wnw_registry_free(r);
    return rc;
}

static int plan_from_data(struct fixture *fx, void *state)
{
    static const int32_t some[] = {0, 3, 5}, n[] = {3, 0, 2, 1};
    const int32_t *const positions[] = {some, NULL, some, some};
    wnw_plan *plan;
    (void)fx;
    (void)state;
    const int rc = wnw_plan_new(&plan, 2, 2, 6, n, positions);
    wnw_plan_free(plan);
    return rc;
}

static int sample(struct fixture *fx, void *state)
{
    static const float logits[] = {0, 3, 1, 2};
    wnw_sampler *sp;
    (void)fx;
    (void)state;
    const int rc = wnw_sampler_new(&sp, NULL);
    if (rc == WNW_OK && wnw_sampler_pick(sp, logits, 4) != 1)
        return WNW_E_ARG; /* greedy needs no memory */
    wnw_sampler_free(sp);
    return rc;
}

static void small_things(void **state)
{
    struct fixture *fx = *state;
    run_all(fx, &(struct action){.name = "the method list", .act = list_methods});
    run_all(fx, &(struct action){.name = "a registry", .act = fill_registry});
    run_all(fx, &(struct action){.name = "a plan from data", .act = plan_from_data});
    run_all(fx, &(struct action){.name = "a sampler", .act = sample});
}

static void mark(int32_t i, void *user)
{
    ((char *)user)[i]++;
}

static void threads_that_cannot_start(void **state)
{
    (void)state;
    int n_small = 0;
    for (int64_t n = 1; n < 12; n++) {
        char done[33] = {0};
        struct wnw__team *team;
        alloc_arm(n, false);
        const int rc = wnw__team_new(&team, 6);
        alloc_disarm();
        if (rc == WNW_E_NOMEM) {
            assert_null(team);
            continue;
        }
        assert_ok(rc);
        assert_in_range(team->pool.n_threads, 1, 6);
        n_small += team->pool.n_threads < 6;
        wnw__parallel(&team->pool, 33, mark, done);
        for (int i = 0; i < 33; i++)
            assert_int_equal(done[i], 1);
        wnw__team_free(team);
    }
    assert_int_equal(n_small, 5); /* each of the five others once, and those after it */
}

/* ---- Models, text, profiles ---- */

static int open_model(struct fixture *fx, void *state)
{
    wnw_model *m;
    (void)fx;
    const int rc = wnw_model_open(&m, state, NULL);
    assert_cmp((rc == WNW_OK), ==, (m != NULL));
    wnw_model_free(m);
    return rc;
}

static int fingerprint_of_file(struct fixture *fx, void *state)
{
    char out[WNW_FINGERPRINT_SIZE] = "x";
    const wnw_model_params params = {WNW_INIT(wnw_model_params), .digests = "/nonexistent/digests"};
    (void)fx;
    const int rc = wnw_file_fingerprint(state, &params, out);
    assert_int_equal(strlen(out), rc == WNW_OK ? WNW_FINGERPRINT_SIZE - 1 : 0);
    return rc;
}

static void models_are_opened(void **state)
{
    static const char *const names[] = {"tiny/tiny-llama.gguf", "tiny/tiny-llama-q4_0.gguf",
                                        "tiny/tiny-gemma3.gguf"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[4096];
        test_model_path(path, sizeof path, names[i]);
        run_all(*state, &(struct action){.name = names[i], .act = open_model, .state = path});
        run_all(*state, &(struct action){.name = names[i], .act = fingerprint_of_file, .state = path});
    }
}

static int use_text(struct fixture *fx, void *state)
{
    const wnw_prompt_params params = {WNW_INIT(wnw_prompt_params), .document = "In the thin air.",
                                      .question = "Where?"};
    int32_t *tokens, n;
    char *text = NULL;
    wnw_prompt *prompt = NULL;
    (void)state;
    int rc = wnw_tokenize(fx->model, "in the thin", 11, false, false, &tokens, &n);
    if (rc == WNW_OK)
        rc = wnw_detokenize(fx->model, tokens, n, &text);
    wnw_free(tokens);
    wnw_free(text);
    if (rc != WNW_OK)
        return rc;
    rc = wnw_prompt_build(&prompt, fx->model, &params);
    wnw_prompt_free(prompt);
    return rc;
}

/* Two turns; the second is asked twice. A failure leaves a usable conversation. */
static int use_chat(struct fixture *fx, void *state)
{
    static const wnw_prompt_params how[] = {
        {WNW_INIT(wnw_prompt_params), .raw = true},
        {WNW_INIT(wnw_prompt_params), .chat = "chatml", .system = "Be brief."},
        {WNW_INIT(wnw_prompt_params), .chat = "gemma", .verbatim = true}};
    wnw_chat *c = NULL;
    wnw_prompt *p = NULL;
    int32_t n;
    int rc = wnw_chat_open(&c, fx->model, &how[*(const int *)state]);
    if (rc == WNW_OK)
        rc = wnw_chat_user(&p, c, "In the thin air.", "Where?", "In");
    if (rc == WNW_OK)
        rc = wnw_chat_answer(c, p->tokens, 2);
    wnw_prompt_free(p);
    p = NULL;
    if (rc == WNW_OK)
        rc = wnw_chat_user(&p, c, NULL, "When?", NULL);
    wnw_prompt_free(p);
    p = NULL;
    if (rc == WNW_OK) {
        int32_t n_before, n_after;
        (void)wnw_chat_tokens(c, &n_before);
        rc = wnw_chat_user(&p, c, NULL, "Who was it, and where did they go?", NULL);
        (void)wnw_chat_tokens(c, &n_after);
        assert_true(rc == WNW_OK || n_after == n_before);
    }
    wnw_prompt_free(p);
    if (rc == WNW_OK)
        rc = wnw_chat_answer_text(c, "He.");
    if (c && rc == WNW_OK && !wnw_chat_tokens(c, &n))
        rc = WNW_E_ARG;
    wnw_chat_free(c);
    return rc;
}

static int generate(struct fixture *fx, void *state)
{
    static const char *const stop[] = {"never"};
    const wnw_generate_params params = {WNW_INIT(wnw_generate_params), .n_max = 4, .stop = stop, .n_stop = 1};
    wnw_generated g = wnw_generated_default();
    wnw_sampler *sampler = NULL;
    wnw_session *s = NULL;
    (void)fx;
    int rc = wnw_session_copy(&s, state);
    if (rc == WNW_OK)
        rc = wnw_sampler_new(&sampler, NULL);
    if (rc == WNW_OK)
        rc = wnw_generate(&g, s, sampler, &params);
    wnw_generated_clear(&g);
    wnw_sampler_free(sampler);
    wnw_session_free(s);
    return rc;
}

static void conversations(void **state)
{
    struct fixture *fx = *state;
    for (int i = 0; i < 3; i++)
        run_all(fx, &(struct action){.name = "chat", .act = use_chat, .state = &i});
    wnw_session *s = test_session_new(fx->model, &(struct test_session){.n_ctx = 64});
    test_prefill(s, (const int32_t[]){1, 5, 9}, 3);
    run_all(fx, &(struct action){.name = "generate", .act = generate, .state = s});
    wnw_session_free(s);
}

/* A long run, which is tokenised on a stack of its own, between control tokens. */
static int use_long_text(struct fixture *fx, void *state)
{
    char run[600];
    int32_t *tokens, n;
    (void)fx;
    memset(run, 'a', sizeof run);
    memcpy(run, "<|im_end|>", 10);
    memcpy(run + 300, "<|im_end|>", 10);
    const int rc = wnw_tokenize(state, run, sizeof run, true, true, &tokens, &n);
    wnw_free(tokens);
    return rc;
}

static void text(void **state)
{
    struct test_gguf_copy f = test_gguf_copy_of("tiny/tiny-llama.gguf");
    wnw_model *m;
    gguf_set_val_str(f.file.g, "tokenizer.ggml.pre", "tekken");
    test_gguf_copy_write(&f);
    assert_ok(wnw_model_open(&m, f.path, NULL));
    run_all(*state, &(struct action){.name = "text", .act = use_text});
    run_all(*state, &(struct action){.name = "long text", .act = use_long_text, .state = m});
    wnw_model_free(m);
    test_gguf_copy_remove(&f);
}

/* One row of numbers between 0.25 and 0.75. */
static void write_row(FILE *f, int32_t n, uint64_t *seed)
{
    fprintf(f, "[");
    for (int32_t i = 0; i < n; i++)
        fprintf(f, "%s%.3f", i ? "," : "", 0.25 + 0.5 * (double)(test_random(seed) % 1000) / 1000);
    fprintf(f, "]");
}

static void write_rows(FILE *f, const char *name, int32_t n_row, int32_t n, uint64_t *seed)
{
    fprintf(f, "\"%s\":[", name);
    for (int32_t i = 0; i < n_row; i++) {
        fprintf(f, i ? "," : "");
        write_row(f, n, seed);
    }
    fprintf(f, "]");
}

static void write_ranks(FILE *f, const char *name, const wnw_model_info *info)
{
    fprintf(f, "\"%s\":[", name);
    for (int32_t il = 0; il < info->n_layer; il++)
        for (int32_t h = 0; h < info->n_head; h++)
            fprintf(f, "%s%d%s",
                    h    ? ","
                    : il ? ",["
                         : "[",
                    (h + il) % info->n_head, h == info->n_head - 1 ? "]" : "");
    fprintf(f, "]");
}

static void write_results(FILE *f, int32_t kind, const wnw_model_info *info)
{
    uint64_t seed = 11;
    const int32_t n_layer = info->n_layer, n_head = info->n_head;
    switch (kind) {
    case WNW_PROFILE_SRH:
        write_ranks(f, "srh", info);
        fprintf(f, ",");
        write_ranks(f, "trad", info);
        break;
    case WNW_PROFILE_LAYERS:
        fprintf(f, "\"avg_score\":[");
        for (int32_t il = 0; il < n_layer; il++)
            fprintf(f, "%s%.6f", il ? "," : "", 1.0 / n_layer);
        fprintf(f, "]");
        break;
    case WNW_PROFILE_COMPILER:
        fprintf(f, "\"entropy_edges\":[3],\"ppl_edges\":[10],\"default_ppl_bin\":0,");
        write_rows(f, "weight", n_layer, n_head, &seed);
        fprintf(f, ",\"tau\":[");
        for (int32_t il = 0; il < n_layer; il++)
            fprintf(f, "%s[[1,0.5],[1.5,1]]", il ? "," : "");
        fprintf(f, "]");
        break;
    case WNW_PROFILE_HEADS:
        write_rows(f, "score", n_layer, n_head, &seed);
        fprintf(f, ",");
        write_rows(f, "alpha", n_layer, info->n_head_kv, &seed);
        break;
    case WNW_PROFILE_STATS:
        fprintf(f, "\"filter\":[");
        for (int32_t il = 0; il < n_layer; il++) {
            fprintf(f, il ? ",[" : "[");
            for (int32_t ih = 0; ih < info->n_head_kv; ih++) {
                fprintf(f, ih ? "," : "");
                write_row(f, info->n_embd_head, &seed);
            }
            fprintf(f, "]");
        }
        fprintf(f, "]");
        break;
    case WNW_PROFILE_CURVES:
        fprintf(f, "\"ratio\":[0.5],\"keep\":[[");
        for (int32_t il = 0; il < n_layer; il++) {
            fprintf(f, il ? "," : "");
            write_row(f, info->n_head_kv, &seed);
        }
        fprintf(f, "]]");
        break;
    case WNW_PROFILE_GATE:
        for (int each = 4; each >= 0; each -= 4) { /* weights of four scalars, then biases */
            fprintf(f, each ? "\"weight\":[" : ",\"bias\":[");
            for (int32_t il = 0; il < n_layer; il++) {
                fprintf(f, il ? ",[" : "[");
                for (int32_t ih = 0; ih < info->n_head_kv; ih++)
                    fprintf(f, "%s%s", ih ? "," : "", each ? "[0.5,1,-1,0.25]" : "-2");
                fprintf(f, "]");
            }
            fprintf(f, "]");
        }
        break;
    case WNW_PROFILE_INPUTGATE:
        fprintf(f, "\"layers\":[");
        for (int32_t il = 0; il < n_layer; il++) { /* gates of zeros */
            const int32_t n = 4 * info->n_head_kv * (info->n_embd + 1);
            fprintf(f, il ? ",\"" : "\"");
            for (int32_t i = 0; i + 3 <= n; i += 3)
                fprintf(f, "AAAA");
            fprintf(f, "%s\"", n % 3 == 0 ? "" : n % 3 == 1 ? "AA==" : "AAA=");
        }
        fprintf(f, "]");
        break;
    case WNW_PROFILE_SHARES:
        fprintf(f, "\"size\":[0.5],\"layers\":[0],\"share\":[[");
        for (int32_t il = 0; il < n_layer; il++) {
            fprintf(f, il ? ",[" : "[");
            for (int32_t ih = 0; ih < info->n_head_kv; ih++)
                fprintf(f, ih ? ",0.5" : "0.5");
            fprintf(f, "]");
        }
        fprintf(f, "]]");
        break;
    case WNW_PROFILE_GRADIENT:
        fprintf(f, "\"gradient\":");
        write_row(f, n_layer, &seed);
        break;
    case WNW_PROFILE_QUALITY:
        fprintf(f, "\"dropped\":[0.1,0.4],\"replay\":[0.02,0.3],\"replay_kept\":[0.6,0.25]");
        break;
    }
}

static void write_profile(const struct fixture *fx, int32_t kind)
{
    char fingerprint[WNW_FINGERPRINT_SIZE];
    wnw_model_fingerprint(fx->model, fingerprint);
    FILE *f = fopen(fx->profile_path[kind], "w");
    assert_non_null(f);
    char form[64];
    snprintf(form, sizeof form, "\"form\":\"linear\",\"n_embd\":%d", (int)fx->info.n_embd);
    fprintf(
        f,
        "{\"format\":\"winnow-profile-1\",\"kind\":\"%s\",\"model\":{\"fingerprint\":\"%s\",\"n_layer\":%d,"
        "\"n_head\":%d,\"n_head_kv\":%d,\"n_embd_head\":%d},\"data\":{},\"settings\":{%s},\"results\":{",
        wnw_profile_kind_name(kind), fingerprint, fx->info.n_layer, fx->info.n_head, fx->info.n_head_kv,
        fx->info.n_embd_head,
        kind == WNW_PROFILE_COMPILER    ? "\"budget\":20,\"window\":64,\"alpha_scope\":\"global\","
                                          "\"score_norm\":\"mean\",\"gate\":\"elastic\",\"entropy_norm\":false"
        : kind == WNW_PROFILE_GATE      ? "\"features\":[\"lk\",\"keydiff\",\"ea\",\"lev\"]"
        : kind == WNW_PROFILE_INPUTGATE ? form
                                        : "");
    write_results(f, kind, &fx->info);
    fprintf(f, "}}\n");
    assert_int_equal(fclose(f), 0);
}

static int read_profiles(struct fixture *fx, void *state)
{
    wnw_profile *p;
    (void)state;
    int rc = wnw_profile_new(&p, fx->model);
    for (int32_t kind = 0; rc == WNW_OK && kind < WNW_N_PROFILE_KINDS; kind++) {
        const uint32_t before = wnw_profile_kinds(p);
        rc = wnw_profile_add_file(p, fx->profile_path[kind]);
        assert_int_equal(wnw_profile_kinds(p), rc == WNW_OK ? before | 1u << kind : before);
    }
    wnw_profile_free(p);
    return rc;
}

static void profiles_are_read(void **state)
{
    run_all(*state, &(struct action){.name = "profiles", .act = read_profiles});
}

/* ---- Sessions ---- */

/* One policy at work on a session of its own. */
struct work {
    const wnw_policy *policy;
    const wnw_run *rules;
    wnw_session *base; /* copied for every run */
    wnw_session *s;    /* the copy */
    wnw_plan *plan, *want;
    float *logits;    /* [n_vocab] of the token after the plan was made, without a failure */
    const char *path; /* of a stored session */
};

static void copy_base(struct fixture *fx, void *state)
{
    struct work *w = state;
    (void)fx;
    assert_ok(wnw_session_copy(&w->s, w->base));
}

static int make_plan(struct fixture *fx, void *state)
{
    struct work *w = state;
    (void)fx;
    return wnw_session_plan(w->s, w->policy, &(wnw_size){.kind = WNW_SIZE_RATIO, .ratio = 0.5}, &w->plan,
                            NULL);
}

/* Planning may fail and never changes the session: the same plan and the same next token come out of it. */
static void plan_again(struct fixture *fx, void *state, int rc)
{
    struct work *w = state;
    assert_cmp((rc == WNW_OK), ==, (w->plan != NULL));
    if (rc != WNW_OK)
        assert_ok(make_plan(fx, w));
    assert_same_plan(w->plan, w->want);
    wnw_plan_free(w->plan);
    assert_ok(wnw_session_decode(w->s, fx->tokens[N_PROMPT]));
    assert_memory_equal(wnw_session_logits(w->s), w->logits, (size_t)fx->info.n_vocab * sizeof(float));
    wnw_session_free(w->s);
    w->plan = NULL;
    w->s = NULL;
}

static const int32_t question[] = {7, 8, 9}, *const tasks[] = {question}, n_tokens[] = {3};

/* A run without rules, with profile and task, for plans of the policies. *more is filled for it. */
static wnw_run told(wnw_run_more *more, const struct fixture *fx, const wnw_policy *const *policies,
                    int32_t n)
{
    *more = (wnw_run_more){WNW_INIT(wnw_run_more),    .n_tasks = 1,         .task_tokens = tasks,
                           .n_task_tokens = n_tokens, .policies = policies, .n_policies = n};
    return (wnw_run){WNW_INIT(wnw_run), .profile = fx->profile, .more = more};
}

static int observe(const struct fixture *fx, wnw_session *s, const wnw_policy *const *policies, int32_t n)
{
    wnw_run_more more;
    const wnw_run run = told(&more, fx, policies, n);
    return wnw_session_begin(s, &run);
}

static wnw_session *new_session(const struct fixture *fx, const struct test_session *want)
{
    wnw_session *s = test_session_new(fx->model, want);
    wnw_run_more more;
    const wnw_run run = told(&more, fx, NULL, 0);
    assert_ok(wnw_session_begin(s, &run));
    return s;
}

static bool plan_with(struct fixture *fx, const char *recipe)
{
    struct work w = {.policy = test_policy(recipe),
                     .logits = malloc((size_t)fx->info.n_vocab * sizeof(float))};
    assert_non_null(w.logits);
    w.base = new_session(fx, &(struct test_session){.n_ctx = N_CTX, .n_threads = 1});
    assert_ok(observe(fx, w.base, &w.policy, 1));
    test_prefill(w.base, fx->tokens, N_PROMPT);
    copy_base(fx, &w);
    const bool works = make_plan(fx, &w) == WNW_OK;
    if (works) {
        w.want = w.plan;
        w.plan = NULL;
        assert_ok(wnw_session_decode(w.s, fx->tokens[N_PROMPT]));
        memcpy(w.logits, wnw_session_logits(w.s), (size_t)fx->info.n_vocab * sizeof(float));
    } else {
        print_message("%s is left out: %s\n", recipe, wnw_last_error());
    }
    wnw_session_free(w.s);
    if (works)
        run_all(fx,
                &(struct action){
                    .name = recipe, .ready = copy_base, .act = make_plan, .done = plan_again, .state = &w});
    wnw_plan_free(w.want);
    wnw_session_free(w.base);
    wnw_policy_free((wnw_policy *)w.policy);
    free(w.logits);
    return works;
}

static void plans_are_made(void **state)
{
    const int64_t sorts = alloc_sorts(); /* of the vocabulary */
    struct fixture *fx = *state;
    wnw_method_info info = {WNW_INIT(wnw_method_info)};
    int n = 0, n_works = 0;
    for (int32_t i = 0; wnw_method_get(i, &info); i++)
        if (strstr(info.kind, "preset")) {
            n++;
            n_works += plan_with(fx, info.name);
        }
    print_message("%d of %d presets, %lld allocations failed so far\n", n_works, n, (long long)fx->n_failed);
    assert_cmp(n_works, >=, n - n / 20);
    assert_cmp(n_works, >, 80);
    assert_int_equal(alloc_sorts(), sorts); /* parts promise not to allocate */
}

/* A life: observe, read, compress, decode, reset. */
static int live(struct fixture *fx, void *state)
{
    const struct work *w = state;
    wnw_run run = w->rules ? *w->rules : wnw_run_default();
    run.profile = fx->profile;
    wnw_run_more more = run.more ? *run.more : wnw_run_more_default();
    more.n_tasks = 1;
    more.task_tokens = tasks;
    more.n_task_tokens = n_tokens;
    run.more = &more;
    int rc = w->rules ? wnw_session_begin(w->s, &run) : observe(fx, w->s, &w->policy, 1);
    if (rc == WNW_OK)
        rc = wnw_session_read(w->s, fx->tokens, N_PROMPT, NULL);
    if (rc == WNW_OK && !w->rules)
        rc = wnw_session_compress(w->s, w->policy, NULL, NULL);
    for (int32_t i = N_PROMPT; rc == WNW_OK && i < N_PROMPT + 8; i++)
        rc = wnw_session_decode(w->s, fx->tokens[i]);
    if (rc == WNW_OK)
        rc = wnw_session_reset(w->s);
    return rc;
}

static void fresh_session(struct fixture *fx, void *state)
{
    ((struct work *)state)->s = new_session(fx, &(struct test_session){.n_ctx = N_CTX, .n_threads = 1});
}

/* After any failure the session can be reset, and then works like a new one. */
static void live_again(struct fixture *fx, void *state, int rc)
{
    struct work *w = state;
    if (rc != WNW_OK) {
        wnw_cache_stats stats = {WNW_INIT(wnw_cache_stats)};
        assert_ok(wnw_cache_get_stats(w->s, &stats));
        assert_cmp(stats.n_entries, >=, 0);
        assert_ok(wnw_session_reset(w->s));
        assert_int_equal(wnw_session_n_past(w->s), 0);
        assert_ok(live(fx, w));
    }
    wnw_session_free(w->s);
    w->s = NULL;
}

static void lives(void **state)
{
    struct fixture *fx = *state;
    static const struct {
        const char *recipe;
        int phase, chunk, every;
        const char *further; /* one more policy that the session is to observe for; NULL = none */
        bool named;          /* the run names its policy by a recipe */
    } rows[] = {
        {"snapkv:window=8", -1, 0, 0, NULL, false},
        {"h2o", -1, 0, 0, NULL, false},
        {"kvzip", -1, 0, 0, NULL, false},
        {"expected_attention", -1, 0, 0, NULL, false},
        {"criticalkv:window=8", -1, 0, 0, NULL, false},
        {"streaming_llm-rerotated", WNW_PHASE_CHUNK, 16, 4, NULL, false},
        {"snapkv:window=8", WNW_PHASE_LAYER, 0, 4, NULL, false},
        {"lagkv:lag=8,sink=2", WNW_PHASE_CHUNK, 0, 0, NULL, false},
        {"lagkv:lag=8,sink=2", WNW_PHASE_END, 0, 0, NULL, false},
        {"knorm", WNW_PHASE_END, 0, 2, NULL, false},
        {"snapkv:window=8+ranks", WNW_PHASE_END, 0, 4, NULL, false},
        {"knorm+demote", WNW_PHASE_LAYER, 0, 4, NULL, false},
        {"knorm", WNW_PHASE_END, 0, 0, "h2o", false},
        {"snapkv:window=8", WNW_PHASE_END, 0, 4, NULL, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wnw_policy *p = test_policy(rows[i].recipe);
        const wnw_policy *further = rows[i].further ? test_policy(rows[i].further) : NULL;
        const wnw_run rules = {WNW_INIT(wnw_run),
                               .policy = rows[i].named ? NULL : p,
                               .recipe = rows[i].named ? rows[i].recipe : NULL,
                               .size = {.kind = WNW_SIZE_RATIO, .ratio = 0.5},
                               .phase = (wnw_phase)rows[i].phase,
                               .chunk = rows[i].chunk,
                               .every = rows[i].every,
                               .more = &(wnw_run_more){WNW_INIT(wnw_run_more), .n_policies = further ? 1 : 0,
                                                       .policies = &further}};
        struct work w = {.policy = p, .rules = rows[i].phase < 0 ? NULL : &rules};
        run_all(fx, &(struct action){.name = rows[i].recipe,
                                     .ready = fresh_session,
                                     .act = live,
                                     .done = live_again,
                                     .state = &w});
        wnw_policy_free(p);
        wnw_policy_free((wnw_policy *)further);
    }
}

static int new_and_copy(struct fixture *fx, void *state)
{
    const struct work *w = state;
    wnw_session *s = NULL, *copy = NULL;
    wnw_session_params params = wnw_session_default_params();
    params.n_threads = 1;
    params.n_ctx = N_CTX;
    int rc = wnw_session_new(&s, fx->model, &params);
    assert_cmp((rc == WNW_OK), ==, (s != NULL));
    if (rc == WNW_OK)
        rc = wnw_session_copy(&copy, w->base);
    if (rc == WNW_OK)
        assert_non_null(copy);
    wnw_session_free(s);
    wnw_session_free(copy);
    return rc;
}

static void sessions_begin(void **state)
{
    struct fixture *fx = *state;
    const char *const recipes[] = {"h2o", "expected_attention", "leverage", "compilerkv"};
    const wnw_policy *policies[4];
    struct work w = {.base = new_session(fx, &(struct test_session){.n_ctx = N_CTX, .n_threads = 1})};
    for (int i = 0; i < 4; i++)
        policies[i] = test_policy(recipes[i]);
    assert_ok(observe(fx, w.base, policies, 4));
    test_prefill(w.base, fx->tokens, N_PROMPT);
    run_all(fx, &(struct action){.name = "new and copy", .act = new_and_copy, .state = &w});
    wnw_session_free(w.base);
    for (int i = 0; i < 4; i++)
        wnw_policy_free((wnw_policy *)policies[i]);
}

static int store(struct fixture *fx, void *state)
{
    const struct work *w = state;
    const wnw_prompt_params text = {WNW_INIT(wnw_prompt_params), .document = "A tale."};
    const wnw_store_params params = {WNW_INIT(wnw_store_params), .text = &text};
    (void)fx;
    return wnw_session_store(w->base, w->path, &params);
}

static int use_stored(struct fixture *fx, void *state)
{
    const struct work *w = state;
    wnw_stored *st = NULL;
    wnw_engine *e = NULL;
    wnw_session *s = NULL;
    const wnw_engine_params params = {WNW_INIT(wnw_engine_params), .n_threads = 1};
    int rc = wnw_stored_open(&st, w->path);
    assert_cmp((rc == WNW_OK), ==, (st != NULL));
    if (rc == WNW_OK)
        rc = wnw_engine_new(&e, fx->model, &params);
    if (rc == WNW_OK)
        rc = wnw_stored_session(&s, st, e, NULL);
    if (rc == WNW_OK)
        rc = wnw_session_decode(s, fx->tokens[0]);
    if (rc == WNW_OK)
        rc = wnw_session_append(s, st, 1, N_PROMPT / 2);
    wnw_session_free(s);
    wnw_engine_free(e);
    wnw_stored_free(st);
    return rc;
}

/* After any failure the file is whole. */
static void file_is_whole(struct fixture *fx, void *state, int rc)
{
    const struct work *w = state;
    wnw_stored *st = NULL;
    (void)fx;
    (void)rc;
    assert_ok(wnw_stored_open(&st, w->path));
    wnw_stored_free(st);
}

static void sessions_are_stored(void **state)
{
    struct fixture *fx = *state;
    wnw_policy *policy = test_policy("snapkv:window=8+match:queries=64,ridge=0.01");
    char path[64];
    snprintf(path, sizeof path, "/tmp/winnow-test-%d.wkv", (int)getpid());
    struct work w = {.policy = policy,
                     .path = path,
                     .base = new_session(fx, &(struct test_session){.n_ctx = N_CTX, .n_threads = 1})};
    const wnw_run run = {WNW_INIT(wnw_run), .policy = policy, .size = size_ratio(0.5),
                         .more =
                             &(wnw_run_more){WNW_INIT(wnw_run_more), .question_later = true, .once = true}};
    assert_ok(wnw_session_begin(w.base, &run));
    assert_ok(wnw_session_read(w.base, fx->tokens, N_PROMPT, NULL));
    assert_ok(store(fx, &w));
    run_all(fx, &(struct action){.name = "storing", .act = store, .done = file_is_whole, .state = &w});
    run_all(fx, &(struct action){.name = "a stored session", .act = use_stored, .state = &w});
    unlink(path);
    wnw_session_free(w.base);
    wnw_policy_free(policy);
}

static int probe(struct fixture *fx, void *state)
{
    const struct work *w = state;
    const size_t n = (size_t)fx->info.n_layer * (size_t)fx->info.n_head;
    double *x = malloc(3 * n * sizeof *x);
    struct wnw__perturb_bound *bounds = malloc(n * sizeof *bounds);
    struct wnw__perturb_token *p = NULL;
    int rc = x && bounds ? wnw__perturb_token_new(&p, w->base, fx->tokens[N_PROMPT]) : WNW_E_NOMEM;
    assert_cmp((p != NULL), ==, (rc == WNW_OK && x && bounds));
    if (rc == WNW_OK)
        rc = wnw__perturb_token_change(p, w->plan, x, x + n, x + 2 * n);
    if (rc == WNW_OK)
        rc = wnw__perturb_token_drift(p, w->plan, x);
    if (rc == WNW_OK)
        rc = wnw__perturb_token_bounds(p, N_PROMPT / 2, bounds);
    wnw__perturb_token_free(p);
    free(bounds);
    free(x);
    return rc;
}

static void tokens_are_probed(void **state)
{
    struct fixture *fx = *state;
    wnw_policy *policy = test_policy("snapkv:window=8");
    struct work w = {.policy = policy,
                     .base = new_session(fx, &(struct test_session){.n_ctx = N_CTX, .n_threads = 1})};
    assert_ok(observe(fx, w.base, &w.policy, 1));
    test_prefill(w.base, fx->tokens, N_PROMPT);
    assert_ok(
        wnw_session_plan(w.base, policy, &(wnw_size){.kind = WNW_SIZE_RATIO, .ratio = 0.5}, &w.plan, NULL));
    run_all(fx, &(struct action){.name = "a probe", .act = probe, .state = &w});
    wnw_plan_free(w.plan);
    wnw_session_free(w.base);
    wnw_policy_free(policy);
}

/* ---- Sessions that decode together ---- */

enum { N_TOGETHER = 3, N_STEPS = 6 };

struct together {
    wnw_engine *e;
    wnw_policy *p[N_TOGETHER];
    wnw_session *s[N_TOGETHER];
};

/* A fresh engine, which has no graph for a step yet. */
static void read_together(struct fixture *fx, void *state)
{
    struct together *w = state;
    const wnw_engine_params of_engine = {WNW_INIT(wnw_engine_params), .n_threads = 1};
    const wnw_session_params params = {WNW_INIT(wnw_session_params), .n_ctx = N_CTX};
    assert_ok(wnw_engine_new(&w->e, fx->model, &of_engine));
    for (int i = 0; i < N_TOGETHER; i++) {
        const wnw_run rules = {WNW_INIT(wnw_run), .policy = w->p[i], .size = size_budget(40), .every = 2};
        assert_ok(wnw_session_new_on(&w->s[i], w->e, &params));
        assert_ok(wnw_session_begin(w->s[i], &rules));
        assert_ok(wnw__session_record(w->s[i], "newest", true));
        assert_ok(wnw_session_read(w->s[i], fx->tokens, N_PROMPT, NULL));
    }
}

static int decode_together(struct fixture *fx, void *state)
{
    const struct together *w = state;
    int rc = WNW_OK;
    for (int32_t i = 0; rc == WNW_OK && i < N_STEPS; i++)
        rc = wnw_decode_batch(w->e, w->s, fx->tokens + N_PROMPT + i, N_TOGETHER);
    return rc;
}

/* A step is read by all sessions or by none, and the next one works. */
static void step_again(struct fixture *fx, void *state, int rc)
{
    struct together *w = state;
    const int32_t n_past = wnw_session_n_past(w->s[0]);
    for (int i = 1; i < N_TOGETHER; i++)
        assert_int_equal(wnw_session_n_past(w->s[i]), n_past);
    assert_cmp(n_past, <=, N_PROMPT + N_STEPS);
    if (rc != WNW_OK)
        assert_ok(wnw_decode_batch(w->e, w->s, fx->tokens, N_TOGETHER));
    for (int i = 0; i < N_TOGETHER; i++)
        wnw_session_free(w->s[i]);
    wnw_engine_free(w->e);
}

static void sessions_together(void **state)
{
    struct fixture *fx = *state;
    struct together w = {
        .p = {test_policy("snapkv:window=8"), test_policy("h2o"), test_policy("expected_attention")}};
    run_all(fx, &(struct action){.name = "together",
                                 .ready = read_together,
                                 .act = decode_together,
                                 .done = step_again,
                                 .state = &w});
    for (int i = 0; i < N_TOGETHER; i++)
        wnw_policy_free(w.p[i]);
}

/* A cache of sliding windows, and the attention of ggml's operations. */
static void other_sessions(void **state)
{
    struct fixture *fx = *state;
    struct fixture other = {.tokens = fx->tokens, .model = test_model_open("tiny/tiny-gemma3-f32.gguf")};
    struct work w = {.policy = test_policy("knorm")};
    other.info = wnw_model_info_default();
    assert_ok(wnw_model_get_info(other.model, &other.info));
    run_all(&other,
            &(struct action){
                .name = "gemma3", .ready = fresh_session, .act = live, .done = live_again, .state = &w});
    wnw_model_free(other.model);
    wnw_policy_free((wnw_policy *)w.policy);
}

/* ---- Calibrations ---- */

enum { TEXT_BYTES = 900 };

/* A kind, and options that measure little. */
struct measured {
    const char *kind, *options;
    int32_t budget;
    const char *journal; /* NULL: none */
    const char *text;    /* [TEXT_BYTES], of all */
};

static int calibrate(struct fixture *fx, void *state)
{
    const struct measured *of = state;
    const wnw_calibration_text text = {"some.txt", of->text, TEXT_BYTES};
    wnw_calibrate_params p = test_calibrate_params(&text, NULL, of->options);
    p.effort = WNW_EFFORT_QUICK;
    p.profile = fx->profile;
    p.budgets = &of->budget;
    p.n_budgets = of->budget > 0;
    p.journal = of->journal;
    wnw_calibration *c;
    const int rc = wnw_calibrate(&c, fx->model, of->kind, &p);
    assert_cmp((rc == WNW_OK), ==, (c != NULL));
    if (rc == WNW_OK)
        assert_non_null(wnw_calibration_profile(c, 0, NULL));
    wnw_calibration_free(c);
    return rc;
}

static void without_journal(struct fixture *fx, void *state)
{
    const struct measured *of = state;
    (void)fx;
    if (of->journal)
        unlink(of->journal);
}

/* A journal that a failure has left is gone on with. */
static void calibrate_again(struct fixture *fx, void *state, int rc)
{
    const struct measured *of = state;
    if (of->journal && rc != WNW_OK)
        assert_ok(calibrate(fx, state));
}

static void calibrations(void **state)
{
    static const char probes[] = "facts=1,lengths=1,depths=1,shortest=400,longest=420,steps=4,forced=always";
    char journal[64], *text = test_random_words(TEXT_BYTES, 7);
    snprintf(journal, sizeof journal, "/tmp/winnow-test-%d.journal", (int)getpid());
    /* Without `quality`, whose smallest measurement takes a second. */
    struct measured rows[] = {
        {"srh", probes, 0, NULL, text},
        {"heads", probes, 0, NULL, text},
        {"stats", "pieces=1,length=64", 0, NULL, text},
        {"curves", "length=64,questions=1", 0, NULL, text},
        {"shares", "shortest=60,longest=80,extra=100", 0, NULL, text},
        {"gate", "pieces=1,length=128", 0, NULL, text},
        {"inputgate", "pieces=1,length=128", 0, NULL, text},
        {"layers", "length=64,generate=4", 0, NULL, text},
        {"gradient", "pieces=1,length=12,draws=4", 0, NULL, text},
        {"compiler", "items=4,held_out=2,length=64,next=8,head_trials=2,tau_trials=2,entropy_bins=1", 32,
         NULL, text},
        {"stats", "pieces=2,length=32", 0, journal, text},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        without_journal(*state, &rows[i]);
        if (calibrate(*state, &rows[i]) != WNW_OK)
            fail_msg("%s: %s", rows[i].kind, wnw_last_error());
        const struct action all = {.name = rows[i].kind,
                                   .ready = without_journal,
                                   .act = calibrate,
                                   .done = calibrate_again,
                                   .state = &rows[i]};
        run_parts(*state, &all, 8, 5); /* they take long */
    }
    unlink(journal);
    free(text);
}

/* ---- Set-up ---- */

static int set_up(void **state)
{
    static struct fixture fx;
    fx.model = test_model_open("tiny/tiny-llama.gguf");
    fx.info = wnw_model_info_default();
    assert_ok(wnw_model_get_info(fx.model, &fx.info));
    fx.tokens = test_random_tokens(N_TOKENS, fx.info.n_vocab, 3);
    assert_ok(wnw_profile_new(&fx.profile, fx.model));
    for (int32_t kind = 0; kind < WNW_N_PROFILE_KINDS; kind++) {
        snprintf(fx.profile_path[kind], sizeof fx.profile_path[kind], "/tmp/winnow-test-%d-%s.json",
                 (int)getpid(), wnw_profile_kind_name(kind));
        write_profile(&fx, kind);
        assert_ok(wnw_profile_add_file(fx.profile, fx.profile_path[kind]));
    }
    *state = &fx;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fx = *state;
    print_message("%lld allocations failed\n", (long long)fx->n_failed);
    for (int32_t kind = 0; kind < WNW_N_PROFILE_KINDS; kind++)
        unlink(fx->profile_path[kind]);
    wnw_profile_free(fx->profile);
    wnw_model_free(fx->model);
    free(fx->tokens);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(policies_are_parsed),
        cmocka_unit_test(small_things),
        cmocka_unit_test(threads_that_cannot_start),
        cmocka_unit_test(models_are_opened),
        cmocka_unit_test(text),
        cmocka_unit_test(conversations),
        cmocka_unit_test(profiles_are_read),
        cmocka_unit_test(plans_are_made),
        cmocka_unit_test(lives),
        cmocka_unit_test(sessions_begin),
        cmocka_unit_test(sessions_are_stored),
        cmocka_unit_test(tokens_are_probed),
        cmocka_unit_test(sessions_together),
        cmocka_unit_test(other_sessions),
        cmocka_unit_test(calibrations),
    };
    return cmocka_run_group_tests_name("memory that runs out", tests, set_up, tear_down);
}
