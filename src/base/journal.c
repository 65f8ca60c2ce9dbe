/* SPDX-License-Identifier: MIT */
#include "base/journal.h"

#include "base/json.h"
#include "base/system.h"

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
    FILE *f;        /* lines are read through it, and written to its descriptor */
    int lock;       /* -1 = the journal itself is locked */
    char *path;     /* owned */
    char *line;     /* owned: the last line read or added, with its line break */
    size_t cap;     /* bytes of `line` */
    int64_t number; /* lines read */
    off_t last;     /* where the line that was read last begins */
    off_t end;      /* where the last complete line ends */
    bool at_end;    /* all complete lines were read */
    bool torn;      /* the file may go on after `end` */
    bool was_left;  /* see wnw__journal_was_left */
    double sync_ms, synced_at_ms;
    bool to_sync; /* something was added since */
};

static int io_failed(const struct wnw__journal *j, const char *what)
{
    return wnw__fail(WNW_E_IO, "%s the journal '%.200s' failed: %s", what, j->path, strerror(errno));
}

static int no_memory(const struct wnw__journal *j)
{
    return wnw__fail(WNW_E_NOMEM, "no memory for a line of the journal '%.200s'", j->path);
}

int wnw__journal_damaged(const struct wnw__journal *j, const char *why)
{
    return wnw__fail(WNW_E_FORMAT, "line %lld of the journal '%.200s' %s", (long long)j->number, j->path,
                     why);
}

/* ---- Reading ---- */

int wnw__journal_next(struct wnw__journal *j, json_t **v)
{
    *v = NULL;
    if (j->at_end)
        return WNW_OK;
    errno = 0;
    const ssize_t n = getline(&j->line, &j->cap, j->f);
    if (n < 0 && !feof(j->f))
        return errno == ENOMEM ? no_memory(j) : io_failed(j, "reading");
    j->at_end = n <= 0 || j->line[n - 1] != '\n';
    j->torn = j->torn || (n > 0 && j->at_end);
    if (j->at_end)
        return WNW_OK;
    j->number++;
    j->last = j->end;
    j->end += n;
    const int rc = wnw__json_parse(v, j->line, (size_t)n);
    return rc == WNW_E_FORMAT ? wnw__journal_damaged(j, "is not JSON; remove the file to begin again") : rc;
}

bool wnw__journal_take_back(struct wnw__journal *j)
{
    const int c = j->number > 0 && !j->at_end ? getc(j->f) : 0;
    if (c != EOF) {
        ungetc(c, j->f);
        return false;
    }
    j->at_end = true;
    j->torn = true;
    j->number--;
    j->end = j->last;
    return true;
}

bool wnw__journal_was_left(const struct wnw__journal *j)
{
    return j->was_left;
}

/* ---- Adding ---- */

