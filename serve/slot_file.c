/* SPDX-License-Identifier: MIT */
#include "serve/slot_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a run that is worth leaving out. */
enum { LEAST_RUN = 32 };

static const char magic[16] = "winnow slot 2\n";

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

bool serve_slot_file_put(FILE *f, struct serve_slot_file *file, const int32_t *tokens, const uint8_t *state)
{
    bool ok = fwrite(magic, sizeof magic, 1, f) == 1 && fwrite(file, sizeof *file, 1, f) == 1 &&
              fwrite(tokens, sizeof *tokens, file->n_tokens, f) == file->n_tokens;
    file->packed_bytes = 0;
    for (uint64_t at = 0; ok && at < file->state_bytes;) {
        const struct part p = next_part(state + at, file->state_bytes - at);
        ok = fwrite(&p, sizeof p, 1, f) == 1 && fwrite(state + at, 1, p.n_plain, f) == p.n_plain;
        at += p.n_plain + p.n_ones;
        file->packed_bytes += sizeof p + p.n_plain;
    }
    /* Now that it is known how much was written. */
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
    FILE *f = fopen(part, "wb");
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
    const bool by_numbers = file->model[0] > 0 || file->model[1] > 0,
               by_print = *file->fingerprint && *fingerprint;
    return (by_numbers || by_print) && (!by_numbers || memcmp(file->model, model, sizeof file->model) == 0) &&
           (!by_print || strcmp(file->fingerprint, fingerprint) == 0);
}

bool serve_slot_file_look(const char *path, struct serve_slot_file *file, uint64_t row_bytes)
{
    char begins[sizeof magic];
    FILE *f = fopen(path, "rb");
    if (!f)
        return complain(path, strerror(errno)) != 0;
    bool ok = fread(begins, sizeof begins, 1, f) == 1 && memcmp(begins, magic, sizeof magic) == 0 &&
              fread(file, sizeof *file, 1, f) == 1 && fseek(f, 0, SEEK_END) == 0;
    const long size = ok ? ftell(f) : -1;
    fclose(f);
    /* Only dropped entries are left out, so the state cannot be larger than this. */
    ok = ok && size > 0 && file->n_tokens <= (uint64_t)size / sizeof(int32_t) &&
         file->packed_bytes <= (uint64_t)size && bytes_of(file) == (size_t)size &&
         file->state_bytes <= file->packed_bytes + file->n_tokens * row_bytes + 1024 &&
         memchr(file->by.recipe, '\0', sizeof file->by.recipe) &&
         memchr(file->fingerprint, '\0', sizeof file->fingerprint) && file->by.n_protected >= 0 &&
         file->n_sequence >= 0 && (uint64_t)file->n_sequence <= file->n_tokens;
    return ok || complain(path, "it is no slot of winnow's, or damaged") != 0;
}

size_t serve_slot_file_read(const char *path, const struct serve_slot_file *file, int32_t *tokens,
                            uint8_t *state)
{
    FILE *f = fopen(path, "rb");
    bool ok = f && fseek(f, (long)(sizeof magic + sizeof *file), SEEK_SET) == 0 &&
              fread(tokens, sizeof *tokens, file->n_tokens, f) == file->n_tokens;
    uint64_t at = 0;
    while (ok && at < file->state_bytes) {
        struct part p;
        const uint64_t left = file->state_bytes - at;
        ok = fread(&p, sizeof p, 1, f) == 1 && p.n_plain <= left && p.n_ones <= left - p.n_plain &&
             p.n_plain + p.n_ones > 0 && fread(state + at, 1, p.n_plain, f) == p.n_plain;
        if (ok)
            memset(state + at + p.n_plain, 0xff, p.n_ones);
        at += ok ? p.n_plain + p.n_ones : 0;
    }
    if (f)
        fclose(f);
    return ok ? bytes_of(file) : complain(path, "it is damaged");
}
