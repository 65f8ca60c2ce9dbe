/* SPDX-License-Identifier: MIT */
/* Files that are read whole. */
#ifndef WNW_APP_FILES_H
#define WNW_APP_FILES_H

#include "app/text.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The most bytes of a text, which is what the tokenizer takes, and the most ids of a file of token ids. */
enum { APP_MAX_TEXT = INT32_MAX / 2, APP_MAX_IDS = 1 << 28 };
/* The path of a file in a folder, which the caller frees; NULL if memory runs out. */
char *app_in_folder(const char *folder, const char *name);
/* Exit code for a status of what writes to a file: WNW_E_IO is bad input where the file, or its folder if there is no file yet, is none
 * that may be written to, else something that failed midway. The second: of a file in a folder. */
int app_write_code(const char *path, int status);
int app_folder_code(const char *folder, const char *name, int status);
/* Opens a text for reading and refuses a directory. Returns an exit code, like the other functions here. */
int app_open_input(FILE **out, const char *path);
/* Opens what must be a regular file: one that is found in a folder, or is read again later. A pipe is not waited for. */
int app_open_regular(FILE **out, const char *path);
/* Reads a whole file, or standard input where path is "-", and cleans it (app_text_clean). Refuses an empty text. The caller
 * frees text->s. */
int app_read_text(struct app_text *text, const char *path, struct app_text *remarks);
/* The same into *data (NUL-terminated; the caller frees it), with the remark printed; and of a file as app_open_regular has it. */
int app_read_file(char **data, size_t *len, const char *path);
int app_read_regular(char **data, size_t *len, const char *path);
/* The paths of the files NAME.txt in a folder, sorted by name; refuses a folder without any, or with one that is no regular file. *paths, [*n], is
 * released with app_free_paths. */
int app_list_texts(char ***paths, int *n, const char *folder);
void app_free_paths(char **paths, int n);
/* Reads token ids separated by white space. The caller frees *ids. */
int app_read_tokens(int32_t **ids, int32_t *n, const char *path);

#endif
