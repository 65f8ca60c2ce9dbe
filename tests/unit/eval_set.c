/* SPDX-License-Identifier: MIT */
/* Files of the user's own questions: what a line becomes, and which lines are refused. */
#include "asserts.h"
#include "files.h"

#include "app/console.h"
#include "eval/tasks/set.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct eval_task *user_set(void)
{
    const struct eval_task *set = eval_task_find("user");
    assert_non_null(set);
    return set;
}

/* ---- Lines that are read ---- */

#define QUESTION "\"context\":\"c\",\"question\":\"q\""
#define LINE     QUESTION ",\"answer\":\"a\""

struct good_row {
    const char *name, *line;
    const char *context, *question, *prefix, *refs, *metric, *meta; /* refs joined by '|' */
    int32_t max_new;
};

static void read_line(void **state)
{
    const struct good_row *row = *state;
    char path[] = "/tmp/winnow-set-XXXXXX", refs[256] = "";
    struct eval_set_reader r;
    struct eval_sample s;
    bool more;
    test_file_of(path, row->line, strlen(row->line));
    assert_int_equal(eval_set_open(&r, user_set(), path), APP_OK);
    assert_int_equal(eval_set_next(&r, &s, &more), APP_OK);
    assert_true(more);
    assert_int_equal(s.n_turns, 1);
    for (int32_t i = 0; i < s.turns[0].n_refs; i++)
        snprintf(refs + strlen(refs), sizeof refs - strlen(refs), "%s%s", i > 0 ? "|" : "",
                 s.turns[0].refs[i]);
    char *meta = json_dumps(s.meta, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(s.context.s, row->context);
    assert_string_equal(s.turns[0].question.s, row->question);
    assert_string_equal(s.turns[0].prefix.s, row->prefix);
    assert_string_equal(refs, row->refs);
    assert_string_equal(s.metric, row->metric);
    assert_string_equal(meta, row->meta);
    assert_int_equal(s.max_new, row->max_new);
    free(meta);
    eval_sample_clear(&s);
    assert_int_equal(eval_set_next(&r, &s, &more), APP_OK);
    assert_false(more);
    eval_sample_clear(&s);
    eval_set_close(&r);
    unlink(path);
}

static const struct good_row good_rows[] = {
    {"several answers", "{" QUESTION ",\"answers\":[\"a\",\"b c\"]}", "c\n\n", "q\n", "Answer:", "a|b c",
     "string_match_part", "{\"chat\":true}", 64},
    {"one answer, and keys that nobody knows", "{" LINE ",\"x\":[1]}", "c\n\n", "q\n", "Answer:", "a",
     "string_match_part", "{\"chat\":true}", 64},
    {"texts stay as they are",
     "\n{\"context\":\" {q} %d\\u00e4 \",\"question\":\"a\\nb\",\"answer\":\" 4 \"}\n",
     " {q} %d\xc3\xa4 \n\n", "a\nb\n", "Answer:", " 4 ", "string_match_part", "{\"chat\":true}", 64},
    {"a metric, a length, a name", "{" LINE ",\"metric\":\"qa_f1\",\"max_new\":7,\"id\":\"n\"}", "c\n\n",
     "q\n", "Answer:", "a", "qa_f1", "{\"chat\":true,\"id\":\"n\",\"metric\":\"qa_f1\"}", 7},
    {"a short name of a metric", "{" LINE ",\"metric\":\"all\",\"id\":-3}", "c\n\n", "q\n", "Answer:", "a",
     "string_match_all", "{\"chat\":true,\"id\":-3,\"metric\":\"string_match_all\"}", 64},
    {"classes", "{" LINE ",\"metric\":\"classification\",\"classes\":[\"a\",\"b\"]}", "c\n\n", "q\n",
     "Answer:", "a", "classification",
     "{\"chat\":true,\"classes\":[\"a\",\"b\"],\"metric\":\"classification\"}", 64},
    {"no beginning of the answer", "{" LINE ",\"answer_prefix\":\"\"}", "c\n\n", "q\n", "", "a",
     "string_match_part", "{\"chat\":true}", 64},
    {"another beginning", "{" LINE ",\"answer_prefix\":\" It is\"}", "c\n\n", "q\n", " It is", "a",
     "string_match_part", "{\"chat\":true}", 64},
};

/* ---- Lines that are refused ---- */

struct bad_row {
    const char *name, *text, *message;
};

/* Checks a file; what it prints on stderr goes to said[n]. */
static int check_file(char *said, size_t n, const char *path)
{
    int32_t n_samples;
    uint64_t hash;
    struct test_stderr err;
    test_stderr_begin(&err);
    const int rc = eval_set_check(&n_samples, &hash, user_set(), path);
    test_stderr_end(&err, said, n);
    return rc;
}

static void refuse(void **state)
{
    const struct bad_row *row = *state;
    char path[] = "/tmp/winnow-set-XXXXXX", said[1024];
    test_file_of(path, row->text, strlen(row->text));
    assert_int_equal(check_file(said, sizeof said, path), APP_BAD_INPUT);
    if (!strstr(said, row->message) || !strstr(said, path) || strchr(said, '\n')[1] != '\0')
        fail_msg("no '%s' in: %s", row->message, said);
    unlink(path);
}

static const struct bad_row bad_rows[] = {
    {"nothing", "", "is empty"},
    {"blank lines", "\n \n", "is empty"},
    {"not JSON", "{" LINE "}\n{", "line 2: not JSON"},
    {"a list", "[1]", "line 1: not a JSON object"},
    {"no context", "{\"question\":\"q\",\"answer\":\"a\"}", "line 1: no text \"context\""},
    {"a context that is no text", "{\"context\":[1],\"question\":\"q\",\"answer\":\"a\"}",
     "line 1: no text \"context\""},
    {"an empty context", "{\"context\":\" \",\"question\":\"q\",\"answer\":\"a\"}",
     "line 1: \"context\" is empty"},
    {"no question", "\n{\"context\":\"c\",\"answer\":\"a\"}", "line 2: no text \"question\""},
    {"an empty question", "{\"context\":\"c\",\"question\":\"\",\"answer\":\"a\"}",
     "line 1: \"question\" is empty"},
    {"no answer", "{" QUESTION "}", "line 1: no text \"answer\" and no list \"answers\""},
    {"no answer in the list", "{" QUESTION ",\"answers\":[]}", "no list \"answers\" of at least one text"},
    {"answers that are one text", "{" QUESTION ",\"answers\":\"a\"}", "no list \"answers\""},
    {"an answer that is a number", "{" QUESTION ",\"answer\":4}", "no text \"answer\""},
    {"a number among the answers", "{" QUESTION ",\"answers\":[\"a\",4]}", "something that is not text"},
    {"an empty answer", "{" QUESTION ",\"answer\":\" \\n\"}", "\"answer\" is empty"},
    {"an empty answer in the list", "{" QUESTION ",\"answers\":[\"a\",\"\"]}", "\"answers\" has an empty"},
    {"both", "{" LINE ",\"answers\":[\"a\"]}", "exclude each other"},
    {"a NUL", "{\"context\":\"c\\u0000\",\"question\":\"q\",\"answer\":\"a\"}", "line 1: a text has a NUL"},
    {"a metric that is nearly right", "{" LINE ",\"metric\":\"qa_f2\"}", "did you mean qa_f1"},
    {"an unknown metric", "{" LINE ",\"metric\":\"zzzzzzzzz\"}", "eval --list"},
    {"a metric that is no text", "{" LINE ",\"metric\":1}", "no text \"metric\""},
    {"no classes", "{" LINE ",\"metric\":\"classification\"}", "no list \"classes\""},
    {"no tokens", "{" LINE ",\"max_new\":0}", "whole number of 1 to 65536"},
    {"too many tokens", "{" LINE ",\"max_new\":65537}", "whole number of 1 to 65536"},
    {"half a token", "{" LINE ",\"max_new\":1.5}", "whole number of 1 to 65536"},
    {"a name that is a list", "{" LINE ",\"id\":[]}", "\"id\" is neither"},
    {"a beginning that is no text", "{" LINE ",\"answer_prefix\":1}", "\"answer_prefix\" is not text"},
};

/* ---- Files ---- */

/* The hash distinguishes files by every line, except blank lines. */
static void test_hash(void **state)
{
    static const char *const texts[] = {"{" LINE "}\n{" LINE "}\n", "{" LINE "}\n\n{" LINE "}",
                                        "{" LINE "}\n{" LINE ",\"max_new\":9}\n", "{" LINE "}\n"};
    static const int32_t lines[] = {2, 2, 2, 1};
    uint64_t hash[4];
    (void)state;
    for (int i = 0; i < 4; i++) {
        char path[] = "/tmp/winnow-set-XXXXXX";
        int32_t n;
        test_file_of(path, texts[i], strlen(texts[i]));
        assert_int_equal(eval_set_check(&n, &hash[i], user_set(), path), APP_OK);
        assert_int_equal(n, lines[i]);
        unlink(path);
    }
    assert_true(hash[0] == hash[1]);
    assert_true(hash[0] != hash[2]);
    assert_true(hash[0] != hash[3]);
}

/* A pipe could be read only once. */
static void test_pipe(void **state)
{
    char path[64], said[1024];
    int ends[2];
    (void)state;
    assert_int_equal(pipe(ends), 0);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    assert_int_equal(check_file(said, sizeof said, path), APP_BAD_INPUT);
    assert_non_null(strstr(said, "is not a regular file"));
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_pipe),
    };
    return run_rows(read_line, good_rows) + run_rows(refuse, bad_rows) +
           cmocka_run_group_tests(tests, NULL, NULL);
}
