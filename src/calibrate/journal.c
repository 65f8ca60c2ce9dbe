/* SPDX-License-Identifier: MIT */
#include "calibrate/journal.h"

#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_BYTES ((int64_t)1 << 32) /* of a journal that is read */

struct wnw__journal {
    FILE *f;
    char *path;     /* owned */
    char *line;     /* owned: the last line read, with its line break */
    size_t cap;     /* bytes of `line` */
    int64_t number; /* lines read */
    off_t end;      /* where the last complete line ends */
    bool at_end;    /* all complete lines were read */
};

static int io_failed(const struct wnw__journal *j, const char *what)
{
    return wnw__fail(WNW_E_IO, "%s the journal '%.200s' failed: %s", what, j->path, strerror(errno));
}

static int damaged(const struct wnw__journal *j, const char *why)
{
    return wnw__fail(WNW_E_FORMAT, "line %lld of the journal '%.200s' %s; remove the file to begin again",
                     (long long)j->number, j->path, why);
}

/* ---- Lines ---- */

/* Reads and parses the next line; *v is NULL where there is no further complete line. */
static int read_line(struct wnw__journal *j, json_t **v)
{
    *v = NULL;
    if (j->at_end)
        return WNW_OK;
    errno = 0;
    const ssize_t n = getline(&j->line, &j->cap, j->f);
    if (n < 0 && !feof(j->f))
        return errno == ENOMEM ? wnw__fail(WNW_E_NOMEM, "no memory for a line of '%.200s'", j->path)
                               : io_failed(j, "reading");
    j->at_end = n <= 0 || j->line[n - 1] != '\n';
    if (j->at_end)
        return WNW_OK;
    j->number++;
    j->end += n;
    const int rc = wnw__json_parse(v, j->line, (size_t)n);
    return rc == WNW_E_FORMAT ? damaged(j, "is not JSON") : rc;
}

/* Writes one line after the last complete one; what follows that is dropped. */
static int add_line(struct wnw__journal *j, const json_t *v)
{
    char *text;
    size_t len;
    WNW_TRY(wnw__json_text(&text, &len, v, false));
    errno = 0;
    bool good = fseeko(j->f, j->end, SEEK_SET) == 0 && ftruncate(fileno(j->f), j->end) == 0 &&
                fwrite(text, 1, len, j->f) == len && fputc('\n', j->f) != EOF && fflush(j->f) == 0;
    good = good && fdatasync(fileno(j->f)) == 0;
    free(text);
    if (!good)
        return io_failed(j, "writing");
    j->end += (off_t)len + 1;
    return WNW_OK;
}

/* ---- The header ---- */

static const char *short_text(char **own, const json_t *v)
{
    *own = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(10)) : NULL;
    return *own ? *own : "nothing";
}

static int differs(const struct wnw__journal *j, const char *field, const json_t *theirs, const json_t *ours)
{
    char *a, *b;
    const char *t = short_text(&a, theirs), *o = short_text(&b, ours);
    const int rc = wnw__fail(WNW_E_MISMATCH,
                             "the journal '%.160s' was begun with another %.40s: %.60s, and now it is %.60s; "
                             "go on as it was begun, or remove the file to begin again",
                             j->path, field, t, o);
    free(a);
    free(b);
    return rc;
}

/* Compares the fields of two objects, those of objects inside by their own names. */
static int same_fields(const struct wnw__journal *j, const json_t *theirs, const json_t *ours)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)ours, key, v)
    {
        const json_t *t = json_object_get(theirs, key);
        if (json_is_object(v) && json_is_object(t))
            WNW_TRY(same_fields(j, t, v));
        else if (!t || !json_equal(v, t))
            return differs(j, key, t, v);
    }
    json_object_foreach((json_t *)theirs, key, v)
    {
        if (!json_object_get(ours, key))
            return differs(j, key, v, NULL);
    }
    return WNW_OK;
}

static int no_journal(const struct wnw__journal *j)
{
    return wnw__fail(WNW_E_FORMAT,
                     "'%.200s' is not a journal that this version can go on with; name another file, or "
                     "remove it",
                     j->path);
}

/* Writes the header into an empty file, or over its own beginning, which is all that is there if the process
 * ended at once. A file with anything else in it is left alone. */
static int begin(struct wnw__journal *j, const json_t *header)
{
    char *text;
    size_t len;
    WNW_TRY(wnw__json_text(&text, &len, header, false));
    const off_t size = lseek(fileno(j->f), 0, SEEK_END);
    const bool own = size >= 0 && (size_t)size <= len && memcmp(text, j->line, (size_t)size) == 0;
    free(text);
    return own ? add_line(j, header) : no_journal(j);
}

static int check_header(struct wnw__journal *j, const json_t *header)
{
    json_t *theirs;
    int rc = read_line(j, &theirs);
    if (rc != WNW_OK)
        return rc == WNW_E_FORMAT ? no_journal(j) : rc;
    if (!theirs)
        return begin(j, header);
    const json_t *format = json_object_get(theirs, "format");
    if (!format || !json_equal(format, json_object_get(header, "format")))
        rc = no_journal(j);
    if (rc == WNW_OK)
        rc = same_fields(j, theirs, header);
    json_decref(theirs);
    return rc;
}

/* ---- The file ---- */

static int open_file(struct wnw__journal *j)
{
    struct stat st;
    const int fd = open(j->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (fd < 0)
        return io_failed(j, "opening");
    j->f = fdopen(fd, "r+");
    if (!j->f) {
        close(fd);
        return wnw__fail(WNW_E_NOMEM, "no memory for the journal '%.200s'", j->path);
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > MAX_BYTES)
        return wnw__fail(WNW_E_FORMAT, "'%.200s' is not a journal", j->path);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return wnw__fail(WNW_E_ARG, "another calibration is writing the journal '%.200s'; wait for it",
                         j->path);
    return WNW_OK;
}

int wnw__journal_open(struct wnw__journal **out, const char *path, const json_t *header)
{
    struct wnw__journal *j = *out = calloc(1, sizeof *j);
    if (j)
        j->path = strdup(path);
    int rc = j && j->path ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for a journal");
    if (rc == WNW_OK)
        rc = open_file(j);
    if (rc == WNW_OK)
        rc = check_header(j, header);
    if (rc != WNW_OK) {
        wnw__journal_close(j);
        *out = NULL;
    }
    return rc;
}

void wnw__journal_close(struct wnw__journal *j)
{
    if (!j)
        return;
    if (j->f)
        fclose(j->f);
    free(j->line);
    free(j->path);
    free(j);
}

/* ---- Units ---- */

int wnw__journal_next(struct wnw__journal *j, const char *unit, json_t **result)
{
    json_t *v;
    *result = NULL;
    WNW_TRY(read_line(j, &v));
    if (!v)
        return WNW_OK;
    const char *name = json_string_value(json_object_get(v, "unit"));
    const bool same = name && strcmp(name, unit) == 0;
    *result = same ? json_incref(json_object_get(v, "result")) : NULL;
    json_decref(v);
    return *result ? WNW_OK : damaged(j, "is not what was expected there");
}

int wnw__journal_add(struct wnw__journal *j, const char *unit, const json_t *result)
{
    json_t *v = json_pack("{s:s, s:O}", "unit", unit, "result", (json_t *)result);
    const int rc = v ? add_line(j, v) : wnw__fail(WNW_E_NOMEM, "no memory for a line of the journal");
    json_decref(v);
    return rc;
}
