/* SPDX-License-Identifier: MIT */
#include "serve/document_file.h"

#include "app/clean.h"
#include "app/console.h"
#include "serve/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes of a text; more tokens than any context has. */
enum { MOST_BYTES = 1 << 28 };

static bool complain(char *what, const char *sentence)
{
    snprintf(what, SERVE_TEXT, "%.300s", sentence);
    return false;
}

/* ---- Texts ---- */

/* Opens a regular file; NULL with errno set. Another one is not read, because a pipe may never end; it is not waited for, either. */
static FILE *open_file(const char *path, size_t *n)
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return NULL;
    int err = 0;
    if (fstat(fd, &st) != 0)
        err = errno;
    else if (!S_ISREG(st.st_mode))
        err = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
    else if (st.st_size > MOST_BYTES)
        err = EFBIG;
    FILE *f = err == 0 ? fdopen(fd, "rb") : NULL;
    err = err == 0 && !f ? errno : err;
    if (!f)
        close(fd);
    *n = f ? (size_t)st.st_size : 0;
    errno = err;
    return f;
}

/* The whole of a file as text; NULL: errno says why. */
static char *read_file(const char *path, size_t *n)
{
    size_t got = 0;
    FILE *f = open_file(path, n);
    char *text = f ? malloc(*n + 1) : NULL;
    if (text)
        got = fread(text, 1, *n, f);
    if (text && got < *n) { /* a part of a text is another text */
        errno = ferror(f) ? errno : EIO;
        free(text);
        text = NULL;
    }
    if (text)
        text[*n] = '\0';
    const int err = errno;
    if (f)
        fclose(f);
    errno = err;
    return text;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\f' || c == '\v';
}

/* Chat templates trim what they write, so that the text would not be found again. */
static void trim(char *text)
{
    size_t n = strlen(text), from = 0;
    while (n > 0 && is_space(text[n - 1]))
        n--;
    text[n] = '\0';
    while (is_space(text[from]))
        from++;
    memmove(text, text + from, n - from + 1);
}

/* Cleans a text like every text that winnow reads, so that it can be put into a message, which is a JSON string. */
static bool clean(struct app_text *text, const char *path, char *what)
{
    struct app_text remarks = {0};
    char name[300], *fault;
    snprintf(name, sizeof name, "'%.290s'", path);
    const int rc = app_text_mend(text, name, &remarks, &fault);
    if (rc == APP_OK)
        app_note_lines("warning: ", remarks.s);
    const bool good = rc == APP_OK || complain(what, fault ? fault : "out of memory");
    free(remarks.s);
    free(fault);
    return good;
}

static bool load_text(struct serve_document_file *d, const char *path, char *what)
{
    struct app_text text = {0};
    text.s = read_file(path, &text.len);
    text.cap = text.len + 1;
    if (!text.s) {
        char line[SERVE_TEXT];
        snprintf(line, sizeof line, "cannot read %.200s: %s", path,
                 errno == EINVAL ? "it is not a regular file; copy it to one" : strerror(errno));
        return complain(what, line);
    }
    const bool good = clean(&text, path, what);
    d->text = text.s;
    if (!good)
        return false;
    trim(d->text);
    return *d->text || complain(what, "it is empty");
}

/* ---- Stored caches ---- */

/* Whether the file is a stored cache, or is called like one. */
static bool looks_stored(const char *path)
{
    const size_t n = strlen(path);
    return wnw_stored_is(path) || (n >= 4 && strcmp(path + n - 4, ".wkv") == 0);
}

/* Why a stored cache cannot be a document here, NULL = it can; `line` is room for the sentence. */
static const char *stored_fault(const wnw_stored *st, const char *own, char line[SERVE_TEXT])
{
    wnw_stored_info info = wnw_stored_info_default();
    wnw_prompt_params text = wnw_prompt_default_params();
    size_t n;
    (void)wnw_stored_get_info(st, &info); /* this call does not fail for an open file */
    if (strcmp(info.fingerprint, own) != 0) {
        snprintf(line, SERVE_TEXT, "it belongs to model %s (%.100s), and the server's is %s",
                 info.fingerprint, info.model, *own ? own : "not known");
        return line;
    }
    if (!wnw_stored_get_text(st, &text) || !text.document)
        return "it was stored without its text, which is what prompts are compared with";
    if (text.raw)
        return "it was stored without a chat template (--raw), and documents stand in messages";
    if (info.pieces)
        return "documents were added to it one by one, so that its tokens are not those of their text: store "
               "them anew, together";
    if (info.policy && strlen(info.policy) >= SERVE_RECIPE)
        return "the recipe that it was compressed by is too long";
    return wnw_stored_sequence(st, NULL, &n) == WNW_OK ? NULL : wnw_last_error();
}

/* What its recipe says in few words; the long form is as good. */
static void note_by(struct serve_keep_rule *by, const wnw_stored *st)
{
    wnw_stored_info info = wnw_stored_info_default();
    wnw_policy *policy = NULL;
    char *brief = NULL;
    (void)wnw_stored_get_info(st, &info);
    if (info.policy && wnw_policy_parse(&policy, info.policy, NULL) == WNW_OK)
        (void)wnw_policy_short(policy, &brief);
    const char *recipe = info.policy ? info.policy : "full";
    (void)serve_keep_rule_set(by, brief ? brief : recipe, NULL);
    by->size = info.size;
    wnw_free(brief);
    wnw_policy_free(policy);
}

static bool load_stored(struct serve_document_file *d, const char *path, const char *fingerprint, char *what)
{
    wnw_prompt_params text = wnw_prompt_default_params();
    char line[SERVE_TEXT];
    if (wnw_stored_open(&d->stored, path) != WNW_OK)
        return complain(what, wnw_last_error());
    const char *fault = stored_fault(d->stored, fingerprint, line);
    if (fault)
        return complain(what, fault);
    (void)wnw_stored_get_text(d->stored, &text);
    note_by(&d->by, d->stored);
    d->text = strdup(text.document);
    d->system = text.system ? strdup(text.system) : NULL;
    return (d->text && !text.system == !d->system) || complain(what, "out of memory");
}

/* ---- Either ---- */

bool serve_document_file_read(struct serve_document_file *f, const char *path, const char *fingerprint,
                              char *what)
{
    *f = (struct serve_document_file){0};
    return looks_stored(path) ? load_stored(f, path, fingerprint, what) : load_text(f, path, what);
}

void serve_document_file_free(struct serve_document_file *f)
{
    wnw_stored_free(f->stored);
    free(f->text);
    free(f->system);
    *f = (struct serve_document_file){0};
}
