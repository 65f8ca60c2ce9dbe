/* SPDX-License-Identifier: MIT */
/*
 * Gates of KV heads as DuoAttention's authors publish them (arXiv 2410.10819): a line per layer, a number per
 * KV head, separated by tabs. Values outside 0 .. 1 are set to the nearer end, as the authors' code does when
 * it reads such a file.
 */
#include "profile/profile_impl.h"

#include "base/strings.h"
#include "base/system.h"
#include "winnow_calibrate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BYTES_PER_VALUE = 64 };

static int read_all(const struct wnw__profile_file *f, int fd, char *text, size_t len)
{
    for (size_t done = 0; done < len;) {
        const ssize_t n = read(fd, text + done, len - done);
        if (n <= 0)
            return wnw__fail(WNW_E_IO, "reading the profile '%.200s' failed", f->path);
        done += (size_t)n;
    }
    text[len] = '\0';
    return WNW_OK;
}

static int read_opened(const struct wnw__profile_file *f, int fd, int64_t size, int64_t most, char **text)
{
    if (size > most)
        return wnw__profile_bad(f, "%lld bytes; a table of this model's gates has at most %lld",
                                (long long)size, (long long)most);
    *text = malloc((size_t)size + 1);
    if (!*text)
        return wnw__fail(WNW_E_NOMEM, "no memory for the %zu bytes of '%.200s'", (size_t)size, f->path);
    return read_all(f, fd, *text, (size_t)size);
}

/* The caller frees *text in any case. */
static int read_bytes(const struct wnw__profile_file *f, char **text, size_t *len, int64_t most)
{
    int fd;
    int64_t size;
    WNW_TRY(wnw__open_file(&fd, &size, "profile", f->path));
    *len = (size_t)size;
    const int rc = read_opened(f, fd, size, most, text);
    close(fd);
    return rc;
}

/* Reads n numbers of one line, which ends at its line break or at the end of the text. *at becomes the
 * beginning of the next line. */
static int read_line(const struct wnw__profile_file *f, char **at, int32_t il, int32_t n, double *out)
{
    char *p = *at;
    for (int32_t i = 0; i < n; i++) {
        char *end;
        p += strspn(p, " \t");
        const double x = strchr("+-.0123456789", *p) && *p ? wnw__to_double(p, &end) : NAN;
        if (!isfinite(x))
            return wnw__profile_bad(
                f, "line %d: value %d is not a number; a line must have %d numbers, one per KV head", il + 1,
                i + 1, n);
        out[i] = x < 0 ? 0 : x;
        if (x > 1)
            out[i] = 1;
        p = end;
    }
    p += strspn(p, " \t\r");
    if (*p && *p != '\n')
        return wnw__profile_bad(f, "line %d has more than %d numbers, one per KV head", il + 1, n);
    *at = p + (*p == '\n');
    return WNW_OK;
}

static int read_lines(const struct wnw__profile_file *f, wnw_profile *fresh, char *text, size_t len)
{
    const int32_t n_layer = fresh->model.n_layer, n = fresh->model.n_head_kv;
    char *at = text;
    fresh->head_alpha = calloc((size_t)n_layer * (size_t)n, sizeof *fresh->head_alpha);
    if (!fresh->head_alpha)
        return wnw__fail(WNW_E_NOMEM, "no memory for the gates of heads");
    for (int32_t il = 0; il < n_layer; il++) {
        if (!*at)
            return wnw__profile_bad(f, "it has %d lines; the model has %d layers", il, n_layer);
        WNW_TRY(read_line(f, &at, il, n, fresh->head_alpha + (int64_t)il * n));
    }
    if (at[strspn(at, " \t\r\n")])
        return wnw__profile_bad(f, "it has more than %d lines, one per layer", n_layer);
    if ((size_t)(at - text) + strspn(at, " \t\r\n") != len)
        return wnw__profile_bad(f, "a NUL byte follows the last number");
    return WNW_OK;
}

int wnw__profile_read_gates(const char *path, wnw_profile *fresh)
{
    const struct wnw__profile_file f = {.path = path};
    const int64_t n_all = (int64_t)fresh->model.n_layer * fresh->model.n_head_kv;
    char *text = NULL;
    size_t len;
    int rc = read_bytes(&f, &text, &len, (n_all + 16) * BYTES_PER_VALUE);
    if (rc == WNW_OK) {
        rc = read_lines(&f, fresh, text, len);
        fresh->kinds = 1u << WNW_PROFILE_HEADS;
    }
    free(text);
    return rc;
}
