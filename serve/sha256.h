/* SPDX-License-Identifier: MIT */
/* SHA-256 (FIPS 180-4) of a short text: a key of the API is compared by it, and it does not lead back to the key. */
#ifndef WNW_SERVE_SHA256_H
#define WNW_SERVE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SERVE_SHA256 = 32 /* bytes */ };
void serve_sha256(uint8_t out[SERVE_SHA256], const void *bytes, size_t n);

#ifdef __cplusplus
}
#endif

#endif
