/* SPDX-License-Identifier: MIT */
#include "serve/slot_file.h"

#include "app/console.h"
#include "app/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

/* Bytes of a run that is worth leaving out. */
enum { LEAST_RUN = 32 };

static const char magic[16] = "winnow slot 4\n";
enum { MAGIC_NAME = 12 }; /* of its bytes, in front of the version */
_Static_assert(sizeof((struct serve_slot_file){0}.fingerprint) >= WNW_FINGERPRINT_SIZE,
               "it has room for a fingerprint");

/* A part of the state: so many bytes as they are, then so many with all bits set. */
struct part {
    uint64_t n_plain, n_ones;
};

static struct part next_part(const uint8_t *x, uint64_t n)
{
    struct part p = {0};
    uint64_t ones = 0;
    for (; p.n_plain + ones < n;) {
        if (x[p.n_plain + ones] == 0xff) {
            ones++;
            continue;
        }
        if (ones >= LEAST_RUN)
            break;
        p.n_plain += ones + 1;
        ones = 0;
    }
    p.n_ones = ones;
    return p;
}

static size_t complain(const char *path, const char *what)
{
    fprintf(stderr, "winnow: %s: %s\n", path, what);
    return 0;
}

/* ---- The checksum ---- */

/* Of a header whose bytes were read or will be written as they are. `rest` has taken in what follows it. */
static uint64_t sum_of(XXH3_state_t *rest, const struct serve_slot_file *file)
{
    static const uint64_t none = 0;
    const size_t at = offsetof(struct serve_slot_file, sum), end = at + sizeof file->sum;
    XXH3_64bits_update(rest, file, at);
    XXH3_64bits_update(rest, &none, sizeof none);
    XXH3_64bits_update(rest, (const char *)file + end, sizeof *file - end);
    return XXH3_64bits_digest(rest);
}

static XXH3_state_t *new_sum(void)
{
    XXH3_state_t *sum = XXH3_createState();
    if (sum)
        XXH3_64bits_reset(sum);
    else
        errno = ENOMEM;
    return sum;
}

static bool write_summed(FILE *f, XXH3_state_t *sum, const void *bytes, uint64_t n)
{
    XXH3_64bits_update(sum, bytes, n);
    return fwrite(bytes, 1, n, f) == n;
}

static bool read_summed(FILE *f, XXH3_state_t *sum, void *bytes, uint64_t n)
{
    const bool ok = fread(bytes, 1, n, f) == n;
    if (ok)
        XXH3_64bits_update(sum, bytes, n);
    return ok;
}

/* ---- Writing ---- */

bool serve_slot_file_put(FILE *f, struct serve_slot_file *file, const int32_t *tokens, const uint8_t *state)
{
    XXH3_state_t *sum = new_sum();
    bool ok = sum && fwrite(magic, sizeof magic, 1, f) == 1 && fwrite(file, sizeof *file, 1, f) == 1 &&
              write_summed(f, sum, tokens, file->n_tokens * sizeof *tokens);
    file->packed_bytes = 0;
    for (uint64_t at = 0; ok && at < file->state_bytes;) {
        const struct part p = next_part(state + at, file->state_bytes - at);
        ok = write_summed(f, sum, &p, sizeof p) && write_summed(f, sum, state + at, p.n_plain);
        at += p.n_plain + p.n_ones;
        file->packed_bytes += sizeof p + p.n_plain;
    }
    /* Now that it is known what was written. */
    if (ok)
        file->sum = sum_of(sum, file);
    XXH3_freeState(sum);
    return ok && fseek(f, (long)sizeof magic, SEEK_SET) == 0 && fwrite(file, sizeof *file, 1, f) == 1;
}

static size_t bytes_of(const struct serve_slot_file *file)
{
    return sizeof magic + sizeof *file + file->n_tokens * sizeof(int32_t) + file->packed_bytes;
}

