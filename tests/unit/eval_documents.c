/* SPDX-License-Identifier: MIT */
/* Questions about a folder of documents: how it is read, and what samples are made of it. */
#include "asserts.h"
#include "failing_alloc.h"
#include "files.h"

#include "app/console.h"
#include "eval/tasks/records.h"
#include "eval/tasks/task.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_TEXTS = 4, PATH = 256 };

static char folder[] = "/tmp/wnw-documents-XXXXXX";

static const char *const names[N_TEXTS] = {"b.txt", "a.txt", "d.txt", "c.txt"};
static const char *const texts[N_TEXTS] = {
    "The boat\n\nIt is red.\n\nIts captain is Eve.\nShe is tall.\n\nIt is old.\n",
    "The attic\nIt has one window.\nIt has two doors.\n",
    "The dome\nIt is made of iron.\nIt weighs a ton.\n",
    "The cave\nNobody lives there, but captains came.\n",
};
static const char asked[] =
    "{\"document\":\"b.txt\",\"question\":\"Who commands the "
    "boat?\",\"answers\":[\"Adam\",\"EVE\"],\"id\":7}\n"
    "{\"document\":\"d.txt\",\"question\":\"What is the dome made of?\",\"answers\":[\"iron\"]}\n";

static void write_file(const char *name, const char *text)
{
    char path[PATH];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0 && fclose(f) == 0);
}

static void remove_file(const char *name)
{
    char path[PATH];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(unlink(path), 0);
}

static int set_up(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < N_TEXTS; i++)
        write_file(names[i], texts[i]);
    write_file("questions.jsonl", asked);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < N_TEXTS; i++)
        remove_file(names[i]);
    remove_file("questions.jsonl");
    return rmdir(folder);
}

static void test_folder_is_read(void **state)
{
    struct eval_records r;
    char first[sizeof r.hash];
    (void)state;
    assert_int_equal(eval_records_read_folder(&r, folder), APP_OK);
    assert_int_equal(r.n_docs, N_TEXTS);
    assert_int_equal(r.n_questions, 2);
    assert_string_equal(eval_records_text(&r, 0), texts[1]); /* in the order of names */
    assert_string_equal(eval_records_text(&r, r.questions[0].evidence[0]), texts[0]);
    assert_string_equal(eval_records_text(&r, r.questions[1].evidence[0]), texts[2]);
    assert_int_equal(r.questions[0].n_evidence, 1);
    assert_int_equal(strlen(r.hash), 16);
    memcpy(first, r.hash, sizeof first);
    eval_records_clear(&r);

    write_file("a.txt", "The attic\nIt has no window.\n");
    assert_int_equal(eval_records_read_folder(&r, folder), APP_OK);
    assert_string_not_equal(r.hash, first);
    eval_records_clear(&r);
    write_file("a.txt", texts[1]);
}

static void test_answers_are_found(void **state)
{
    static const char text[] = "The Boat";
    struct eval_question q = {.record = json_pack("{s:[s,s]}", "answers", "boat", "ship")};
    (void)state;
    assert_true(eval_records_answer(&q, text, strlen(text)));
    assert_false(eval_records_answer(&q, text, strlen(text) - 1)); /* its end is outside */
    assert_false(eval_records_answer(&q, "a bo at", 7));
    json_decref(q.record);
}

/* A sample of doc_qa with `units` letters of text. */
static struct eval_sample make(struct eval_source *w, int32_t index, int64_t units)
{
    const struct eval_task *task = eval_task_find("doc_qa");
    assert_non_null(task);
    struct eval_sample s = {.task = task->name, .metric = task->metric, .index = index};
    struct eval_draft d = {.task = task, .w = w, .units = units, .r = eval_random_key("key")};
    assert_int_equal(task->make(&s, &d), APP_OK);
    assert_false(s.no_memory);
    return s;
}

