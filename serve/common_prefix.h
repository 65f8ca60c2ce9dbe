/* SPDX-License-Identifier: MIT */
/* What the server's comparison of tokens means for the watched context (calls.c); for the thread that decodes. */
#ifndef WNW_SERVE_COMMON_PREFIX_H
#define WNW_SERVE_COMMON_PREFIX_H

#include <stddef.h>

size_t serve_common_prefix_of(const void *tokens, size_t n);

#endif
