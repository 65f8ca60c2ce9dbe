/* SPDX-License-Identifier: MIT */
/* Names and files of documents in a folder. See store.h. */
#include "store/store.h"

#include "base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

int64_t wnw__document_hash(const int32_t *tokens, int32_t n)
{
    return (int64_t)XXH3_64bits(tokens, (size_t)n * sizeof *tokens);
}

void wnw__document_set(struct wnw__document *d, const int32_t *tokens, int32_t n)
{
    d->hash = wnw__document_hash(tokens, n);
    d->n_tokens = n;
    snprintf(d->name, sizeof d->name, "%016llx%016llx.wkv",
             (unsigned long long)XXH3_64bits(d->form, strlen(d->form)), (unsigned long long)d->hash);
}

/* The end of a name that this file gives, NULL = it is none. */
static const char *behind_name(const char *name)
{
    return strspn(name, "0123456789abcdef") == 32 && strncmp(name + 32, ".wkv", 4) == 0 ? name + 36 : NULL;
}

bool wnw__document_is_name(const char *name)
{
    const char *rest = behind_name(name);
    return rest && !*rest;
}

bool wnw__document_is_unfinished(const char *name)
{
    const char *rest = behind_name(name);
    const size_t n = rest ? strlen(rest) : 0;
    return n > 5 && *rest == '.' && strcmp(rest + n - 4, ".tmp") == 0;
}

char *wnw__store_path(const char *folder, const char *name)
{
    const size_t n = strlen(folder) + strlen(name) + 2;
    char *path = malloc(n);
    if (path)
        snprintf(path, n, "%s/%s", folder, name);
    else
        wnw__fail(WNW_E_NOMEM, "no memory for a path");
    return path;
}

int wnw__document_open(wnw_stored **st, const wnw_store *store, const char *name)
{
    *st = NULL;
    if (!wnw__document_is_name(name))
        return wnw__fail(WNW_E_FORMAT, "'%.40s' is no name of a document", name);
    char *path = wnw__store_path(store->folder, name);
    const int rc = path ? wnw_stored_open(st, path) : WNW_E_NOMEM;
    free(path);
    return rc;
}

int wnw__document_of_file(struct wnw__document *d, const wnw_stored *st, const char *name)
{
    *d = (struct wnw__document){.form = st->meta.form,
                                .fingerprint = st->meta.fingerprint,
                                .policy = st->meta.policy ? st->meta.policy : "",
                                .bytes = (int64_t)st->n_bytes,
                                .used = (int64_t)st->written.tv_sec};
    if (!d->form)
        return wnw__fail(WNW_E_FORMAT,
                         "it does not say what a folder finds it by: an earlier version of the program "
                         "has stored it, or `winnow compress`");
    wnw__document_set(d, st->tokens, st->n_tokens);
    return strcmp(d->name, name) == 0 ? WNW_OK
                                      : wnw__fail(WNW_E_FORMAT, "its name is that of another document");
}
