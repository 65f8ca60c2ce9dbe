/* SPDX-License-Identifier: MIT */
/* What lines of a conversation mean: commands with their arguments, and sizes. */
#include "helpers.h"

#include "cli/chat.h"
#include "cli/chat_line.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_and_their_arguments),
        cmocka_unit_test(sizes_as_options_have_them),
        cmocka_unit_test(a_history_that_is_no_file),
    };
    return cmocka_run_group_tests_name("lines of a conversation", tests, NULL, NULL);
}
