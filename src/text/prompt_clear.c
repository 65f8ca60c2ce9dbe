/* SPDX-License-Identifier: MIT */
#include "base/err.h"
#include "winnow_chat.h"

#include <stdlib.h>

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
