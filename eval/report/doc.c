/* SPDX-License-Identifier: MIT */
/* A document that is written piece by piece. */
#include "eval/report/doc.h"

#include "app/console.h"
#include "eval/base/grow.h"

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

void eval_doc_hide_controls(struct eval_doc *d)
{
    if (!d->text.s)
        return;
    app_hide_controls(d->text.s, true);
    d->text.len = strlen(d->text.s);
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
    WNW_TRY(app_out_open(&out, path, inputs));
    errno = 0;
    if (fwrite(d->text.s, 1, d->text.len, out.f) == d->text.len)
        return app_out_commit(&out);
    const int rc = app_fail(APP_FAILED, "writing '%s' failed: %s", path, strerror(errno));
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
