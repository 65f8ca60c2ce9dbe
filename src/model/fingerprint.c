/* SPDX-License-Identifier: MIT */
/*
 * The model fingerprint: a hash of what decides a model's numbers and its tokens. That is every key that is not listed here as a
 * remark, and the header and all bytes of every tensor. A sample of the bytes would not do, because a model with one changed row
 * is another model. Reading the weights once costs about as much as computing one token. Digests of large files are kept in a
 * folder (digests.h), so that this is done once and not in every process.
 *
 * Keys and tensors are added up by their own hashes, which hold their names: their order does not count, nor does how
 * they are spread over files and where these have gaps. Neither does the machine, nor repacking.
 */
#include "model/fingerprint.h"

#include "model/files.h"
#include "winnow_tools.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

/* 128 bits. XXH3 is enough for contents that nobody has forged. */
struct digest {
    uint64_t w[2];
};

/* A file with fewer bytes of weights is hashed sooner than its digest is found. */
#define LEAST_KEPT ((uint64_t)32 << 20)

enum {
    PIECE = 4 << 20, /* bytes that are hashed at a time */
    AHEAD = 4        /* pieces that the system is asked to read before they are hashed */
};

/* Takes in data[n] after what d has taken in before; the border between the two counts. */
static void join(struct digest *d, const void *data, size_t n)
{
    const XXH128_hash_t h = XXH3_128bits(data, n);
    const uint64_t all[5] = {d->w[0], d->w[1], h.high64, h.low64, n};
    const XXH128_hash_t joined = XXH3_128bits(all, sizeof all);
    *d = (struct digest){{joined.high64, joined.low64}};
}

static void join_text(struct digest *d, const char *text)
{
    join(d, text, strlen(text));
}

static void join_numbers(struct digest *d, const uint64_t *x, size_t n)
{
    join(d, x, n * sizeof *x);
}

/* Of a sum the order does not count. What is added twice does not cancel out, as it would with exclusive or. */
static void add(struct digest *sum, const struct digest *d)
{
    sum->w[0] += d->w[0];
    sum->w[1] += d->w[1];
}

/* ---- Keys ---- */

/* Keys that change no number and no token. A name that ends with '.' is that of all keys which begin like it. */
static const char *const remarks[] = {
    /* Who made the file, from what and when, and how it is called: read for display. general.name is in add_name as well. */
    "general.name", "general.basename", "general.finetune", "general.size_label", "general.version",
    "general.organization", "general.author", "general.description", "general.quantized_by",
    "general.license", "general.license.", "general.url", "general.doi", "general.uuid", "general.repo_url",
    "general.tags", "general.languages", "general.datasets", "general.source.", "general.base_model.",
    "general.dataset.",
    /* A word for the mixture of types; every tensor says its own. */
    "general.file_type",
    /* Where tensors lie in the file, and which file they are in. */
    "general.alignment", "split.",
    /* What the quantiser chose by. The weights that it chose are there. */
    "quantize.imatrix."};

static bool is_remark(const char *key)
{
    for (size_t i = 0; i < sizeof remarks / sizeof *remarks; i++) {
        const size_t n = strlen(remarks[i]);
        if (remarks[i][n - 1] == '.' ? strncmp(key, remarks[i], n) == 0 : strcmp(key, remarks[i]) == 0)
            return true;
    }
    return false;
}

static size_t size_of(enum gguf_type type)
{
    switch (type) {
    case GGUF_TYPE_UINT8:
    case GGUF_TYPE_INT8:
    case GGUF_TYPE_BOOL:
        return 1;
    case GGUF_TYPE_UINT16:
    case GGUF_TYPE_INT16:
        return 2;
    case GGUF_TYPE_UINT32:
    case GGUF_TYPE_INT32:
    case GGUF_TYPE_FLOAT32:
        return 4;
    case GGUF_TYPE_UINT64:
    case GGUF_TYPE_INT64:
    case GGUF_TYPE_FLOAT64:
        return 8;
    case GGUF_TYPE_STRING:
    case GGUF_TYPE_ARRAY:
    case GGUF_TYPE_COUNT:
        break;
    }
    return 0;
}

