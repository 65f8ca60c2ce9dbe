/* SPDX-License-Identifier: MIT */
/* Memory: checking whether there is some, and blocks that are reused. */
#ifndef WNW_BASE_MEMORY_H
#define WNW_BASE_MEMORY_H

#include "base/err.h"

/* ---- Checking for memory that other libraries will allocate ----
 * Where an allocation fails, ggml, libllama and jansson end the process or report damaged input; so they are
 * called only after a check that the memory that they will need is available. The check is no promise:
 * another thread may take the memory in between, and a system that overcommits memory grants everything. */

/* Bytes for the few objects that ggml allocates by itself in one call; several times what it needs. */
#define WNW_MEMORY_SMALL ((size_t)1 << 14)

/* WNW_OK if this number of bytes can be allocated now; else E_NOMEM with a sentence about `what`. */
int wnw__memory_check(size_t bytes, const char *what);

/* ---- Memory that is reused for growing sizes; growing loses the contents ---- */

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
