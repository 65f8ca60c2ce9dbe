/* SPDX-License-Identifier: MIT */
/*
 * Chat templates as programs: llama.cpp's engine (libllama-common, C++) runs the Jinja template of a model.
 * jinja.cpp has these functions where that library and its headers are installed, jinja_absent.c elsewhere.
 */
#ifndef WNW_JINJA_H
#define WNW_JINJA_H

#include "base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The input of a template. */
struct wnw__jinja_input {
    const char *source;               /* the template */
    const char *bos, *eos;            /* text of these tokens, "" = none */
    const wnw_chat_message *messages; /* [n_messages] */
    int32_t n_messages;
    int32_t marked; /* index of the message whose content is sought in the result; -1 = none */
};

/* A text that a template made, and where a message's content stands in it. */
struct wnw__rendered {
    char *text; /* [n], NUL-terminated, owned: free */
    size_t n;
    size_t first, end; /* bytes [first, end) come from the content */
    bool found;        /* whether any bytes do */
};

/* Whether this build has the engine. */
bool wnw__jinja_available(void);

/* Runs the template with add_generation_prompt. Errors: E_UNSUPPORTED (the template cannot be parsed, does
 * something the engine cannot, or refuses the messages; the sentence has its own words), E_NOMEM. */
int wnw__jinja_render(struct wnw__rendered *out, const struct wnw__jinja_input *in);

#ifdef __cplusplus
}
#endif

#endif