static void join_list(struct digest *d, const struct gguf_context *g, int64_t id)
{
    const enum gguf_type type = gguf_get_arr_type(g, id);
    const uint64_t n = gguf_get_arr_n(g, id);
    join_numbers(d, (const uint64_t[]){type, n}, 2);
    if (type == GGUF_TYPE_STRING)
        for (uint64_t i = 0; i < n; i++)
            join_text(d, gguf_get_arr_str(g, id, i));
    else if (n > 0)
        join(d, gguf_get_arr_data(g, id), n * size_of(type));
}

static void add_key(struct digest *sum, const struct gguf_context *g, int64_t id)
{
    struct digest d = {{0}};
    const enum gguf_type type = gguf_get_kv_type(g, id);
    join_text(&d, gguf_get_key(g, id));
    join_numbers(&d, (const uint64_t[]){type}, 1);
    if (type == GGUF_TYPE_ARRAY)
        join_list(&d, g, id);
    else if (type == GGUF_TYPE_STRING)
        join_text(&d, gguf_get_val_str(g, id));
    else
        join(&d, gguf_get_val_data(g, id), size_of(type));
    add(sum, &d);
}

/* libllama reads the blanks after control tokens otherwise in models that are called like these. */
static void add_name(struct digest *sum, const struct gguf_context *g)
{
    static const char *const named[] = {"phi-3", "phi3", "modern-bert"};
    struct digest d = {{0}};
    const char *name = wnw__key_str(g, "general.name");
    for (size_t i = 0; name && i < sizeof named / sizeof *named; i++)
        if (strcasestr(name, named[i])) {
            join_text(&d, named[i]);
            add(sum, &d);
        }
}

/* The first file has all keys; what others have is about the split. */
static struct digest digest_keys(const struct wnw_model *m)
{
    struct digest sum = {{0}};
    for (int64_t id = 0; id < gguf_get_n_kv(m->gguf); id++)
        if (!is_remark(gguf_get_key(m->gguf, id)))
            add_key(&sum, m->gguf, id);
    add_name(&sum, m->gguf);
    return sum;
}

/* ---- Tensors ---- */

static struct digest digest_headers(const struct wnw_model *m)
{
    struct digest sum = {{0}};
    for (int32_t i = 0; i < m->n_file; i++) {
        const struct wnw__model_file *f = &m->files[i];
        for (int64_t k = 0; k < gguf_get_n_tensors(f->gguf); k++) {
            struct digest d = {{0}};
            const struct ggml_tensor *t = ggml_get_tensor(f->meta, gguf_get_tensor_name(f->gguf, k));
            uint64_t header[1 + GGML_MAX_DIMS] = {t->type};
            for (int j = 0; j < GGML_MAX_DIMS; j++)
                header[1 + j] = (uint64_t)t->ne[j];
            join_text(&d, t->name);
            join_numbers(&d, header, 1 + GGML_MAX_DIMS);
            add(&sum, &d);
        }
    }
    return sum;
}

/* Has the system read what comes next, because pages of a mapping are otherwise read when they are missed. *asked: what lies in
 * front of it was asked for. */
static void read_ahead(const struct wnw__model_file *f, size_t at, size_t *asked)
{
    const size_t n = (size_t)AHEAD * PIECE, from = at / PIECE * PIECE;
    if (from + n / 2 < *asked || from >= f->map_size)
        return;
    const size_t begin = from > *asked ? from : *asked, end = from + n < f->map_size ? from + n : f->map_size;
    if (begin < end)
        (void)madvise((char *)f->map + begin, end - begin, MADV_WILLNEED);
    *asked = end;
}

