/* SPDX-License-Identifier: MIT */
/* Replaces libllama's families in builds without the backend. */
#include "llama/foreign.h"

#include "base/err.h"
#include "model/model_impl.h"
#include "winnow_bridge.h"
#include "winnow_tools.h"

#include <stdio.h>

#define NO_BACKEND \
    "this build has no backend to run it through libllama: scripts/setup.sh source brings what it needs"

int wnw__foreign_open(struct wnw_model *m, const char *path, bool repack)
{
    const char *arch = wnw__key_str(m->gguf, "general.architecture"), *key = NULL;
    char own[128] = "";
    size_t n = 0;
    (void)path;
    (void)repack;
    if (m->arch)
        WNW_TRY(wnw__hparams_by_libllama(m, &key));
    if (key)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "winnow's own graphs do not compute what %.40s.%s asks for, and " NO_BACKEND, arch,
                         key);
    if (m->arch)
        return wnw__fail(WNW_E_UNSUPPORTED, "the model was to be run through libllama, and " NO_BACKEND);
    for (int32_t i = 0; wnw__arch_name(i) && n < sizeof own; i++)
        n += (size_t)snprintf(own + n, sizeof own - n, "%s%s", i > 0 ? ", " : "", wnw__arch_name(i));
    return wnw__fail(WNW_E_UNSUPPORTED,
                     "model architecture '%.40s' is not one of winnow's own (%s), and " NO_BACKEND, arch,
                     own);
}
