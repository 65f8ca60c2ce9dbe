/* SPDX-License-Identifier: MIT */
/* JSON that commands print. */
#ifndef WNW_APP_JSON_H
#define WNW_APP_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* A string of any bytes; what is not UTF-8 is replaced. NULL without memory. */
json_t *app_json_text(const char *s);
/* The numbers in an array; NULL without memory. */
json_t *app_json_ids(const int32_t *ids, int32_t n);
/* Adds `item`, which is taken over in any case. false and a released list (*list = NULL) without memory, or
 * where list or item are NULL already: a list is whole or it is not there. */
bool app_json_append(json_t **list, json_t *item);
/* Prints one JSON object and a newline to standard output and releases it; NULL = it could not be made. */
int app_print_json(json_t *o);

#endif