/* Writes all of text[len] at a place of a file; a signal may interrupt a write. */
static bool write_all(int fd, const char *text, size_t len, off_t at)
{
    while (len > 0) {
        const ssize_t n = pwrite(fd, text, len, at);
        if (n < 0 && errno != EINTR)
            return false;
        text += n > 0 ? n : 0;
        at += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* Cuts off what follows the last complete line. */
static int cut(struct wnw__journal *j)
{
    if (j->torn && ftruncate(fileno(j->f), j->end) != 0)
        return io_failed(j, "writing");
    j->torn = false;
    return WNW_OK;
}

int wnw__journal_sync(struct wnw__journal *j)
{
    if (j->to_sync && fdatasync(fileno(j->f)) != 0)
        return io_failed(j, "writing");
    j->to_sync = false;
    j->synced_at_ms = wnw__now_ms();
    return WNW_OK;
}

/* Makes the line `text` with its line break, in j->line. */
static bool make_line(struct wnw__journal *j, const char *text, size_t len)
{
    if (j->cap < len + 1) {
        char *grown = realloc(j->line, len + 1);
        if (!grown)
            return false;
        j->line = grown;
        j->cap = len + 1;
    }
    memcpy(j->line, text, len);
    j->line[len] = '\n';
    return true;
}

int wnw__journal_add(struct wnw__journal *j, const char *text, size_t len)
{
    if (!make_line(j, text, len))
        return no_memory(j);
    WNW_TRY(cut(j));
    if (!write_all(fileno(j->f), j->line, len + 1, j->end)) {
        const int rc = io_failed(j, "writing");
        j->torn = true;
        (void)cut(j); /* where it fails, the next line tries again, or the next process drops what is left */
        return rc;
    }
    j->end += (off_t)len + 1;
    j->to_sync = true;
    return wnw__now_ms() - j->synced_at_ms >= j->sync_ms ? wnw__journal_sync(j) : WNW_OK;
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
    const int rc = own ? wnw__journal_add(j, text, len) : no_journal(j);
    free(text);
    return rc;
}

static int check_header(struct wnw__journal *j, const json_t *header)
{
    json_t *theirs;
    int rc = wnw__journal_next(j, &theirs);
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

/* ---- The files ---- */

/* Leaves a lock that is another's as it is. Returns rc. */
static int not_taken(struct wnw__journal *j, int rc)
{
    close(j->lock);
    j->lock = -1;
    return rc;
}

/* The kernel gives a lock back when its process ends, however it ends; so a number in the file is for messages alone. */
static int take_lock(struct wnw__journal *j, const char *path)
{
    struct stat st;
    char text[32] = "";
    j->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (j->lock < 0)
        return wnw__fail(WNW_E_IO, "opening the lock '%.200s' failed: %s", path, strerror(errno));
    if (fstat(j->lock, &st) != 0 || !S_ISREG(st.st_mode))
        return not_taken(j, wnw__fail(WNW_E_FORMAT, "the lock '%.200s' is not a regular file", path));
    const bool taken = flock(j->lock, LOCK_EX | LOCK_NB) == 0;
    const ssize_t n = read(j->lock, text, sizeof text - 1);
    if (!taken) {
        text[strcspn(text, "\n")] = '\0';
        (void)not_taken(j, WNW_E_ARG);
        return wnw__fail(WNW_E_ARG, "process %s is writing the journal '%.200s'; wait for it",
                         n > 0 ? text : "?", j->path);
    }
    j->was_left = n > 0;
    snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(j->lock, 0) == 0 && write_all(j->lock, text, strlen(text), 0))
        return WNW_OK;
    return wnw__fail(WNW_E_IO, "writing the lock '%.200s' failed: %s", path, strerror(errno));
}

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
    if (j->lock < 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return wnw__fail(WNW_E_ARG, "another process is writing the journal '%.200s'; wait for it", j->path);
    return WNW_OK;
}

static int prepare(struct wnw__journal *j, const struct wnw__journal_params *params)
{
    if (params->lock)
        WNW_TRY(take_lock(j, params->lock));
    WNW_TRY(open_file(j));
    return params->header ? check_header(j, params->header) : WNW_OK;
}

int wnw__journal_open(struct wnw__journal **out, const char *path, const struct wnw__journal_params *params)
{
    struct wnw__journal *j = *out = calloc(1, sizeof *j);
    if (!j)
        return wnw__fail(WNW_E_NOMEM, "no memory for a journal");
    j->lock = -1;
    j->sync_ms = params->sync_ms;
    j->synced_at_ms = wnw__now_ms();
    j->path = strdup(path);
    const int rc = j->path ? prepare(j, params) : wnw__fail(WNW_E_NOMEM, "no memory for a journal");
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
    if (j->f && wnw__journal_sync(j) != WNW_OK)
        wnw__log(WNW_LOG_WARN, "%s", wnw_last_error());
    if (j->lock >= 0) {
        /* An empty file says that the work ended by itself. It stays, because removing it could remove the file that
         * another process has just locked. Where the journal was not opened, nothing has begun, and an earlier process that was
         * killed still counts. */
        if ((j->f || !j->was_left) && ftruncate(j->lock, 0) != 0)
            wnw__log(WNW_LOG_WARN, "the lock of '%.200s' keeps the number of this process: %s", j->path,
                     strerror(errno));
        close(j->lock);
    }
    if (j->f)
        fclose(j->f);
    free(j->line);
    free(j->path);
    free(j);
}
