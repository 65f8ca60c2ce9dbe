/* SPDX-License-Identifier: MIT */
/* Checked values from a JSON file: every error names its place in the file. */
#include "profile/profile_impl.h"

#include "base/json.h"
#include "base/memory.h"
#include "base/strings.h"
#include "base/system.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Messages ---- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

int wnw__profile_bad(const struct wnw__profile_file *f, const char *fmt, ...)
{
    char text[320];
    va_list ap;
    va_start(ap, fmt);
    wnw__vformat(text, sizeof text, fmt, ap);
    va_end(ap);
    return wnw__fail(WNW_E_FORMAT, "profile '%.120s': %s", base_name(f->path), text);
}

void wnw__profile_note(const struct wnw__profile_file *f, const char *fmt, ...)
{
    char text[320];
    va_list ap;
    va_start(ap, fmt);
    wnw__vformat(text, sizeof text, fmt, ap);
    va_end(ap);
    wnw__log(WNW_LOG_WARN, "profile '%.120s': %s", base_name(f->path), text);
}

/* ---- The file ---- */

static int read_failed(const char *path)
{
    return wnw__fail(WNW_E_IO, "reading the profile '%.200s' failed", path);
}

/* Counts the file's values block by block, before memory for the whole file is allocated. */
static int check_size(struct wnw__profile_count *count, const struct wnw__profile_file *f, FILE *file,
                      int64_t size, const struct wnw__profile_limit *limit)
{
    *count = (struct wnw__profile_count){0};
    char block[16384];
    size_t got;
    if (size > limit->n_bytes)
        return wnw__profile_bad(f, "%lld bytes; a profile of this model has at most %lld", (long long)size,
                                (long long)limit->n_bytes);
    while ((got = fread(block, 1, sizeof block, file)) > 0) {
        wnw__profile_count(count, block, got);
        if (count->n_values > limit->n_values || count->n_lists > limit->n_lists)
            return wnw__profile_bad(
                f,
                "more values than a profile of this model can have: at most %lld, and %lld "
                "lists and objects",
                (long long)limit->n_values, (long long)limit->n_lists);
    }
    if (ferror(file) || fseeko(file, 0, SEEK_SET) != 0)
        return read_failed(f->path);
    return WNW_OK;
}

static int read_text(const char *path, FILE *file, int64_t size, char **text, size_t *len)
{
    *len = (size_t)size;
    *text = malloc(*len + 1);
    if (!*text)
        return wnw__fail(WNW_E_NOMEM, "no memory for the %zu bytes of '%.200s'", *len, path);
    if (fread(*text, 1, *len, file) != *len)
        return read_failed(path);
    return WNW_OK;
}

/* The most bytes that the parser takes for the values of a text. */
static size_t values_bytes(const struct wnw__profile_count *c, size_t len)
{
    const size_t per_value = 64, per_list = 512;
    return 2 * len + per_value * (size_t)c->n_values + per_list * (size_t)c->n_lists;
}

/* The caller frees *text in any case. */
static int read_file(struct wnw__profile_file *f, const struct wnw__profile_limit *limit,
                     struct wnw__profile_count *count, char **text, size_t *len)
{
    FILE *file;
    int64_t size;
    WNW_TRY(wnw__open_stream(&file, &size, "profile", f->path));
    int rc = check_size(count, f, file, size, limit);
    if (rc == WNW_OK)
        rc = read_text(f->path, file, size, text, len);
    fclose(file);
    return rc;
}

static int parse(struct wnw__profile_file *f, const struct wnw__profile_count *count, const char *text,
                 size_t len)
{
    json_error_t error;
    WNW_TRY(wnw__memory_check(values_bytes(count, len), "the values of a profile"));
    /* The parser itself limits how deep values may nest. */
    f->root = wnw__json_load(text, len, &error);
    /* A parser that could not allocate even its first block does not say why it failed. */
    if (!f->root && (json_error_code(&error) == json_error_out_of_memory || !error.text[0]))
        return wnw__fail(WNW_E_NOMEM, "no memory for the values of '%.200s'", f->path);
    if (!f->root)
        return wnw__profile_bad(f, "not JSON: %s, line %d", error.text, error.line);
    return json_is_object(f->root) ? WNW_OK : wnw__profile_bad(f, "its top is not an object");
}