/* Of the bytes of all tensors of a file. */
static struct digest digest_data(const struct wnw__model_file *f)
{
    struct digest sum = {{0}};
    size_t asked = 0;
    for (int64_t k = 0; k < gguf_get_n_tensors(f->gguf); k++) {
        struct digest d = {{0}};
        const size_t at = gguf_get_data_offset(f->gguf) + gguf_get_tensor_offset(f->gguf, k),
                     n = gguf_get_tensor_size(f->gguf, k);
        join_text(&d, gguf_get_tensor_name(f->gguf, k));
        for (size_t i = 0; i < n; i += PIECE) {
            read_ahead(f, at + i, &asked);
            join(&d, (const char *)f->map + at + i, n - i < PIECE ? n - i : PIECE);
        }
        add(&sum, &d);
    }
    return sum;
}

static struct digest digest_file(const struct wnw_model *m, const struct wnw__model_file *f)
{
    struct digest d;
    const bool kept = f->map_size >= LEAST_KEPT;
    if (kept && wnw__digest_find(d.w, m->print->digests, &f->state))
        return d;
    d = digest_data(f);
    if (kept)
        wnw__digest_keep(m->print->digests, f->path, &f->state, d.w);
    return d;
}

/* ---- The fingerprint ---- */

static void make_text(const struct wnw_model *m, char out[WNW_FINGERPRINT_SIZE])
{
    const struct digest keys = digest_keys(m);
    struct digest data = {{0}}, all = {{0}};
    for (int32_t i = 0; i < m->n_file; i++) {
        const struct digest d = digest_file(m, &m->files[i]);
        add(&data, &d);
    }
    join_numbers(&all, keys.w, 2);
    join_numbers(&all, m->print->headers, 2);
    join_numbers(&all, data.w, 2);
    snprintf(out, WNW_FINGERPRINT_SIZE, "%016" PRIx64 "%016" PRIx64, all.w[0], all.w[1]);
}

int wnw__fingerprint_new(struct wnw_model *m, const char *digests)
{
    const struct digest headers = digest_headers(m);
    m->print = calloc(1, sizeof *m->print);
    if (!m->print || (digests && !(m->print->digests = strdup(digests))))
        return wnw__fail(WNW_E_NOMEM, "no memory for a model");
    memcpy(m->print->headers, headers.w, sizeof headers.w);
    return WNW_OK;
}

void wnw__fingerprint_free(struct wnw_model *m)
{
    if (m->print)
        free(m->print->digests);
    free(m->print);
    m->print = NULL;
}

/* Threads that ask at once compute it each; one of them keeps it. */
void wnw_model_fingerprint(const wnw_model *m, char out[WNW_FINGERPRINT_SIZE])
{
    if (!out)
        return;
    out[0] = '\0';
    if (!m)
        return;
    struct wnw__fingerprint *print = m->print;
    if (atomic_load_explicit(&print->state, memory_order_acquire) == 2) {
        memcpy(out, print->text, sizeof print->text);
        return;
    }
    make_text(m, out);
    int empty = 0;
    if (atomic_compare_exchange_strong(&print->state, &empty, 1)) {
        memcpy(print->text, out, sizeof print->text);
        atomic_store_explicit(&print->state, 2, memory_order_release);
    }
}

int wnw_model_check_files(const wnw_model *m)
{
    WNW_REQUIRE(m);
    return wnw__files_check_kept(m);
}

static int print_files(struct wnw_model *m, const char *path, const char *digests,
                       char out[WNW_FINGERPRINT_SIZE])
{
    WNW_TRY(wnw__files_open(m, path));
    WNW_TRY(wnw__files_check(m));
    WNW_TRY(wnw__fingerprint_new(m, digests));
    make_text(m, out);
    return wnw__files_check_kept(m);
}

int wnw_file_fingerprint(const char *path, const wnw_model_params *params, char out[WNW_FINGERPRINT_SIZE])
{
    struct wnw_model m = {0};
    wnw_model_params own = wnw_model_default_params();
    WNW_REQUIRE(out);
    out[0] = '\0';
    WNW_REQUIRE(path);
    WNW_TRY(WNW_SIZED_TAKE(wnw_model_params, &own, params));
    const int rc = print_files(&m, path, own.digests, out);
    if (rc != WNW_OK)
        out[0] = '\0';
    wnw__fingerprint_free(&m);
    wnw__files_close(&m);
    return rc;
}
