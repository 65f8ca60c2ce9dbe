/* SPDX-License-Identifier: MIT */
/*
 * Chat templates as programs: llama.cpp's engine (libllama-common, C++) runs the Jinja template of a model.
 * jinja.cpp has these functions where that library and its headers are installed, jinja_absent.c elsewhere.
 */
#ifndef WNW_JINJA_H
#define WNW_JINJA_H

#include "base/err.h"
#include "winnow_tools.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The input of a template. */
struct wnw__jinja_input {
    const char *source;               /* the template */
    const char *bos, *eos;            /* text of these tokens, "" = none */
    const wnw_chat_message *messages; /* [n_messages] */
    int32_t n_messages;
    int32_t marked; /* index of the message whose content is sought in the result */
    int64_t now; /* seconds since 1970, UTC, which strftime_now writes in UTC; 0 = the present, local time */
};

/* A text that a template made, the place of a message's content in it, and what came from any message. */
struct wnw__rendered {
    char *text; /* [n], NUL-terminated, owned */
    size_t n;
    size_t first, end; /* the content is within bytes [first, end) */
    bool found;        /* whether the content is there */
    wnw_bytes *input;  /* [n_input] ascending, not adjacent: bytes of messages; owned */
    int32_t n_input;
};

/* Whether this build has the engine. */
bool wnw__jinja_available(void);

/* Runs the template with add_generation_prompt, on a stack of its own and within bounds (decision 046). Errors:
 * E_UNSUPPORTED (the template cannot be parsed, does something the engine cannot, exceeds a bound, or refuses the
 * messages; the sentence has its own words), E_NOMEM. */
int wnw__jinja_render(struct wnw__rendered *out, const struct wnw__jinja_input *in);

#ifdef __cplusplus
}
#endif

#endif
