/* SPDX-License-Identifier: MIT */
/*
 * Files of parked prompts: any bytes, with checksums that are set here if the first byte of an input says so, so that what they guard is reached
 * too. What is accepted has a text of the length that it says, a recipe that ends, and the very bytes of its slot.
 */
#include "fuzz.h"

#include "serve/automatic.h"
#include "serve/config.h"
#include "serve/park_file.h"
#include "serve/slot_file.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { SEALED = 1 };

static struct serve_config config;

const struct serve_config *serve_settings(void)
{
    return &config;
}

int serve_check_policy(const wnw_policy *policy)
{
    (void)policy;
    return WNW_OK;
}

/* Sets the sizes and checksums of a file that is long enough to have them: its text ends where it says, as far as there are bytes. */
static void seal(uint8_t *bytes, size_t size)
{
    struct serve_park_header h;
    if (size < sizeof h)
        return;
    memcpy(&h, bytes, sizeof h);
    const uint8_t *rest = bytes + sizeof h;
    const size_t n = size - sizeof h;
    h.key_len = h.key_len < n ? h.key_len : n;
    h.image_bytes = n - h.key_len;
    h.image_sum = XXH3_64bits(rest + h.key_len, h.image_bytes);
    h.sum = 0;
    const uint64_t parts[2] = {XXH3_64bits(&h, sizeof h), XXH3_64bits(rest, h.key_len)};
    h.sum = XXH3_64bits(parts, sizeof parts);
    memcpy(bytes, &h, sizeof h);
}

static void look(const struct serve_park_about *about, size_t size)
{
    fuzz_require(about->key_len < size && about->key[about->key_len] == '\0', "a text of another length");
    fuzz_require(about->n_tokens >= 0, "a number of tokens below 0");
    fuzz_require(serve_is_plain(about->keep_rule.recipe, sizeof about->keep_rule.recipe) &&
                     serve_is_plain(about->by.recipe, sizeof about->by.recipe) &&
                     serve_is_plain(about->by.taken, sizeof about->by.taken),
                 "a recipe that cannot be shown");
    fuzz_require(serve_is_size(&about->keep_rule.size) && serve_is_size(&about->by.size),
                 "a size that is none");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct serve_park_about about;
    uint8_t *image;
    size_t n;
    if (size < 1)
        return 0;
    uint8_t *bytes = malloc(size);
    fuzz_require(bytes != NULL, "no memory for an input");
    memcpy(bytes, data + 1, size - 1);
    if (data[0] & SEALED)
        seal(bytes, size - 1);
    const char *path = fuzz_file(bytes, size - 1);
    const bool opened = fuzz_status(serve_park_file_look(&about, path, "7f"));
    fuzz_require(opened == (about.key != NULL), "an error and a text at once, or neither");
    if (opened)
        look(&about, size);
    if (fuzz_status(serve_park_file_image(&image, &n, path)))
        fuzz_require(n < size && memcmp(image, bytes + (size - 1 - n), n) == 0, "another slot");
    else
        fuzz_require(image == NULL && n == 0, "an error and a slot at once");
    free(image);
    serve_park_about_clear(&about);
    free(bytes);
    return 0;
}
