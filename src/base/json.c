/* SPDX-License-Identifier: MIT */
#include "base/json.h"

#include "base/memory.h"
#include "base/strings.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Writing ---- */

/* Few digits where they suffice; 17 always do. A point or an exponent tells a real number from a whole
 * one. */
static void write_real(FILE *f, double x)
{
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        wnw__format(text, sizeof text, "%.*g", digits, x);
        if (wnw__to_double(text, NULL) == x)
            break;
    }
    fprintf(f, "%s%s", text, strpbrk(text, ".e") ? "" : ".0");
}

/* false: out of memory. */
static bool write_string(FILE *f, const json_t *v)
{
    return json_dumpf(v, f, JSON_ENCODE_ANY) == 0;
}

static bool write_value(FILE *f, const json_t *v, bool rows, int depth);

static bool write_object(FILE *f, const json_t *v, bool rows, int depth)
{
    const char *key, *comma = "", *line = rows && depth == 0 ? "\n" : "";
    json_t *item;
    bool good = true;
    fputc('{', f);
    json_object_foreach((json_t *)v, key, item)
    {
        json_t *name = json_string(key);
        fprintf(f, "%s%s", comma, line);
        good = good && name && write_string(f, name) && fputc(':', f) != EOF &&
               write_value(f, item, rows, depth + 1);
        json_decref(name);
        comma = ",";
    }
    fprintf(f, "%s}", line);
    return good;
}

static bool write_array(FILE *f, const json_t *v, bool rows, int depth)
{
    const char *comma = "";
    json_t *item;
    size_t i;
    bool good = true;
    fputc('[', f);
    json_array_foreach(v, i, item)
    {
        fprintf(f, "%s%s", comma, rows && json_is_array(item) ? "\n" : "");
        good = good && write_value(f, item, rows, depth + 1);
        comma = ",";
    }
    fputc(']', f);
    return good;
}

/* Recursion is as deep as the value nests, which the library makes itself or jansson has limited. */
static bool write_value(FILE *f, const json_t *v, bool rows, int depth)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return write_object(f, v, rows, depth);
    case JSON_ARRAY:
        return write_array(f, v, rows, depth);
    case JSON_REAL:
        write_real(f, json_real_value(v));
        return true;
    case JSON_INTEGER:
        fprintf(f, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        return true;
    default:
        return write_string(f, v);
    }
}

int wnw__json_text(char **text, size_t *len, const json_t *v, bool rows)
{
    *text = NULL;
    *len = 0;
    FILE *f = v ? open_memstream(text, len) : NULL;
    bool good = f && write_value(f, v, rows, 0);
    good = f && !ferror(f) && good;
    if (f && fclose(f) == 0 && good)
        return WNW_OK;
    free(*text);
    *text = NULL;
    return wnw__fail(WNW_E_NOMEM, "no memory for the text of calibration results");
}

/* ---- Reading ---- */

json_t *wnw__json_load(const char *text, size_t len, json_error_t *error)
{
    struct wnw__locale l;
    wnw__locale_begin(&l);
    json_t *v = json_loadb(text, len, JSON_REJECT_DUPLICATES, error);
    wnw__locale_end(&l);
    return v;
}

int wnw__json_parse(json_t **v, const char *text, size_t len)
{
    enum { BYTES_PER_CHAR = 80 }; /* of a parsed value, at most */
    json_error_t error;
    *v = NULL;
    WNW_TRY(wnw__memory_check(len * BYTES_PER_CHAR, "the values of a journal"));
    *v = wnw__json_load(text, len, &error);
    return *v ? WNW_OK : WNW_E_FORMAT;
}

/* ---- Arrays ---- */

enum element { I32, F32, F64 };

json_t *wnw__json_f32(float x)
{
    char text[40];
    double y = (double)x;
    for (int digits = 6; isfinite(x) && digits <= 9; digits++) {
        wnw__format(text, sizeof text, "%.*g", digits, (double)x);
        y = wnw__to_double(text, NULL);
        if ((float)y == x)
            break;
    }
    return json_real(y);
}

static json_t *element_of(const void *x, enum element type, int64_t i)
{
    switch (type) {
    case I32:
        return json_integer(((const int32_t *)x)[i]);
    case F32:
        return wnw__json_f32(((const float *)x)[i]);
    default:
        return json_real(((const double *)x)[i]);
    }
}

/* jansson refuses an element that is NULL, and releases one that it cannot append. */
static json_t *row_of(const void *x, enum element type, int64_t first, int32_t n)
{
    json_t *row = json_array();
    for (int32_t i = 0; row && i < n; i++)
        if (json_array_append_new(row, element_of(x, type, first + i)) != 0) {
            json_decref(row);
            return NULL;
        }
    return row;
}

