/* SPDX-License-Identifier: MIT */
/* The parts of a prompt: read, made of a program's own tokens, and freed. */
#include "text/prompt.h"

#include "base/err.h"
#include "winnow_chat.h"

#include <stdlib.h>
#include <string.h>

void wnw_prompt_free(wnw_prompt *p)
{
    if (!p)
        return;
    free(p->tokens);
    free(p->suffix);
    free(p->text);
    free(p->plain);
    free(p);
}

/* ---- Parts ---- */

const int32_t *wnw_prompt_tokens(const wnw_prompt *p, int32_t *n)
{
    if (n)
        *n = p ? p->n_tokens : 0;
    return p ? p->tokens : NULL;
}

int32_t wnw_prompt_n_context(const wnw_prompt *p)
{
    return p ? p->n_context : 0;
}

int32_t wnw_prompt_n_past(const wnw_prompt *p)
{
    return p ? p->n_past : 0;
}

int wnw_prompt_get_parts(const wnw_prompt *p, wnw_prompt_parts *out)
{
    WNW_REQUIRE(out);
    WNW_TRY(WNW_SIZED_CHECK(wnw_prompt_parts, out));
    wnw__sized_give(out, &(wnw_prompt_parts){0});
    WNW_REQUIRE(p);
    const wnw_prompt_parts own = {WNW_INIT(wnw_prompt_parts), .n_tokens = p->n_tokens, .tokens = p->tokens,
                                  .n_context = p->n_context,  .n_prefix = p->n_prefix, .suffix = p->suffix,
                                  .n_suffix = p->n_suffix,    .text = p->text,         .n_text = p->n_text,
                                  .plain = p->plain,          .n_plain = p->n_plain,   .n_past = p->n_past};
    wnw__sized_give(out, &own);
    return WNW_OK;
}

static int check(const wnw_prompt_parts *parts)
{
    if (parts->n_tokens < 0 || parts->n_context < 0 || parts->n_context > parts->n_tokens)
        return wnw__fail(WNW_E_RANGE, "a prompt of %d tokens with %d in its first piece",
                         (int)parts->n_tokens, (int)parts->n_context);
    if (parts->n_prefix < -1 || parts->n_suffix < 0 || parts->n_past < 0)
        return wnw__fail(
            WNW_E_RANGE,
            "a prompt with %d tokens of its template before the text, %d after it and %d before the "
            "turn; give at least 0",
            (int)parts->n_prefix, (int)parts->n_suffix, (int)parts->n_past);
    if ((!parts->tokens && parts->n_tokens > 0) || (!parts->suffix && parts->n_suffix > 0))
        return wnw__fail(
            WNW_E_ARG, "a prompt of %d tokens, %d of them the template's tail, needs them, and they are NULL",
            (int)parts->n_tokens, (int)parts->n_suffix);
    return WNW_OK;
}

/* A copy with at least one element, so that NULL means that memory ran out. */
static int32_t *copy_of(const int32_t *tokens, int32_t n)
{
    int32_t *copy = malloc(((size_t)n + 1) * sizeof *copy);
    if (copy && n > 0)
        memcpy(copy, tokens, (size_t)n * sizeof *copy);
    return copy;
}

int wnw_prompt_new(wnw_prompt **out, const wnw_prompt_parts *parts)
{
    wnw_prompt_parts own = wnw_prompt_parts_default();
    WNW_REQUIRE(out);
    *out = NULL;
    WNW_REQUIRE(parts);
    WNW_TRY(WNW_SIZED_TAKE(wnw_prompt_parts, &own, parts));
    WNW_TRY(check(&own));
    wnw_prompt *p = calloc(1, sizeof *p);
    if (p) {
        *p = (wnw_prompt){.n_tokens = own.n_tokens,
                          .tokens = copy_of(own.tokens, own.n_tokens),
                          .n_context = own.n_context,
                          .n_prefix = own.n_prefix,
                          .suffix = copy_of(own.suffix, own.n_suffix),
                          .n_suffix = own.n_suffix,
                          .n_past = own.n_past};
        if (p->tokens && p->suffix) {
            *out = p;
            return WNW_OK;
        }
    }
    wnw_prompt_free(p);
    return wnw__fail(WNW_E_NOMEM, "no memory for a prompt of %d tokens", (int)own.n_tokens);
}
