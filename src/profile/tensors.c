/* SPDX-License-Identifier: MIT */
#include "profile/tensors.h"

#include "base/json.h"
#include "base/memory.h"
#include "base/system.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Headers of models with thousands of tensors have some hundred thousand bytes. */
enum { MOST_HEADER = 1 << 24, MOST_DIMENSIONS = 8, BLOCK = 4096 };

enum type { TYPE_F32, TYPE_F16, TYPE_BF16 };
static const struct {
    const char *name;
    int32_t bytes;
} types[] = {[TYPE_F32] = {"F32", 4}, [TYPE_F16] = {"F16", 2}, [TYPE_BF16] = {"BF16", 2}};

static int bad(const struct wnw__tensors *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int bad(const struct wnw__tensors *t, const char *fmt, ...)
{
    const char *slash = strrchr(t->path, '/');
    char text[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return wnw__fail(WNW_E_FORMAT, "'%.120s': %s", slash ? slash + 1 : t->path, text);
}

/* ---- The header ---- */

static int read_header(struct wnw__tensors *t, int64_t size)
{
    uint8_t length[8];
    uint64_t n = 0;
    if (size < 8 || fread(length, 1, sizeof length, t->file) != sizeof length)
        return bad(t, "%lld bytes are no file of tensors (safetensors)", (long long)size);
    for (int i = 7; i >= 0; i--)
        n = n << 8 | length[i];
    if (n < 2 || n > MOST_HEADER || (int64_t)n > size - 8)
        return bad(t, "it is no file of tensors (safetensors): its header would have %llu bytes",
                   (unsigned long long)n);
    t->at = 8 + (int64_t)n;
    t->size = size - t->at;
    char *text = malloc((size_t)n);
    if (!text)
        return wnw__fail(WNW_E_NOMEM, "no memory for the %llu bytes of a header", (unsigned long long)n);
    int rc = fread(text, 1, (size_t)n, t->file) == (size_t)n ? wnw__json_parse(&t->header, text, (size_t)n)
                                                             : bad(t, "its header cannot be read");
    free(text);
    if (rc == WNW_E_FORMAT && !t->header)
        return bad(t, "its header is no JSON: it is no file of tensors (safetensors)");
    if (rc == WNW_OK && !json_is_object(t->header))
        return bad(t, "its header is no object: it is no file of tensors (safetensors)");
    return rc;
}

int wnw__tensors_open(struct wnw__tensors *t, const char *path)
{
    int64_t size;
    t->path = path;
    WNW_TRY(wnw__open_stream(&t->file, &size, "file of tensors", path));
    return read_header(t, size);
}

void wnw__tensors_close(struct wnw__tensors *t)
{
    if (t->file)
        fclose(t->file);
    json_decref(t->header);
    *t = (struct wnw__tensors){0};
}

/* ---- A tensor ---- */

bool wnw__tensors_has(const struct wnw__tensors *t, const char *name)
{
    return json_object_get(t->header, name) != NULL;
}

static int read_shape(const struct wnw__tensors *t, const char *name, int64_t out[3])
{
    const json_t *shape = json_object_get(json_object_get(t->header, name), "shape");
    const size_t rank = json_array_size(shape);
    out[0] = out[1] = out[2] = 1;
    if (!json_is_array(shape) || rank > MOST_DIMENSIONS)
        return bad(t, "tensor %.80s has no shape", name);
    for (size_t i = 0; i < rank; i++) {
        const json_t *v = json_array_get(shape, i);
        const json_int_t x = json_is_integer(v) ? json_integer_value(v) : -1;
        int64_t *to = &out[rank - i > 2 ? 0 : 3 - (rank - i)];
        if (x < 0 || x > INT32_MAX || (*to = *to * x) > INT32_MAX)
            return bad(t, "tensor %.80s has a dimension that is no number below 2^31", name);
    }
    return WNW_OK;
}

int wnw__tensors_shape(const struct wnw__tensors *t, const char *name, int64_t out[3])
{
    if (!wnw__tensors_has(t, name))
        return bad(t, "there is no tensor %.80s", name);
    return read_shape(t, name, out);
}

/* Sets *type, and *from to where the tensor of n numbers begins. */
static int find(const struct wnw__tensors *t, const char *name, int64_t n, enum type *type, int64_t *from)
{
    const json_t *v = json_object_get(t->header, name), *offsets = json_object_get(v, "data_offsets");
    const char *dtype = json_string_value(json_object_get(v, "dtype"));
    const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    int i = 0;
    while (i <= TYPE_BF16 && (!dtype || strcmp(dtype, types[i].name) != 0))
        i++;
    if (i > TYPE_BF16)
        return bad(t, "tensor %.80s is of type %.20s; F32, F16 and BF16 are read", name,
                   dtype ? dtype : "none");
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last) ||
        json_integer_value(first) < 0 || json_integer_value(last) > t->size ||
        json_integer_value(last) < json_integer_value(first) ||
        json_integer_value(last) - json_integer_value(first) != n * types[i].bytes)
        return bad(t, "tensor %.80s does not lie in the file", name);
    *type = (enum type)i;
    *from = t->at + json_integer_value(first);
    return WNW_OK;
}

static float of_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static float of_half(uint32_t h)
{
    const float scale = h & 0x8000 ? -1.0f : 1.0f;
    const uint32_t exponent = h >> 10 & 31, fraction = h & 1023;
    if (exponent == 31)
        return of_bits(0x7fc00000);
    return scale * (exponent == 0 ? ldexpf((float)fraction, -24)
                                  : ldexpf((float)(1024 + fraction), (int)exponent - 25));
}

static float number(const uint8_t *b, enum type type)
{
    const uint32_t low = (uint32_t)b[0] | (uint32_t)b[1] << 8;
    switch (type) {
    case TYPE_F16:
        return of_half(low);
    case TYPE_BF16:
        return of_bits(low << 16);
    case TYPE_F32:
        break;
    }
    return of_bits(low | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24);
}

int wnw__tensors_read(const struct wnw__tensors *t, const char *name, int64_t n, float *out)
{
    uint8_t block[BLOCK * 4];
    int64_t shape[3], from = 0;
    enum type type = TYPE_F32;
    WNW_TRY(wnw__tensors_shape(t, name, shape));
    if (shape[1] * shape[2] > INT32_MAX || shape[0] * shape[1] * shape[2] != n)
        return wnw__fail(WNW_E_MISMATCH, "tensor %.80s is %lld x %lld x %lld numbers; %lld are expected",
                         name, (long long)shape[0], (long long)shape[1], (long long)shape[2], (long long)n);
    WNW_TRY(find(t, name, n, &type, &from));
    if (fseeko(t->file, from, SEEK_SET) != 0)
        return wnw__fail(WNW_E_IO, "reading '%.200s' failed", t->path);
    for (int64_t at = 0; at < n; at += BLOCK) {
        const size_t left = (size_t)(n - at), count = left < BLOCK ? left : BLOCK;
        if (fread(block, (size_t)types[type].bytes, count, t->file) != count)
            return wnw__fail(WNW_E_IO, "reading '%.200s' failed", t->path);
        for (size_t i = 0; i < count; i++) {
            out[at + (int64_t)i] = number(block + i * (size_t)types[type].bytes, type);
            if (!isfinite(out[at + (int64_t)i]))
                return bad(t, "number %lld of tensor %.80s is not finite", (long long)(at + (int64_t)i),
                           name);
        }
    }
    return WNW_OK;
}