static void test_samples(void **state)
{
    struct eval_records r;
    struct eval_source w = {.folder = &r};
    const size_t gold = strlen(texts[0]);
    (void)state;
    assert_int_equal(eval_records_read_folder(&r, folder), APP_OK);

    /* The document alone; its paragraph with an answer is the evidence. */
    struct eval_sample s = make(&w, 0, (int64_t)gold);
    assert_non_null(strstr(s.context.s, "Document 1:\nThe boat\n\nIt is red.\n\nIts captain"));
    assert_null(strstr(s.context.s, "Document 2:"));
    assert_int_equal(s.n_spans, 1);
    const char *evidence = "Its captain is Eve.\nShe is tall.\n\n";
    assert_int_equal(s.spans[0].to - s.spans[0].from, strlen(evidence));
    assert_memory_equal(s.context.s + s.spans[0].from, evidence, strlen(evidence));
    assert_int_equal(s.turns[0].n_refs, 2);
    assert_string_equal(s.turns[0].refs[1], "EVE");
    assert_int_equal(json_integer_value(json_object_get(s.meta, "id")), 7);
    const uint64_t text = s.text;
    eval_sample_clear(&s);

    /* One letter less has no room for it. */
    s = make(&w, 0, (int64_t)gold - 1);
    assert_true(s.unmade);
    eval_sample_clear(&s);

    /* Others fill up the length; the last one ends with a line. Of more letters than there are, each document comes once. */
    for (int64_t more = 1; more <= 200; more++) {
        s = make(&w, 0, (int64_t)gold + more);
        size_t n = 0, n_other = 0;
        assert_non_null(strstr(s.context.s, texts[0]));
        for (const char *at = s.context.s; (at = strstr(at, "\nDocument ")); at++)
            n++;
        for (int i = 1; i < N_TEXTS; i++) {
            const char *first_line = strchr(texts[i], '\n'),
                       *at =
                           memmem(s.context.s, s.context.len, texts[i], (size_t)(first_line + 1 - texts[i]));
            for (const char *of = texts[i]; at && *of && *at == *of; at++, of++)
                n_other++;
            assert_true(!at || at[-1] == '\n');
        }
        assert_cmp((int64_t)n_other, <=, more);
        assert_in_range(n, 1, N_TEXTS);
        assert_true(more < 200 || n == N_TEXTS);
        assert_int_equal(s.text, text); /* samples of one document are drawn together */
        eval_sample_clear(&s);
    }
    s = make(&w, 1, 1000);
    assert_int_not_equal(s.text, text);
    assert_null(json_object_get(s.meta, "id"));
    eval_sample_clear(&s);
    eval_records_clear(&r);
}

/* Whichever allocation fails, the maker says so. */
static void test_no_memory(void **state)
{
    const struct eval_task *task = eval_task_find("doc_qa");
    struct eval_records r;
    struct eval_source w = {.folder = &r};
    struct test_stderr said;
    char text[512];
    bool failed = true;
    (void)state;
    assert_int_equal(eval_records_read_folder(&r, folder), APP_OK);
    for (int64_t n = 1; failed; n++) {
        struct eval_sample s = {.task = task->name, .metric = task->metric};
        struct eval_draft d = {.task = task, .w = &w, .units = 1000, .r = eval_random_key("key")};
        test_stderr_begin(&said);
        alloc_arm(n, false);
        const int rc = task->make(&s, &d);
        failed = alloc_disarm() >= n;
        const size_t n_said = test_stderr_end(&said, text, sizeof text);
        assert_int_equal(rc != APP_OK || s.no_memory, failed);
        assert_int_equal(n_said > 0, rc != APP_OK);
        assert_true(failed || s.n_turns == 1);
        eval_sample_clear(&s);
    }
    eval_records_clear(&r);
}

static void refused(const char *line, const char *pattern)
{
    struct eval_records r;
    struct test_stderr said;
    char text[512];
    write_file("questions.jsonl", line);
    test_stderr_begin(&said);
    const int rc = eval_records_read_folder(&r, folder);
    test_stderr_end(&said, text, sizeof text);
    assert_int_equal(rc, APP_BAD_INPUT);
    if (!strstr(text, pattern))
        fail_msg("'%s' is not in: %s", pattern, text);
    assert_int_equal(r.n_docs, 0); /* nothing is left of it */
    write_file("questions.jsonl", asked);
}

static void test_bad_folders(void **state)
{
    (void)state;
    refused("", "no questions");
    refused("{\"document\":\"x.txt\",\"question\":\"q\",\"answers\":[\"a\"]}", "no document 'x.txt'");
    refused("{\"document\":\"d.txt\",\"question\":\"q\",\"answers\":[\"steel\"]}", "none of the answers");
    refused("{\"document\":\"d.txt\",\"question\":\"q\",\"answers\":[\"\"]}", "empty text");
    refused("{\"document\":\"d.txt\",\"answers\":[\"iron\"]}", "\"question\"");
    write_file("d.txt", "\n \n");
    refused(asked, "d.txt' is empty");
    write_file("d.txt", texts[2]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folder_is_read), cmocka_unit_test(test_answers_are_found),
        cmocka_unit_test(test_samples),        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_bad_folders),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
