/* SPDX-License-Identifier: MIT */
/* Memory that large bodies take goes back to the system: the C library would keep it for the next one. */
#ifndef WNW_SERVE_MEMORY_H
#define WNW_SERVE_MEMORY_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Once, before any thread is made: what is large has pages of its own, which go back when it is freed. The library's own limit would grow
 * with the first large body. */
void serve_memory_begin(void);
/* After a body of n bytes was answered: gives back what is free, if it was a large one. */
void serve_memory_end(size_t n);

#ifdef __cplusplus
}
#endif

#endif
