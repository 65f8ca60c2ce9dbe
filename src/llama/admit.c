/* SPDX-License-Identifier: MIT */
#include "llama/admit.h"

#include "model/admit.h"
#include "model/files.h"
#include "text/text.h"
#include "winnow_bridge.h"

int wnw__admit(struct wnw_model *m)
{
    m->foreign.name = wnw__key_str(m->gguf, "general.architecture");
    WNW_TRY(wnw__admit_keys(m));
    WNW_TRY(wnw__admit_tensors(m));
    WNW_TRY(wnw__admit_layers(m));
    const struct ggml_tensor *embd = wnw__files_tensor(m, "token_embd.weight");
    return wnw__vocab_admit(m->gguf, embd && embd->ne[1] < INT32_MAX ? (int32_t)embd->ne[1] : INT32_MAX);
}

int wnw_bridge_check_model(const char *path)
{
    WNW_REQUIRE(path);
    struct wnw_model m = {0};
    int rc = wnw__model_map(&m, path, NULL);
    if (rc == WNW_OK)
        rc = wnw__files_place(&m);
    if (rc == WNW_OK)
        rc = wnw__admit(&m);
    wnw__model_clear(&m);
    return rc;
}
