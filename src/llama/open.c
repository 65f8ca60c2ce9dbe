/* SPDX-License-Identifier: MIT */
/* A model is opened here rather than in model/, because libllama reads its vocabulary, or all of it. */
#include "llama/open.h"
#include "base/err.h"
#include "base/llama_log.h"
#include "base/memory.h"
#include "llama/foreign.h"
#include "model/files.h"
#include "model/model_impl.h"
#include "text/text.h"

#include <stdlib.h>

/* The most bytes that libllama takes for the vocabulary: the metadata once more, and its entries for every
 * token and every merge in lists, in two maps and as text. */
static size_t vocabulary_bytes(const struct wnw_model *m)
{
    const size_t in_file = gguf_get_data_offset(m->gguf), per_string = 512;
    size_t n_string = 0;
    for (int64_t i = 0; i < gguf_get_n_kv(m->gguf); i++)
        if (gguf_get_kv_type(m->gguf, i) == GGUF_TYPE_ARRAY &&
            gguf_get_arr_type(m->gguf, i) == GGUF_TYPE_STRING)
            n_string += gguf_get_arr_n(m->gguf, i);
    return 4 * in_file + per_string * n_string + (1 << 20);
}

static int open_foreign(struct wnw_model *m, const char *path, const wnw_model_params *params)
{
    WNW_TRY(wnw__files_place(m));
    WNW_TRY(wnw__memory_check(vocabulary_bytes(m), "the vocabulary of the model"));
    return wnw__foreign_open(m, path, params->repack);
}

/* Rows of embeddings after those of the vocabulary's tokens only fill up the matrix: they are no tokens that could be generated, and
 * the matrix of outputs ends where the vocabulary does. Without a vocabulary every row is a token. */
static void leave_out_padding(struct wnw_model *m)
{
    const int32_t n = wnw__vocab_size(m);
    if (!m->tokenizer || n < 1 || n >= m->hp.n_vocab)
        return;
    m->hp.n_vocab = n;
    m->w.tok_embd->ne[1] = n;
    m->w.output->ne[1] = n;
    if (m->w.output_bias)
        m->w.output_bias->ne[0] = n;
}

static int open_model(struct wnw_model *m, const char *path, const wnw_model_params *params, bool foreign)
{
    WNW_TRY(wnw__model_map(m, path, params->digests));
    const char *key = NULL;
    if (!foreign && m->arch)
        WNW_TRY(wnw__hparams_by_libllama(m, &key));
    if (foreign || !m->arch || key)
        return open_foreign(m, path, params);
    WNW_TRY(wnw__model_read(m));
    WNW_TRY(wnw__memory_check(vocabulary_bytes(m), "the vocabulary of the model"));
    WNW_TRY(wnw__vocab_open(m, path));
    if (wnw__vocab_size(m) > m->hp.n_vocab)
        return wnw__fail(WNW_E_FORMAT, "%s: %d tokens in the vocabulary, %d rows of embeddings", path,
                         (int)wnw__vocab_size(m), (int)m->hp.n_vocab);
    leave_out_padding(m);
    return params->repack ? wnw__repack(m) : WNW_OK;
}

static int open_as(wnw_model **out, const char *path, const wnw_model_params *params, bool foreign)
{
    WNW_REQUIRE(out);
    *out = NULL;
    WNW_REQUIRE(path);
    wnw_model_params own = wnw_model_default_params();
    WNW_TRY(WNW_SIZED_TAKE(wnw_model_params, &own, params));
    struct wnw_model *m = calloc(1, sizeof *m);
    if (!m)
        return wnw__fail(WNW_E_NOMEM, "no memory for a model");
    wnw__quiet_dependencies();
    const int rc = open_model(m, path, &own, foreign);
    if (rc != WNW_OK) {
        wnw_model_free(m);
        return rc;
    }
    *out = m;
    return WNW_OK;
}

int wnw_model_open(wnw_model **out, const char *path, const wnw_model_params *params)
{
    return open_as(out, path, params, false);
}

int wnw__model_open_foreign(wnw_model **out, const char *path, const wnw_model_params *params)
{
    return open_as(out, path, params, true);
}

void wnw_model_free(wnw_model *m)
{
    if (!m)
        return;
    wnw__vocab_free(m);
    wnw__model_clear(m);
    free(m);
}
