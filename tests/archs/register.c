/* SPDX-License-Identifier: MIT */
/*
 * Makes a program of llama.cpp's know the device WINNOW, and says on stderr what becomes of each cache. That program compares devices with the
 * CPU. WINNOW_ARCHS_REFERENCE names another device to compare with: the one that winnow is around. Its own rounding is then no error.
 * WINNOW_ARCHS_NO_FILES: models are not written to files and read again, which takes a third of the time.
 * WINNOW_ARCHS_HEAD is how many numbers a head has at most. A driver that computes on the CPU compiles the attention of large heads for minutes.
 */
#include "winnow_bridge.h"

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <gguf.h>
#include <llama.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LAYERS = 64 };

static void say(wnw_log_level level, const char *line, void *user)
{
    (void)level;
    (void)user;
    fprintf(stderr, "%s\n", line);
}

__attribute__((constructor)) static void register_device(void)
{
    wnw_set_log(say, NULL);
    if (wnw_bridge_register() != WNW_OK) {
        fprintf(stderr, "%s\n", wnw_last_error());
        exit(2);
    }
}

/* ---- Size of heads ---- */

/* The number of a key of the model's family; -1: there is none. */
static int64_t find(const struct gguf_context *f, const char *family, const char *key)
{
    char full[256];
    snprintf(full, sizeof full, "%s.%s", family, key);
    return gguf_find_key(f, full);
}

/* Multiplies a number, or all of a list. */
static void multiply(struct gguf_context *f, const char *family, const char *key, uint32_t factor)
{
    char full[256];
    uint32_t list[MOST_LAYERS];
    const int64_t id = find(f, family, key);
    snprintf(full, sizeof full, "%s.%s", family, key);
    if (id >= 0 && gguf_get_kv_type(f, id) == GGUF_TYPE_UINT32) {
        gguf_set_val_u32(f, full, gguf_get_val_u32(f, id) * factor);
    } else if (id >= 0 && gguf_get_kv_type(f, id) == GGUF_TYPE_ARRAY &&
               gguf_get_arr_n(f, id) <= MOST_LAYERS) {
        const size_t n = gguf_get_arr_n(f, id);
        memcpy(list, gguf_get_arr_data(f, id), n * sizeof *list);
        for (size_t i = 0; i < n; i++)
            list[i] *= factor;
        gguf_set_arr_data(f, full, GGUF_TYPE_UINT32, list, n);
    }
}

/* More heads with `most` numbers each. Heads whose size a key says, as those of MLA, stay as they are. */
static void shrink_heads(struct gguf_context *f, uint32_t most)
{
    const int64_t name = gguf_find_key(f, "general.architecture");
    const char *family = name >= 0 ? gguf_get_val_str(f, name) : "";
    const int64_t width = find(f, family, "embedding_length"),
                  heads = find(f, family, "attention.head_count");
    if (most == 0 || width < 0 || heads < 0 || find(f, family, "attention.key_length") >= 0)
        return;
    const uint32_t n = gguf_get_kv_type(f, heads) == GGUF_TYPE_ARRAY
                           ? ((const uint32_t *)gguf_get_arr_data(f, heads))[0]
                           : gguf_get_val_u32(f, heads);
    const uint32_t factor = n > 0 ? gguf_get_val_u32(f, width) / n / most : 0;
    if (factor < 2)
        return;
    multiply(f, family, "attention.head_count", factor);
    multiply(f, family, "attention.head_count_kv", factor);
}

/* ---- Files ---- */

FILE *__real_tmpfile(void);
FILE *__wrap_tmpfile(void);

/* Without a file the program leaves that part out. */
FILE *__wrap_tmpfile(void)
{
    return getenv("WINNOW_ARCHS_NO_FILES") ? NULL : __real_tmpfile();
}

/* ---- Weights ---- */

/* The program makes up the same weights of a model for each device, which takes a third of its time: the second model gets a copy. */
struct weight {
    char name[GGML_MAX_NAME];
    enum ggml_type type;
    size_t n_bytes;
    void *bytes;
    struct weight *next;
};
static struct weight *weights;               /* of the last model that was made up */
static const struct gguf_context *described; /* what describes that model */

static void forget_weights(void)
{
    while (weights) {
        struct weight *w = weights;
        weights = w->next;
        free(w->bytes);
        free(w);
    }
}

