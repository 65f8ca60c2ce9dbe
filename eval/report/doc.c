/* SPDX-License-Identifier: MIT */
/* A document that is written piece by piece, and the page of reports. */
#include "eval/report/doc.h"

#include "app/console.h"
#include "app/files.h"
#include "app/share.h"
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

/* ---- The page ---- */

/* Where the data goes in the page. */
static const char mark[] = "<script type=\"application/json\" id=\"data\">";

/* What stands for the character at s, whose length is *len; NULL if the character stands for itself. Markup begins with '<';
 * U+2028 and U+2029 end a line of a script in older readers. All of them stand in strings, where the escapes are allowed. */
static const char *escape_of(const char *s, size_t *len)
{
    static const struct {
        const char *of, *escape;
    } list[] = {{"<", "\\u003c"},
                {">", "\\u003e"},
                {"&", "\\u0026"},
                {"\xe2\x80\xa8", "\\u2028"},
                {"\xe2\x80\xa9", "\\u2029"}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        *len = strlen(list[i].of);
        if (strncmp(s, list[i].of, *len) == 0)
            return list[i].escape;
    }
    return NULL;
}

void eval_page_data(struct eval_doc *d, const char *json)
{
    const char *plain = json;
    for (const char *at = json; *at;) {
        size_t len;
        const char *escape = escape_of(at, &len);
        if (!escape) {
            at++;
            continue;
        }
        add(d, plain, (size_t)(at - plain));
        add(d, escape, strlen(escape));
        plain = at += len;
    }
    add(d, plain, strlen(plain));
}

int eval_page_make(struct eval_doc *d, const json_t *data)
{
    char *path = NULL, *page = NULL;
    size_t len;
    int rc = app_share_find(&path, "pages/report.html", NULL);
    if (rc == APP_OK)
        rc = app_read_file(&page, &len, path);
    char *at = rc == APP_OK ? strstr(page, mark) : NULL;
    if (rc == APP_OK && !at)
        rc = app_fail(APP_BAD_INPUT, "'%s' is not the page that comes with winnow: it has no place for data",
                      path);
    char *json = rc == APP_OK ? json_dumps(data, JSON_COMPACT | JSON_REAL_PRECISION(8)) : NULL;
    if (rc == APP_OK && !json)
        rc = eval_no_memory("the page");
    if (rc == APP_OK) {
        const char *rest = at + strlen(mark);
        add(d, page, (size_t)(rest - page));
        eval_page_data(d, json);
        rest += strcspn(rest, "<"); /* what stands there without data */
        add(d, rest, strlen(rest));
    }
    free(json);
    free(page);
    free(path);
    return rc;
}
