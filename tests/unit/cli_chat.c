/* SPDX-License-Identifier: MIT */
/* What lines of a conversation mean: commands with their arguments, and sizes. */
#include "helpers.h"

#include "cli/chat.h"
#include "cli/chat_line.h"
#include "cli/loop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Parses a line; *argument points into `text`. */
static int parse(enum cli_chat_word *word, const char **argument, char text[64], const char *line)
{
    snprintf(text, 64, "%s", line);
    return cli_chat_parse(word, argument, text);
}

static void commands_and_their_arguments(void **state)
{
    static const struct {
        const char *line;
        enum cli_chat_word word;
        const char *argument;
    } good[] = {
        {"/file a b.txt", CHAT_FILE, "a b.txt"},
        {"/file \t a.txt  ", CHAT_FILE, "a.txt"},
        {"/stats", CHAT_STATS, ""},
        {"/stats   ", CHAT_STATS, ""},
        {"/policy snapkv:window=8", CHAT_POLICY, "snapkv:window=8"},
        {"/system\tBe \"brief\".", CHAT_SYSTEM, "Be \"brief\"."},
    };
    static const char *const bad[] = {"/", "/ stats", "/Stats", "/file", "/file  ", "/undo 2", "/nonsense"};
    enum cli_chat_word word;
    const char *argument;
    char text[64];
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(parse(&word, &argument, text, good[i].line), APP_OK);
        assert_int_equal(word, good[i].word);
        assert_string_equal(argument, good[i].argument);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(parse(&word, &argument, text, bad[i]), APP_BAD_INPUT);
    for (int i = 0; i < CHAT_N_WORDS; i++) { /* each is found by its own name */
        snprintf(text, sizeof text, "/%s%s", cli_chat_commands[i].name,
                 cli_chat_commands[i].argument ? " x" : "");
        assert_int_equal(cli_chat_parse(&word, &argument, text), APP_OK);
        assert_int_equal(word, i);
        assert_cmp(15 + strlen(cli_chat_commands[i].help), <=, 40); /* a line of /help */
    }
}

static void sizes_as_options_have_them(void **state)
{
    static const char *const bad[] = {"",     "-1", "1.0",  "1.5", ".",          "0.5x",         "512 ",
                                      "0x10", "1T", "-0.1", "nan", "2147483648", "99999999999G", "M",
                                      "inf.", "0M"};
    wnw_size size;
    (void)state;
    assert_true(cli_chat_size(&size, "0.25"));
    assert_int_equal(size.kind, WNW_SIZE_RATIO);
    assert_float_equal(size.ratio, 0.25, 0);
    assert_true(cli_chat_size(&size, "0"));
    assert_int_equal(size.kind, WNW_SIZE_RATIO);
    assert_true(cli_chat_size(&size, "512"));
    assert_int_equal(size.kind, WNW_SIZE_BUDGET);
    assert_int_equal(size.budget, 512);
    assert_true(cli_chat_size(&size, "64M"));
    assert_int_equal(size.kind, WNW_SIZE_BYTES);
    assert_int_equal(size.bytes, 64 << 20);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (cli_chat_size(&size, bad[i]))
            fail_msg("'%s' is taken for a size", bad[i]);
        assert_int_equal(size.kind, WNW_SIZE_NONE);
    }
}

static void count_line(const char *line, void *user)
{
    assert_string_equal(line, "earlier");
    ++*(int *)user;
}

/* Only a file has earlier lines. A pipe is not waited for, and who wants no history makes /dev/null of it. */
static void a_history_that_is_no_file(void **state)
{
    char folder[] = "/tmp/winnow-history-XXXXXX", own[64], path[96];
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(own, sizeof own, "%s/winnow", folder);
    snprintf(path, sizeof path, "%s/chat_history", own);
    setenv("XDG_STATE_HOME", folder, 1);
    static const char *const kinds[] = {"file", "pipe", "/dev/null", "/dev/zero"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct cli_history *h;
        int n = 0;
        if (i == 0) {
            cli_history_open(&h, count_line, &n); /* makes the folder */
            cli_history_add(h, "earlier");
            cli_history_close(h);
        } else if (i == 1) {
            assert_int_equal(mkfifo(path, 0600), 0);
        } else {
            assert_int_equal(symlink(kinds[i], path), 0);
        }
        cli_history_open(&h, count_line, &n);
        assert_int_equal(n, i == 0);
        cli_history_close(h);
        unlink(path);
    }
    rmdir(own);
    rmdir(folder);
}

/* Adds `piece` `times` times, n bytes a call; returns after how many bytes a loop was found, 0 = never. */
static size_t bytes_until_loop(const char *before, const char *piece, int times)
{
    struct cli_loop l = {.n = 0};
    size_t n = 0;
    assert_false(cli_loop_add(&l, before, strlen(before)));
    for (int i = 0; i < times; i++)
        for (const char *p = piece; *p; p++, n++)
            if (cli_loop_add(&l, p, 1))
                return n + 1;
    return 0;
}

static void answers_that_repeat_themselves(void **state)
{
    char wide[1100];
    (void)state;
    /* 19 bytes: found where the repeated pieces have CLI_LOOP_LEAST bytes. */
    assert_int_equal(bytes_until_loop("It has", "the spare lantern, ", 40), CLI_LOOP_LEAST);
    assert_int_equal(bytes_until_loop("", "a", 400), CLI_LOOP_LEAST);
    assert_int_equal(bytes_until_loop("Gr\xc3\xb6\xc3\x9f", "\xc3\xa4\n", 300), CLI_LOOP_LEAST);
    /* 800 bytes: found after CLI_LOOP_TIMES of them. */
    for (size_t n = 0, i = 100; n < 800; i++)
        n += (size_t)snprintf(wide + n, sizeof wide - n, "%zu,", i);
    wide[800] = '\0';
    assert_int_equal(bytes_until_loop("", wide, 5), 800 * CLI_LOOP_TIMES);
    /* A ruler, a list of like lines that differ in a number, three verses with one refrain. */
    assert_int_equal(bytes_until_loop("", "-", 200), 0);
    struct cli_loop l = {.n = 0};
    for (int i = 0; i < 500; i++) {
        char line[40];
        snprintf(line, sizeof line, "| row %d | 0.0 | 0.0 |\n", i);
        assert_false(cli_loop_add(&l, line, strlen(line)));
    }
    wide[300] = '\0';
    assert_int_equal(bytes_until_loop("", wide, 3), 0);
    /* One call with more than is kept. */
    char *long_text = malloc(3 * CLI_LOOP_BYTES);
    assert_non_null(long_text);
    memset(long_text, 'x', 3 * CLI_LOOP_BYTES);
    l = (struct cli_loop){.n = 0};
    assert_true(cli_loop_add(&l, long_text, 3 * CLI_LOOP_BYTES));
    assert_false(cli_loop_add(&(struct cli_loop){.n = 0}, "", 0));
    free(long_text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_and_their_arguments),
        cmocka_unit_test(sizes_as_options_have_them),
        cmocka_unit_test(a_history_that_is_no_file),
        cmocka_unit_test(answers_that_repeat_themselves),
    };
    return cmocka_run_group_tests_name("lines of a conversation", tests, NULL, NULL);
}
