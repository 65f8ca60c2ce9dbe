/* SPDX-License-Identifier: MIT */
/* A document that is written piece by piece. */
#include "eval/doc.h"

#include "app/console.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void eval_doc_clear(struct eval_doc *d)
{
    free(d->text.s);
    *d = (struct eval_doc){0};
}

void eval_doc_put(struct eval_doc *d, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (!app_text_vput(&d->text, fmt, ap))
        d->no_memory = true;
    va_end(ap);
}

static void add(struct eval_doc *d, const char *s, size_t len)
{
    if (!app_text_add(&d->text, s, len))
        d->no_memory = true;
}

/* What a character becomes in XML; NULL: itself. Control characters and U+FFFE, U+FFFF are not allowed there. */
static const char *escape_of(const unsigned char *s, size_t left)
{
    switch (*s) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    case '\t':
    case '\n':
        return NULL;
    case '\r':
        return "&#13;";
    default:
        break;
    }
    if (*s < 0x20 || *s == 0x7f || (left >= 3 && s[0] == 0xef && s[1] == 0xbf && s[2] >= 0xbe))
        return "\xef\xbf\xbd";
    return NULL;
}

void eval_doc_xml_n(struct eval_doc *d, const char *s, size_t len)
{
    struct app_text good = {0};
    if (!app_text_add_utf8(&good, s, len)) {
        d->no_memory = true;
        free(good.s);
        return;
    }
    size_t plain = 0;
    for (size_t i = 0; i < good.len; i++) {
        const unsigned char *c = (const unsigned char *)good.s + i;
        const char *escape = escape_of(c, good.len - i);
        if (!escape)
            continue;
        add(d, good.s + plain, i - plain);
        add(d, escape, strlen(escape));
        i += *c == 0xef ? 2 : 0;
        plain = i + 1;
    }
    if (good.len > plain)
        add(d, good.s + plain, good.len - plain);
    free(good.s);
}

void eval_doc_xml(struct eval_doc *d, const char *s)
{
    eval_doc_xml_n(d, s, strlen(s));
}

void eval_doc_csv(struct eval_doc *d, const char *s)
{
    if (!s[strcspn(s, ",\"\r\n")]) {
        add(d, s, strlen(s));
        return;
    }
    add(d, "\"", 1);
    for (; *s; s++)
        add(d, *s == '"' ? "\"\"" : s, *s == '"' ? 2 : 1);
    add(d, "\"", 1);
}

static const char *number(char out[EVAL_MAX_NUMBER], const char *format, double value, int decimals)
{
    if (isnan(value))
        return strcpy(out, "-");
    snprintf(out, EVAL_MAX_NUMBER, format, decimals, value);
    /* A small negative number is rounded to 0, which has no sign. */
    if (strspn(out, "+-0.") == strlen(out))
        snprintf(out, EVAL_MAX_NUMBER, "%.*f", decimals, 0.0);
    return out;
}

int eval_doc_write(const struct eval_doc *d, const char *path, const struct app_inputs *inputs)
{
    struct app_out out;
    int rc = app_out_open(&out, path, inputs);
    if (rc != APP_OK)
        return rc;
    errno = 0;
    if (fwrite(d->text.s, 1, d->text.len, out.f) == d->text.len)
        return app_out_commit(&out);
    rc = app_fail(APP_FAILED, "writing '%s' failed: %s", path, strerror(errno));
    app_out_abort(&out);
    return rc;
}

const char *eval_format(char out[EVAL_MAX_NUMBER], double value, int decimals)
{
    return number(out, "%.*f", value, decimals);
}

const char *eval_format_signed(char out[EVAL_MAX_NUMBER], double value, int decimals)
{
    return number(out, "%+.*f", value, decimals);
}
