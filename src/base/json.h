/* SPDX-License-Identifier: MIT */
/* JSON of journals and profiles: numbers are written so that they read back equal, and equal values give
 * equal bytes. */
#ifndef WNW_BASE_JSON_H
#define WNW_BASE_JSON_H

#include "base/err.h"

#include <jansson.h>

/* The text of v, with keys in the order in which they were set; *text is released with free. rows: every
 * field of the outermost object, and every row of an array of arrays, begins a line. E_NOMEM; v is NULL where
 * memory ran out while it was made. */
int wnw__json_text(char **text, size_t *len, const json_t *v, bool rows);
/* Parses text[len], one JSON value, in any locale. A key may not occur twice in an object. The result is released
 * with json_decref. After a failure it is NULL and *error has the reason; its text is "" if memory for the parser was
 * missing. The caller has checked that memory for the values is available. */
json_t *wnw__json_load(const char *text, size_t len, json_error_t *error);
/* The same with that check; *v is released with json_decref. E_NOMEM; E_FORMAT without a sentence of its own: the
 * caller knows where the text is from. */
int wnw__json_parse(json_t **v, const char *text, size_t len);

/* The value of x; of a float: with as few digits as read back equal. NULL if memory runs out, or if a number
 * is not finite. */
json_t *wnw__json_f32(float x);
json_t *wnw__json_i32s(const int32_t *x, int32_t n);
json_t *wnw__json_f32s(const float *x, int32_t n);
json_t *wnw__json_f64s(const double *x, int32_t n);
/* The same for [n_rows][n], an array of arrays. */
json_t *wnw__json_i32_rows(const int32_t *x, int32_t n_rows, int32_t n);
json_t *wnw__json_f32_rows(const float *x, int32_t n_rows, int32_t n);
json_t *wnw__json_f64_rows(const double *x, int32_t n_rows, int32_t n);

/* Read o[key], an array of exactly n numbers, into out[n]. False if it is not there, or is something else. */
bool wnw__json_get_i32s(const json_t *o, const char *key, int32_t *out, int32_t n);
bool wnw__json_get_f32s(const json_t *o, const char *key, float *out, int32_t n);
bool wnw__json_get_f64s(const json_t *o, const char *key, double *out, int32_t n);

/* Many numbers as one text of base64, lowest byte first: float32, or whole numbers of 16 bits. NULL if memory runs out, or if
 * a whole number does not fit. */
json_t *wnw__json_f32_text(const float *x, size_t n);
json_t *wnw__json_i16_text(const int32_t *x, size_t n);
/* Read such a text of exactly n numbers into out[n]. False if v is something else. Any float32 is read, NaN too. */
bool wnw__json_read_f32_text(const json_t *v, float *out, size_t n);
bool wnw__json_read_i16_text(const json_t *v, int32_t *out, size_t n);

#endif
