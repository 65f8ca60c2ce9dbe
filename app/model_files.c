/* SPDX-License-Identifier: MIT */
#include "app/model_files.h"

#include "app/console.h"
#include "base/file_state.h"
#include "base/split_files.h"

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

static int note_file(struct app_text *note, const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return app_fail(APP_BAD_INPUT, "cannot read %s: %s", path, strerror(errno));
    const struct wnw__file_state s = wnw__file_state_from(&st);
    return app_text_put(note, "%" PRIu64 " %" PRIu64 " %" PRId64 " %" PRId64 " %" PRId64 " %zu %s\n", s.dev,
                        s.ino, s.size, s.modified[0], s.modified[1], strlen(path), path)
               ? APP_OK
               : app_fail(APP_FAILED, "out of memory");
}

int app_model_files_note(struct app_text *note, const char *path)
{
    size_t stem;
    const int32_t n = wnw__split_count(path, &stem);
    int rc = note_file(note, path);
    for (int32_t i = 1; rc == APP_OK && i < n; i++) {
        struct app_text one = {0};
        char ending[WNW_SPLIT_ENDING];
        wnw__split_ending(ending, i, n);
        if (!app_text_put(&one, "%.*s%s", (int)stem, path, ending))
            rc = app_fail(APP_FAILED, "out of memory");
        else if (access(one.s, F_OK) == 0) /* a model in one file may have such a name, too */
            rc = note_file(note, one.s);
        free(one.s);
    }
    return rc;
}

/* ---- Files of a note ---- */

static bool is_same(const struct wnw__file_state *a, const struct wnw__file_state *b)
{
    return a->dev == b->dev && a->ino == b->ino;
}

/* Takes the next file of a note, whose path may have any characters, and moves *note past it. */
static bool open_file(struct file *f, const char **note)
{
    int at = 0;
    size_t len;
    struct wnw__file_state *s = &f->state;
    if (sscanf(*note, "%" SCNu64 " %" SCNu64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %zu%n", &s->dev, &s->ino,
               &s->size, &s->modified[0], &s->modified[1], &len, &at) != 6 ||
        (*note)[at] != ' ' || len == 0)
        return false;
    const char *path = *note + at + 1;
    if (strnlen(path, len) < len || path[len] != '\n')
        return false;
    *note = path + len + 1;
    f->path = strndup(path, len);
    f->fd = f->path ? open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    const struct wnw__file_state now = wnw__file_state_of(f->fd);
    return f->fd >= 0 && is_same(&now, s) && wnw__file_state_kept(f->fd, s);
}

struct app_model_files *app_model_files_open(const char *note)
{
    int most = 0; /* a line each, unless a path has several */
    for (const char *at = note; *at; at++)
        most += *at == '\n';
    struct app_model_files *f = calloc(1, sizeof *f);
    bool good = most > 0 && f && (f->files = calloc((size_t)most, sizeof *f->files));
    while (good && *note && f->n < most) {
        f->files[f->n++].fd = -1;
        good = open_file(&f->files[f->n - 1], &note);
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
