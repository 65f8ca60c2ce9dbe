/* SPDX-License-Identifier: MIT */
#include "cli/serve_documents.h"

#include "app/console.h"
#include "app/model_files.h"
#include "app/models.h"
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

static int check_one(const char *path, const wnw_model *m)
{
    wnw_stored *st;
    const int rc = cli_stored_open(&st, path);
    if (rc != APP_OK)
        return rc;
    const int status = wnw_stored_check_model(st, m);
    wnw_stored_free(st);
    return app_status_code(status);
}

int cli_serve_documents_fit(char fingerprint[WNW_FINGERPRINT_SIZE], struct app_text *files,
                            const struct app_list *documents, const char *model, bool wanted, bool *stored)
{
    wnw_model *m = NULL;
    int rc = APP_OK;
    *stored = false;
    for (int i = 0; rc == APP_OK && i < documents->n; i++) {
        const char *path = path_of(documents->s[i]);
        bool is_stored = false;
        rc = cli_stored_is(&is_stored, path);
        if (rc == APP_OK && is_stored && !m)
            rc = open_model(&m, model);
        if (rc == APP_OK && is_stored)
            rc = check_one(path, m);
        *stored = *stored || is_stored;
    }
    wnw_model_free(m);
    /* Of the file and not of the open model, because a model that the library does not open can be served, too. */
    if (rc == APP_OK && (wanted || *stored)) {
        rc = app_model_files_note(files, model); /* before, so that a write between the two is noticed */
        const int status = rc == APP_OK ? app_file_fingerprint(fingerprint, model) : WNW_OK;
        if (status != WNW_OK)
            rc = app_fail_status(status);
    }
    return rc;
}
