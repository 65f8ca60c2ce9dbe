/* SPDX-License-Identifier: MIT */
/* Questions about a stored document: ask.c reads and prints, ask_together.c answers several at once. */
#ifndef WNW_CLI_ASK_H
#define WNW_CLI_ASK_H

#include "cli/answer.h"
#include "cli/args.h"
#include "cli/on_devices.h"
#include "winnow_store.h"

struct ask_question {
    char *text;      /* owned */
    int32_t *tokens; /* [n_tokens] after those of the document, owned */
    int32_t n_tokens;
    wnw_session *session; /* owned; NULL = not begun, or answered */
    double start_ms, prefill_ms;
    struct cli_answer answer;
};

struct ask {
    const char *path;        /* of the stored document, or of the folder that keeps it */
    struct cli_args reading; /* how that is read, where it is not kept yet */
    /* model, engine and options; its session is that of the current question, borrowed */
    struct app_job job;
    struct cli_on_devices devices; /* --devices; its sequence reads one question after the other */
    wnw_stored *st;
    struct ask_question *questions; /* [n] owned */
    int32_t n;
};

/* Answers questions from .. from + n - 1, whose sessions have read them, in one batch. Returns an exit code. */
int cli_ask_together(struct ask *ask, int32_t from, int32_t n);

#endif
