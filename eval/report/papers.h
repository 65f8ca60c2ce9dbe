/* SPDX-License-Identifier: MIT */
/* What the papers measured, for reading next to our own numbers: share/papers.csv, a line for each number. */
#ifndef WNW_EVAL_PAPERS_H
#define WNW_EVAL_PAPERS_H

#include <stdint.h>

/* The columns of the file. */
enum eval_paper_field {
    EVAL_P_PAPER,
    EVAL_P_TABLE,  /* what was measured, on which model; lines of one table are adjacent */
    EVAL_P_NOTE,   /* on the table, in its first line */
    EVAL_P_METHOD, /* as the paper calls it: a row of the table; its lines are adjacent */
    EVAL_P_COLUMN, /* a column of the table */
    EVAL_P_RECIPE, /* our recipes for the method, with blanks between, the best match first; "" = none */
    EVAL_P_MODE,   /* the protocol; "known": "task" for methods that can use the question, else "aware" */
    EVAL_P_METRIC, /* "score"; "auc_one", the area with a point (1, 0); "loss=0.1", per cent that can go; "" = not one of winnow's */
    EVAL_P_TASK,   /* "" = the mean over tasks */
    EVAL_P_SIZE,   /* "ratio=0.5", "budget=512"; "" for the full cache and for metrics over all sizes */
    EVAL_P_VALUE,
    EVAL_P_FIELDS
};

struct eval_paper_number {
    const char *field[EVAL_P_FIELDS]; /* never NULL; point into the file's text */
};

struct eval_papers {
    char *data;                       /* the file, owned */
    struct eval_paper_number *number; /* [n], owned */
    int32_t n;
};

/* Reads and checks a file: its columns, its numbers, and that winnow knows every recipe, metric, protocol and size in it.
 * Returns an exit code; the message names the line. The caller clears in any case. */
int eval_papers_read(struct eval_papers *out, const char *path);
void eval_papers_clear(struct eval_papers *papers);

/* The next of words separated by blanks: writes it to out[size], moves *next after it. false at the end, and for a word that
 * does not fit. */
enum { EVAL_MAX_RECIPE = 512 };
int eval_papers_word(char out[EVAL_MAX_RECIPE], const char **next);

#endif
