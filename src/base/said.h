/* SPDX-License-Identifier: MIT */
/* What ggml and libllama say during a call. This file needs no libllama, so that the backend, which must not link it, may use it. */
#ifndef WNW_SAID_H
#define WNW_SAID_H

#include "base/err.h"

#include <ggml.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What was said on a thread during a call: libllama's return value tells that something failed, and a message
 * tells what. Nothing is kept where the program has a callback of its own: it gets the messages. */
enum { WNW_SAID_REASON = 302 };
struct wnw__said {
    /* The end of a sentence that says what failed: ": " and the first error, which names the cause; "" without one */
    char reason[WNW_SAID_REASON];
    char warning[400]; /* the first warnings, "" without any */
    int32_t n_warning;
    struct wnw__said *outer;
};

/* Between these two *s keeps what is said on the calling thread. */
void wnw__said_begin(struct wnw__said *s);
void wnw__said_end(struct wnw__said *s);

/* What ggml says before it ends the process, without the file and line of its source that begin it: "/build/ggml.c:12: ". */
const char *wnw__said_without_place(const char *message);

/* A log callback for ggml and libllama: passes a message to the log sink, and keeps it for the calling thread. */
void wnw__hear(enum ggml_log_level level, const char *text, void *user);

#ifdef __cplusplus
}
#endif

#endif
