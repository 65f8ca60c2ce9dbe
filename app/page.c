/* SPDX-License-Identifier: MIT */
#include "app/page.h"

#include "app/console.h"
#include "app/files.h"
#include "app/share.h"

#include <stdlib.h>

int app_page_make(struct app_text *t, const char *tail, const json_t *data)
{
    char *path = NULL, *page = NULL;
    size_t len;
    bool placed = true;
    int rc = app_share_find(&path, tail, NULL);
    if (rc == APP_OK)
        rc = app_read_file(&page, &len, path);
    if (rc == APP_OK && !app_page_fill(t, page, len, data, &placed))
        rc = placed ? app_fail(APP_FAILED, "out of memory while the page was made")
                    : app_fail(APP_BAD_INPUT,
                               "'%s' is not the page that comes with winnow: it has no place for data", path);
    free(page);
    free(path);
    return rc;
}
