/* SPDX-License-Identifier: MIT */
/* Files with one JSON object per line. */
#include "eval/base/jsonl.h"

#include "app/clean.h"
#include "app/console.h"
#include "app/files.h"
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { MAX_LINE = 1 << 30 }; /* bytes; the limit is for devices, whose lines may have no end */

/* Copies what a gzip file has into another. */
static int unpack(FILE *to, gzFile from, const char *path)
{
    char block[1 << 16];
    int n;
    while ((n = gzread(from, block, sizeof block)) > 0)
        if (fwrite(block, 1, (size_t)n, to) != (size_t)n)
            return app_fail(APP_FAILED, "unpacking '%s' failed: %s", path, strerror(errno));
    if (n < 0 || gzdirect(from))
        return app_fail(APP_BAD_INPUT, "'%s' is not what gzip writes", path);
    return APP_OK;
}

/* Takes over a packed file, in whose place a temporary one comes. */
static int open_packed(struct eval_jsonl *j)
{
    int rc = APP_OK;
    const int fd = dup(fileno(j->f));
    gzFile from = fd >= 0 ? gzdopen(fd, "rb") : NULL;
    if (fd >= 0 && !from)
        close(fd);
    fclose(j->f);
    j->f = from ? tmpfile() : NULL;
    if (!j->f)
        rc = app_fail(APP_FAILED, "unpacking '%s' failed: %s", j->path, strerror(errno));
    if (rc == APP_OK)
        rc = unpack(j->f, from, j->path);
    if (from && gzclose_r(from) != Z_OK && rc == APP_OK)
        rc = app_fail(APP_BAD_INPUT, "'%s' is cut off", j->path);
    if (rc == APP_OK && fseek(j->f, 0, SEEK_SET) != 0)
        rc = app_fail(APP_FAILED, "unpacking '%s' failed: %s", j->path, strerror(errno));
    return rc;
}

static int open_file(struct eval_jsonl *j, const char *path, int (*open)(FILE **, const char *))
{
    const size_t len = strlen(path);
    *j = (struct eval_jsonl){.path = path};
    const int rc = open(&j->f, path);
    return rc == APP_OK && len > 3 && strcmp(path + len - 3, ".gz") == 0 ? open_packed(j) : rc;
}

int eval_jsonl_open(struct eval_jsonl *j, const char *path)
{
    return open_file(j, path, app_open_input);
}

int eval_jsonl_open_regular(struct eval_jsonl *j, const char *path)
{
    return open_file(j, path, app_open_regular);
}

void eval_jsonl_close(struct eval_jsonl *j)
{
    if (j->f)
        fclose(j->f);
    free(j->line.s);
    *j = (struct eval_jsonl){0};
}

int eval_jsonl_bad(const struct eval_jsonl *j, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return app_fail(APP_BAD_INPUT, "'%s' line %lld: %s", j->path, (long long)j->number, text);
}

/* Reads a line without its line break into j->line. *more becomes false if there is none. Returns an exit
 * code. */
static int read_line(struct eval_jsonl *j, bool *more)
{
    char block[4096];
    size_t n = 0;
    int c;
    j->line.len = 0;
    j->begin = j->end;
    *more = false;
    while ((c = getc(j->f)) != EOF && c != '\n') {
        block[n++] = (char)c;
        if (n < sizeof block)
            continue;
        if (memchr(block, '\0', n)) /* no text, and may have no end: what has come is refused for that */
            break;
        if (j->line.len + n > MAX_LINE) {
            j->number++;
            return eval_jsonl_bad(j, "more than %d bytes", MAX_LINE);
        }
        if (!app_text_add(&j->line, block, n))
            return app_fail(APP_FAILED, "out of memory for '%s'", j->path);
        n = 0;
    }
    if (!app_text_add(&j->line, block, n))
        return app_fail(APP_FAILED, "out of memory for '%s'", j->path);
    if (ferror(j->f))
        return app_fail(APP_FAILED, "reading '%s' failed: %s", j->path, strerror(errno));
    *more = c != EOF || j->line.len > 0;
    j->number += *more;
    j->torn = j->growing && *more && c == EOF;
    *more = *more && !j->torn;
    j->end += *more ? (int64_t)j->line.len + (c != EOF) : 0;
    return APP_OK;
}

/* Whether the line that was read is the last one of a file that is being appended to. */
static bool is_unfinished(struct eval_jsonl *j)
{
    if (!j->growing)
        return false;
    const int c = getc(j->f);
    if (c != EOF)
        ungetc(c, j->f);
    else
        j->end = j->begin;
    return c == EOF;
}

static bool is_blank(const struct app_text *line)
{
    return strspn(line->s, " \t\r") == line->len;
}

