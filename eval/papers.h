/* SPDX-License-Identifier: MIT */
/* What the papers measured, for reading beside our own numbers. */
#ifndef WNW_EVAL_PAPERS_H
#define WNW_EVAL_PAPERS_H

/*
 * A table of a paper. `columns` are separated by '|'; a column may say what of ours corresponds to it: "r = 0.5@ratio=0.5"
 * (a size), "...@auc_one" (the area with a point (1, 0)), "...@loss=0.1" (the share that can go, in per cent) or
 * "...@task=vt" (a task; the rows then name the size). "...@known:auc_one" is the same where the question is known: in
 * mode "task" for methods that are told it, else in mode "aware". Rows are separated by line breaks and their cells by
 * '|'; the first cell is the method, which may name our presets, and the size, with blanks between: "LagKV@lagkv",
 * "LagKV@lagkv ratio=0.5".
 */
struct eval_paper {
    const char *paper, *what; /* "LagKV, table 1", and what was measured on which model */
    const char *mode;         /* the protocol that corresponds; NULL: none of ours */
    const char *columns, *rows;
    const char *note; /* "" = none */
};

extern const struct eval_paper eval_papers[]; /* ended by a paper of NULL */

#endif
