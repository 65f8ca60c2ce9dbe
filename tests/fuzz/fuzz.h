/* SPDX-License-Identifier: MIT */
/*
 * What the fuzz targets share. Each target is one file with LLVMFuzzerTestOneInput; it is linked with
 * libFuzzer (WNW_FUZZ, clang) or with replay.c, which runs it over files (every build). An input is taken
 * apart from its start; where it has ended all further values are 0, so that any bytes are an input.
 */
#ifndef WNW_TESTS_FUZZ_H
#define WNW_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "winnow.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends the process with a sentence, as a crash that libFuzzer reports, unless `holds`. */
void fuzz_require(bool holds, const char *sentence);
/* rc must be a status of the library; errors must come with a sentence. Returns whether it is WNW_OK. */
bool fuzz_status(int rc);

/* Bytes that are still to be read. */
struct fuzz_input {
    const uint8_t *at;
    size_t n;
};
uint8_t fuzz_u8(struct fuzz_input *in);
uint32_t fuzz_u32(struct fuzz_input *in); /* 4 bytes, little-endian */
/* A length byte and as many bytes; NUL-terminated. */
void fuzz_text(struct fuzz_input *in, char out[256]);

/* A file in memory that holds these bytes; the path is valid until the next call. */
const char *fuzz_file(const uint8_t *data, size_t size);

/* Path of a seed of another target: a small model. */
void fuzz_seed_path(char out[4096], const char *name);

/* Opens the file and, if it is a model, reads a prompt with it, compresses and decodes. `text` (may be empty)
 * is the prompt. */
void fuzz_open_model(const char *path, const char *text);

#endif
