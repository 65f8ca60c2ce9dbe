/* SPDX-License-Identifier: MIT */
#include "model/files.h"

#include "base/memory.h"
#include "base/said.h"
#include "base/split_files.h"
#include "base/system.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- One file ---- */

/* Says what a file is whose first 8 bytes are not those of a GGUF file of this machine's byte order. */
static int check_magic(const char *path, const uint8_t head[8])
{
    /* Formats of ggml before GGUF, written as little-endian numbers. */
    static const char older[][5] = {"lmgg", "fmgg", "tjgg"};
    for (size_t i = 0; i < sizeof older / sizeof *older; i++)
        if (memcmp(head, older[i], 4) == 0)
            return wnw__fail(WNW_E_FORMAT,
                             "%.200s is in a format older than GGUF; convert the original model to GGUF",
                             path);
    if (memcmp(head, "GGUF", 4) != 0)
        return wnw__fail(WNW_E_FORMAT, "%.200s is not a GGUF file", path);
    uint32_t version;
    memcpy(&version, head + 4, sizeof version);
    if (version != 0 && (version & 0xffff) == 0)
        return wnw__fail(
            WNW_E_UNSUPPORTED,
            "%.200s is a GGUF file of the other byte order (%s-endian); convert it with gguf_convert_endian",
            path, head[7] != 0 ? "big" : "little");
    return WNW_OK;
}

/* The descriptor stays open, to tell later whether another program wrote to the file. */
static int map_file(struct wnw__model_file *f, const char *what)
{
    int64_t size;
    uint8_t head[8] = {0};
    WNW_TRY(wnw__open_file(&f->fd, &size, what, f->path));
    int rc = WNW_OK;
    if (size < 24 || pread(f->fd, head, sizeof head, 0) != (ssize_t)sizeof head)
        rc = wnw__fail(WNW_E_FORMAT, "%.200s is not a GGUF file", f->path);
    else
        rc = check_magic(f->path, head);
    if (rc == WNW_OK) {
        f->map_size = (size_t)size;
        f->state = wnw__file_state_of(f->fd);
        f->map = mmap(NULL, f->map_size, PROT_READ, MAP_SHARED, f->fd, 0);
        if (f->map == MAP_FAILED) {
            f->map = NULL;
            rc = wnw__fail(errno == ENOMEM ? WNW_E_NOMEM : WNW_E_IO, "cannot map model %s: %s", f->path,
                           strerror(errno));
        }
    }
    return rc;
}

/* The most bytes that reading the metadata takes, before any of it is known: four times the metadata of the
 * largest models, or the size of the file. */
static size_t metadata_bytes(const struct wnw__model_file *f)
{
    const size_t most = (size_t)32 << 20;
    return 4 * (f->map_size < most ? f->map_size : most) + (1 << 20);
}

/* Maps and reads the file at f->path, which messages call `what`. */
static int open_file(struct wnw__model_file *f, const char *what)
{
    WNW_TRY(map_file(f, what));
    WNW_TRY(wnw__memory_check(metadata_bytes(f), "the metadata of the model"));
    struct wnw__said said;
    wnw__said_begin(&said);
    f->gguf = gguf_init_from_file(f->path, (struct gguf_init_params){.no_alloc = true, .ctx = &f->meta});
    wnw__said_end(&said);
    if (f->gguf && f->meta)
        return WNW_OK;
    return wnw__fail(WNW_E_FORMAT, "%.200s is a damaged GGUF file: its header or metadata cannot be read%s",
                     f->path, said.reason);
}

static void close_file(struct wnw__model_file *f)
{
    if (f->buffer)
        ggml_backend_buffer_free(f->buffer);
    ggml_free(f->meta);
    gguf_free(f->gguf);
    if (f->map)
        munmap(f->map, f->map_size);
    if (f->fd >= 0)
        close(f->fd);
    free(f->path);
}

