/* SPDX-License-Identifier: MIT */
/* Text as code points. */
#include "eval/base/chars.h"

#include "app/text.h"
#include "eval/base/grow.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

bool eval_chars_from(struct eval_chars *out, const char *s, size_t len)
{
    struct app_text text = {0};
    *out = (struct eval_chars){0};
    if (!app_text_add_utf8(&text, s, len)) {
        free(text.s);
        return false;
    }
    out->at = malloc((text.len + 1) * sizeof *out->at); /* a text has no more code points than bytes */
    for (size_t i = 0; out->at && i < text.len;) {
        utf8proc_int32_t c;
        i += (size_t)utf8proc_iterate((const utf8proc_uint8_t *)text.s + i, (utf8proc_ssize_t)(text.len - i),
                                      &c);
        out->at[out->n++] = (uint32_t)c;
    }
    free(text.s);
    return out->at != NULL;
}

bool eval_chars_copy(struct eval_chars *out, const struct eval_chars *from)
{
    *out = (struct eval_chars){.at = malloc((from->n + 1) * sizeof *out->at), .n = from->n};
    if (!out->at)
        return false;
    if (from->n > 0)
        memcpy(out->at, from->at, from->n * sizeof *from->at);
    return true;
}

bool eval_chars_append(struct eval_chars **list, int32_t *n, const char *s, size_t len)
{
    return eval_grow(list, (size_t)*n, sizeof **list) && eval_chars_from(&(*list)[(*n)++], s, len);
}

void eval_chars_free(struct eval_chars *c)
{
    free(c->at);
    *c = (struct eval_chars){0};
}

void eval_chars_free_list(struct eval_chars *list, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        eval_chars_free(&list[i]);
    free(list);
}

void eval_chars_lower(struct eval_chars *c)
{
    for (size_t i = 0; i < c->n; i++)
        c->at[i] = eval_lower(c->at[i]);
}

/* ASCII only: curly quotes do not count. */
static bool is_punctuation(uint32_t c)
{
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
}

void eval_chars_drop_punctuation(struct eval_chars *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++)
        if (!is_punctuation(c->at[i]))
            c->at[n++] = c->at[i];
    c->n = n;
}

void eval_chars_collapse(struct eval_chars *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++) {
        if (!eval_is_space(c->at[i]))
            c->at[n++] = c->at[i];
        else if (n > 0 && c->at[n - 1] != ' ')
            c->at[n++] = ' ';
    }
    c->n = n > 0 && c->at[n - 1] == ' ' ? n - 1 : n;
}

bool eval_chars_contain(const struct eval_chars *c, const struct eval_chars *part)
{
    if (part->n == 0)
        return true;
    const char *from = (const char *)c->at, *const end = (const char *)(c->at + c->n);
    const size_t len = part->n * sizeof *part->at;
    /* The search compares bytes; a match that does not begin at a code point does not count. */
    while (from < end && (size_t)(end - from) >= len) {
        const char *found = memmem(from, (size_t)(end - from), part->at, len);
        if (!found || (size_t)(found - (const char *)c->at) % sizeof *c->at == 0)
            return found != NULL;
        from = found + 1;
    }
    return false;
}

bool eval_chars_equal(const struct eval_chars *a, const struct eval_chars *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->at, b->at, a->n * sizeof *a->at) == 0);
}

bool eval_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
           c == 0x3000;
}

bool eval_is_digit(uint32_t c)
{
    return c >= '0' && c <= '9';
}

bool eval_is_alnum(uint32_t c)
{
    const utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) ||
           (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO);
}

uint32_t eval_lower(uint32_t c)
{
    enum { CAPITAL_I_WITH_DOT = 0x130 }; /* its lower case is two code points, and neither alone is right */
    return c == CAPITAL_I_WITH_DOT ? c : (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
}
