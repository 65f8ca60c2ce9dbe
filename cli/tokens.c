/* SPDX-License-Identifier: MIT */
/* winnow tokens: the prompt's token ids as run reads them. */
#include "app/args.h"
#include "app/console.h"
#include "app/job.h"
#include "app/text.h"
#include "base/err.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "winnow.h"

#include <stdlib.h>
#include <string.h>

/* Prints a piece on one line: line breaks, tabs and backslashes are written as in C, bytes that are not text
 * and control characters as \xNN. */
static void print_piece(const char *piece)
{
    size_t n_control = 0; /* bytes of a character that is still to be written so */
    for (const char *c = piece; *c; c++) {
        const unsigned char byte = (unsigned char)*c;
        n_control -= n_control > 0;
        n_control = n_control > 0 ? n_control : app_control_bytes(c);
        if (byte == '\n')
            fputs("\\n", stdout);
        else if (byte == '\t')
            fputs("\\t", stdout);
        else if (byte == '\r')
            fputs("\\r", stdout);
        else if (byte == '\\')
            fputs("\\\\", stdout);
        else if (n_control > 0)
            printf("\\x%02x", byte);
        else
            putchar(byte);
    }
    putchar('\n');
}

/* A token of byte-level vocabularies may hold a part of a character. */
static bool is_utf8(const char *text)
{
    struct app_text copy = {0};
    const size_t len = strlen(text);
    const bool same = app_text_add_utf8(&copy, text, len) && copy.len == len &&
                      (len == 0 || memcmp(copy.s, text, len) == 0);
    free(copy.s);
    return same;
}

static int print_pieces(const struct app_job *job)
{
    for (int32_t i = 0; i < job->n_tokens; i++) {
        char *piece;
        const int status = wnw_token_piece(job->model, job->tokens[i], &piece);
        if (status != WNW_OK)
            return app_fail_status(status);
        printf("%d\t", (int)job->tokens[i]);
        if (is_utf8(piece)) {
            print_piece(piece);
        } else {
            for (const char *c = piece; *c; c++)
                printf("\\x%02x", (unsigned char)*c);
            putchar('\n');
        }
        wnw_free(piece);
    }
    return app_finish_stdout();
}

static int print_ids(const struct app_job *job)
{
    for (int32_t i = 0; i < job->n_tokens; i++)
        printf("%d%c", (int)job->tokens[i], i + 1 < job->n_tokens ? ' ' : '\n');
    return app_finish_stdout();
}

static int print_prompt(struct app_job *job, const struct app_args *args)
{
    WNW_TRY(app_job_check_input(job, args));
    WNW_TRY(app_job_open(job));
    WNW_TRY(app_job_prompt(job));
    app_job_notes(job);
    return ((const struct cli_args *)args)->pieces ? print_pieces(job) : print_ids(job);
}

int cli_tokens(const struct app_args *args)
{
    struct app_job job;
    const int rc = print_prompt(&job, args);
    app_job_close(&job);
    return rc;
}
