/* SPDX-License-Identifier: MIT */
#include "app/model_files.h"

#include "app/console.h"
#include "base/file_state.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct file {
    struct wnw__file_state state;
    char *path;
    int fd;
};

struct app_model_files {
    struct file *files; /* [n] */
    int n;
};

/* ---- The note ---- */

/* The number of files by the name of the first, NAME-00001-of-00003.gguf; 1 for other names. *stem: bytes before that ending. */
static int count_files(const char *path, size_t *stem)
{
    enum { ENDING = 20 }; /* bytes of "-00001-of-00003.gguf" */
    const size_t len = strlen(path);
    int n = 0, end = 0;
    *stem = len > ENDING ? len - ENDING : 0;
    if (*stem > 0 && sscanf(path + *stem, "-00001-of-%5d.gguf%n", &n, &end) == 1 && end == ENDING && n > 1)
        return n;
    return 1;
}

static int note_file(struct app_text *note, const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return app_fail(APP_BAD_INPUT, "cannot read %s: %s", path, strerror(errno));
    const struct wnw__file_state s = wnw__file_state_from(&st);
    return app_text_put(note, "%" PRIu64 " %" PRIu64 " %" PRId64 " %" PRId64 " %" PRId64 " %s\n", s.dev,
                        s.ino, s.size, s.modified[0], s.modified[1], path)
               ? APP_OK
               : app_fail(APP_FAILED, "out of memory");
}

int app_model_files_note(struct app_text *note, const char *path)
{
    size_t stem;
    const int n = count_files(path, &stem);
    int rc = n > 1 ? APP_OK : note_file(note, path);
    for (int i = 0; rc == APP_OK && n > 1 && i < n; i++) {
        struct app_text one = {0};
        rc = app_text_put(&one, "%.*s-%05d-of-%05d.gguf", (int)stem, path, i + 1, n)
                 ? note_file(note, one.s)
                 : app_fail(APP_FAILED, "out of memory");
        free(one.s);
    }
    return rc;
}

/* ---- Files of a note ---- */

static bool is_same(const struct wnw__file_state *a, const struct wnw__file_state *b)
{
    return a->dev == b->dev && a->ino == b->ino;
}

static bool open_file(struct file *f, const char *line, size_t len)
{
    int at = 0;
    struct wnw__file_state *s = &f->state;
    if (sscanf(line, "%" SCNu64 " %" SCNu64 " %" SCNd64 " %" SCNd64 " %" SCNd64 "%n", &s->dev, &s->ino,
               &s->size, &s->modified[0], &s->modified[1], &at) != 5 ||
        line[at] != ' ' || (size_t)at + 1 >= len)
        return false;
    f->path = strndup(line + at + 1, len - (size_t)at - 1);
    f->fd = f->path ? open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    const struct wnw__file_state now = wnw__file_state_of(f->fd);
    return f->fd >= 0 && is_same(&now, s) && wnw__file_state_kept(f->fd, s);
}

struct app_model_files *app_model_files_open(const char *note)
{
    int n = 0;
    for (const char *at = note; *at; at++)
        n += *at == '\n';
    struct app_model_files *f = calloc(1, sizeof *f);
    bool good = n > 0 && f && (f->files = calloc((size_t)n, sizeof *f->files));
    for (int i = 0; good && i < n; i++) {
        const size_t len = strcspn(note, "\n");
        f->files[f->n++].fd = -1;
        good = open_file(&f->files[i], note, len);
        note += len + 1;
    }
    if (good)
        return f;
    app_model_files_close(f);
    return NULL;
}

bool app_model_files_named(const struct app_model_files *f)
{
    bool same = true;
    for (int i = 0; same && i < f->n; i++) {
        struct stat st;
        same = stat(f->files[i].path, &st) == 0;
        if (same) {
            const struct wnw__file_state now = wnw__file_state_from(&st);
            same = is_same(&now, &f->files[i].state);
        }
    }
    return same;
}

bool app_model_files_kept(const struct app_model_files *f)
{
    bool kept = true;
    for (int i = 0; kept && i < f->n; i++)
        kept = wnw__file_state_kept(f->files[i].fd, &f->files[i].state);
    return kept;
}

void app_model_files_close(struct app_model_files *f)
{
    for (int i = 0; f && i < f->n; i++) {
        if (f->files[i].fd >= 0)
            close(f->files[i].fd);
        free(f->files[i].path);
    }
    if (f)
        free(f->files);
    free(f);
}
