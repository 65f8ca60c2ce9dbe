/* SPDX-License-Identifier: MIT */
/*
 * Memory for what other libraries allocate. ggml, libllama and jansson end the process where an allocation
 * fails, or report damaged input; so they are asked only after a look whether what they are going to need is
 * to be had. It is a look, no promise: another thread may take the memory in between, and a system that
 * promises more than it has says yes to everything.
 */
#ifndef WNW_BASE_MEMORY_H
#define WNW_BASE_MEMORY_H

#include "winnow.h"

/* Bytes of the few objects that ggml allocates by itself in one call, several times what it takes. */
#define WNW_MEMORY_SMALL ((size_t)1 << 14)

/* WNW_OK if this number of bytes can be allocated now; else E_NOMEM with a sentence about `what`. */
int wnw__memory_look(size_t bytes, const char *what);

#endif