size_t serve_slot_file_write(const char *path, struct serve_slot_file *file, const int32_t *tokens,
                             const uint8_t *state)
{
    char *part = NULL;
    if (asprintf(&part, "%s.part", path) < 0)
        return complain(path, "out of memory");
    const int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666);
    FILE *f = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (fd >= 0 && !f)
        close(fd);
    bool ok = f && serve_slot_file_put(f, file, tokens, state);
    ok = f && fclose(f) == 0 && ok;
    ok = ok && rename(part, path) == 0;
    if (!ok) {
        complain(path, strerror(errno));
        remove(part);
    }
    free(part);
    return ok ? bytes_of(file) : 0;
}

bool serve_slot_file_fits(const struct serve_slot_file *file, const uint64_t model[2],
                          const char *fingerprint)
{
    const bool by_numbers = file->model[0] > 0 || file->model[1] > 0;
    return (by_numbers || *file->fingerprint) &&
           (!by_numbers || memcmp(file->model, model, sizeof file->model) == 0) &&
           strcmp(file->fingerprint, fingerprint) == 0;
}

/* ---- Reading ---- */

bool serve_slot_file_look(const char *path, struct serve_slot_file *file, uint64_t row_bytes,
                          uint64_t window_bytes)
{
    char begins[sizeof magic];
    FILE *f;
    /* A pipe in the folder would stop the thread that decodes for all. */
    if (app_open_regular(&f, path) != APP_OK)
        return false;
    bool ok = fread(begins, sizeof begins, 1, f) == 1 && memcmp(begins, magic, MAGIC_NAME) == 0;
    if (ok && memcmp(begins, magic, sizeof magic) != 0) {
        fclose(f);
        return complain(path,
                        "another version of winnow wrote it; read its text again and save the slot here") !=
               0;
    }
    ok = ok && fread(file, sizeof *file, 1, f) == 1 && fseek(f, 0, SEEK_END) == 0;
    const long size = ok ? ftell(f) : -1;
    fclose(f);
    /* Only dropped entries are left out, so the state cannot be larger than this. */
    ok = ok && size > 0 && file->n_tokens <= (uint64_t)size / sizeof(int32_t) &&
         file->packed_bytes <= (uint64_t)size && bytes_of(file) == (size_t)size &&
         file->state_bytes <= file->packed_bytes + file->n_tokens * row_bytes + window_bytes + 1024 &&
         memchr(file->by.recipe, '\0', sizeof file->by.recipe) &&
         memchr(file->fingerprint, '\0', sizeof file->fingerprint) && file->by.n_protected >= 0 &&
         file->n_sequence >= 0 && (uint64_t)file->n_sequence <= file->n_tokens;
    return ok || complain(path, "it is no slot of winnow's, or damaged") != 0;
}

/* Reads the state in its parts. */
static bool read_parts(FILE *f, XXH3_state_t *sum, uint8_t *state, uint64_t n)
{
    bool ok = true;
    for (uint64_t at = 0; ok && at < n;) {
        struct part p;
        ok = read_summed(f, sum, &p, sizeof p) && p.n_plain <= n - at && p.n_ones <= n - at - p.n_plain &&
             p.n_plain + p.n_ones > 0 && read_summed(f, sum, state + at, p.n_plain);
        if (ok)
            memset(state + at + p.n_plain, 0xff, p.n_ones);
        at += ok ? p.n_plain + p.n_ones : 0;
    }
    return ok;
}

size_t serve_slot_file_read(const char *path, const struct serve_slot_file *file, int32_t *tokens,
                            uint8_t *state)
{
    XXH3_state_t *sum = new_sum();
    if (!sum)
        return complain(path, strerror(errno));
    FILE *f = NULL;
    const bool ok = app_open_regular(&f, path) == APP_OK &&
                    fseek(f, (long)(sizeof magic + sizeof *file), SEEK_SET) == 0 &&
                    read_summed(f, sum, tokens, file->n_tokens * sizeof *tokens) &&
                    read_parts(f, sum, state, file->state_bytes) && sum_of(sum, file) == file->sum;
    if (f)
        fclose(f);
    XXH3_freeState(sum);
    return ok ? bytes_of(file) : complain(path, "it is damaged; read its text again, or take another copy");
}