/* GGUF files that are no models have a type or an architecture of their own. */
static int check_is_model(const struct wnw__model_file *f)
{
    static const struct {
        const char *key, *value, *what;
    } rows[] = {
        {"general.type", "adapter",
         "an adapter (LoRA) for a model; merge it into its model and give the result"},
        {"general.type", "mmproj",
         "a projector for images or sound; give the language model that it belongs to"},
        {"general.type", "imatrix", "an importance matrix, which quantising a model takes; give the model"},
        {"general.architecture", "clip",
         "a projector for images or sound; give the language model that it belongs to"},
        {"general.architecture", "controlvector", "a control vector for a model; give the model"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *value = wnw__key_str(f->gguf, rows[i].key);
        if (value && strcmp(value, rows[i].value) == 0)
            return wnw__fail(WNW_E_UNSUPPORTED, "%.200s is no model but %s", f->path, rows[i].what);
    }
    const char *type = wnw__key_str(f->gguf, "general.type");
    if (type && strcmp(type, "model") != 0)
        return wnw__fail(WNW_E_UNSUPPORTED, "%.200s is no model: it says that it is of type '%.40s'", f->path,
                         type);
    return WNW_OK;
}

/* ---- Split models ---- */

/* Which of the n files of its model a file is; {0, 1} if the model has one file. */
struct split {
    int32_t i, n;
};

/* libllama ends the process where these keys have another type than 16 bits without sign. */
static int key_u16(const struct wnw__model_file *f, const char *key, int32_t def, int32_t *out)
{
    const int64_t id = gguf_find_key(f->gguf, key);
    *out = def;
    if (id < 0)
        return WNW_OK;
    if (gguf_get_kv_type(f->gguf, id) != GGUF_TYPE_UINT16)
        return wnw__fail(WNW_E_FORMAT, "%.200s: GGUF key %s has type %s, expected u16", f->path, key,
                         gguf_type_name(gguf_get_kv_type(f->gguf, id)));
    *out = gguf_get_val_u16(f->gguf, id);
    return WNW_OK;
}

static int read_split(const struct wnw__model_file *f, struct split *out)
{
    WNW_TRY(key_u16(f, "split.count", 1, &out->n));
    WNW_TRY(key_u16(f, "split.no", 0, &out->i));
    out->n = out->n > 1 ? out->n : 1;
    if (out->i >= out->n)
        return wnw__fail(WNW_E_FORMAT, "%.200s says that it is file %d of %d", f->path, (int)out->i + 1,
                         (int)out->n);
    return WNW_OK;
}

/* The length of the path of the first of n files up to what the names differ in. */
static int find_stem(const char *path, int32_t n, size_t *len)
{
    char ending[WNW_SPLIT_ENDING];
    if ((*len = wnw__split_stem(path, n)) > 0)
        return WNW_OK;
    wnw__split_ending(ending, 0, n);
    return wnw__fail(
        WNW_E_FORMAT,
        "%.200s is file 1 of %d of a model; files are found by their names, so this one must be called "
        "NAME%s and the others lie next to it",
        path, (int)n, ending);
}

static int set_path(struct wnw__model_file *f, const char *stem, size_t len, int32_t i, int32_t n)
{
    f->path = malloc(len + WNW_SPLIT_ENDING);
    if (!f->path)
        return wnw__fail(WNW_E_NOMEM, "no memory for a path");
    memcpy(f->path, stem, len);
    wnw__split_ending(f->path + len, i, n);
    return WNW_OK;
}

static int check_file(const struct wnw__model_file *f, int32_t i, int32_t n)
{
    struct split at;
    WNW_TRY(read_split(f, &at));
    if (at.i != i || at.n != n)
        return wnw__fail(WNW_E_FORMAT,
                         "%.200s should be file %d of %d but says that it is file %d of %d; fetch it again",
                         f->path, (int)i + 1, (int)n, (int)at.i + 1, (int)at.n);
    return WNW_OK;
}

/* Files that do not belong together hold another number of tensors, or the same one twice. Where other models have the
 * same shapes and were split at the same places, nothing in the files tells. */
static int check_together(const struct wnw_model *m)
{
    int32_t n_tensor;
    WNW_TRY(wnw__key_i32(m->gguf, "split.tensors.count", 0, &n_tensor));
    for (int32_t i = 1; i < m->n_file; i++) {
        const struct gguf_context *g = m->files[i].gguf;
        int32_t n_said;
        WNW_TRY(wnw__key_i32(g, "split.tensors.count", n_tensor, &n_said));
        if (n_said != n_tensor)
            return wnw__fail(WNW_E_FORMAT,
                             "%.200s is a file of another model: it counts %d tensors in all, file 1 %d",
                             m->files[i].path, (int)n_said, (int)n_tensor);
        for (int64_t k = 0; k < gguf_get_n_tensors(g); k++) {
            const char *name = gguf_get_tensor_name(g, k);
            if (wnw__files_tensor(m, name) != ggml_get_tensor(m->files[i].meta, name))
                return wnw__fail(WNW_E_FORMAT,
                                 "%.200s is a file of another model: an earlier file holds tensor %.64s, too",
                                 m->files[i].path, name);
        }
    }
    if (wnw__files_n_tensor(m) != n_tensor)
        return wnw__fail(WNW_E_FORMAT,
                         "the %d files of %s hold %lld tensors and should hold %d; fetch them again",
                         (int)m->n_file, m->files[0].path, (long long)wnw__files_n_tensor(m), (int)n_tensor);
    return WNW_OK;
}

/* Opens files 2 to n, which lie next to the first. */
static int open_others(struct wnw_model *m, int32_t n)
{
    size_t len;
    WNW_TRY(find_stem(m->files[0].path, n, &len));
    struct wnw__model_file *files = realloc(m->files, (size_t)n * sizeof *files);
    if (!files)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d files of a model", (int)n);
    memset(files + 1, 0, (size_t)(n - 1) * sizeof *files);
    m->files = files;
    for (int32_t i = 1; i < n; i++)
        files[i].fd = -1;
    for (int32_t i = 1; i < n; i++) {
        struct wnw__model_file *f = &m->files[i];
        char what[64];
        snprintf(what, sizeof what, "model's file %d of %d", (int)i + 1, (int)n);
        m->n_file = i + 1;
        WNW_TRY(set_path(f, m->files[0].path, len, i, n));
        WNW_TRY(open_file(f, what));
        WNW_TRY(check_file(f, i, n));
    }
    return check_together(m);
}

int wnw__files_open(struct wnw_model *m, const char *path)
{
    struct split at;
    m->files = calloc(1, sizeof *m->files);
    if (!m->files)
        return wnw__fail(WNW_E_NOMEM, "no memory for a model");
    m->n_file = 1;
    m->files[0].fd = -1;
    if (!(m->files[0].path = strdup(path)))
        return wnw__fail(WNW_E_NOMEM, "no memory for a model");
    WNW_TRY(open_file(&m->files[0], "model"));
    m->gguf = m->files[0].gguf;
    WNW_TRY(read_split(&m->files[0], &at));
    if (at.i > 0)
        return wnw__fail(
            WNW_E_FORMAT,
            "%.200s is file %d of %d of a model; give file 1, whose name ends in -00001-of-%05d.gguf", path,
            (int)at.i + 1, (int)at.n, (int)at.n);
    WNW_TRY(check_is_model(&m->files[0]));
    return at.n > 1 ? open_others(m, at.n) : WNW_OK;
}

int wnw__files_check_kept(const struct wnw_model *m)
{
    for (int32_t i = 0; i < m->n_file; i++)
        if (!wnw__file_state_kept(m->files[i].fd, &m->files[i].state))
            return wnw__fail(
                WNW_E_MISMATCH,
                "%.200s was overwritten while it was in use: nothing is stored for it; start again, "
                "and have other programs write a new file and rename it",
                m->files[i].path);
    return WNW_OK;
}

void wnw__files_close(struct wnw_model *m)
{
    for (int32_t i = 0; i < m->n_file; i++)
        close_file(&m->files[i]);
    free(m->files);
    m->files = NULL;
    m->n_file = 0;
    m->gguf = NULL;
}

/* ---- Tensors ---- */

/* Checks that the mapping holds all tensors; *largest is the size of the largest. */
static int check_offsets(struct wnw_model *m, const struct wnw__model_file *f, size_t *largest)
{
    const size_t data = gguf_get_data_offset(f->gguf);
    for (int64_t i = 0; i < gguf_get_n_tensors(f->gguf); i++) {
        const struct ggml_tensor *t = ggml_get_tensor(f->meta, gguf_get_tensor_name(f->gguf, i));
        const size_t off = gguf_get_tensor_offset(f->gguf, i);
        const size_t size = t ? ggml_nbytes(t) : 0;
        if (!t || size == 0 || off > f->map_size || data > f->map_size - off ||
            size > f->map_size - off - data)
            return wnw__fail(WNW_E_FORMAT,
                             "%.200s is truncated: tensor %.64s lies beyond the end of the file", f->path,
                             gguf_get_tensor_name(f->gguf, i));
        if ((data + off) % 16 != 0)
            return wnw__fail(WNW_E_FORMAT, "%.200s: tensor %.64s is not aligned", f->path,
                             gguf_get_tensor_name(f->gguf, i));
        *largest = size > *largest ? size : *largest;
        m->weight_bytes += size;
    }
    return WNW_OK;
}

static int place_file(struct wnw_model *m, struct wnw__model_file *f, ggml_backend_dev_t cpu)
{
    size_t largest = 0;
    WNW_TRY(check_offsets(m, f, &largest));
    struct wnw__said said;
    wnw__said_begin(&said);
    f->buffer = ggml_backend_dev_buffer_from_host_ptr(cpu, f->map, f->map_size, largest);
    wnw__said_end(&said);
    if (!f->buffer)
        return wnw__fail(WNW_E_BACKEND, "ggml cannot use the mapped weights of %s%s", f->path, said.reason);
    for (int64_t i = 0; i < gguf_get_n_tensors(f->gguf); i++) {
        struct ggml_tensor *t = ggml_get_tensor(f->meta, gguf_get_tensor_name(f->gguf, i));
        char *at = (char *)f->map + gguf_get_data_offset(f->gguf) + gguf_get_tensor_offset(f->gguf, i);
        if (ggml_backend_tensor_alloc(f->buffer, t, at) != GGML_STATUS_SUCCESS)
            return wnw__fail(WNW_E_BACKEND, "ggml cannot place tensor %.64s", t->name);
    }
    return WNW_OK;
}

int wnw__files_check(struct wnw_model *m)
{
    size_t largest = 0;
    for (int32_t i = 0; i < m->n_file; i++)
        WNW_TRY(check_offsets(m, &m->files[i], &largest));
    return WNW_OK;
}

int wnw__files_place(struct wnw_model *m)
{
    ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    if (!cpu)
        return wnw__fail(WNW_E_BACKEND, "ggml has no CPU device");
    for (int32_t i = 0; i < m->n_file; i++)
        WNW_TRY(place_file(m, &m->files[i], cpu));
    return WNW_OK;
}

struct ggml_tensor *wnw__files_tensor(const struct wnw_model *m, const char *name)
{
    struct ggml_tensor *t = NULL;
    for (int32_t i = 0; !t && i < m->n_file; i++)
        t = ggml_get_tensor(m->files[i].meta, name);
    return t;
}

int64_t wnw__files_n_tensor(const struct wnw_model *m)
{
    int64_t n = 0;
    for (int32_t i = 0; i < m->n_file; i++)
        n += gguf_get_n_tensors(m->files[i].gguf);
    return n;
}
