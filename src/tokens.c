/* SPDX-License-Identifier: MIT */
/* Text <-> tokens and chat templates. The only file that knows libllama's vocabulary. */
#include "model.h"

#include <llama.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void forward_log(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    size_t n = strlen(text);
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
        n--;
    if (n > 0)
        wnw__log(level == GGML_LOG_LEVEL_WARN || level == GGML_LOG_LEVEL_ERROR ? WNW_LOG_INFO : WNW_LOG_DEBUG,
                 "%.*s", (int)n, text);
}

void wnw__quiet_dependencies(void)
{
    llama_log_set(forward_log, NULL); /* sets ggml's too */
}

int wnw__vocab_open(struct wnw_model *m, const char *path)
{
    struct llama_model_params params = llama_model_default_params();
    params.vocab_only = true;
    m->vocab = llama_model_load_from_file(path, params);
    return m->vocab ? WNW_OK : wnw__fail(WNW_E_FORMAT, "%s: libllama cannot read its vocabulary", path);
}

void wnw__vocab_free(struct wnw_model *m)
{
    if (m->vocab)
        llama_model_free(m->vocab);
    m->vocab = NULL;
}

int32_t wnw__vocab_size(const struct wnw_model *m)
{
    return llama_vocab_n_tokens(llama_model_get_vocab(m->vocab));
}

void wnw_free(void *p)
{
    free(p);
}

int wnw_tokenize(const wnw_model *m, const char *text, size_t len, bool add_special, bool parse_special,
                 int32_t **tokens, int32_t *n_tokens)
{
    WNW_REQUIRE(tokens);
    WNW_REQUIRE(n_tokens);
    *tokens = NULL;
    *n_tokens = 0;
    WNW_REQUIRE(m);
    WNW_REQUIRE(text || len == 0);
    text = text ? text : "";
    if (len > INT32_MAX / 2)
        return wnw__fail(WNW_E_RANGE, "a text of %zu bytes is too long", len);
    const struct llama_vocab *vocab = llama_model_get_vocab(m->vocab);
    if (llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_NONE)
        return wnw__fail(WNW_E_UNSUPPORTED, "this model has no tokenizer; give token ids with --tokens");
    int32_t cap = (int32_t)len + 8; /* no vocabulary makes more tokens than bytes, specials aside */
    for (int attempt = 0; attempt < 2; attempt++) {
        int32_t *buf = malloc((size_t)cap * sizeof *buf);
        if (!buf)
            return wnw__fail(WNW_E_NOMEM, "no memory for %d tokens", (int)cap);
        const int32_t n = llama_tokenize(vocab, text, (int32_t)len, buf, cap, add_special, parse_special);
        if (n >= 0) {
            *tokens = buf;
            *n_tokens = n;
            return WNW_OK;
        }
        free(buf);
        if (n == INT32_MIN)
            break;
        cap = -n;
    }
    return wnw__fail(WNW_E_RANGE, "libllama could not tokenise the text");
}

int wnw_detokenize(const wnw_model *m, const int32_t *tokens, int32_t n_tokens, char **text)
{
    WNW_REQUIRE(text);
    *text = NULL;
    WNW_REQUIRE(m);
    WNW_REQUIRE(tokens || n_tokens < 1);
    const struct llama_vocab *vocab = llama_model_get_vocab(m->vocab);
    const int32_t n_vocab = llama_vocab_n_tokens(vocab);
    size_t cap = 64 + (size_t)(n_tokens > 0 ? n_tokens : 0) * 8, n = 0;
    char *buf = malloc(cap);
    for (int32_t i = 0; buf && i < n_tokens; i++) {
        if (tokens[i] < 0 || tokens[i] >= n_vocab)
            continue;
        int32_t got = llama_token_to_piece(vocab, tokens[i], buf + n, (int32_t)(cap - n - 1), 0, false);
        if (got < 0) {
            cap = cap * 2 + (size_t)-got;
            char *more = realloc(buf, cap);
            if (!more) {
                free(buf);
                buf = NULL;
                break;
            }
            buf = more;
            i--; /* again, with room */
            continue;
        }
        n += (size_t)got;
    }
    if (!buf)
        return wnw__fail(WNW_E_NOMEM, "no memory for the text of %d tokens", (int)n_tokens);
    buf[n] = '\0';
    *text = buf;
    return WNW_OK;
}