/* Cleans a line. What a writer has left unfinished is looked at later, and what it wrote itself is clean. */
static int clean_line(struct eval_jsonl *j)
{
    struct app_text remarks = {0};
    char name[300];
    if (j->growing)
        return app_text_repair(&j->line) ? APP_OK : app_fail(APP_FAILED, "out of memory for '%s'", j->path);
    snprintf(name, sizeof name, "'%.250s' line %lld", j->path, (long long)j->number);
    const int rc = app_text_clean(&j->line, name, &remarks);
    j->n_odd += remarks.len > 0;
    if (rc == APP_OK && j->n_odd == 1 && !j->quiet)
        app_note_lines("warning: ", remarks.s);
    free(remarks.s);
    return rc;
}

/* Warns of further lines that were not UTF-8. */
static void warn_not_utf8(struct eval_jsonl *j)
{
    if (j->n_odd > 1 && !j->quiet)
        app_note("warning: '%s' has %lld more such line%s", j->path, (long long)j->n_odd - 1,
                 j->n_odd == 2 ? "" : "s");
    j->quiet = true;
}

int eval_jsonl_next(struct eval_jsonl *j, json_t **object)
{
    bool more;
    json_error_t error;
    *object = NULL;
    do {
        int rc = read_line(j, &more);
        if (rc == APP_OK && !more)
            warn_not_utf8(j);
        if (rc != APP_OK || !more)
            return rc;
        rc = clean_line(j);
        if (rc != APP_OK)
            return rc;
    } while (is_blank(&j->line));
    *object = json_loadb(j->line.s, j->line.len, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error);
    if (!*object && json_error_code(&error) == json_error_out_of_memory)
        return app_fail(APP_FAILED, "out of memory for '%s'", j->path);
    if (!json_is_object(*object) && (j->torn = is_unfinished(j))) {
        json_decref(*object);
        *object = NULL;
        return APP_OK;
    }
    if (!*object && json_error_code(&error) == json_error_duplicate_key)
        return eval_jsonl_bad(j, "an object has a key twice: %s", error.text);
    if (!*object)
        return eval_jsonl_bad(j, "not JSON: %s (byte %d)", error.text, error.position);
    if (!json_is_object(*object)) {
        json_decref(*object);
        *object = NULL;
        return eval_jsonl_bad(j, "not a JSON object in braces");
    }
    return APP_OK;
}

int eval_jsonl_no_nul(const struct eval_jsonl *j, const json_t *value)
{
    const char *key;
    json_t *item;
    size_t i;
    int rc = APP_OK;
    if (json_is_string(value) && strlen(json_string_value(value)) != json_string_length(value))
        return eval_jsonl_bad(j, "a text has a NUL character");
    json_array_foreach(value, i, item) if (rc == APP_OK) rc = eval_jsonl_no_nul(j, item);
    /* The loop does not change the object, but its macro takes a pointer to one that is not const. */
    json_object_foreach((json_t *)(uintptr_t)value, key, item) if (rc == APP_OK) rc =
        eval_jsonl_no_nul(j, item);
    return rc;
}

int eval_jsonl_text(const json_t **out, const struct eval_jsonl *j, const json_t *object, const char *key)
{
    *out = json_object_get(object, key);
    return json_is_string(*out) ? APP_OK : eval_jsonl_bad(j, "no text \"%s\"", key);
}

int eval_jsonl_texts(const json_t **out, const struct eval_jsonl *j, const json_t *object, const char *key,
                     size_t n_least)
{
    const json_t *list = *out = json_object_get(object, key);
    if (!json_is_array(list) || json_array_size(list) < n_least)
        return eval_jsonl_bad(j, "no list \"%s\"%s", key,
                              n_least > 0 ? " of at least one text" : " of texts");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_is_string(json_array_get(list, i)))
            return eval_jsonl_bad(j, "\"%s\" has something that is not text", key);
    return APP_OK;
}

bool eval_jsonl_is_blank(const char *text)
{
    return text[strspn(text, " \t\r\n")] == '\0';
}

int eval_jsonl_answers(const json_t **out, const struct eval_jsonl *j, const json_t *object)
{
    WNW_TRY(eval_jsonl_texts(out, j, object, "answers", 1));
    for (size_t i = 0; i < json_array_size(*out); i++)
        if (eval_jsonl_is_blank(json_string_value(json_array_get(*out, i))))
            return eval_jsonl_bad(j, "\"answers\" has an empty text");
    return APP_OK;
}

int eval_jsonl_id(const json_t **out, const struct eval_jsonl *j, const json_t *object)
{
    *out = json_object_get(object, "id");
    return !*out || json_is_string(*out) || json_is_integer(*out)
               ? APP_OK
               : eval_jsonl_bad(j, "\"id\" is neither text nor a whole number");
}
