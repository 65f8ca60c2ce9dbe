/* SPDX-License-Identifier: MIT */
/* Renders messages with a chat template and finds in the text what came from them. */
#ifndef WNW_RENDER_H
#define WNW_RENDER_H

#include "model/model.h"
#include "text/jinja.h"

/* A chat template. */
struct wnw__template {
    const char *source; /* the model's template, or a name of libllama's patterns; NULL = none */
    bool pattern;       /* libllama matches it with its patterns; else it is a Jinja program */
    char *bos, *eos;    /* text of the tokens, owned */
    int64_t now;        /* wnw_prompt_params.now */
};

/* The template that the parameters ask for. Errors: E_ARG (no pattern of that name), E_NOMEM. */
int wnw__template_find(struct wnw__template *out, const wnw_model *m, const wnw_prompt_params *p);
void wnw__template_clear(struct wnw__template *t);

/* Renders the messages with a template and finds the content of messages[marked] in the text, and what came from any of them. Errors: E_UNSUPPORTED (the template cannot be run, refuses the messages, does not
 * write this one, or a pattern changes one so that it is not found), E_RANGE, E_NOMEM. Release with
 * wnw__rendered_clear. */
int wnw__render(struct wnw__rendered *out, const struct wnw__template *t, const wnw_chat_message *messages,
                int32_t n, int32_t marked);
void wnw__rendered_clear(struct wnw__rendered *r);

/* White space that templates may trim from the ends of a message. */
extern const char wnw__space[];
/* The length of s [n] without white space at its end. */
size_t wnw__trimmed_length(const char *s, size_t n);

#endif
