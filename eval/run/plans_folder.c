/* SPDX-License-Identifier: MIT */
#include "eval/run/plans.h"

#include "app/console.h"
#include "app/files.h"
#include "base/random.h"
#include "eval/base/grow.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char prefix[] = "plan:";

const char *eval_plans_folder(const char *word)
{
    return strncmp(word, prefix, sizeof prefix - 1) == 0 ? word + sizeof prefix - 1 : NULL;
}

static int is_plan(const struct dirent *d)
{
    const size_t n = strlen(d->d_name);
    return n > 5 && strcmp(d->d_name + n - 5, ".json") == 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int hash_file(uint64_t *h, const char *folder, const char *name)
{
    char *path = app_in_folder(folder, name), *data = NULL;
    size_t len;
    int rc = path ? app_read_regular(&data, &len, path) : eval_no_memory("plans");
    if (rc == APP_OK) {
        *h = wnw__hash_join(*h, name, strlen(name));
        *h = wnw__hash_join(*h, data, len);
    }
    free(path);
    free(data);
    return rc;
}

int eval_plans_hash(uint64_t *out, const char *folder)
{
    struct dirent **list;
    int rc = APP_OK;
    *out = WNW_HASH_START;
    const int n = scandir(folder, &list, is_plan, by_name);
    if (n < 0)
        return app_fail(app_errno_code(errno), "--policies plan:%s: cannot read the folder: %s", folder,
                        strerror(errno));
    for (int i = 0; i < n; i++) {
        if (rc == APP_OK)
            rc = hash_file(out, folder, list[i]->d_name);
        free(list[i]);
    }
    free(list);
    return rc != APP_OK || n > 0
               ? rc
               : app_fail(APP_BAD_INPUT,
                          "--policies plan:%s: the folder has no plan; name them TASK-LENGTH-INDEX.json",
                          folder);
}