bool wnw_token_is_eog(const wnw_model *m, int32_t token)
{
    if (!m)
        return false;
    const struct llama_vocab *vocab = llama_model_get_vocab(m->vocab);
    return token >= 0 && token < llama_vocab_n_tokens(vocab) && llama_vocab_is_eog(vocab, token);
}

/* ---- Prompts ---- */

static char *join(const char *a, const char *b, const char *c)
{
    const size_t na = strlen(a), nb = strlen(b), nc = strlen(c);
    char *s = malloc(na + nb + nc + 1);
    if (s) {
        memcpy(s, a, na);
        memcpy(s + na, b, nb);
        memcpy(s + na + nb, c, nc + 1);
    }
    return s;
}

/* The user message in the template, or a copy of the message where there is none. */
static int apply_template(const wnw_model *m, const wnw_prompt_params *p, const char *content, char **out)
{
    *out = NULL;
    const char *tmpl = p->raw ? NULL : p->chat ? p->chat : llama_model_chat_template(m->vocab, NULL);
    if (!tmpl) {
        *out = strdup(content);
        return *out ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for the prompt");
    }
    const struct llama_chat_message msg = {"user", content};
    const size_t cap = strlen(content) + 1024;
    if (cap > INT32_MAX)
        return wnw__fail(WNW_E_RANGE, "a prompt of %zu bytes is too long", strlen(content));
    char *buf = malloc(cap);
    if (!buf)
        return wnw__fail(WNW_E_NOMEM, "no memory for the prompt");
    const int32_t n = llama_chat_apply_template(tmpl, &msg, 1, true, buf, (int32_t)cap);
    if (n < 0 || (size_t)n >= cap) {
        free(buf);
        return p->chat ? wnw__fail(WNW_E_ARG, "libllama has no chat template '%.40s'", p->chat)
                       : wnw__fail(WNW_E_UNSUPPORTED,
                                   "libllama does not know this model's chat template; choose one with "
                                   "--chat NAME, or --raw");
    }
    buf[n] = '\0';
    *out = buf;
    return WNW_OK;
}

/* Bytes that the template writes before and behind a message. */
struct frame {
    size_t before, behind;
};

static int changes_message(void)
{
    return wnw__fail(WNW_E_UNSUPPORTED, "the chat template changes the message; use --raw");
}

/* Seen on a message that no template contains: a real one may repeat words of the template. */
static int measure_frame(struct frame *out, const wnw_model *m, const wnw_prompt_params *p)
{
    static const char probe[] = "\x1a"; /* a control character */
    char *rendered;
    WNW_TRY(apply_template(m, p, probe, &rendered));
    const size_t before = strcspn(rendered, probe), n = strlen(rendered);
    free(rendered);
    if (before == n)
        return changes_message();
    *out = (struct frame){.before = before, .behind = n - before - 1};
    return WNW_OK;
}

/* Where the document ends inside the rendered prompt. Some templates trim the message, so it is looked for
 * without its outer white space too. */
static int find_border(const char *rendered, const struct frame *f, const char *content, size_t n_document,
                       size_t *border)
{
    static const char space[] = " \t\r\n";
    if (strlen(rendered) < f->before)
        return changes_message();
    const char *at = strstr(rendered + f->before, content);
    if (at) {
        *border = (size_t)(at - rendered) + n_document;
        return WNW_OK;
    }
    const size_t lead = strspn(content, space);
    size_t len = strlen(content) - lead;
    while (len > 0 && strchr(space, content[lead + len - 1]))
        len--;
    char *trimmed = strndup(content + lead, len);
    if (!trimmed)
        return wnw__fail(WNW_E_NOMEM, "no memory for the prompt");
    at = strstr(rendered + f->before, trimmed);
    free(trimmed);
    if (!at)
        return changes_message();
    n_document = n_document > lead ? n_document - lead : 0;
    *border = (size_t)(at - rendered) + (n_document < len ? n_document : len);
    return WNW_OK;
}

