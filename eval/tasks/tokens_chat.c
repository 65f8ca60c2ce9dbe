/* SPDX-License-Identifier: MIT */
/* What a chat template puts around the user's text. */
#include "eval/tasks/tokens.h"

#include "app/console.h"

#include <stdlib.h>
#include <string.h>

/* Stands for the user's text when the template is rendered. */
static const char sentinel[] = "########################################";
/* Stand for an earlier question and its answer. */
static const char first_text[] = "&&&&&&&&&&&&&&&&&&&&", answer_text[] = "@@@@@@@@@@@@@@@@@@@@";

/* Cuts a rendered prompt at the sentinel. If nothing surrounds the sentinel, the model has no template. */
static int cut_template(struct eval_chat *c, const char *text)
{
    const char *at = strstr(text, sentinel);
    if (!at)
        return app_fail(APP_BAD_INPUT, "the chat template changes the user's text; use --chat none");
    const char *behind = at + strlen(sentinel);
    c->head = strndup(text, (size_t)(at - text));
    c->tail = strdup(behind);
    if (!c->head || !c->tail)
        return app_fail(APP_FAILED, "out of memory for the chat template");
    c->raw = *behind == '\0' && !*c->head;
    return APP_OK;
}

/* Finds the token that the library put before the text. */
static int find_bos(struct eval_chat *c, const wnw_model *m, const wnw_prompt *p)
{
    int32_t *ids = NULL, *added = NULL, n = 0, n_added = 0;
    c->bos = -1;
    int status = wnw_tokenize_marked(m, p->text, p->n_text, p->plain, p->n_plain, NULL, &ids, &n);
    if (status == WNW_OK)
        status = wnw_tokenize(m, "", 0, true, false, &added, &n_added);
    if (status == WNW_OK && n_added > 0 && p->tokens[0] == added[0] && !(n > 0 && ids[0] == added[0]))
        c->bos = added[0];
    wnw_free(ids);
    wnw_free(added);
    return status == WNW_OK ? APP_OK : app_fail_status(status);
}

/* A prompt of the template with up to two earlier turns. The caller clears it. */
static int render(wnw_prompt *prompt, const wnw_model *m, const char *name, bool turns)
{
    const bool raw = strcmp(name, "none") == 0;
    const wnw_chat_message earlier[] = {{"user", first_text}, {"assistant", answer_text}};
    const wnw_prompt_params params = {WNW_INIT(wnw_prompt_params),
                                      .question = sentinel,
                                      .messages = turns ? earlier : NULL,
                                      .n_messages = turns ? 2 : 0,
                                      .chat = raw || strcmp(name, "auto") == 0 ? NULL : name,
                                      .now = WNW_PROMPT_NOW,
                                      .raw = raw};
    *prompt = wnw_prompt_default();
    return wnw_prompt_build(prompt, m, &params);
}

/* Finds what stands between an answer and the next question. Templates that refuse earlier turns leave it
 * NULL, and samples of several turns are refused then. */
static int find_between(struct eval_chat *c, const wnw_model *m, const char *name)
{
    wnw_prompt prompt;
    if (c->raw) {
        c->between = strdup("\n\n");
        return c->between ? APP_OK : app_fail(APP_FAILED, "out of memory for the chat template");
    }
    const int status = render(&prompt, m, name, true);
    const char *from = status == WNW_OK ? strstr(prompt.text, answer_text) : NULL;
    const char *to = from ? strstr(from, sentinel) : NULL;
    if (to) {
        from += strlen(answer_text);
        c->between = strndup(from, (size_t)(to - from));
    }
    wnw_prompt_clear(&prompt);
    return status == WNW_E_NOMEM || (to && !c->between)
               ? app_fail(APP_FAILED, "out of memory for the chat template")
               : APP_OK;
}

int eval_chat_open(struct eval_chat *c, const wnw_model *m, const char *name)
{
    wnw_prompt prompt;
    *c = (struct eval_chat){.bos = -1};
    const int status = render(&prompt, m, name, false);
    int rc = status == WNW_OK ? cut_template(c, prompt.text) : app_fail_status(status);
    if (rc == APP_OK)
        rc = find_bos(c, m, &prompt);
    if (rc == APP_OK && !c->raw) {
        c->n_prefix = prompt.n_prefix;
        c->suffix = prompt.suffix; /* taken over */
        c->n_suffix = prompt.n_suffix;
        prompt.suffix = NULL;
    }
    wnw_prompt_clear(&prompt);
    if (rc == APP_OK)
        rc = find_between(c, m, name);
    if (rc != APP_OK)
        eval_chat_close(c);
    return rc;
}

void eval_chat_close(struct eval_chat *c)
{
    free(c->head);
    free(c->tail);
    free(c->between);
    wnw_free(c->suffix);
    *c = (struct eval_chat){.bos = -1};
}
