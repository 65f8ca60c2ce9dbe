/* SPDX-License-Identifier: MIT */
/* Replaces libllama's families in builds without the backend. */
#include "llama/foreign.h"

#include "winnow_bridge.h"
#include "winnow_tools.h"

#include <stdio.h>

int wnw__foreign_open(struct wnw_model *m, const char *path, bool repack)
{
    char own[128] = "";
    size_t n = 0;
    (void)path;
    (void)repack;
    for (int32_t i = 0; wnw__arch_name(i) && n < sizeof own; i++)
        n += (size_t)snprintf(own + n, sizeof own - n, "%s%s", i > 0 ? ", " : "", wnw__arch_name(i));
    return wnw__fail(
        WNW_E_UNSUPPORTED,
        "model architecture '%.40s' is not one of winnow's own (%s), and this build "
        "has no backend to run it through libllama: scripts/setup.sh source brings what it needs",
        wnw__key_str(m->gguf, "general.architecture"), own);
}
