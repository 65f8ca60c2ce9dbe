/* SPDX-License-Identifier: MIT */
#include "bridge/wrap/wrap_ahead.h"

#include <stdlib.h>
#include <string.h>

/* Where a request has the fields that say what is read: the buffer and the address of its tensor, an offset and a size. The server looks at
 * no others. */
enum {
    HEAD = 9,
    TENSOR = 296,
    BUFFER_AT = HEAD + 12,
    DATA_AT = HEAD + 220,
    PART_AT = HEAD + TENSOR,
    FIELD = 8
};

static uint64_t size_of(const uint8_t *request)
{
    uint64_t size = 0;
    for (int i = FIELD - 1; i >= 0; i--)
        size = size << 8 | request[PART_AT + FIELD + i];
    return size;
}

static bool is_same(const uint8_t *a, const uint8_t *b)
{
    return memcmp(a + BUFFER_AT, b + BUFFER_AT, FIELD) == 0 && memcmp(a + DATA_AT, b + DATA_AT, FIELD) == 0 &&
           memcmp(a + PART_AT, b + PART_AT, 2 * (size_t)FIELD) == 0;
}

void wnw__readings_add(struct wnw__readings *r, const uint8_t *request, size_t n)
{
    if (n == WNW_READING && r->n < WNW_READINGS && size_of(request) <= WNW_READING_MOST)
        memcpy(r->request[r->n++], request, n);
}

bool wnw__ahead_begin(struct wnw__ahead *a, const struct wnw__readings *r)
{
    wnw__ahead_drop(a);
    for (int32_t i = 0; i < r->n; i++) {
        const uint64_t n = WNW_READING_HEAD + size_of(r->request[i]);
        if (n <= a->room[i])
            continue;
        uint8_t *more = realloc(a->answer[i], n);
        if (!more)
            return false;
        a->answer[i] = more;
        a->room[i] = n;
    }
    a->sent = *r;
    return true;
}

size_t wnw__ahead_next(struct wnw__ahead *a, uint8_t **to)
{
    if (a->n_came == a->sent.n)
        return 0;
    *to = a->answer[a->n_came] + a->n_part;
    return (size_t)(WNW_READING_HEAD + size_of(a->sent.request[a->n_came]) - a->n_part);
}

bool wnw__ahead_came(struct wnw__ahead *a, size_t n)
{
    const uint8_t *request = a->sent.request[a->n_came];
    const uint64_t before = a->n_part;
    a->n_part += n;
    if (before < WNW_READING_HEAD && a->n_part >= WNW_READING_HEAD &&
        memcmp(a->answer[a->n_came], request + PART_AT + FIELD, FIELD) != 0)
        return false;
    if (a->n_part == WNW_READING_HEAD + size_of(request)) {
        a->n_came++;
        a->n_part = 0;
    }
    return true;
}

int32_t wnw__ahead_find(const struct wnw__ahead *a, const uint8_t *request, size_t n)
{
    for (int32_t i = 0; n == WNW_READING && i < a->sent.n; i++)
        if (is_same(a->sent.request[i], request))
            return i;
    return -1;
}

void wnw__ahead_drop(struct wnw__ahead *a)
{
    a->sent.n = a->n_came = 0;
    a->n_part = 0;
}

void wnw__ahead_free(struct wnw__ahead *a)
{
    for (int i = 0; i < WNW_READINGS; i++)
        free(a->answer[i]);
}
