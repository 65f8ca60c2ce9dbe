/* SPDX-License-Identifier: MIT */
/* KVCompose that knows the task, on the default model: with the question and its answer as the task, it
 * keeps the answer. The text does not repeat itself, so no other place can replace the needle. */
#include "helpers.h"
#include "peek_session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES = 3000 };

static const char needle[] = " The special magic number for Marseille is 7315.";
static const char question[] = "\n\nQuestion: What is the special magic number for Marseille?\n"
                               "Answer: The special magic number for Marseille is";
static const char answer[] = " 7315";

struct ids {
    int32_t *ids, n;
};

static struct ids tokenize(const wnw_model *m, const char *text, size_t len)
{
    struct ids out;
    assert_ok(wnw_tokenize(m, text, len, false, false, &out.ids, &out.n));
    return out;
}

static struct ids joined(struct ids a, struct ids b)
{
    const struct ids out = {.ids = malloc((size_t)(a.n + b.n) * sizeof *a.ids), .n = a.n + b.n};
    assert_non_null(out.ids);
    memcpy(out.ids, a.ids, (size_t)a.n * sizeof *a.ids);
    memcpy(out.ids + a.n, b.ids, (size_t)b.n * sizeof *b.ids);
    return out;
}

/* The beginning of the sample text up to the end of a sentence at about `len`, and the bytes after it. */
static size_t sentence_end(const char *text, size_t len)
{
    while (len > 0 && !(text[len - 1] == '.' && text[len] == ' '))
        len--;
    assert_cmp(len, >, 0);
    return len;
}

static char *sample_text(void)
{
    char path[512];
    snprintf(path, sizeof path, "%s/examples/document.txt", WNW_TEST_SOURCE_DIR);
    FILE *f = fopen(path, "rb");
    char *text = calloc(1, TEXT_BYTES + 1);
    assert_non_null(f);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, TEXT_BYTES, f), TEXT_BYTES);
    fclose(f);
    return text;
}

struct haystack {
    struct ids context, task, question, answer;
    int32_t first, last; /* positions of the answer in the context: first .. last - 1 */
};

static struct haystack make_haystack(const wnw_model *m)
{
    struct haystack h;
    char *text = sample_text();
    const size_t cut = sentence_end(text, TEXT_BYTES / 3), len = sentence_end(text, TEXT_BYTES - 1);
    const size_t lead = strlen(needle) - 1 - strlen(answer); /* of the sentence, before the answer */
    const struct ids before = tokenize(m, text, cut), start = tokenize(m, needle, lead),
                     stop = tokenize(m, ".", 1), after = tokenize(m, text + cut, len - cut);
    h.answer = tokenize(m, answer, strlen(answer));
    h.question = tokenize(m, question, strlen(question));
    const struct ids a = joined(before, start), b = joined(a, h.answer), c = joined(b, stop);
    h.context = joined(c, after);
    h.task = joined(h.question, h.answer);
    h.first = a.n;
    h.last = b.n;
    const struct ids parts[] = {before, start, stop, after};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        wnw_free(parts[i].ids);
    free(a.ids);
    free(b.ids);
    free(c.ids);
    free(text);
    return h;
}

/* Whether the answer is what the model says next, token for token. */
static bool answers(wnw_session *s, const wnw_model *m, const struct haystack *h)
{
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    assert_ok(wnw_model_get_info(m, &info));
    test_prefill(s, h->question.ids, h->question.n);
    for (int32_t i = 0; i < h->answer.n; i++) {
        const int32_t said = test_argmax(wnw_session_logits(s), info.n_vocab);
        if (said != h->answer.ids[i])
            return false;
        assert_ok(wnw_session_decode(s, said));
    }
    return true;
}

/* Share of the answer's entries, over all layers and heads, that the plan keeps. */
static double kept_share(const wnw_plan *plan, const struct haystack *h)
{
    const int32_t n_layer = wnw_plan_n_layer(plan), n_head = wnw_plan_n_head_kv(plan);
    int64_t kept = 0;
    for (int32_t il = 0; il < n_layer; il++)
        for (int32_t ih = 0; ih < n_head; ih++) {
            const int32_t *pos, n = wnw_plan_head(plan, il, ih, &pos);
            for (int32_t i = 0; i < n; i++)
                kept += pos[i] >= h->first && pos[i] < h->last;
        }
    return (double)kept / ((double)n_layer * n_head * (h->last - h->first));
}

static void free_haystack(struct haystack *h)
{
    free(h->context.ids);
    free(h->task.ids);
    wnw_free(h->question.ids);
    wnw_free(h->answer.ids);
}

/* Share of the answer that is kept, and where `said` is asked for, whether the model then says it. */
static double try_out(const wnw_session *s, const wnw_model *m, const struct haystack *h, const char *recipe,
                      const struct ids *task, double ratio, bool *said)
{
    const wnw_size size = {.kind = WNW_SIZE_RATIO, .ratio = ratio};
    wnw_session *copy;
    wnw_plan *plan;
    wnw_policy *p = test_policy(recipe);
    assert_ok(wnw_session_copy(&copy, s));
    assert_ok(wnw_session_begin(
        copy, &(wnw_run){WNW_INIT(wnw_run),
                         .more = &(wnw_run_more){WNW_INIT(wnw_run_more), .n_tasks = 1,
                                                 .task_tokens = (const int32_t *const[]){task->ids},
                                                 .n_task_tokens = &task->n}}));
    assert_ok(wnw_session_plan(copy, p, &size, &plan, NULL));
    const double share = kept_share(plan, h);
    assert_ok(wnw_session_apply(copy, plan, NULL));
    if (said)
        *said = answers(copy, m, h);
    wnw_plan_free(plan);
    wnw_policy_free(p);
    wnw_session_free(copy);
    return share;
}

/* Question, answer prefix and answer as the task, half of the cache gone: the answer is still said. Told the
 * question alone, three quarters may go; scores of the question's few tokens without the context's lose it
 * there. */
static void the_answer_survives(void **state)
{
    (void)state;
    wnw_model *m = test_model_open("smollm2-135m.gguf");
    struct haystack h = make_haystack(m);
    wnw_session *s =
        test_session_new(m, &(struct test_session){.n_ctx = h.context.n + h.task.n + 8, .n_threads = 1});
    bool said;
    test_prefill(s, h.context.ids, h.context.n);
    try_out(s, m, &h, "kvcompose-aware", &h.task, 0.5, &said);
    assert_true(said);
    try_out(s, m, &h, "kvcompose-aware", &h.question, 0.75, &said);
    assert_true(said);
    /* Scores that come from the task alone keep more of an answer that is in it. */
    const double told = try_out(s, m, &h, "kvcompose:task=question", &h.task, 0.5, NULL),
                 asked = try_out(s, m, &h, "kvcompose:task=question", &h.question, 0.5, NULL);
    if (!(told > 0.6 && told > asked + 0.1))
        fail_msg("of the answer %g is kept where the task has it, %g where not", told, asked);
    assert_true(answers(s, m, &h)); /* and the full cache knows it */
    wnw_session_free(s);
    free_haystack(&h);
    wnw_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_answer_survives)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
