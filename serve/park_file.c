/* SPDX-License-Identifier: MIT */
#include "serve/park_file.h"

#include "base/system.h"
#include "base/whole_file.h"
#include "serve/slot_file.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

static const char magic[16] = "winnow park 1\n";
enum { MAGIC_NAME = 12 }; /* bytes of it before the version */

bool serve_same_owner(const struct serve_owner *a, const struct serve_owner *b)
{
    return memcmp(a->id, b->id, sizeof a->id) == 0;
}

void serve_park_about_clear(struct serve_park_about *about)
{
    free(about->key);
    *about = (struct serve_park_about){0};
}

/* ---- Header ---- */

static void set_asked(struct serve_park_asked *to, const struct serve_keep_rule *keep_rule)
{
    strcpy(to->recipe, keep_rule->recipe);
    strcpy(to->taken, keep_rule->taken);
    to->size = keep_rule->size;
    to->n_protected = keep_rule->n_protected;
}

static bool get_asked(struct serve_keep_rule *keep_rule, const struct serve_park_asked *from)
{
    if (!serve_is_plain(from->recipe, sizeof from->recipe) ||
        !serve_is_plain(from->taken, sizeof from->taken) || !serve_is_size(&from->size) ||
        from->n_protected < 0)
        return false;
    (void)serve_keep_rule_set(keep_rule, from->recipe, NULL); /* in this version it may be no recipe */
    strcpy(keep_rule->taken, from->taken);
    keep_rule->size = from->size;
    keep_rule->n_protected = from->n_protected;
    return true;
}

static uint64_t sum_of(const struct serve_park_header *h, const char *key)
{
    struct serve_park_header zero = *h;
    zero.sum = 0;
    const uint64_t parts[2] = {XXH3_64bits(&zero, sizeof zero), XXH3_64bits(key, h->key_len)};
    return XXH3_64bits(parts, sizeof parts);
}

/* ---- Writing ---- */

static int write_all(struct wnw__whole_file *f, const char *path, const struct serve_park_header *h,
                     const char *key, const uint8_t *image)
{
    WNW_TRY(wnw__whole_file_open(f, path));
    if (fchmod(f->fd, S_IRUSR | S_IWUSR) != 0) /* it has what somebody wrote */
        return wnw__fail(WNW_E_IO, "cannot keep '%.200s' from others", path);
    WNW_TRY(wnw__whole_file_write(f, h, sizeof *h));
    WNW_TRY(wnw__whole_file_write(f, key, h->key_len));
    WNW_TRY(wnw__whole_file_write(f, image, h->image_bytes));
    return wnw__whole_file_commit(f);
}

int serve_park_file_write(size_t *bytes, const char *path, const struct serve_park_about *about,
                          const char *fingerprint, const uint8_t *image, size_t n)
{
    struct wnw__whole_file f = {.fd = -1};
    struct serve_park_header h;
    memset(&h, 0, sizeof h); /* with what lies between its members, since it is written */
    memcpy(h.magic, magic, sizeof magic);
    strncpy(h.fingerprint, fingerprint, sizeof h.fingerprint - 1);
    h.key_len = about->key_len;
    h.image_bytes = n;
    h.image_sum = XXH3_64bits(image, n);
    h.owner = about->owner;
    h.n_tokens = about->n_tokens;
    h.compressed = about->compressed;
    set_asked(&h.keep_rule, &about->keep_rule);
    set_asked(&h.by, &about->by);
    h.sum = sum_of(&h, about->key);
    const int rc = write_all(&f, path, &h, about->key, image);
    wnw__whole_file_abort(&f);
    *bytes = rc == WNW_OK ? sizeof h + about->key_len + n : 0;
    return rc;
}

/* ---- Reading ---- */

static int damaged(void)
{
    return wnw__fail(WNW_E_FORMAT, "it is damaged");
}

/* Reads the header and the text, which the caller frees. */
static int read_head(struct serve_park_header *h, char **key, int fd, uint64_t size)
{
    *key = NULL;
    if (size < sizeof h->magic)
        return damaged();
    WNW_TRY(wnw__read_at(fd, h, size < sizeof *h ? sizeof h->magic : sizeof *h, 0));
    if (memcmp(h->magic, magic, MAGIC_NAME) != 0)
        return damaged();
    if (memcmp(h->magic, magic, sizeof magic) != 0)
        return wnw__fail(WNW_E_MISMATCH, "another version of winnow wrote it");
    if (size < sizeof *h || h->key_len > size - sizeof *h || h->image_bytes != size - sizeof *h - h->key_len)
        return damaged();
    *key = malloc(h->key_len + 1);
    if (!*key)
        return wnw__fail(WNW_E_NOMEM, "no memory for a text of %llu bytes", (unsigned long long)h->key_len);
    WNW_TRY(wnw__read_at(fd, *key, h->key_len, sizeof *h));
    (*key)[h->key_len] = '\0';
    return sum_of(h, *key) == h->sum ? WNW_OK : damaged();
}

static int take_about(struct serve_park_about *about, const struct serve_park_header *h,
                      const char *fingerprint)
{
    if (!memchr(h->fingerprint, '\0', sizeof h->fingerprint) || h->n_tokens < 0 || (h->compressed & ~1) != 0)
        return damaged();
    if (strncmp(h->fingerprint, fingerprint, sizeof h->fingerprint - 1) != 0)
        return wnw__fail(WNW_E_MISMATCH, "it is of another model");
    about->owner = h->owner;
    about->key_len = h->key_len;
    about->n_tokens = h->n_tokens;
    about->compressed = h->compressed != 0;
    return get_asked(&about->keep_rule, &h->keep_rule) && get_asked(&about->by, &h->by) ? WNW_OK : damaged();
}

int serve_park_file_look(struct serve_park_about *about, const char *path, const char *fingerprint)
{
    struct serve_park_header h;
    char *key = NULL;
    int64_t size;
    int fd;
    *about = (struct serve_park_about){0};
    WNW_TRY(wnw__open_file(&fd, &size, "parked prompt", path));
    int rc = read_head(&h, &key, fd, (uint64_t)size);
    close(fd);
    if (rc == WNW_OK)
        rc = take_about(about, &h, fingerprint);
    if (rc == WNW_OK)
        about->key = key;
    else
        free(key);
    if (rc != WNW_OK)
        *about = (struct serve_park_about){0};
    return rc;
}

static int read_image(uint8_t **image, const struct serve_park_header *h, int fd)
{
    *image = malloc(h->image_bytes + 1);
    if (!*image)
        return wnw__fail(WNW_E_NOMEM, "no memory for a slot of %llu bytes",
                         (unsigned long long)h->image_bytes);
    WNW_TRY(wnw__read_at(fd, *image, h->image_bytes, sizeof *h + h->key_len));
    return XXH3_64bits(*image, h->image_bytes) == h->image_sum ? WNW_OK : damaged();
}

int serve_park_file_image(uint8_t **image, size_t *n, const char *path)
{
    struct serve_park_header h;
    char *key = NULL;
    int64_t size;
    int fd;
    *image = NULL;
    WNW_TRY(wnw__open_file(&fd, &size, "parked prompt", path));
    int rc = read_head(&h, &key, fd, (uint64_t)size);
    if (rc == WNW_OK)
        rc = read_image(image, &h, fd);
    close(fd);
    free(key);
    *n = rc == WNW_OK ? h.image_bytes : 0;
    if (rc != WNW_OK) {
        free(*image);
        *image = NULL;
    }
    return rc;
}
