/* SPDX-License-Identifier: MIT */
/* What libllama says about a vocabulary reaches the user: an error in the sentence, warnings in one line. */
#include "gguf_copy.h"
#include "helpers.h"

#include <llama.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { NORMAL = 1 };

struct heard {
    int n;
    char text[512];
};

static void keep_warning(wnw_log_level level, const char *text, void *user)
{
    struct heard *h = user;
    if (level != WNW_LOG_WARN)
        return;
    h->n++;
    snprintf(h->text, sizeof h->text, "%s", text);
}

static void no_pre(struct test_gguf_copy *f)
{
    gguf_remove_key(f->file.g, "tokenizer.ggml.pre");
}

static void empty_pre(struct test_gguf_copy *f)
{
    gguf_set_val_str(f->file.g, "tokenizer.ggml.pre", "");
}

static void unknown_pre(struct test_gguf_copy *f)
{
    gguf_set_val_str(f->file.g, "tokenizer.ggml.pre", "smallm");
}

static void other_unknown_pre(struct test_gguf_copy *f)
{
    gguf_set_val_str(f->file.g, "tokenizer.ggml.pre", "largelm");
}

static void no_mask(struct test_gguf_copy *f)
{
    gguf_set_val_str(f->file.g, "tokenizer.ggml.pre", "jina-v2-code");
}

/* libllama looks for tokens that models of this name have. */
static void no_phi_tokens(struct test_gguf_copy *f)
{
    gguf_set_val_str(f->file.g, "general.name", "phi-3");
}

static void normal_control(struct test_gguf_copy *f)
{
    test_gguf_copy_token(f, 2, "<|im_end|>", NORMAL);
}

static void other_end(struct test_gguf_copy *f)
{
    gguf_set_val_u32(f->file.g, "tokenizer.ggml.eos_token_id", 300);
}

static void empty_tokens(struct test_gguf_copy *f)
{
    for (int i = 300; i < 310; i++)
        test_gguf_copy_token(f, i, "", -1);
}

static void wrong_suppressed(struct test_gguf_copy *f)
{
    gguf_set_val_str(f->file.g, "tokenizer.ggml.suppress_tokens", "x");
}

static void nothing(struct test_gguf_copy *f)
{
    (void)f;
}

struct fault {
    void (*change)(struct test_gguf_copy *f);
    int status;
    const char *warning, *error; /* words of it; NULL: none */
};

static const struct fault faults[] = {
    {nothing, WNW_OK, NULL, NULL},
    {no_pre, WNW_OK, "missing pre-tokenizer type, using: 'default'; GENERATION QUALITY WILL BE DEGRADED!",
     NULL},
    {empty_pre, WNW_OK, "GENERATION QUALITY WILL BE DEGRADED!", NULL},
    {unknown_pre, WNW_E_FORMAT, NULL, ": unknown pre-tokenizer type: 'smallm'"},
    {no_mask, WNW_OK, "Mask token is missing", NULL},
    {no_phi_tokens, WNW_E_FORMAT, NULL, "at"},
    {normal_control, WNW_OK, "'<|im_end|>' was not control-type", NULL},
    {other_end, WNW_OK, "special_eos_id is not in special_eog_ids", NULL},
    {empty_tokens, WNW_OK, "empty token at index 302; and more", NULL},
    {wrong_suppressed, WNW_E_FORMAT, NULL, "suppress_tokens"},
};
enum { N_FAULTS = sizeof faults / sizeof *faults };

static void make(struct test_gguf_copy *f, const struct fault *fault)
{
    *f = test_gguf_copy_of("tiny/chat/smollm2.gguf");
    fault->change(f);
    test_gguf_copy_write(f);
}

static void check(const struct fault *fault)
{
    struct test_gguf_copy f;
    struct heard heard = {0};
    wnw_model *m;
    make(&f, fault);
    wnw_set_log(keep_warning, &heard);
    assert_int_equal(wnw_model_open(&m, f.path, NULL), fault->status);
    wnw_set_log(NULL, NULL);
    if (fault->error)
        assert_non_null(strstr(wnw_last_error(), fault->error));
    assert_int_equal(heard.n, fault->warning ? 1 : 0);
    if (fault->warning && !strstr(heard.text, fault->warning))
        fail_msg("\"%s\" instead of \"%s\"", heard.text, fault->warning);
    wnw_model_free(m);
    test_gguf_copy_remove(&f);
}

static void every_fault(void **state)
{
    (void)state;
    for (int i = 0; i < N_FAULTS; i++)
        check(&faults[i]);
}

/* ---- Threads ---- */

struct opening {
    struct test_gguf_copy f;
    const char *own, *other;
    int n_wrong;
};

static void *open_often(void *data)
{
    struct opening *o = data;
    for (int i = 0; i < 20; i++) {
        wnw_model *m;
        const bool own = wnw_model_open(&m, o->f.path, NULL) == WNW_E_FORMAT &&
                         strstr(wnw_last_error(), o->own) && !strstr(wnw_last_error(), o->other);
        o->n_wrong += !own;
    }
    return NULL;
}

static void each_thread_its_own(void **state)
{
    (void)state;
    struct opening o[2] = {{.own = "smallm", .other = "largelm"}, {.own = "largelm", .other = "smallm"}};
    const struct fault changes[2] = {{.change = unknown_pre}, {.change = other_unknown_pre}};
    pthread_t thread[2];
    for (int i = 0; i < 2; i++)
        make(&o[i].f, &changes[i]);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, open_often, &o[i]), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
        assert_int_equal(o[i].n_wrong, 0);
        test_gguf_copy_remove(&o[i].f);
    }
}

/* ---- A program with a callback of its own ---- */

static void count(enum ggml_log_level level, const char *text, void *user)
{
    *(int *)user += level == GGML_LOG_LEVEL_WARN && strstr(text, "DEGRADED");
}

static void programs_hear_themselves(void **state)
{
    (void)state;
    int n = 0;
    struct test_gguf_copy f;
    struct heard heard = {0};
    wnw_model *m;
    make(&f, &faults[1]);
    llama_log_set(count, &n);
    wnw_set_log(keep_warning, &heard);
    assert_ok(wnw_model_open(&m, f.path, NULL));
    wnw_set_log(NULL, NULL);
    llama_log_set(NULL, NULL);
    assert_int_equal(n, 1);
    assert_int_equal(heard.n, 0);
    wnw_model_free(m);
    test_gguf_copy_remove(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_fault), cmocka_unit_test(each_thread_its_own),
                                       cmocka_unit_test(programs_hear_themselves)};
    return cmocka_run_group_tests_name("what libllama says", tests, NULL, NULL);
}
