/* SPDX-License-Identifier: MIT */
#include "app/document.h"

#include "app/clean.h"
#include "app/console.h"
#include "app/files.h"

#include <stdlib.h>
#include <string.h>

static int add_document(struct app_text *all, const struct app_text *one, bool first)
{
    if (all->len + one->len > APP_MAX_TEXT)
        return app_fail(APP_BAD_INPUT, "the documents together are too long: a text has at most %d bytes",
                        APP_MAX_TEXT);
    if ((!first && !app_text_add(all, "\n\n", 2)) || !app_text_add(all, one->s, one->len))
        return app_fail(APP_FAILED, "out of memory for the documents");
    return APP_OK;
}

int app_documents_read(char **text, size_t *len, const struct app_list *paths, struct app_text *remarks)
{
    struct app_text all = {0};
    int rc = APP_OK, n_stdin = 0;
    *text = NULL;
    *len = 0;
    if (paths->n > APP_MAX_DOCUMENTS)
        return app_fail(APP_BAD_INPUT, "%d documents with -f; give at most %d", paths->n, APP_MAX_DOCUMENTS);
    for (int i = 0; i < paths->n; i++)
        n_stdin += strcmp(paths->s[i], "-") == 0;
    if (n_stdin > 1)
        return app_fail(APP_BAD_INPUT, "-f - is given %d times; standard input can be read once", n_stdin);
    for (int i = 0; rc == APP_OK && i < paths->n; i++) {
        struct app_text one = {0};
        rc = app_read_text(&one, paths->s[i], remarks);
        if (rc == APP_OK)
            rc = add_document(&all, &one, i == 0);
        free(one.s);
    }
    if (rc != APP_OK) {
        free(all.s);
        return rc;
    }
    *text = all.s;
    *len = all.len;
    return APP_OK;
}

int app_argument_clean(char **copy, const char *text, const char *name, struct app_text *remarks)
{
    struct app_text own = {0};
    *copy = NULL;
    if (!text)
        return APP_OK;
    const int rc = app_text_add(&own, text, strlen(text))
                       ? app_text_clean(&own, name, remarks)
                       : app_fail(APP_FAILED, "out of memory for %s", name);
    if (rc != APP_OK) {
        free(own.s);
        return rc;
    }
    *copy = own.s;
    return APP_OK;
}
