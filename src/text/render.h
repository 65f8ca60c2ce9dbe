/* SPDX-License-Identifier: MIT */
/* Renders messages with a chat template and finds where one message stands in the text. */
#ifndef WNW_RENDER_H
#define WNW_RENDER_H

#include "model/model.h"
#include "text/jinja.h"

/* A chat template. */
struct wnw__template {
    const char *source; /* the model's template, or a name of libllama's patterns; NULL = none */
    bool pattern;       /* libllama matches it with its patterns; else it is a Jinja program */
    char *bos, *eos;    /* text of the tokens, owned */
};

/* The template that the parameters ask for. Errors: E_ARG (no pattern of that name), E_NOMEM. */
int wnw__template_find(struct wnw__template *out, const wnw_model *m, const wnw_prompt_params *p);
void wnw__template_clear(struct wnw__template *t);

/* Renders the messages and finds the content of messages[marked] in the text. Without a template the text is
 * that content. Errors: E_UNSUPPORTED (the template cannot be run, refuses the messages, or does not write
 * this one), E_RANGE, E_NOMEM. Release out->text with free. */
int wnw__render(struct wnw__rendered *out, const struct wnw__template *t, const wnw_chat_message *messages,
                int32_t n, int32_t marked);

#endif
