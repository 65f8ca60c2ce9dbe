/* SPDX-License-Identifier: MIT */
#include "model/digests.h"

#include "base/err.h"
#include "base/system.h"
#include "base/whole_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

/* A file must have been left alone for so long. Clocks of file systems go in steps of up to 10 ms; the rest is for programs that
 * write through a mapping, whose second write to a page has the time of the first until the page is on the disk. */
enum { SETTLED_SECONDS = 60 };

/* A line of a kept digest. */
enum { LINE_MAX_BYTES = 320 };

/* Whether the file at `path` is in that state, and has been for a while. */
static bool is_settled(const char *path, const struct wnw__file_state *state)
{
    struct stat st;
    struct timespec now;
    if (stat(path, &st) != 0 || clock_gettime(CLOCK_REALTIME, &now) != 0)
        return false;
    struct wnw__file_state other = wnw__file_state_from(&st);
    return other.dev == state->dev && other.ino == state->ino && other.size == state->size &&
           memcmp(other.modified, state->modified, sizeof other.modified) == 0 &&
           memcmp(other.changed, state->changed, sizeof other.changed) == 0 &&
           state->changed[0] <= (int64_t)now.tv_sec - SETTLED_SECONDS;
}

/* ---- Lines ---- */

/* "winnow-digest-1 DEV INO SIZE MTIME CTIME " */
static int write_state(char line[LINE_MAX_BYTES], const struct wnw__file_state *s)
{
    return snprintf(line, LINE_MAX_BYTES,
                    "winnow-digest-1 %" PRIu64 " %" PRIu64 " %" PRId64 " %" PRId64 ".%09" PRId64 " %" PRId64
                    ".%09" PRId64 " ",
                    s->dev, s->ino, s->size, s->modified[0], s->modified[1], s->changed[0], s->changed[1]);
}

/* Adds the digest and a checksum of the line so far. Returns the length of the line. */
static size_t end_line(char line[LINE_MAX_BYTES], int n, const uint64_t digest[2])
{
    n += snprintf(line + n, (size_t)(LINE_MAX_BYTES - n), "%016" PRIx64 "%016" PRIx64 " ", digest[0],
                  digest[1]);
    n += snprintf(line + n, (size_t)(LINE_MAX_BYTES - n), "%016" PRIx64 "\n",
                  (uint64_t)XXH3_64bits(line, (size_t)n));
    return (size_t)n;
}

/* The path of the file's entry; owned by the caller; NULL without memory. */
static char *entry_path(const char *folder, const char *line, int n)
{
    const XXH128_hash_t name = XXH3_128bits(line, (size_t)n);
    char *path = NULL;
    return asprintf(&path, "%s/%016" PRIx64 "%016" PRIx64, folder, (uint64_t)name.high64,
                    (uint64_t)name.low64) < 0
               ? NULL
               : path;
}

/* Reads a whole file of at most LINE_MAX_BYTES - 1 bytes, and ends it with a NUL. Returns the number of bytes, 0 on failure. */
static size_t read_entry(char text[LINE_MAX_BYTES], const char *path)
{
    int fd;
    int64_t size;
    if (wnw__open_file(&fd, &size, "digest", path) != WNW_OK)
        return 0;
    const bool good = size > 0 && size < LINE_MAX_BYTES && wnw__read_at(fd, text, (size_t)size, 0) == WNW_OK;
    close(fd);
    text[good ? size : 0] = '\0';
    return good ? (size_t)size : 0;
}

bool wnw__digest_find(uint64_t digest[2], const char *folder, const struct wnw__file_state *state)
{
    char line[LINE_MAX_BYTES], found[LINE_MAX_BYTES];
    if (!folder || !*folder || !state->tells)
        return false;
    const int n = write_state(line, state);
    char *path = entry_path(folder, line, n);
    const size_t n_found = path && access(path, R_OK) == 0 ? read_entry(found, path) : 0;
    free(path);
    if (n_found <= (size_t)n || sscanf(found + n, "%16" SCNx64 "%16" SCNx64 " ", &digest[0], &digest[1]) != 2)
        return false;
    /* The line is there only if it is what would be written for this digest, with its checksum. */
    return end_line(line, n, digest) == n_found && memcmp(line, found, n_found) == 0;
}

/* Makes the folder, and the one that it lies in. */
static void make_folder(const char *folder)
{
    char *parent = strdup(folder), *slash = parent ? strrchr(parent, '/') : NULL;
    if (slash && slash > parent) {
        *slash = '\0';
        (void)mkdir(parent, 0777);
    }
    free(parent);
    (void)mkdir(folder, 0777);
}

void wnw__digest_keep(const char *folder, const char *path, const struct wnw__file_state *state,
                      const uint64_t digest[2])
{
    char line[LINE_MAX_BYTES];
    struct wnw__whole_file f = {.fd = -1};
    if (!folder || !*folder || !state->tells || !is_settled(path, state))
        return;
    const int n = write_state(line, state);
    char *entry = entry_path(folder, line, n);
    const size_t len = end_line(line, n, digest);
    make_folder(folder);
    if (entry && wnw__whole_file_open(&f, entry) == WNW_OK) {
        if (wnw__whole_file_write(&f, line, len) == WNW_OK)
            (void)wnw__whole_file_commit(&f);
        wnw__whole_file_abort(&f);
    }
    free(entry);
}
