/* SPDX-License-Identifier: MIT */
#include "text/render.h"
#include "text/llama_calls.h"

#include <stdlib.h>
#include <string.h>

bool wnw_has_jinja(void)
{
    return wnw__jinja_available();
}

/* ---- Which template ---- */

static int check_name(const char *name)
{
    enum { MAX = 512 };
    const char *names[MAX];
    const int32_t n = llama_chat_builtin_templates(names, MAX);
    for (int32_t i = 0; i < n && i < MAX; i++)
        if (strcmp(name, names[i]) == 0)
            return WNW_OK;
    return wnw__fail(WNW_E_ARG, "libllama has no chat template '%.40s'", name);
}

int wnw__template_find(struct wnw__template *out, const wnw_model *m, const wnw_prompt_params *p)
{
    const struct llama_vocab *vocab = llama_model_get_vocab(m->vocab);
    *out = (struct wnw__template){0};
    if ((p->raw ? 1 : 0) + (p->chat ? 1 : 0) + (p->jinja ? 1 : 0) > 1)
        return wnw__fail(WNW_E_ARG, "a prompt has one template: raw, a name or a Jinja program");
    if (p->raw)
        return WNW_OK;
    if (p->chat)
        WNW_TRY(check_name(p->chat));
    out->source = p->chat ? p->chat : p->jinja ? p->jinja : llama_model_chat_template(m->vocab, NULL);
    out->pattern = p->chat || (!p->jinja && !wnw__jinja_available());
    if (!out->source)
        return WNW_OK;
    if (out->pattern && !p->chat)
        wnw__log(WNW_LOG_WARN,
                 "this build cannot run the model's own chat template (it was made without libllama-common): "
                 "libllama's pattern for it is used, without a default system message");
    int rc = wnw_token_piece(m, llama_vocab_bos(vocab), &out->bos);
    if (rc == WNW_OK)
        rc = wnw_token_piece(m, llama_vocab_eos(vocab), &out->eos);
    if (rc != WNW_OK)
        wnw__template_clear(out);
    return rc;
}

void wnw__template_clear(struct wnw__template *t)
{
    free(t->bos);
    free(t->eos);
    *t = (struct wnw__template){0};
}

/* ---- The text ---- */

static size_t total_length(const wnw_chat_message *messages, int32_t n)
{
    size_t total = 0;
    for (int32_t i = 0; i < n; i++)
        total += strlen(messages[i].role) + strlen(messages[i].content);
    return total;
}

/* Renders a pattern: one call has a buffer that usually suffices, and a second one the size that libllama
 * asks for. */
static int apply_pattern(struct wnw__rendered *out, const char *tmpl, const wnw_chat_message *messages,
                         int32_t n)
{
    *out = (struct wnw__rendered){0};
    const size_t length = total_length(messages, n);
    if (length > INT32_MAX / 4)
        return wnw__fail(WNW_E_RANGE, "a prompt of %zu bytes is too long", length);
    struct llama_chat_message *chat = calloc((size_t)n + 1, sizeof *chat);
    int32_t cap = (int32_t)length + 256 + 64 * n, got = -1;
    char *buf = NULL;
    int rc = chat ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for the prompt");
    for (int32_t i = 0; rc == WNW_OK && i < n; i++)
        chat[i] = (struct llama_chat_message){messages[i].role, messages[i].content};
    for (int attempt = 0; rc == WNW_OK && attempt < 2 && (attempt == 0 || got >= cap); attempt++) {
        cap = got >= cap ? got + 1 : cap;
        free(buf);
        buf = malloc((size_t)cap);
        rc = buf ? wnw__llama_apply_template(&got, tmpl, chat, (size_t)n, buf, cap)
                 : wnw__fail(WNW_E_NOMEM, "no memory for the prompt");
    }
    free(chat);
    if (rc == WNW_OK && (got < 0 || got >= cap))
        rc =
            wnw__fail(WNW_E_UNSUPPORTED, "libllama does not know this model's chat template; choose one with "
                                         "--chat NAME, or --raw");
    if (rc != WNW_OK) {
        free(buf);
        return rc;
    }
    buf[got] = '\0';
    *out = (struct wnw__rendered){.text = buf, .n = (size_t)got};
    return WNW_OK;
}

static int apply(struct wnw__rendered *out, const struct wnw__template *t, const wnw_chat_message *messages,
                 int32_t n, int32_t marked)
{
    if (t->pattern)
        return apply_pattern(out, t->source, messages, n);
    const struct wnw__jinja_input in = {.source = t->source,
                                        .bos = t->bos,
                                        .eos = t->eos,
                                        .messages = messages,
                                        .n_messages = n,
                                        .marked = marked};
    return wnw__jinja_render(out, &in);
}

/* Finds the content by rendering a probe in its place and comparing the text around it. The probe is a text
 * that no template contains, whereas a real content may repeat words of the template. */
static int find_by_probe(struct wnw__rendered *r, const struct wnw__template *t,
                         const wnw_chat_message *messages, int32_t n, int32_t marked)
{
    static const char probe[] = "\x1a"; /* a control character */
    struct wnw__rendered seen = {0};
    wnw_chat_message *other = calloc((size_t)n + 1, sizeof *other);
    if (!other)
        return wnw__fail(WNW_E_NOMEM, "no memory for the prompt");
    memcpy(other, messages, (size_t)n * sizeof *other);
    other[marked].content = probe;
    const int rc = apply(&seen, t, other, n, -1);
    free(other);
    if (rc != WNW_OK)
        return rc;
    const char *at = strstr(seen.text, probe);
    if (at) {
        const size_t before = (size_t)(at - seen.text), behind = seen.n - before - 1;
        r->found = before + behind <= r->n && memcmp(r->text, seen.text, before) == 0 &&
                   memcmp(r->text + r->n - behind, at + 1, behind) == 0;
        r->first = before;
        r->end = r->n - behind;
    }
    free(seen.text);
    return WNW_OK;
}

int wnw__render(struct wnw__rendered *out, const struct wnw__template *t, const wnw_chat_message *messages,
                int32_t n, int32_t marked)
{
    *out = (struct wnw__rendered){0};
    if (!t->source) {
        const size_t len = strlen(messages[marked].content);
        char *copy = strdup(messages[marked].content);
        if (!copy)
            return wnw__fail(WNW_E_NOMEM, "no memory for the prompt");
        *out = (struct wnw__rendered){.text = copy, .n = len, .end = len, .found = true};
        return WNW_OK;
    }
    int rc = apply(out, t, messages, n, marked);
    if (rc == WNW_OK && !out->found)
        rc = find_by_probe(out, t, messages, n, marked);
    if (rc == WNW_OK && !out->found)
        rc = wnw__fail(WNW_E_UNSUPPORTED,
                       "the chat template does not write the message of role '%.40s' as it is; "
                       "choose another with --chat NAME, or --raw",
                       messages[marked].role);
    if (rc != WNW_OK) {
        free(out->text);
        *out = (struct wnw__rendered){0};
    }
    return rc;
}
