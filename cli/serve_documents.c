/* SPDX-License-Identifier: MIT */
#include "cli/serve_documents.h"

#include "app/console.h"
#include "app/model_files.h"
#include "app/models.h"
#include "base/err.h"
#include "cli/stored.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static const char *path_of(const char *document)
{
    return strchr(document, '=') + 1;
}

int cli_serve_documents_check(const struct app_list *documents)
{
    for (int i = 0; i < documents->n; i++) {
        const char *eq = strchr(documents->s[i], '=');
        if (!eq || eq == documents->s[i] || !eq[1] || strchr(documents->s[i], '\n'))
            return app_fail(APP_BAD_INPUT, "--document %s: it is NAME=FILE", documents->s[i]);
        if (access(eq + 1, R_OK) != 0)
            return app_fail(APP_BAD_INPUT, "--document %s: cannot read %s: %s", documents->s[i], eq + 1,
                            strerror(errno));
    }
    return APP_OK;
}

static int open_model(wnw_model **m, const char *path)
{
    const wnw_model_params params = {WNW_INIT(wnw_model_params), .repack = false};
    return app_status_code(app_model_open(m, path, &params, NULL));
}

/* Checks a document, if it is a stored one. The model is opened for the first of them. */
static int check_one(bool *stored, wnw_model **m, const char *model, const char *path)
{
    bool is_stored = false;
    wnw_stored *st;
    WNW_TRY(cli_stored_is(&is_stored, path));
    if (!is_stored)
        return APP_OK;
    *stored = true;
    if (!*m)
        WNW_TRY(open_model(m, model));
    WNW_TRY(cli_stored_open(&st, path));
    const int status = wnw_stored_check_model(st, *m);
    wnw_stored_free(st);
    return app_status_code(status);
}

int cli_serve_documents_fit(char fingerprint[WNW_FINGERPRINT_SIZE], struct app_text *files,
                            const struct app_list *documents, const char *model, bool wanted, bool *stored)
{
    wnw_model *m = NULL;
    int rc = APP_OK;
    *stored = false;
    for (int i = 0; rc == APP_OK && i < documents->n; i++)
        rc = check_one(stored, &m, model, path_of(documents->s[i]));
    wnw_model_free(m);
    if (rc != APP_OK || (!wanted && !*stored))
        return rc;
    /* Before the fingerprint, so that a write between the two is noticed. */
    WNW_TRY(app_model_files_note(files, model));
    /* Of the file and not of the open model, because a model that the library does not open can be served, too. */
    return app_status_code(app_file_fingerprint(fingerprint, model));
}
