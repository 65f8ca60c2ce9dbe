/* SPDX-License-Identifier: MIT */
#include "source.h"

#include "prose.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct buffer {
    char *s;
    size_t len, cap;
};

static bool add(struct buffer *b, const char *s, size_t len)
{
    if (b->len + len + 1 > b->cap) {
        const size_t cap = 2 * (b->len + len + 1);
        char *grown = realloc(b->s, cap);
        if (!grown)
            return false;
        b->s = grown;
        b->cap = cap;
    }
    memcpy(b->s + b->len, s, len);
    b->len += len;
    b->s[b->len] = '\0';
    return true;
}

static char *read_file(const char *path)
{
    struct buffer b = {0};
    char block[4096];
    size_t n;
    FILE *f = fopen(path, "rb");
    bool ok = f && add(&b, "", 0);
    while (ok && (n = fread(block, 1, sizeof block, f)) > 0)
        ok = add(&b, block, n);
    ok = ok && !ferror(f);
    if (f)
        fclose(f);
    if (ok)
        return b.s;
    free(b.s);
    return NULL;
}

/* A sentence has at least three words, unless its line has fewer, so that "Dr." and "No." do not end one. */
size_t source_sentence(const char *text, size_t len)
{
    size_t n = 1, blanks = text[0] == ' ';
    while (n < len && text[n - 1] != '\n' &&
           !(blanks >= 3 && text[n - 1] == ' ' && strchr(".?!", text[n - 2])))
        blanks += text[n++] == ' ';
    return n;
}

/* ---- What a file says for the first time ---- */

struct sentence {
    const char *at;
    size_t len;   /* without white space at its end */
    size_t bytes; /* with white space at its end */
    bool again;
};

static int by_words(const void *a, const void *b)
{
    const struct sentence *x = *(struct sentence *const *)a, *y = *(struct sentence *const *)b;
    const int order = memcmp(x->at, y->at, x->len < y->len ? x->len : y->len);
    if (order != 0 || x->len != y->len)
        return order != 0 ? order : x->len < y->len ? -1 : 1;
    return x->at < y->at ? -1 : 1;
}

static size_t cut(const char *text, size_t len, struct sentence *out)
{
    size_t n = 0;
    for (size_t at = 0; at < len; n++) {
        struct sentence s = {.at = text + at, .bytes = source_sentence(text + at, len - at)};
        for (s.len = s.bytes; s.len > 0 && isspace((unsigned char)s.at[s.len - 1]);)
            s.len--;
        at += s.bytes;
        if (out)
            out[n] = s;
    }
    return n;
}

static void mark_repeats(struct sentence *const *sorted, size_t n)
{
    for (size_t i = 1; i < n; i++)
        sorted[i]->again = sorted[i]->len > 0 && sorted[i]->len == sorted[i - 1]->len &&
                           memcmp(sorted[i]->at, sorted[i - 1]->at, sorted[i]->len) == 0;
}

/* Removes repeated sentences and empty lines behind empty lines; *len becomes the new length. Returns false
 * if memory runs out. */
static bool drop_repeats(char *text, size_t *len)
{
    const size_t n = cut(text, *len, NULL);
    struct sentence *all = calloc(n + 1, sizeof *all), **sorted = calloc(n + 1, sizeof *sorted);
    const bool ok = all && sorted;
    bool blank = true; /* the kept text ends with an empty line */
    if (ok) {
        cut(text, *len, all);
        for (size_t i = 0; i < n; i++)
            sorted[i] = &all[i];
        qsort(sorted, n, sizeof *sorted, by_words);
        mark_repeats(sorted, n);
        *len = 0;
        for (size_t i = 0; i < n; i++) {
            if (all[i].again || (all[i].len == 0 && blank))
                continue;
            blank = all[i].len == 0;
            memmove(text + *len, all[i].at, all[i].bytes);
            *len += all[i].bytes;
        }
        text[*len] = '\0';
    }
    free(all);
    free(sorted);
    return ok;
}

bool source_open(struct source *s, const char *path)
{
    *s = (struct source){.len = PROSE_MIN_BYTES};
    if (!path)
        return true;
    s->text = read_file(path);
    s->len = s->text ? strlen(s->text) : 0;
    return s->len > 0 && drop_repeats(s->text, &s->len);
}

void source_close(struct source *s)
{
    free(s->text);
    *s = (struct source){0};
}

/* ---- Taking ---- */

static char *take_prose(size_t n_bytes, uint64_t seed)
{
    struct buffer b = {0};
    struct prose *p = prose_new(seed);
    bool ok = p && add(&b, "", 0);
    while (ok && b.len < n_bytes) {
        char *paragraph = prose_next(p);
        ok = paragraph && add(&b, paragraph, strlen(paragraph)) && add(&b, "\n\n", 2);
        free(paragraph);
    }
    prose_free(p);
    if (ok)
        return b.s;
    free(b.s);
    return NULL;
}

/* Takes text from the beginning of the line at a random place behind which n_bytes are left. */
static char *take_file(const struct source *s, size_t n_bytes, uint64_t seed)
{
    size_t from = (size_t)(seed % (s->len - n_bytes + 1));
    while (from > 0 && s->text[from - 1] != '\n')
        from--;
    return strndup(s->text + from, s->len - from);
}

char *source_take(const struct source *s, size_t n_bytes, uint64_t seed)
{
    char *text = s->text ? take_file(s, n_bytes, seed) : take_prose(n_bytes, seed);
    size_t len = text ? strlen(text) : 0, n = 0;
    while (n < len) {
        const size_t next = source_sentence(text + n, len - n);
        if (n + next > n_bytes)
            break;
        n += next;
    }
    if (text)
        text[n] = '\0';
    return text;
}
