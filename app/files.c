/* SPDX-License-Identifier: MIT */
/* Files that are read whole. */
#include "app/files.h"

#include "app/clean.h"
#include "app/console.h"
#include "base/err.h"
#include "base/whole_file.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int cannot_open(const char *path)
{
    return app_fail(app_errno_code(errno), "cannot open '%s': %s", path, strerror(errno));
}

char *app_in_folder(const char *folder, const char *name)
{
    char *path = NULL;
    return asprintf(&path, "%s/%s", folder, name) < 0 ? NULL : path;
}

/* What a file may not be, NULL: it may be read. Directories are refused here, because fopen opens them without an error. */
static const char *misfit(FILE *f, bool regular)
{
    struct stat st;
    if (fstat(fileno(f), &st) != 0 || S_ISREG(st.st_mode))
        return NULL;
    if (S_ISDIR(st.st_mode))
        return "is a directory; name a file";
    if (regular)
        return "is not a regular file, which it must be; copy it to one";
    return NULL;
}

/* Takes an open descriptor over. */
static int open_input(FILE **out, int fd, const char *path, bool regular)
{
    *out = fd < 0 ? NULL : fdopen(fd, "rb");
    if (!*out) {
        const int rc = cannot_open(path);
        if (fd >= 0)
            close(fd);
        return rc;
    }
    const char *fault = misfit(*out, regular);
    if (!fault)
        return APP_OK;
    fclose(*out);
    *out = NULL;
    return app_fail(APP_BAD_INPUT, "'%s' %s", path, fault);
}

int app_open_input(FILE **out, const char *path)
{
    return open_input(out, open(path, O_RDONLY | O_CLOEXEC), path, false);
}

int app_open_regular(FILE **out, const char *path)
{
    return open_input(out, open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), path, true);
}

/* Says that a text is longer than the tokenizer takes in one call. */
static int text_too_long(const char *name)
{
    return app_fail(APP_BAD_INPUT, "%s is too long: a text has at most %d bytes", name, APP_MAX_TEXT);
}

/* Reads all of an open file. */
static int read_all(struct app_text *text, FILE *f, const char *name)
{
    struct stat st;
    char block[65536];
    size_t got;
    int rc = APP_OK;
    if (fstat(fileno(f), &st) != 0)
        st = (struct stat){0};
    if (S_ISREG(st.st_mode) && st.st_size > APP_MAX_TEXT)
        rc = text_too_long(name);
    else if (S_ISREG(st.st_mode) && !app_text_reserve(text, (size_t)st.st_size))
        rc = app_fail(APP_FAILED, "out of memory for %s", name);
    while (rc == APP_OK && (got = fread(block, 1, sizeof block, f)) > 0) {
        if (text->len + got > APP_MAX_TEXT)
            rc = text_too_long(name);
        else if (!app_text_add(text, block, got))
            rc = app_fail(APP_FAILED, "out of memory for %s", name);
        else if (memchr(block, 0, got))
            break; /* it is refused, and a device may have no end */
    }
    if (rc == APP_OK && ferror(f))
        rc = app_fail(APP_FAILED, "reading %s failed: %s", name, strerror(errno));
    return rc;
}

static int read_text(struct app_text *text, const char *path, bool regular, struct app_text *remarks)
{
    const bool from_stdin = !regular && strcmp(path, "-") == 0;
    char name[300];
    FILE *f = stdin;
    *text = (struct app_text){0};
    if (regular)
        WNW_TRY(app_open_regular(&f, path));
    else if (!from_stdin)
        WNW_TRY(app_open_input(&f, path));
    snprintf(name, sizeof name, from_stdin ? "standard input" : "'%.290s'", path);
    int rc = read_all(text, f, name);
    if (!from_stdin)
        fclose(f);
    if (rc == APP_OK && text->len > 0)
        rc = app_text_clean(text, name, remarks);
    if (rc == APP_OK && text->len == 0)
        rc = app_fail(APP_BAD_INPUT, "%s is empty; %s", name,
                      from_stdin ? "give it a text" : "name a file with text");
    if (rc != APP_OK) {
        free(text->s);
        *text = (struct app_text){0};
    }
    return rc;
}

int app_read_text(struct app_text *text, const char *path, struct app_text *remarks)
{
    return read_text(text, path, false, remarks);
}

static int read_file(char **data, size_t *len, const char *path, bool regular)
{
    struct app_text text, remarks = {0};
    const int rc = read_text(&text, path, regular, &remarks);
    if (rc == APP_OK)
        app_note_lines("warning: ", remarks.s);
    free(remarks.s);
    *data = text.s;
    *len = text.len;
    return rc;
}

int app_read_file(char **data, size_t *len, const char *path)
{
    return read_file(data, len, path, false);
}

int app_read_regular(char **data, size_t *len, const char *path)
{
    return read_file(data, len, path, true);
}

static int is_text_file(const struct dirent *e)
{
    const size_t n = strlen(e->d_name);
    return n > 4 && strcmp(e->d_name + n - 4, ".txt") == 0;
}

/* Unlike alphasort it does not depend on the locale. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* A pipe among the files of a folder is not what the user meant, and may have no end. */
static int check_regular(const char *path)
{
    FILE *f;
    const int rc = app_open_regular(&f, path);
    if (rc == APP_OK)
        fclose(f);
    return rc;
}

