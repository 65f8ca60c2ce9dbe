/* SPDX-License-Identifier: MIT */
/* Questions about stored documents: ask.c reads and prints, ask_together.c answers several at once, ask_join.c puts documents one after the other. */
#ifndef WNW_CLI_ASK_H
#define WNW_CLI_ASK_H

#include "app/join_plan.h"
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

/* Documents that follow each other; starts as {0}. */
struct ask_join {
    wnw_stored **later;         /* [n - 1] owned; the first one is the ask's */
    struct app_join_part *part; /* [n] owned */
    int32_t *tokens;            /* [n_tokens] of all of them, owned */
    int32_t n, n_tokens;
    wnw_session *session; /* which has read them, owned */
};

struct ask {
    const char *path;        /* of the stored document, or of the folder that keeps it */
    struct cli_args reading; /* how that is read, where it is not kept yet */
    /* model, engine and options; its session is that of the current question, borrowed */
    struct app_job job;
    struct cli_on_devices devices; /* --devices; its sequence reads one question after the other */
    wnw_stored *st;
    struct ask_join join;           /* its n is 0 where there is one document */
    int32_t n_past;                 /* positions of the documents */
    struct ask_question *questions; /* [n] owned */
    int32_t n;
};

/* Functions return exit codes. */

/* Opens the other documents of -c and finds where their tokens go, once the first one and the model are open. */
int cli_ask_join_open(struct ask *ask, const struct cli_args *args);
/* Makes the session that has read all of them. */
int cli_ask_join_read(struct ask *ask);
/* A copy of it. */
int cli_ask_join_session(wnw_session **s, const struct ask *ask);
void cli_ask_join_end(struct ask_join *j);

/* Answers questions from .. from + n - 1, whose sessions have read them, in one batch. */
int cli_ask_together(struct ask *ask, int32_t from, int32_t n);

#endif