/* Keeps what the program has written to a tensor. */
static void remember(struct ggml_tensor *tensor)
{
    struct weight *w = calloc(1, sizeof *w);
    void *bytes = malloc(ggml_nbytes(tensor));
    if (!w || !bytes) {
        free(bytes);
        free(w);
        return;
    }
    *w = (struct weight){
        .type = tensor->type, .n_bytes = ggml_nbytes(tensor), .bytes = bytes, .next = weights};
    memcpy(w->name, tensor->name, sizeof w->name);
    ggml_backend_tensor_get(tensor, bytes, 0, w->n_bytes);
    weights = w;
}

struct made_up {
    llama_model_set_tensor_data_t set;
    void *user;
};

/* How many numbers the program makes up for a tensor at most: a prime, so that rows differ. */
enum { MADE_UP = 4099 };

/* Sets a larger tensor to copies of as many numbers, one after the other. False without memory. */
static bool set_copies(struct ggml_tensor *tensor, const struct made_up *m)
{
    const size_t n_bytes = ggml_nbytes(tensor), n_part = MADE_UP * ggml_type_size(tensor->type);
    struct ggml_context *ctx =
        ggml_init((struct ggml_init_params){.mem_size = 2 * ggml_tensor_overhead(), .no_alloc = true});
    struct ggml_tensor *part = ctx ? ggml_new_tensor_1d(ctx, tensor->type, MADE_UP) : NULL;
    ggml_backend_buffer_t buffer =
        part ? ggml_backend_alloc_ctx_tensors_from_buft(ctx, ggml_backend_cpu_buffer_type()) : NULL;
    char *bytes = malloc(n_bytes);
    const bool good = buffer && bytes;
    if (good) {
        ggml_set_name(part, tensor->name);
        m->set(part, m->user);
        for (size_t at = 0; at < n_bytes; at += n_part)
            ggml_backend_tensor_get(part, bytes + at, 0, n_part < n_bytes - at ? n_part : n_bytes - at);
        ggml_backend_tensor_set(tensor, bytes, 0, n_bytes);
    }
    free(bytes);
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
    return good;
}

/* Numbers follow from the name of a tensor and the seed, which is one for all models. */
static void set_weight(struct ggml_tensor *tensor, void *user)
{
    const struct made_up *m = user;
    for (const struct weight *w = weights; w; w = w->next) {
        if (w->type == tensor->type && w->n_bytes == ggml_nbytes(tensor) &&
            strcmp(w->name, tensor->name) == 0) {
            ggml_backend_tensor_set(tensor, w->bytes, 0, w->n_bytes);
            return;
        }
    }
    if (ggml_nelements(tensor) <= MADE_UP || !set_copies(tensor, m))
        m->set(tensor, m->user);
    remember(tensor);
}

/* ---- Models ---- */

struct llama_model *__real_llama_model_init_from_user(struct gguf_context *metadata,
                                                      llama_model_set_tensor_data_t set, void *user,
                                                      struct llama_model_params params);
struct llama_model *__wrap_llama_model_init_from_user(struct gguf_context *metadata,
                                                      llama_model_set_tensor_data_t set, void *user,
                                                      struct llama_model_params params);

/* The program asks for a model without devices only where it computes what it compares with. */
struct llama_model *__wrap_llama_model_init_from_user(struct gguf_context *metadata,
                                                      llama_model_set_tensor_data_t set, void *user,
                                                      struct llama_model_params params)
{
    const char *name = getenv("WINNOW_ARCHS_REFERENCE");
    ggml_backend_dev_t list[] = {name ? ggml_backend_dev_by_name(name) : NULL, NULL};
    if (name && !list[0]) {
        fprintf(stderr, "there is no device '%s' to compare with\n", name);
        exit(2);
    }
    const char *most = getenv("WINNOW_ARCHS_HEAD");
    if (params.devices && !params.devices[0])
        params.devices = list;
    if (most)
        shrink_heads(metadata, (uint32_t)strtoul(most, NULL, 10));
    if (metadata != described)
        forget_weights();
    described = metadata;
    struct made_up made_up = {set, user};
    return __real_llama_model_init_from_user(metadata, set_weight, &made_up, params);
}
