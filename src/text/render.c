/* SPDX-License-Identifier: MIT */
#include "text/render.h"
#include "base/system.h"
#include "text/llama_calls.h"
#include "winnow_tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static int check_choice(const wnw_prompt_params *p)
{
    if ((p->raw ? 1 : 0) + (p->chat ? 1 : 0) + (p->jinja ? 1 : 0) > 1)
        return wnw__fail(WNW_E_ARG, "a prompt has one template: raw, a name or a Jinja program");
    return p->chat ? check_name(p->chat) : WNW_OK;
}

/* Sets the texts of the tokens that templates name. */
static int set_pieces(struct wnw__template *t, const wnw_model *m)
{
    const struct llama_vocab *vocab = llama_model_get_vocab(m->vocab);
    int rc = wnw_token_piece(m, llama_vocab_bos(vocab), &t->bos);
    if (rc == WNW_OK)
        rc = wnw_token_piece(m, llama_vocab_eos(vocab), &t->eos);
    if (rc != WNW_OK)
        wnw__template_clear(t);
    return rc;
}

int wnw__template_find(struct wnw__template *out, const wnw_model *m, const wnw_prompt_params *p)
{
    *out = (struct wnw__template){0};
    WNW_TRY(check_choice(p));
    if (p->raw)
        return WNW_OK;
    out->source = p->chat ? p->chat : p->jinja;
    if (!out->source)
        out->source = llama_model_chat_template(m->vocab, NULL);
    out->pattern = p->chat || (!p->jinja && !wnw__jinja_available());
    out->now = p->now != 0 ? p->now : wnw__local_seconds(time(NULL)); /* one date for all turns */
    if (!out->source)
        return WNW_OK;
    if (out->pattern && !p->chat)
        wnw__log(WNW_LOG_WARN,
                 "this build cannot run the model's own chat template (it was made without libllama-common): "
                 "libllama's pattern for it is used, without a default system message");
    return set_pieces(out, m);
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
 * asks for. The caller frees *buf in any case. */
static int apply_chat(char **buf, int32_t *got, const char *tmpl, const struct llama_chat_message *chat,
                      int32_t n, int32_t cap)
{
    *got = -1;
    for (int attempt = 0; attempt < 2 && (attempt == 0 || *got >= cap); attempt++) {
        cap = *got >= cap ? *got + 1 : cap;
        free(*buf);
        *buf = malloc((size_t)cap);
        if (!*buf)
            return wnw__fail(WNW_E_NOMEM, "no memory for the prompt");
        WNW_TRY(wnw__llama_apply_template(got, tmpl, chat, (size_t)n, *buf, cap));
    }
    if (*got < 0 || *got >= cap)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "libllama does not know this model's chat template; choose one with "
                         "--chat NAME, or --raw");
    return WNW_OK;
}

static int apply_pattern(struct wnw__rendered *out, const char *tmpl, const wnw_chat_message *messages,
                         int32_t n)
{
    *out = (struct wnw__rendered){0};
    const size_t length = total_length(messages, n);
    if (length > INT32_MAX / 4)
        return wnw__fail(WNW_E_RANGE, "a prompt of %zu bytes is too long", length);
    struct llama_chat_message *chat = calloc((size_t)n + 1, sizeof *chat);
    if (!chat)
        return wnw__fail(WNW_E_NOMEM, "no memory for the prompt");
    for (int32_t i = 0; i < n; i++)
        chat[i] = (struct llama_chat_message){messages[i].role, messages[i].content};
    int32_t got;
    char *buf = NULL;
    const int rc = apply_chat(&buf, &got, tmpl, chat, n, (int32_t)length + 256 + 64 * n);
    free(chat);
    if (rc != WNW_OK) {
        free(buf);
        return rc;
    }
    buf[got] = '\0';
    *out = (struct wnw__rendered){.text = buf, .n = (size_t)got};
    return WNW_OK;
}

/* ---- White space ---- */

const char wnw__space[] = " \t\r\n\f\v";

size_t wnw__trimmed_length(const char *s, size_t n)
{
    while (n > 0 && strchr(wnw__space, s[n - 1]))
        n--;
    return n;
}

/* ---- What came from the messages, in the text of a pattern ---- */

/* A pattern writes each message as it is or trimmed. So the messages are rendered once more with a marker in the place of
 * each content. The real text must be that one with the contents in the markers' places. The marker is a control
 * character and the message's number, which no pattern contains. */
enum { MARKER = 0x1a, MARKER_SIZE = 16 };

/* A content without white space at its ends. */
struct trimmed {
    const char *s;
    size_t n;
};

static struct trimmed trim(const char *s)
{
    s += strspn(s, wnw__space);
    return (struct trimmed){s, wnw__trimmed_length(s, strlen(s))};
}

