/* SPDX-License-Identifier: MIT */
/* What ggml and libllama say while they work. */
#ifndef WNW_LLAMA_LOG_H
#define WNW_LLAMA_LOG_H

#include "base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sends the messages of ggml and libllama to our log sink, unless the program has a callback of its own
 * there. */
void wnw__quiet_dependencies(void);

/* What was said on a thread during a call: libllama's return value tells that something failed, and a message
 * tells what. Nothing is kept where the program has a callback of its own: it gets the messages. */
struct wnw__said {
    char error[300];   /* the first error, which names the cause; "" without one */
    char warning[400]; /* the first warnings, "" without any */
    int32_t n_warning;
    struct wnw__said *outer;
};

/* Between these two *s keeps what is said on the calling thread. */
void wnw__said_begin(struct wnw__said *s);
void wnw__said_end(struct wnw__said *s);

#ifdef __cplusplus
}
#endif

#endif
