/* SPDX-License-Identifier: MIT */
/* Files that are read whole, and where models lie. */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const cli_model_names[] = {"smollm2-135m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b",
                                       "gemma-3-270m", NULL};

/* Opens a file for reading; directories are refused here, because fopen takes them. */
static int open_input(FILE **out, const char *path)
{
    struct stat st;
    *out = fopen(path, "rb");
    if (!*out)
        return cli_fail(errno == ENOMEM || errno == EIO ? CLI_FAILED : CLI_BAD_INPUT, "cannot open '%s': %s",
                        path, strerror(errno));
    if (fstat(fileno(*out), &st) == 0 && S_ISDIR(st.st_mode)) {
        fclose(*out);
        *out = NULL;
        return cli_fail(CLI_BAD_INPUT, "'%s' is a directory; name a file", path);
    }
    return CLI_OK;
}

int cli_read_file(char **data, size_t *len, const char *path)
{
    struct cli_text text = {0};
    char block[65536];
    FILE *f;
    size_t got;
    *data = NULL;
    *len = 0;
    int rc = open_input(&f, path);
    if (rc != CLI_OK)
        return rc;
    while (rc == CLI_OK && (got = fread(block, 1, sizeof block, f)) > 0) {
        if (memchr(block, 0, got))
            rc = cli_fail(CLI_BAD_INPUT, "'%s' has a NUL byte and is not text; convert it to UTF-8", path);
        else if (!cli_text_add(&text, block, got))
            rc = cli_fail(CLI_FAILED, "out of memory for '%s'", path);
    }
    if (rc == CLI_OK && ferror(f))
        rc = cli_fail(CLI_FAILED, "reading '%s' failed: %s", path, strerror(errno));
    if (rc == CLI_OK && text.len == 0)
        rc = cli_fail(CLI_BAD_INPUT, "'%s' is empty; name a file with text", path);
    fclose(f);
    if (rc != CLI_OK) {
        free(text.s);
        return rc;
    }
    *data = text.s;
    *len = text.len;
    return CLI_OK;
}

int cli_read_tokens(int32_t **ids, int32_t *n, const char *path)
{
    char *data, *save = NULL;
    size_t len;
    int32_t *out = NULL, count = 0;
    *ids = NULL;
    *n = 0;
    int rc = cli_read_file(&data, &len, path);
    if (rc != CLI_OK)
        return rc;
    /* Every id needs a digit and a separator. */
    if (len / 2 + 1 > INT32_MAX / sizeof *out || !(out = malloc((len / 2 + 1) * sizeof *out)))
        rc = cli_fail(CLI_FAILED, "out of memory for '%s'", path);
    for (char *word = rc == CLI_OK ? strtok_r(data, " \t\r\n\f\v", &save) : NULL; word;
         word = strtok_r(NULL, " \t\r\n\f\v", &save)) {
        int64_t id;
        if (!cli_parse_int(&id, word) || id < 0 || id > INT32_MAX) {
            rc =
                cli_fail(CLI_BAD_INPUT, "'%s': '%.40s' (number %d) is not a token id", path, word, count + 1);
            break;
        }
        out[count++] = (int32_t)id;
    }
    if (rc == CLI_OK && count == 0)
        rc = cli_fail(CLI_BAD_INPUT, "'%s' has no token ids", path);
    free(data);
    if (rc != CLI_OK) {
        free(out);
        return rc;
    }
    *ids = out;
    *n = count;
    return CLI_OK;
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
    FILE *f;
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
        const int rc = open_input(&f, name);
        if (rc != CLI_OK)
            return rc;
        fclose(f);
        *path = strdup(name);
        return *path ? CLI_OK : cli_fail(CLI_FAILED, "out of memory");
    }
    char tail[64];
    snprintf(tail, sizeof tail, "models/%s.gguf", name);
    int rc = cli_cache_path(path, tail);
    if (rc == CLI_OK && access(*path, F_OK) != 0)
        rc = cli_fail(CLI_BAD_INPUT, "model %s is not at '%s'; fetch it with `scripts/fetch_models.sh %s`",
                      name, *path, name);
    else if (rc == CLI_OK && (rc = open_input(&f, *path)) == CLI_OK)
        fclose(f);
    if (rc != CLI_OK) {
        free(*path);
        *path = NULL;
    }
    return rc;
}
