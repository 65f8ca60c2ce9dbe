/* SPDX-License-Identifier: MIT */
/* The input is the journal of a calibration. What can be read of it is read, two units are added, and then all of it
 * is there again, unless it was refused. */
#include "fuzz.h"

#include "peek_calibrate.h"

#include <string.h>

enum { MOST = 8, ADDED = 2 };

static json_t *header(void)
{
    return json_pack("{s:s, s:s, s:{s:i, s:f}}", "format", "winnow-journal-1", "kind", "srh", "settings",
                     "seed", 42, "share", 0.5);
}

/* Opens the journal and reads the units 0, 1, ... up to MOST; returns how many, -1 if something was refused. The
 * journal stays open in *j if none was. */
static int read_all(struct wnw__journal **j, const char *path)
{
    json_t *h = header(), *v;
    char name[16];
    int n = 0;
    const bool open = fuzz_status(wnw__journal_open(j, path, &(struct wnw__journal_params){.header = h}));
    json_decref(h);
    while (open && n < MOST) {
        snprintf(name, sizeof name, "%d", n);
        if (!fuzz_status(wnw__calibrate_next(*j, name, &v)))
            break;
        json_decref(v);
        if (!v)
            return n;
        n++;
    }
    wnw__journal_close(*j);
    *j = NULL;
    return -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = fuzz_file(data, size);
    struct wnw__journal *j;
    char name[16];
    const int n = read_all(&j, path);
    if (n < 0 || n + ADDED >= MOST) {
        wnw__journal_close(j);
        return 0;
    }
    json_t *result = json_pack("{s:f}", "x", 1.0 / 3);
    for (int i = n; i < n + ADDED; i++) {
        snprintf(name, sizeof name, "%d", i);
        fuzz_require(wnw__calibrate_add(j, name, result) == WNW_OK, "a result that cannot be added");
    }
    json_decref(result);
    wnw__journal_close(j);
    fuzz_require(read_all(&j, path) == n + ADDED, "a journal that forgets what was added");
    wnw__journal_close(j);
    return 0;
}
