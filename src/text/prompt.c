/* SPDX-License-Identifier: MIT */
/* A prompt is the first turn of a conversation (chat.c). */
#include "base/err.h"
#include "winnow_chat.h"

#include <stdlib.h>

int wnw_prompt_build(wnw_prompt *out, const wnw_model *m, const wnw_prompt_params *params)
{
    wnw_chat *c = NULL;
    wnw_prompt_params own = wnw_prompt_default_params();
    const wnw_prompt nothing = wnw_prompt_default();
    WNW_REQUIRE(out);
    WNW_TRY(WNW_SIZED_CHECK(wnw_prompt, out));
    wnw__sized_give(out, &nothing);
    WNW_REQUIRE(m);
    WNW_REQUIRE(params);
    WNW_TRY(WNW_SIZED_TAKE(wnw_prompt_params, &own, params));
    WNW_TRY(wnw_chat_open(&c, m, &own));
    const int rc = wnw_chat_user(out, c, own.document, own.question, NULL);
    wnw_chat_free(c);
    return rc;
}

void wnw_prompt_clear(wnw_prompt *p)
{
    wnw_prompt own = wnw_prompt_default();
    const wnw_prompt empty = wnw_prompt_default();
    if (WNW_SIZED_TAKE(wnw_prompt, &own, p) != WNW_OK)
        return;
    free(own.tokens);
    free(own.suffix);
    free(own.text);
    free(own.plain);
    wnw__sized_give(p, &empty);
}
