/* SPDX-License-Identifier: MIT */
/* Memory that is reused for growing sizes. Growing loses the contents. */
#ifndef WNW_BASE_BUFFER_H
#define WNW_BASE_BUFFER_H

#include "base/err.h"

/* A buffer starts as {0}; its owner frees it with wnw__buffer_free. */
struct wnw__buffer {
    void *p;
    size_t cap; /* bytes */
};

/* Makes room for n elements of `size` bytes each; b->p is not NULL afterwards, also for n = 0. The
 * sentence of E_NOMEM says that they are for `what`. */
int wnw__buffer_need(struct wnw__buffer *b, size_t n, size_t size, const char *what);
void wnw__buffer_free(struct wnw__buffer *b);

#endif