int wnw__profile_open(struct wnw__profile_file *f, const char *path, const struct wnw__profile_limit *limit)
{
    struct wnw__profile_count count;
    char *text = NULL;
    size_t len = 0;
    *f = (struct wnw__profile_file){.path = path};
    int rc = read_file(f, limit, &count, &text, &len);
    if (rc == WNW_OK)
        rc = parse(f, &count, text, len);
    if (rc != WNW_OK) {
        json_decref(f->root);
        f->root = NULL;
    }
    free(text);
    return rc;
}

/* ---- Arrays ---- */

struct reader {
    const struct wnw__profile_file *file;
    const struct wnw__array_spec *spec;
    int32_t index[4];
    void *out; /* NULL: only check */
    size_t at;
};

/* Writes the path of a value down to `level`, as "name[3][17]". */
static const char *path_of(const struct reader *r, int32_t level, char buf[80])
{
    int n = snprintf(buf, 80, "%.30s", r->spec->name);
    for (int32_t i = 0; i < level && n < 68; i++)
        n += snprintf(buf + n, 80 - (size_t)n, "[%d]", r->index[i]);
    return buf;
}

/* Checks text[n] of base64, the numbers of an array down to `level`, and reads them if there is an array to fill. */
static int read_text_numbers(struct reader *r, const json_t *v, int32_t level)
{
    const struct wnw__array_spec *s = r->spec;
    const bool whole = s->element == WNW_ELEMENT_I32;
    const size_t size = whole ? sizeof(int16_t) : sizeof(float);
    char where[80];
    size_t n = 1;
    for (int32_t i = level; i < s->rank; i++)
        n *= (size_t)s->shape[i];
    float *f = r->out && !whole ? (float *)r->out + r->at : NULL;
    int32_t *i32 = r->out && whole ? (int32_t *)r->out + r->at : NULL;
    if (json_string_length(v) != WNW_BASE64_LENGTH(n * size) || (f && !wnw__json_read_f32_text(v, f, n)) ||
        (i32 && !wnw__json_read_i16_text(v, i32, n)))
        return wnw__profile_bad(r->file, "%s is not the base64 of %zu numbers of %zu bytes",
                                path_of(r, level, where), n, size);
    for (size_t i = 0; r->out && i < n; i++) {
        const double x = whole ? (double)i32[i] : (double)f[i];
        if (!(x >= s->min && x <= s->max))
            return wnw__profile_bad(r->file, "number %zu of %s is %g; it must be %g to %g", i,
                                    path_of(r, level, where), x, s->min, s->max);
    }
    r->at += r->out ? n : 0;
    return WNW_OK;
}

static int read_number(struct reader *r, const json_t *v)
{
    const struct wnw__array_spec *s = r->spec;
    char where[80];
    const bool whole = s->element == WNW_ELEMENT_I32;
    if (!(whole ? json_is_integer(v) : json_is_number(v)))
        return wnw__profile_bad(r->file, "%s is not a %snumber", path_of(r, s->rank, where),
                                whole ? "whole " : "");
    const double x = json_number_value(v);
    if (!(x >= s->min && x <= s->max))
        return wnw__profile_bad(r->file, "%s is %g; it must be %g to %g", path_of(r, s->rank, where), x,
                                s->min, s->max);
    if (!r->out)
        return WNW_OK;
    if (s->element == WNW_ELEMENT_I32)
        ((int32_t *)r->out)[r->at++] = (int32_t)x;
    else if (s->element == WNW_ELEMENT_F32)
        ((float *)r->out)[r->at++] = (float)x;
    else
        ((double *)r->out)[r->at++] = x;
    return WNW_OK;
}

