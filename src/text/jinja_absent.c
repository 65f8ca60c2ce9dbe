/* SPDX-License-Identifier: MIT */
/* Replaces jinja.cpp where libllama came without libllama-common or its headers. */
#include "text/jinja.h"

bool wnw__jinja_available(void)
{
    return false;
}

int wnw__jinja_render(struct wnw__rendered *out, const struct wnw__jinja_input *in)
{
    (void)in;
    *out = (struct wnw__rendered){0};
    return wnw__fail(WNW_E_UNSUPPORTED, "this build has no Jinja engine");
}
