/* SPDX-License-Identifier: MIT */
#include "cli/parked.h"

#include "app/clean.h"
#include "app/console.h"
#include "app/files.h"
#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- Opening ---- */

bool cli_parked_is(const char *folder)
{
    return serve_park_folder_is(folder) && !wnw_store_is(folder);
}

/* The owner is the key on the first line of a file. */
static int read_owner(struct serve_owner *owner, const char *path)
{
    char *text = NULL;
    size_t len = 0;
    *owner = (struct serve_owner){0};
    if (!path)
        return APP_OK;
    WNW_TRY(app_read_regular(&text, &len, path));
    const size_t n = strcspn(text, "\r\n");
    if (n > 0)
        serve_sha256(owner->id, text, n);
    free(text);
    return n > 0 ? APP_OK : app_fail(APP_BAD_INPUT, "--api-key-file %s: its first line has no key", path);
}

static int take(const struct serve_park_found *found, void *user)
{
    struct cli_parked *p = user;
    p->most = found->id > p->most ? found->id : p->most;
    if (found->unfit || !serve_same_owner(&found->about->owner, &p->owner)) {
        serve_park_about_clear(found->about);
        return WNW_OK;
    }
    if (p->n == p->cap) {
        const int32_t cap = 2 * p->cap + 16;
        struct cli_parked_entry *of = realloc(p->of, (size_t)cap * sizeof *of);
        if (!of)
            return wnw__fail(WNW_E_NOMEM, "no memory for the parked prompts of a folder");
        p->of = of;
        p->cap = cap;
    }
    p->of[p->n++] = (struct cli_parked_entry){.id = found->id, .used = found->used, .about = *found->about};
    return WNW_OK;
}

int cli_parked_open(struct cli_parked *p, const char *folder, const wnw_model *model,
                    const char *api_key_file)
{
    char fingerprint[WNW_FINGERPRINT_SIZE];
    p->model = model;
    WNW_TRY(read_owner(&p->owner, api_key_file));
    wnw_model_fingerprint(model, fingerprint);
    const int status = serve_park_folder_open(&p->folder, folder, fingerprint, take, p);
    if (status == WNW_OK)
        return APP_OK;
    return status == WNW_E_NOMEM ? app_fail_status(status) : app_fail(APP_BAD_INPUT, "%s", wnw_last_error());
}

void cli_parked_close(struct cli_parked *p)
{
    for (int32_t i = 0; i < p->n; i++)
        serve_park_about_clear(&p->of[i].about);
    free(p->of);
    serve_park_folder_close(&p->folder);
    *p = (struct cli_parked){0};
}

/* ---- Looking ---- */

/* Prints the end of a text, without line breaks. */
static int print_end(const char *text, size_t len)
{
    enum { SHOWN = 60 };
    size_t from = len > SHOWN ? len - SHOWN : 0;
    while (from < len && ((unsigned char)text[from] & 0xc0) == 0x80) /* within a character */
        from++;
    char *line = strndup(text + from, len - from);
    if (!line)
        return app_fail(APP_FAILED, "out of memory for a line");
    for (char *at = line; *at; at++)
        *at = (unsigned char)*at < ' ' ? ' ' : *at;
    app_print_line(line);
    free(line);
    return APP_OK;
}

static int print_entry(const struct cli_parked_entry *e)
{
    char used[32];
    const time_t seconds = (time_t)e->used;
    struct tm tm;
    if (!localtime_r(&seconds, &tm) || strftime(used, sizeof used, "%Y-%m-%d %H:%M", &tm) == 0)
        snprintf(used, sizeof used, "?");
    printf("%llu  %8d tokens  %s  ", (unsigned long long)e->id, (int)e->about.n_tokens, used);
    app_print_line(e->about.compressed ? serve_keep_rule_taken(&e->about.by) : "full");
    printf("  .. ");
    const int rc = print_end(e->about.key, e->about.key_len);
    putchar('\n');
    return rc;
}

int cli_parked_list(const struct cli_parked *p)
{
    int rc = APP_OK;
    if (p->n == 0)
        app_note("'%.200s' has no parked conversation of this model and key", p->folder.path);
    for (int32_t i = p->n; rc == APP_OK && i > 0; i--)
        rc = print_entry(&p->of[i - 1]);
    return rc == APP_OK ? app_finish_stdout() : rc;
}

int cli_parked_find(const struct cli_parked_entry **e, const struct cli_parked *p, const char *name)
{
    char *end;
    *e = NULL;
    errno = 0;
    const unsigned long long id = strtoull(name, &end, 10);
    const bool last = strcmp(name, "last") == 0;
    if (last && p->n > 0)
        *e = &p->of[p->n - 1];
    for (int32_t i = 0; !last && errno == 0 && *name && !*end && i < p->n; i++)
        if (p->of[i].id == id)
            *e = &p->of[i];
    return *e ? APP_OK
              : app_fail(APP_BAD_INPUT,
                         "'%.40s' is no parked conversation of this model and key in '%.200s'; --resume list "
                         "has their numbers",
                         name, p->folder.path);
}