static int tokenize_pieces(wnw_prompt *out, const wnw_model *m, const char *rendered, size_t border)
{
    const struct llama_vocab *vocab = llama_model_get_vocab(m->vocab);
    const int32_t bos = llama_vocab_bos(vocab);
    int32_t *a = NULL, *b = NULL, n_a = 0, n_b = 0;
    int rc = wnw_tokenize(m, rendered, border, false, true, &a, &n_a);
    if (rc == WNW_OK)
        rc = wnw_tokenize(m, rendered + border, strlen(rendered + border), false, true, &b, &n_b);
    if (rc == WNW_OK) {
        const bool has_bos = n_a > 0 && a[0] == bos;
        const int32_t n_bos = llama_vocab_get_add_bos(vocab) && bos >= 0 && !has_bos ? 1 : 0;
        out->tokens = malloc(((size_t)n_bos + (size_t)n_a + (size_t)n_b + 1) * sizeof *out->tokens);
        if (out->tokens) {
            out->tokens[0] = bos;
            memcpy(out->tokens + n_bos, a, (size_t)n_a * sizeof *a);
            memcpy(out->tokens + n_bos + n_a, b, (size_t)n_b * sizeof *b);
            out->n_context = n_bos + n_a;
            out->n_tokens = n_bos + n_a + n_b;
        } else {
            rc = wnw__fail(WNW_E_NOMEM, "no memory for %d tokens", (int)(n_a + n_b));
        }
    }
    free(a);
    free(b);
    return rc;
}

/* Tokens may span the border between template and message, and then the head by itself has others there:
 * those that both begin with lie wholly in the head. The BOS belongs to it. */
static int measure_prefix(wnw_prompt *out, const wnw_model *m, const char *rendered, size_t n_head)
{
    int32_t *head, n;
    if (n_head == 0)
        return WNW_OK;
    WNW_TRY(wnw_tokenize(m, rendered, n_head, false, true, &head, &n));
    const int32_t bos = llama_vocab_bos(llama_model_get_vocab(m->vocab));
    const int32_t n_bos = out->n_context > 0 && out->tokens[0] == bos && !(n > 0 && head[0] == bos) ? 1 : 0;
    int32_t i = 0;
    while (i < n && n_bos + i < out->n_context && out->tokens[n_bos + i] == head[i])
        i++;
    out->n_prefix = n_bos + i;
    free(head);
    return WNW_OK;
}

int wnw_prompt_build(wnw_prompt *out, const wnw_model *m, const wnw_prompt_params *params)
{
    WNW_REQUIRE(out);
    *out = (wnw_prompt){0};
    WNW_REQUIRE(m);
    WNW_REQUIRE(params);
    const char *document = params->document ? params->document : "";
    const char *question = params->question ? params->question : "";
    if (!*document && !*question)
        return wnw__fail(WNW_E_ARG, "the prompt is empty: give a document, a question or both");
    char *content = join(document, *document && *question ? "\n\n" : "", question);
    char *rendered = NULL;
    size_t border = 0;
    struct frame frame = {0};
    int rc = content ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for the prompt");
    if (rc == WNW_OK)
        rc = measure_frame(&frame, m, params);
    if (rc == WNW_OK)
        rc = apply_template(m, params, content, &rendered);
    if (rc == WNW_OK)
        rc = find_border(rendered, &frame, content, strlen(document), &border);
    if (rc == WNW_OK)
        rc = tokenize_pieces(out, m, rendered, border);
    if (rc == WNW_OK)
        rc = measure_prefix(out, m, rendered, frame.before);
    if (rc == WNW_OK && frame.behind > 0)
        rc = wnw_tokenize(m, rendered + strlen(rendered) - frame.behind, frame.behind, false, true,
                          &out->suffix, &out->n_suffix);
    if (rc != WNW_OK)
        wnw_prompt_clear(out);
    free(content);
    free(rendered);
    return rc;
}

void wnw_prompt_clear(wnw_prompt *p)
{
    if (!p)
        return;
    free(p->tokens);
    free(p->suffix);
    *p = (wnw_prompt){0};
}