static int render_markers(struct wnw__rendered *out, const struct wnw__template *t,
                          const wnw_chat_message *messages, int32_t n)
{
    *out = (struct wnw__rendered){0};
    wnw_chat_message *other = calloc((size_t)n, sizeof *other);
    char(*marker)[MARKER_SIZE] = calloc((size_t)n, sizeof *marker);
    int rc = other && marker ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for the prompt");
    for (int32_t i = 0; rc == WNW_OK && i < n; i++) {
        snprintf(marker[i], sizeof marker[i], "%c%d%c", MARKER, (int)i, MARKER);
        /* A pattern may treat an empty message differently. */
        other[i] = (wnw_chat_message){messages[i].role,
                                      trim(messages[i].content).n > 0 ? marker[i] : messages[i].content};
    }
    if (rc == WNW_OK)
        rc = apply_pattern(out, t->source, other, n);
    free(other);
    free(marker);
    return rc;
}

/* Where two texts are compared. */
struct pair {
    const char *markers; /* what is left of the text with markers */
    const char *text;    /* and of the real one */
};

/* Passes the template's words up to the next marker, or to the end; false where the texts differ. */
static bool pass_words(struct pair *at)
{
    const size_t n = strcspn(at->markers, (const char[]){MARKER, '\0'});
    if (strncmp(at->markers, at->text, n) != 0 || (!at->markers[n] && at->text[n]))
        return false;
    at->markers += n;
    at->text += n;
    return true;
}

/* Passes a content as far as the words after it agree too; *len becomes its length. */
static bool pass_content(struct pair *at, const char *s, size_t n, size_t *len)
{
    struct pair next = {at->markers, at->text + n};
    if (strncmp(at->text, s, n) != 0 || !pass_words(&next))
        return false;
    *len = n;
    *at = next;
    return true;
}

/* Records the contents in out->input, which has room for as many as there are markers. */
static bool compare(struct wnw__rendered *out, const char *markers, const wnw_chat_message *messages,
                    int32_t n, int32_t marked)
{
    struct pair at = {markers, out->text};
    bool good = pass_words(&at);
    while (good && *at.markers == MARKER) {
        char *end;
        const long i = strtol(at.markers + 1, &end, 10);
        if (*end != MARKER || i < 0 || i >= n)
            return false;
        const struct trimmed shorter = trim(messages[i].content);
        const size_t from = (size_t)(at.text - out->text);
        size_t len = 0;
        at.markers = end + 1;
        good = pass_content(&at, messages[i].content, strlen(messages[i].content), &len) ||
               pass_content(&at, shorter.s, shorter.n, &len);
        out->input[out->n_input++] = (wnw_bytes){from, from + len};
        if (i == marked) {
            out->first = out->found ? out->first : from;
            out->end = from + len;
            out->found = true;
        }
    }
    return good && !*at.markers && !*at.text;
}

static int find_contents(struct wnw__rendered *out, const struct wnw__template *t,
                         const wnw_chat_message *messages, int32_t n, int32_t marked)
{
    struct wnw__rendered markers;
    WNW_TRY(render_markers(&markers, t, messages, n));
    size_t n_marker = 0;
    for (size_t i = 0; i < markers.n; i++)
        n_marker += markers.text[i] == MARKER;
    out->input = calloc(n_marker + 1, sizeof *out->input);
    int rc = out->input ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for the prompt");
    if (rc == WNW_OK && !compare(out, markers.text, messages, n, marked))
        rc = wnw__fail(WNW_E_UNSUPPORTED,
                       "the chat template changes the messages so that they are not found in its text; "
                       "choose another with --chat NAME, or --raw");
    wnw__rendered_clear(&markers);
    return rc;
}

/* ---- All templates ---- */

void wnw__rendered_clear(struct wnw__rendered *r)
{
    free(r->text);
    free(r->input);
    *r = (struct wnw__rendered){0};
}

static int apply(struct wnw__rendered *out, const struct wnw__template *t, const wnw_chat_message *messages,
                 int32_t n, int32_t marked)
{
    if (t->pattern) {
        WNW_TRY(apply_pattern(out, t->source, messages, n));
        return find_contents(out, t, messages, n, marked);
    }
    const struct wnw__jinja_input in = {.source = t->source,
                                        .bos = t->bos,
                                        .eos = t->eos,
                                        .messages = messages,
                                        .n_messages = n,
                                        .marked = marked,
                                        .now = t->now};
    return wnw__jinja_render(out, &in);
}

int wnw__render(struct wnw__rendered *out, const struct wnw__template *t, const wnw_chat_message *messages,
                int32_t n, int32_t marked)
{
    *out = (struct wnw__rendered){0};
    int rc = apply(out, t, messages, n, marked);
    if (rc == WNW_OK && !out->found)
        rc = wnw__fail(WNW_E_UNSUPPORTED,
                       "the chat template does not write the message of role '%.40s' as it is; "
                       "choose another with --chat NAME, or --raw",
                       messages[marked].role);
    if (rc != WNW_OK)
        wnw__rendered_clear(out);
    return rc;
}
