/* SPDX-License-Identifier: MIT */
/* Memory that is reused for growing sizes. Its contents are lost when it grows. */
#ifndef WNW_BASE_BUFFER_H
#define WNW_BASE_BUFFER_H

#include "base/err.h"

/* Starts as {0}; its owner frees it with wnw__buffer_free. */
struct wnw__buffer {
    void *p;
    size_t cap; /* bytes */
};

/* Makes room for n elements of `size` bytes each; b->p is not NULL afterwards, also for n = 0. E_NOMEM names
 * what they are for. */
int wnw__buffer_need(struct wnw__buffer *b, size_t n, size_t size, const char *what);
void wnw__buffer_free(struct wnw__buffer *b);

#endif
