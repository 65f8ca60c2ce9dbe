/* SPDX-License-Identifier: MIT */
#include "app/clean.h"

#include "app/console.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool begins(const struct app_text *t, const char *bytes, size_t n)
{
    return t->len >= n && memcmp(t->s, bytes, n) == 0;
}

/* Why winnow does not take these bytes as text. NULL: they are text, or out of memory; *good distinguishes the two. */
static char *find_fault(const struct app_text *t, const char *name, bool *good)
{
    const char *nul = memchr(t->s, 0, t->len);
    char *fault = NULL;
    int n = 0;
    if (begins(t, "\xff\xfe", 2) || begins(t, "\xfe\xff", 2))
        n = asprintf(&fault, "%s is text in UTF-16 or UTF-32; convert it to UTF-8", name);
    else if (nul)
        n = asprintf(&fault, "%s has a NUL byte (at byte %zu) and is not text; convert it to UTF-8", name,
                     (size_t)(nul - t->s));
    *good = n >= 0;
    return *good ? fault : NULL;
}

int app_text_mend(struct app_text *t, const char *name, struct app_text *remarks, char **fault)
{
    static const char mark[] = "\xef\xbb\xbf";
    size_t n_bad, first_bad;
    bool good;
    *fault = find_fault(t, name, &good);
    if (*fault || !good)
        return *fault ? APP_BAD_INPUT : APP_FAILED;
    const bool marked = begins(t, mark, strlen(mark));
    if (marked) {
        t->len -= strlen(mark);
        memmove(t->s, t->s + strlen(mark), t->len + 1);
    }
    good = app_text_repair_counted(t, &n_bad, &first_bad) &&
           (n_bad == 0 ||
            app_text_put(remarks,
                         "%s%s has %zu sequence%s that %s not UTF-8, the first at byte %zu; read as U+FFFD",
                         remarks->len > 0 ? "\n" : "", name, n_bad, n_bad == 1 ? "" : "s",
                         n_bad == 1 ? "is" : "are", first_bad + (marked ? strlen(mark) : 0)));
    return good ? APP_OK : APP_FAILED;
}

int app_text_clean(struct app_text *t, const char *name, struct app_text *remarks)
{
    char *fault;
    int rc = app_text_mend(t, name, remarks, &fault);
    if (fault)
        rc = app_fail(rc, "%s", fault);
    else if (rc != APP_OK)
        rc = app_fail(rc, "out of memory for %s", name);
    free(fault);
    return rc;
}
