/* SPDX-License-Identifier: MIT */
/* Names of the files of a split model: NAME-00001-of-00003.gguf and so on. */
#ifndef WNW_BASE_SPLIT_FILES_H
#define WNW_BASE_SPLIT_FILES_H

#include <stddef.h>
#include <stdint.h>

enum { WNW_SPLIT_ENDING = 32 /* bytes of an ending, with its NUL, at most */ };

/* "-00002-of-00003.gguf" for i = 1 and n = 3. */
void wnw__split_ending(char out[WNW_SPLIT_ENDING], int32_t i, int32_t n);
/* Bytes of a path before the ending of the first of n files; 0: the path has no such ending, or nothing before it. */
size_t wnw__split_stem(const char *path, int32_t n);
/* The number of files that a path names the first of, and the bytes before its ending; 1 for other names. */
int32_t wnw__split_count(const char *path, size_t *stem);

#endif
