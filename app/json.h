/* SPDX-License-Identifier: MIT */
/* JSON that commands print. */
#ifndef WNW_APP_JSON_H
#define WNW_APP_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* A JSON string from any bytes; bytes that are not UTF-8 become U+FFFD. NULL if memory runs out. */
json_t *app_json_text(const char *s);
/* A number, or null where it is not finite. NULL if memory runs out. */
json_t *app_json_number(double value);
/* Adds `item`, which is taken over in any case. If memory runs out, or if *list or item is NULL already, the
 * list is released (*list = NULL) and the result is false: a list is complete or it does not exist. */
bool app_json_append(json_t **list, json_t *item);
/* Sets member `key` of an object to `value`, under the same rules: an object is complete or it does not exist. */
bool app_json_set(json_t **o, const char *key, json_t *value);
/* Writes JSON to standard output; on a terminal with \uXXXX for the control characters that JSON need not escape. */
void app_put_json(const char *text);
/* Prints one JSON object and a newline to standard output and releases the object. NULL means that memory ran
 * out while the object was made. Returns an exit code. */
int app_print_json(json_t *o);

#endif
