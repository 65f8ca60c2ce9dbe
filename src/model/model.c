/* SPDX-License-Identifier: MIT */
#include "model/model.h"

#include "base/err.h"
#include "model/files.h"
#include "model/fingerprint.h"
#include "model/model_impl.h"
#include "winnow_tools.h"

#include <stdlib.h>
#include <string.h>

static int set_name(struct wnw_model *m, const char *path)
{
    const char *name = wnw__key_str(m->gguf, "general.name");
    const char *base = strrchr(path, '/');
    const char *file = base ? base + 1 : path;
    m->name = strdup(name && *name ? name : file);
    return m->name ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for the model's name");
}

int wnw__model_map(struct wnw_model *m, const char *path, const char *digests)
{
    WNW_TRY(wnw__files_open(m, path));
    WNW_TRY(wnw__fingerprint_new(m, digests));
    const char *arch = wnw__key_str(m->gguf, "general.architecture");
    if (!arch)
        return wnw__fail(WNW_E_FORMAT, "%s does not name its architecture", path);
    m->arch = wnw__arch_find(arch);
    return set_name(m, path);
}

int wnw__model_read(struct wnw_model *m)
{
    WNW_TRY(wnw__hparams_read(m));
    WNW_TRY(wnw__files_place(m));
    return wnw__bind(m);
}

void wnw__model_clear(struct wnw_model *m)
{
    if (m->repacked_buffer)
        ggml_backend_buffer_free(m->repacked_buffer);
    ggml_free(m->repacked);
    free(m->repacked_arena);
    wnw__fingerprint_free(m);
    wnw__files_close(m);
    free(m->layers);
    free(m->forms);
    free(m->n_reader);
    free(m->name);
    *m = (struct wnw_model){0};
}

struct ggml_tensor *wnw__model_original(const struct wnw_model *m, const struct ggml_tensor *w)
{
    return wnw__files_tensor(m, w->name);
}

bool wnw_model_layer_is_swa(const wnw_model *m, int32_t il)
{
    return m && il >= 0 && il < m->hp.n_layer && wnw__layer_is_swa(&m->hp, il);
}

int wnw_model_get_info(const wnw_model *m, wnw_model_info *out)
{
    wnw_model_info info = {.arch = "", .name = ""};
    WNW_REQUIRE(out);
    WNW_TRY(WNW_SIZED_CHECK(wnw_model_info, out));
    wnw__sized_give(out, &info);
    WNW_REQUIRE(m);
    const struct wnw__hparams *hp = &m->hp;
    info = (wnw_model_info){
        .arch = m->arch->name,
        .name = m->name,
        .n_layer = hp->n_layer,
        .n_head = hp->n_head,
        .n_head_kv = hp->n_head_kv,
        .n_embd = hp->n_embd,
        .n_embd_head = hp->n_embd_head,
        .n_ctx_train = hp->n_ctx_train,
        .n_vocab = hp->n_vocab,
        .n_swa = hp->n_swa,
        .weight_bytes = m->weight_bytes,
        .repacked_bytes = m->repacked_bytes,
    };
    for (int32_t il = 0; il < hp->n_layer; il++)
        info.n_layer_swa += wnw__layer_is_swa(hp, il) ? 1 : 0;
    wnw__sized_give(out, &info);
    return WNW_OK;
}
