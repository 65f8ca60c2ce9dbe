/* SPDX-License-Identifier: MIT */
/* Where messages of ggml and libllama go. */
#ifndef WNW_LLAMA_LOG_H
#define WNW_LLAMA_LOG_H

#include "base/said.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sends the messages of ggml and libllama to our log sink, unless the program has a callback of its own
 * there. */
void wnw__quiet_dependencies(void);

#ifdef __cplusplus
}
#endif

#endif
