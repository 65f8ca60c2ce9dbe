/* SPDX-License-Identifier: MIT */
/* A prompt is the first turn of a conversation (chat.c). */
#include "text/prompt.h"

#include "base/err.h"
#include "winnow_chat.h"

int wnw_prompt_build(wnw_prompt **out, const wnw_model *m, const wnw_prompt_params *params)
{
    wnw_chat *c = NULL;
    wnw_prompt_params own = wnw_prompt_default_params();
    WNW_REQUIRE(out);
    *out = NULL;
    WNW_REQUIRE(m);
    WNW_REQUIRE(params);
    WNW_TRY(WNW_SIZED_TAKE(wnw_prompt_params, &own, params));
    WNW_TRY(wnw_chat_open(&c, m, &own));
    const int rc = wnw_chat_user(out, c, own.document, own.question, NULL);
    wnw_chat_free(c);
    return rc;
}