int app_list_texts(char ***paths, int *n, const char *folder)
{
    struct dirent **list;
    int rc = APP_OK;
    *n = 0;
    *paths = NULL;
    const int n_list = scandir(folder, &list, is_text_file, by_name);
    if (n_list < 0)
        return app_fail(app_errno_code(errno), "cannot read the folder '%s': %s", folder, strerror(errno));
    char **out = calloc((size_t)n_list + 1, sizeof *out);
    bool good = out != NULL;
    for (int i = 0; i < n_list; i++) {
        good = good && asprintf(&out[i], "%s/%s", folder, list[i]->d_name) >= 0;
        if (out && !good)
            out[i] = NULL;
        if (rc == APP_OK && good)
            rc = check_regular(out[i]);
        free(list[i]);
    }
    free(list);
    if (good && rc == APP_OK && n_list > 0) {
        *paths = out;
        *n = n_list;
        return APP_OK;
    }
    app_free_paths(out, n_list);
    if (rc != APP_OK)
        return rc;
    if (good)
        return app_fail(APP_BAD_INPUT, "'%s' has no *.txt", folder);
    return app_fail(APP_FAILED, "out of memory");
}

void app_free_paths(char **paths, int n)
{
    for (int i = 0; paths && i < n; i++)
        free(paths[i]);
    free(paths);
}

enum { SHOWN = 40, MAX_WORD = 4096 }; /* bytes of a word: in messages; of an id with leading zeros */

/* Reads the next word of a file of token ids; returns false at the end of the file. *id is -1 where the word
 * is not an id, and `word` has its beginning. Reading stops as soon as a word cannot be an id any more,
 * because a device has no end. */
static bool next_word(char word[SHOWN + 1], int64_t *id, FILE *f)
{
    int n = 0, c = getc(f);
    *id = 0;
    while (c != EOF && isspace(c))
        c = getc(f);
    for (; c != EOF && !isspace(c) && (*id >= 0 || n < SHOWN); c = getc(f), n++) {
        if (n < SHOWN)
            word[n] = c == '\0' ? '?' : (char)c;
        *id = *id < 0 || !isdigit(c) || n == MAX_WORD ? -1 : *id * 10 + (c - '0');
        *id = *id > INT32_MAX ? -1 : *id;
    }
    word[n < SHOWN ? n : SHOWN] = '\0';
    return n > 0;
}

static int add_id(int32_t **ids, int32_t n, int32_t *cap, int32_t id)
{
    if (n == *cap) {
        const int32_t more = *cap > 0 ? *cap * 2 : 1024;
        int32_t *grown = realloc(*ids, (size_t)more * sizeof *grown);
        if (!grown)
            return app_fail(APP_FAILED, "out of memory for the token ids");
        *ids = grown;
        *cap = more;
    }
    (*ids)[n] = id;
    return APP_OK;
}

/* Passes a byte order mark at the start of a file. False: it begins with a part of one, which is no id. */
static bool pass_mark(FILE *f)
{
    const int c = getc(f);
    if (c == 0xef)
        return getc(f) == 0xbb && getc(f) == 0xbf;
    ungetc(c, f);
    return true;
}

static int read_ids(int32_t **ids, int32_t *n, FILE *f, const char *path)
{
    char word[SHOWN + 1];
    int32_t cap = 0;
    int64_t id;
    if (!pass_mark(f))
        return app_fail(APP_BAD_INPUT, "'%s' does not begin with a token id", path);
    while (next_word(word, &id, f)) {
        if (id < 0)
            return app_fail(APP_BAD_INPUT, "'%s': '%s' (number %d) is not a token id", path, word, *n + 1);
        if (*n == APP_MAX_IDS)
            return app_fail(APP_BAD_INPUT, "'%s' has more than %d token ids", path, APP_MAX_IDS);
        WNW_TRY(add_id(ids, *n, &cap, (int32_t)id));
        (*n)++;
    }
    if (ferror(f))
        return app_fail(APP_FAILED, "reading '%s' failed: %s", path, strerror(errno));
    return *n > 0 ? APP_OK : app_fail(APP_BAD_INPUT, "'%s' is empty; it has no token ids", path);
}

int app_read_tokens(int32_t **ids, int32_t *n, const char *path)
{
    FILE *f;
    *ids = NULL;
    *n = 0;
    WNW_TRY(app_open_input(&f, path));
    const int rc = read_ids(ids, n, f, path);
    fclose(f);
    if (rc != APP_OK) {
        free(*ids);
        *ids = NULL;
        *n = 0;
    }
    return rc;
}

int app_write_code(const char *path, int status)
{
    struct stat st;
    char *folder = wnw__folder_of(path);
    const bool there = stat(path, &st) == 0, may_be_made = !there && errno == ENOENT;
    const bool usable = there ? S_ISREG(st.st_mode) && access(path, R_OK | W_OK) == 0
                              : may_be_made && folder && stat(folder, &st) == 0 && S_ISDIR(st.st_mode) &&
                                    access(folder, W_OK | X_OK) == 0;
    free(folder);
    return status == WNW_E_IO && !usable ? APP_BAD_INPUT : app_exit_code(status);
}

int app_folder_code(const char *folder, const char *name, int status)
{
    char *path = app_in_folder(folder, name);
    const int code = path ? app_write_code(path, status) : APP_FAILED;
    free(path);
    return code;
}
