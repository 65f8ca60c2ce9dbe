/* SPDX-License-Identifier: MIT */
/* Stands in for libllama's families in builds without the backend. */
#include "llama/foreign.h"

#include "winnow_bridge.h"

int wnw__foreign_open(struct wnw_model *m, const char *path, bool repack)
{
    (void)path;
    (void)repack;
    return wnw__fail(
        WNW_E_UNSUPPORTED,
        "model architecture '%.40s' is not one of winnow's own (llama, qwen2, qwen3, gemma3), and this build "
        "has no backend to run it through libllama: scripts/setup.sh source brings what it needs",
        wnw__key_str(m->gguf, "general.architecture"));
}