/* The recursion is at most 4 deep, the largest rank, regardless of what the file holds. */
static int read_level(struct reader *r, const json_t *v, int32_t level)
{
    const struct wnw__array_spec *s = r->spec;
    char where[80];
    if (level == s->rank)
        return read_number(r, v);
    if (json_is_string(v) && s->element != WNW_ELEMENT_F64)
        return read_text_numbers(r, v, level);
    if (!json_is_array(v))
        return wnw__profile_bad(r->file, "%s is not an array of %d", path_of(r, level, where),
                                s->shape[level]);
    if (json_array_size(v) != (size_t)s->shape[level])
        return wnw__profile_bad(r->file, "%s has %zu elements; %d are expected", path_of(r, level, where),
                                json_array_size(v), s->shape[level]);
    for (int32_t i = 0; i < s->shape[level]; i++) {
        r->index[level] = i;
        WNW_TRY(read_level(r, json_array_get(v, (size_t)i), level + 1));
    }
    return WNW_OK;
}

int wnw__profile_array(void *out, const struct wnw__profile_file *f, const json_t *v,
                       const struct wnw__array_spec *spec)
{
    void **array = out;
    struct reader r = {.file = f, .spec = spec};
    size_t n = spec->element == WNW_ELEMENT_F64 ? sizeof(double) : sizeof(float);
    *array = NULL;
    /* The parsed file holds as many numbers as the array will, which limits the array's size. Texts of numbers are decoded
     * when there is an array. */
    WNW_TRY(read_level(&r, v, 0));
    for (int32_t i = 0; i < spec->rank; i++)
        n *= (size_t)spec->shape[i];
    r.out = malloc(n ? n : 1);
    if (!r.out)
        return wnw__fail(WNW_E_NOMEM, "no memory for the %zu bytes of %s", n, spec->name);
    const int rc = read_level(&r, v, 0);
    if (rc != WNW_OK) {
        free(r.out);
        return rc;
    }
    *array = r.out;
    return WNW_OK;
}

/* ---- Single values ---- */

int wnw__profile_int(const struct wnw__profile_file *f, const json_t *object, const char *key, int32_t def,
                     int32_t min, int32_t max, int32_t *out)
{
    const json_t *v = json_object_get(object, key);
    *out = def;
    if (!v)
        return WNW_OK;
    if (!json_is_integer(v))
        return wnw__profile_bad(f, "%s is not a whole number", key);
    const json_int_t x = json_integer_value(v);
    if (x < min || x > max)
        return wnw__profile_bad(f, "%s is %lld; it must be %d to %d", key, (long long)x, min, max);
    *out = (int32_t)x;
    return WNW_OK;
}

int wnw__profile_choice(const struct wnw__profile_file *f, const json_t *object, const char *key,
                        const char *const *names, int32_t *out)
{
    const json_t *v = json_object_get(object, key);
    *out = -1;
    if (!v)
        return WNW_OK;
    const char *word = json_string_value(v);
    for (int32_t i = 0; word && names[i]; i++)
        if (strcmp(word, names[i]) == 0) {
            *out = i;
            return WNW_OK;
        }
    return wnw__profile_bad(f, "%s is %s%.40s%s, which is not a known name", key, word ? "\"" : "",
                            word ? word : "no string", word ? "\"" : "");
}

int wnw__profile_check_ranks(const struct wnw__profile_file *f, const char *name, const int32_t *rank,
                             int32_t n_layer, int32_t n_head)
{
    bool *seen = calloc((size_t)n_head + 1, sizeof *seen);
    if (!seen)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d heads", n_head);
    int rc = WNW_OK;
    for (int32_t il = 0; rc == WNW_OK && il < n_layer; il++) {
        memset(seen, 0, (size_t)n_head * sizeof *seen);
        for (int32_t i = 0; rc == WNW_OK && i < n_head; i++) {
            const int32_t h = rank[(int64_t)il * n_head + i];
            if (seen[h])
                rc = wnw__profile_bad(f, "%s[%d] names head %d twice; it must name each of the %d heads once",
                                      name, il, h, n_head);
            seen[h] = true;
        }
    }
    free(seen);
    return rc;
}

int wnw__profile_normalise(const struct wnw__profile_file *f, double *share, int32_t n)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += share[i];
    if (!(sum > 0 && isfinite(sum)))
        return wnw__profile_bad(f, "the shares of the layers sum to %g; they must sum to 1", sum);
    if (fabs(sum - 1) > 1e-3)
        wnw__profile_note(f, "the shares of the layers sum to %g, not 1; they are scaled", sum);
    for (int32_t i = 0; i < n; i++)
        share[i] /= sum;
    return WNW_OK;
}
