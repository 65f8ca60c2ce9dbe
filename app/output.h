/* SPDX-License-Identifier: MIT */
/* Files that appear whole or not at all, and never in place of an input. */
#ifndef WNW_APP_OUTPUT_H
#define WNW_APP_OUTPUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

/* The files a command reads, identified by device and inode: no output may replace one of them. */
enum { APP_MAX_INPUTS = 1024 };
struct app_inputs {
    struct {
        dev_t dev;
        ino_t ino;
    } id[APP_MAX_INPUTS];
    int n;
};
/* Adds a file. NULL and a path at which no file exists add nothing. */
void app_inputs_add(struct app_inputs *in, const char *path);

/* Makes a folder and those above it where they do not exist. Returns an exit code. */
int app_make_folders(const char *path);

/* A file that appears under its name only when it is complete. One at a time. */
struct app_out {
    FILE *f;    /* NULL = not open */
    char *path; /* that symbolic links lead to, owned */
};
/* Whether an output can be written at path; to be called before the work starts. inputs may be NULL. Returns
 * an exit code. */
int app_out_check(const char *path, const struct app_inputs *inputs);
/* Whether two outputs would be one file, however they are named. */
bool app_out_same(const char *a, const char *b);
int app_out_open(struct app_out *out, const char *path, const struct app_inputs *inputs);
/* Writes o and a newline; after a failure the output is aborted. o is NULL if memory ran out while it was
 * made. */
int app_out_json(struct app_out *out, const json_t *o);
int app_out_commit(struct app_out *out);
/* Removes what was written. Does nothing if no output is open. */
void app_out_abort(struct app_out *out);
/* Removes the unfinished file, if there is one, before the process ends at once. */
void app_out_discard(void);

#endif
