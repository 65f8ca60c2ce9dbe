/* SPDX-License-Identifier: MIT */
/*
 * A parked prompt in a file: whose it is, its text, by what it was read, and then a slot as slot_file.h has it. The header and the text have a
 * checksum, the slot has another one. So a folder is looked through without reading its slots.
 */
#ifndef WNW_SERVE_PARK_FILE_H
#define WNW_SERVE_PARK_FILE_H

#include "serve/keep_rule.h"
#include "serve/sha256.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The client of a prompt: SHA-256 of the API key that came with it. */
struct serve_owner {
    uint8_t id[SERVE_SHA256];
};
bool serve_same_owner(const struct serve_owner *a, const struct serve_owner *b);

/* What is known of a parked prompt without its slot. */
struct serve_park_about {
    struct serve_owner owner;
    char *key; /* the prompt's text, owned */
    size_t key_len;
    struct serve_keep_rule keep_rule; /* of the request that it was read for */
    struct serve_keep_rule by;        /* by which it was compressed, if it was */
    bool compressed;
    int32_t n_tokens;
};
void serve_park_about_clear(struct serve_park_about *about);

/* A file begins with this; the text and the slot follow. Numbers are as this machine has them. */
struct serve_park_header {
    char magic[16];
    char fingerprint[24]; /* the first digits of the model's; "": who wrote it did not know it */
    uint64_t key_len, image_bytes, image_sum;
    struct serve_owner owner;
    int32_t n_tokens, compressed;
    struct serve_park_asked {
        char recipe[SERVE_RECIPE], taken[SERVE_RECIPE];
        wnw_size size;
        int32_t n_protected, unused;
    } keep_rule, by;
    uint64_t sum; /* XXH3 of two sums: of the header with a sum of 0, and of the text */
};

/* Writes the file, complete or not at all; image [n] is a packed slot. *bytes is its size. WNW_E_IO, WNW_E_NOMEM with a sentence. */
int serve_park_file_write(size_t *bytes, const char *path, const struct serve_park_about *about,
                          const char *fingerprint, const uint8_t *image, size_t n);
/* Reads all but the slot. WNW_E_FORMAT: it is damaged; WNW_E_MISMATCH: it is of another version, or of a model with another fingerprint;
 * WNW_E_IO, WNW_E_NOMEM. Then *about is empty. */
int serve_park_file_look(struct serve_park_about *about, const char *path, const char *fingerprint);
/* Reads the slot, which the caller frees. WNW_E_FORMAT: the file is damaged; WNW_E_IO, WNW_E_NOMEM. */
int serve_park_file_image(uint8_t **image, size_t *n, const char *path);

#ifdef __cplusplus
}
#endif

#endif
