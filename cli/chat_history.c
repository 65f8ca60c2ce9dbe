/* SPDX-License-Identifier: MIT */
/* Lines of earlier conversations: a file with a line for each, which all conversations of the user add to. */
#include "cli/chat_line.h"

#include "app/console.h"
#include "app/output.h"
#include "base/system.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The file is cut to the newest lines when it has twice as many. */
enum { MOST_LINES = 1000 };

struct cli_history {
    int fd; /* for adding lines */
};

/* The folder for the state of programs, as the XDG base directories have it; NULL where there is none. The caller frees it. */
static char *state_folder(void)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    const bool own = state && *state == '/';
    char *path = NULL;
    if (!own && (!home || !*home))
        return NULL;
    const int n = asprintf(&path, "%s%s/winnow", own ? state : home, own ? "" : "/.local/state");
    return n < 0 ? NULL : path;
}

static int64_t read_lines(FILE *f, int64_t skip, FILE *copy, void (*each)(const char *line, void *user),
                          void *user)
{
    char *line = NULL;
    size_t cap = 0;
    int64_t n = 0;
    rewind(f);
    while (getline(&line, &cap, f) >= 0) {
        line[strcspn(line, "\n")] = '\0';
        if (n++ < skip)
            continue;
        if (each)
            each(line, user);
        if (copy)
            fprintf(copy, "%s\n", line);
    }
    free(line);
    return n;
}

/* Only a file has earlier lines; who wants none may have made /dev/null of it, and a pipe would be waited for. */
static FILE *open_lines(const char *path)
{
    FILE *f;
    int64_t size;
    return wnw__open_stream(&f, &size, "history", path) == WNW_OK ? f : NULL;
}

/* Gives out the newest lines, and cuts the file to them where it has become long. */
static void load(const char *path, void (*each)(const char *line, void *user), void *user)
{
    char *shorter = NULL;
    FILE *f = open_lines(path);
    if (!f)
        return;
    const int64_t n = read_lines(f, INT64_MAX, NULL, NULL, NULL), skip = n > MOST_LINES ? n - MOST_LINES : 0;
    const bool cuts = n > 2 * MOST_LINES && asprintf(&shorter, "%s.%d.tmp", path, (int)getpid()) > 0;
    const int fd = cuts ? open(shorter, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1;
    FILE *copy = fd >= 0 ? fdopen(fd, "w") : NULL;
    read_lines(f, skip, copy, each, user);
    const bool whole = copy && !ferror(copy);
    if (copy && (fclose(copy) != 0 || !whole || rename(shorter, path) != 0))
        unlink(shorter);
    if (cuts)
        free(shorter);
    fclose(f);
}

void cli_history_open(struct cli_history **out, void (*each)(const char *line, void *user), void *user)
{
    char *folder = state_folder(), *path = NULL;
    struct cli_history *h = *out = NULL;
    if (folder && app_make_folders(folder) == APP_OK && asprintf(&path, "%s/chat_history", folder) > 0)
        h = calloc(1, sizeof *h);
    if (h) {
        load(path, each, user);
        h->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0600);
        if (h->fd < 0)
            app_note("lines are not remembered: cannot write '%s': %s", path, strerror(errno));
        *out = h;
    }
    free(path);
    free(folder);
}

void cli_history_add(struct cli_history *h, const char *line)
{
    char *whole = NULL;
    if (!h || h->fd < 0)
        return;
    const int n = asprintf(&whole, "%s\n", line);
    if (n < 0)
        return;
    if (write(h->fd, whole, (size_t)n) != n) { /* at once, so that lines of two conversations do not mix */
        app_note("lines are not remembered any more: %s", strerror(errno));
        close(h->fd);
        h->fd = -1;
    }
    free(whole);
}

void cli_history_close(struct cli_history *h)
{
    if (!h)
        return;
    if (h->fd >= 0)
        close(h->fd);
    free(h);
}
