/* SPDX-License-Identifier: MIT */
/*
 * A look for memory that other libraries will allocate. Where an allocation fails, ggml, libllama and jansson
 * end the process or report damaged input; so they are called only after a look whether the memory that they
 * will need is available. The look is no promise: another thread may take the memory in between, and a system
 * that overcommits memory grants everything.
 */
#ifndef WNW_BASE_MEMORY_H
#define WNW_BASE_MEMORY_H

#include "winnow.h"

/* Bytes for the few objects that ggml allocates by itself in one call; several times what it needs. */
#define WNW_MEMORY_SMALL ((size_t)1 << 14)

/* WNW_OK if this number of bytes can be allocated now; else E_NOMEM with a sentence about `what`. */
int wnw__memory_look(size_t bytes, const char *what);

#endif
