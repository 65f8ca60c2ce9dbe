/* SPDX-License-Identifier: MIT */
/* Bytes as text of the alphabet A-Z a-z 0-9 + / with = at the end (RFC 4648, section 4). */
#ifndef WNW_BASE_BASE64_H
#define WNW_BASE_BASE64_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Characters of the text of n bytes, without the NUL. */
#define WNW_BASE64_LENGTH(n) (((size_t)(n) + 2) / 3 * 4)

/* Writes the text of from[n] and a NUL to `to`, which has room for WNW_BASE64_LENGTH(n) + 1. */
void wnw__base64_write(char *to, const void *from, size_t n);
/* Reads text[len] into to[n]. False unless it is the text of exactly n bytes, as wnw__base64_write writes it. */
bool wnw__base64_read(void *to, size_t n, const char *text, size_t len);

#endif