static json_t *rows_of(const void *x, enum element type, int32_t n_rows, int32_t n)
{
    json_t *all = json_array();
    for (int32_t i = 0; all && i < n_rows; i++)
        if (json_array_append_new(all, row_of(x, type, (int64_t)i * n, n)) != 0) {
            json_decref(all);
            return NULL;
        }
    return all;
}

json_t *wnw__json_i32s(const int32_t *x, int32_t n)
{
    return row_of(x, I32, 0, n);
}

json_t *wnw__json_f32s(const float *x, int32_t n)
{
    return row_of(x, F32, 0, n);
}

json_t *wnw__json_f64s(const double *x, int32_t n)
{
    return row_of(x, F64, 0, n);
}

json_t *wnw__json_i32_rows(const int32_t *x, int32_t n_rows, int32_t n)
{
    return rows_of(x, I32, n_rows, n);
}

json_t *wnw__json_f32_rows(const float *x, int32_t n_rows, int32_t n)
{
    return rows_of(x, F32, n_rows, n);
}

json_t *wnw__json_f64_rows(const double *x, int32_t n_rows, int32_t n)
{
    return rows_of(x, F64, n_rows, n);
}

static bool get(const json_t *o, const char *key, void *out, enum element type, int32_t n)
{
    const json_t *list = json_object_get(o, key), *v;
    size_t i;
    if (!json_is_array(list) || json_array_size(list) != (size_t)n)
        return false;
    json_array_foreach(list, i, v)
    {
        if (type == I32 ? !json_is_integer(v) : !json_is_number(v))
            return false;
        if (type == I32)
            ((int32_t *)out)[i] = (int32_t)json_integer_value(v);
        else if (type == F32)
            ((float *)out)[i] = (float)json_number_value(v);
        else
            ((double *)out)[i] = json_number_value(v);
    }
    return true;
}

bool wnw__json_get_i32s(const json_t *o, const char *key, int32_t *out, int32_t n)
{
    return get(o, key, out, I32, n);
}

bool wnw__json_get_f32s(const json_t *o, const char *key, float *out, int32_t n)
{
    return get(o, key, out, F32, n);
}

bool wnw__json_get_f64s(const json_t *o, const char *key, double *out, int32_t n)
{
    return get(o, key, out, F64, n);
}

/* ---- Numbers as one text ---- */

static json_t *text_of(const uint8_t *bytes, size_t n)
{
    char *text = malloc(WNW_BASE64_LENGTH(n) + 1);
    if (!text)
        return NULL;
    wnw__base64_write(text, bytes, n);
    json_t *v = json_string_nocheck(text);
    free(text);
    return v;
}

json_t *wnw__json_f32_text(const float *x, size_t n)
{
    uint8_t *bytes = malloc(n * 4 + 1);
    for (size_t i = 0; bytes && i < n; i++) {
        uint32_t u;
        memcpy(&u, &x[i], sizeof u);
        for (int k = 0; k < 4; k++)
            bytes[4 * i + (size_t)k] = (uint8_t)(u >> 8 * k);
    }
    json_t *v = bytes ? text_of(bytes, n * 4) : NULL;
    free(bytes);
    return v;
}

json_t *wnw__json_i16_text(const int32_t *x, size_t n)
{
    uint8_t *bytes = malloc(n * 2 + 1);
    bool fits = bytes != NULL;
    for (size_t i = 0; fits && i < n; i++) {
        fits = x[i] >= INT16_MIN && x[i] <= INT16_MAX;
        bytes[2 * i] = (uint8_t)x[i];
        bytes[2 * i + 1] = (uint8_t)((uint32_t)x[i] >> 8);
    }
    json_t *v = fits ? text_of(bytes, n * 2) : NULL;
    free(bytes);
    return v;
}

bool wnw__json_read_f32_text(const json_t *v, float *out, size_t n)
{
    if (!json_is_string(v) || !wnw__base64_read(out, n * 4, json_string_value(v), json_string_length(v)))
        return false;
    for (size_t i = 0; i < n; i++) {
        uint8_t b[4];
        memcpy(b, &out[i], sizeof b);
        const uint32_t u = (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
        memcpy(&out[i], &u, sizeof u);
    }
    return true;
}

bool wnw__json_read_i16_text(const json_t *v, int32_t *out, size_t n)
{
    const uint8_t *bytes = (const uint8_t *)out;
    if (!json_is_string(v) || !wnw__base64_read(out, n * 2, json_string_value(v), json_string_length(v)))
        return false;
    for (size_t i = n; i-- > 0;) { /* from the end: a number takes the place of bytes that were read before */
        const int32_t u = bytes[2 * i] | bytes[2 * i + 1] << 8;
        out[i] = u > INT16_MAX ? u - 65536 : u;
    }
    return true;
}
