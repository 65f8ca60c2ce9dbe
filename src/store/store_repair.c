/* SPDX-License-Identifier: MIT */
/* A damaged index. See store.h. */
#include "store/store.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* E_FORMAT where SQLite cannot read the index. */
static int look_at_index(wnw_store *store)
{
    bool made;
    int rc = wnw__index_open(store, &made);
    if (rc == WNW_OK)
        rc = wnw__index_check(store);
    sqlite3_close(store->db);
    store->db = NULL;
    return rc;
}

/* Moves what has this name aside, also where it is a folder or a link to nothing. */
static int set_aside(const char *folder, const char *name)
{
    struct stat st;
    char *path = wnw__store_path(folder, name);
    const bool is_there = path && lstat(path, &st) == 0;
    const int rc = path ? WNW_OK : WNW_E_NOMEM;
    free(path);
    return is_there ? wnw__store_set_aside(folder, name) : rc;
}

int wnw_store_repair(const char *folder)
{
    WNW_REQUIRE(folder);
    wnw_store own = {.folder = strdup(folder)}, *store;
    if (!own.folder)
        return wnw__fail(WNW_E_NOMEM, "no memory for a store");
    int rc = look_at_index(&own);
    const bool damaged = rc == WNW_E_FORMAT;
    if (damaged) {
        /* The journal first: it would be played back into the new index. */
        rc = set_aside(folder, "index.sqlite-journal");
        rc = rc == WNW_OK ? set_aside(folder, "index.sqlite") : rc;
    }
    if (rc == WNW_OK && damaged) {
        rc = wnw_store_open(&store, folder, 0);
        wnw_store_close(store);
    }
    free(own.folder);
    return rc;
}
