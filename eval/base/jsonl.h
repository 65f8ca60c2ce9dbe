/* SPDX-License-Identifier: MIT */
/* Files with one JSON object per line. */
#ifndef WNW_EVAL_JSONL_H
#define WNW_EVAL_JSONL_H

#include "app/text.h"
#include "eval/base/chars.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct eval_jsonl {
    const char *path; /* borrowed */
    FILE *f;
    struct app_text line;
    int64_t number;     /* of the line that was read last, from 1 */
    int64_t begin, end; /* bytes of the file before that line, and before the next one */
    /* The file is being appended to: a last line that has no line break, or that is not an object, is what a writer
     * left unfinished. It ends the file, and `torn` says so; `end` then stays after the last whole line. */
    bool growing, torn;
    bool quiet;    /* bytes that are not UTF-8 were told of before */
    int64_t n_odd; /* lines with such bytes */
};

/* Opens a file. A file named *.gz is unpacked into a temporary file; lines and bytes are then those of that file. Returns an exit
 * code and prints its own message, like all functions here. */
int eval_jsonl_open(struct eval_jsonl *j, const char *path);
/* The same of what must be a regular file, because it is found in a folder or read more than once. */
int eval_jsonl_open_regular(struct eval_jsonl *j, const char *path);
/* The next object, which the caller releases; NULL at the end. Lines of white space are skipped. Lines are cleaned as every text
 * is (app_text_clean). The first line with bytes that are not UTF-8 gives a warning, and the end gives one for all others. */
int eval_jsonl_next(struct eval_jsonl *j, json_t **object);
void eval_jsonl_close(struct eval_jsonl *j);

/* Prints "'FILE' line N: ..." and returns the exit code for bad input. */
int eval_jsonl_bad(const struct eval_jsonl *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Refuses a value with a NUL character in any of its strings, because a C string would end there. */
int eval_jsonl_no_nul(const struct eval_jsonl *j, const json_t *value);
/* The string under `key`; bad input where there is none. */
int eval_jsonl_text(const json_t **out, const struct eval_jsonl *j, const json_t *object, const char *key);
/* The array of strings under `key`. It must have at least n_least of them. */
int eval_jsonl_texts(const json_t **out, const struct eval_jsonl *j, const json_t *object, const char *key,
                     size_t n_least);
/* The same of texts that are accepted as answers. A blank one is refused, because every prediction contains it. */
int eval_jsonl_answers(const json_t **out, const struct eval_jsonl *j, const json_t *object);
bool eval_jsonl_is_blank(const char *text);
/* What "id" says, a text or a whole number; NULL where there is none. */
int eval_jsonl_id(const json_t **out, const struct eval_jsonl *j, const json_t *object);

#endif
