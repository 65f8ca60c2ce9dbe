/* SPDX-License-Identifier: MIT */
/* Files that are read whole, and where models lie. */
#include "app/app.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const cli_model_names[] = {"smollm2-135m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b",
                                       "gemma-3-270m", NULL};

static int cannot_open(const char *path)
{
    return cli_fail(cli_errno_code(errno), "cannot open '%s': %s", path, strerror(errno));
}

/* Opens a text for reading; directories are refused here, because fopen takes them. FIFOs are fine. */
static int open_input(FILE **out, struct stat *st, const char *path)
{
    *out = fopen(path, "rb");
    if (!*out)
        return cannot_open(path);
    if (fstat(fileno(*out), st) != 0)
        *st = (struct stat){0};
    if (S_ISDIR(st->st_mode)) {
        fclose(*out);
        *out = NULL;
        return cli_fail(CLI_BAD_INPUT, "'%s' is a directory; name a file", path);
    }
    return CLI_OK;
}

/* A model is mapped into memory, so it must be a regular file. Looked at without opening: that of a FIFO
 * waits, that of a device may do anything. */
static int check_model_file(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0 || access(path, R_OK) != 0)
        return cannot_open(path);
    if (S_ISDIR(st.st_mode))
        return cli_fail(CLI_BAD_INPUT, "'%s' is a directory; name a file", path);
    if (!S_ISREG(st.st_mode))
        return cli_fail(CLI_BAD_INPUT, "'%s' is not a regular file, which a model must be; copy it to one",
                        path);
    return CLI_OK;
}

/* More than the tokenizer can be given at once. */
static int text_too_long(const char *path)
{
    return cli_fail(CLI_BAD_INPUT, "'%s' is too long: a text has at most %d bytes", path, CLI_MAX_TEXT);
}

int cli_read_file(char **data, size_t *len, const char *path)
{
    struct cli_text text = {0};
    struct stat st;
    char block[65536];
    FILE *f;
    size_t got;
    *data = NULL;
    *len = 0;
    int rc = open_input(&f, &st, path);
    if (rc != CLI_OK)
        return rc;
    if (S_ISREG(st.st_mode) && st.st_size > CLI_MAX_TEXT)
        rc = text_too_long(path);
    else if (S_ISREG(st.st_mode) && !cli_text_reserve(&text, (size_t)st.st_size))
        rc = cli_fail(CLI_FAILED, "out of memory for '%s'", path);
    while (rc == CLI_OK && (got = fread(block, 1, sizeof block, f)) > 0) {
        if (memchr(block, 0, got))
            rc = cli_fail(CLI_BAD_INPUT, "'%s' has a NUL byte and is not text; convert it to UTF-8", path);
        else if (text.len + got > CLI_MAX_TEXT)
            rc = text_too_long(path);
        else if (!cli_text_add(&text, block, got))
            rc = cli_fail(CLI_FAILED, "out of memory for '%s'", path);
    }
    if (rc == CLI_OK && ferror(f))
        rc = cli_fail(CLI_FAILED, "reading '%s' failed: %s", path, strerror(errno));
    if (rc == CLI_OK && text.len == 0)
        rc = cli_fail(CLI_BAD_INPUT, "'%s' is empty; name a file with text", path);
    /* libllama ends the process at bytes that stand for nothing in Unicode. */
    if (rc == CLI_OK && !cli_text_repair(&text))
        rc = cli_fail(CLI_FAILED, "out of memory for '%s'", path);
    fclose(f);
    if (rc != CLI_OK) {
        free(text.s);
        return rc;
    }
    *data = text.s;
    *len = text.len;
    return CLI_OK;
}

enum { SHOWN = 40, MAX_WORD = 4096 }; /* of a word: in messages; an id with its leading zeros */

/* The next word of a file of token ids: false at the end. *id is -1 where it is none; `word` has its
 * beginning. What cannot become an id any more is not read on: a device has no end. */
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
            return cli_fail(CLI_FAILED, "out of memory for the token ids");
        *ids = grown;
        *cap = more;
    }
    (*ids)[n] = id;
    return CLI_OK;
}

int cli_read_tokens(int32_t **ids, int32_t *n, const char *path)
{
    struct stat st;
    FILE *f;
    char word[SHOWN + 1];
    int32_t cap = 0;
    int64_t id;
    *ids = NULL;
    *n = 0;
    int rc = open_input(&f, &st, path);
    if (rc != CLI_OK)
        return rc;
    while (rc == CLI_OK && next_word(word, &id, f)) {
        if (id < 0)
            rc = cli_fail(CLI_BAD_INPUT, "'%s': '%s' (number %d) is not a token id", path, word, *n + 1);
        else if (*n == CLI_MAX_IDS)
            rc = cli_fail(CLI_BAD_INPUT, "'%s' has more than %d token ids", path, CLI_MAX_IDS);
        else if ((rc = add_id(ids, *n, &cap, (int32_t)id)) == CLI_OK)
            (*n)++;
    }
    if (rc == CLI_OK && ferror(f))
        rc = cli_fail(CLI_FAILED, "reading '%s' failed: %s", path, strerror(errno));
    if (rc == CLI_OK && *n == 0)
        rc = cli_fail(CLI_BAD_INPUT, "'%s' is empty; it has no token ids", path);
    fclose(f);
    if (rc != CLI_OK) {
        free(*ids);
        *ids = NULL;
        *n = 0;
    }
    return rc;
}

int cli_cache_path(char **path, const char *tail)
{
    const char *cache = getenv("WINNOW_CACHE");
    const char *home = getenv("HOME");
    *path = NULL;
    if ((!cache || !*cache) && (!home || !*home))
        return cli_fail(CLI_BAD_INPUT,
                        "neither WINNOW_CACHE nor HOME is set; set one of them or give -m a path");
    const bool own = cache && *cache;
    if (asprintf(path, "%s%s/%s", own ? cache : home, own ? "" : "/.cache/winnow", tail) < 0) {
        *path = NULL;
        return cli_fail(CLI_FAILED, "out of memory");
    }
    return CLI_OK;
}

int cli_model_path(char **path, const char *name)
{
    bool listed = false;
    *path = NULL;
    for (int i = 0; cli_model_names[i]; i++)
        listed = listed || strcmp(name, cli_model_names[i]) == 0;
    if (!listed) {
        if (!strchr(name, '/') && access(name, F_OK) != 0) {
            const char *near = cli_nearest(name, cli_model_names);
            return cli_fail(CLI_BAD_INPUT, "there is no file '%s' and no model of that name%s%s%s", name,
                            near ? "; did you mean " : "", near ? near : "",
                            near ? "?" : "; `winnow models` lists the names");
        }
        const int rc = check_model_file(name);
        if (rc != CLI_OK)
            return rc;
        *path = strdup(name);
        return *path ? CLI_OK : cli_fail(CLI_FAILED, "out of memory");
    }
    char tail[64];
    snprintf(tail, sizeof tail, "models/%s.gguf", name);
    int rc = cli_cache_path(path, tail);
    if (rc == CLI_OK && access(*path, F_OK) != 0)
        rc = cli_fail(CLI_BAD_INPUT, "model %s is not at '%s'; fetch it with `scripts/fetch_models.sh %s`",
                      name, *path, name);
    else if (rc == CLI_OK)
        rc = check_model_file(*path);
    if (rc != CLI_OK) {
        free(*path);
        *path = NULL;
    }
    return rc;
}
