/* SPDX-License-Identifier: MIT */
/*
 * Limits on JSON schemas, checked before llama.cpp turns them into grammars. llama.cpp recurses for each nested schema and builds a
 * schema with several types once per type. A grammar counts repetitions only up to a number, and a schema beyond it would not be obeyed.
 */
#ifndef WNW_SERVE_SCHEMA_H
#define WNW_SERVE_SCHEMA_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct json_t;

enum {
    SERVE_SCHEMA_DEPTH = 32,     /* schemas in each other, through references too */
    SERVE_SCHEMA_NODES = 20000,  /* values of a schema, and schemas that are built of it */
    SERVE_SCHEMA_TIMES = 2000,   /* repetitions: lengths of texts and arrays */
    SERVE_SCHEMA_CHOICES = 1000, /* values of an enumeration, alternatives, properties of an object */
    SERVE_SCHEMA_NAME = 1000     /* bytes of a key, a reference, or a pattern */
};

/* Whether a schema is within the bounds. False: why[SERVE_TEXT] says which one it breaks. What is no schema is left to llama.cpp. *work is 0
 * before the first schema of a request, and adds up what all of them take. */
bool serve_schema_check(const struct json_t *schema, double *work, char *why);

#ifdef __cplusplus
}
#endif

#endif
