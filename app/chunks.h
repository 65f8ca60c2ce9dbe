/* SPDX-License-Identifier: MIT */
/* Chunks of prompts that a server compresses while it reads them. */
#ifndef WNW_APP_CHUNKS_H
#define WNW_APP_CHUNKS_H

#include "winnow_method.h"

#include <string.h>

/* Tokens of a chunk in a server where none are given. */
enum { APP_CHUNK_USUAL = 512 };

/* Why a policy cannot compress a prompt that is still read, though its phases allow it: words for a message. NULL:
 * nothing hinders it. It needs the queries of the chunks before, or its size is one of whole prompts. Static. */
static inline const char *app_chunk_misfit(const wnw_policy *policy)
{
    if (wnw_policy_needs(policy).flags & WNW_NEED_EVERY_QUERY)
        return "this policy needs the queries of the whole prompt";
    if (strstr(wnw_policy_string(policy), "+quality"))
        return "this policy promises a quality of whole prompts";
    return NULL;
}

/* Whether a policy keeps some entries of every block of a prompt. So what it keeps grows with the prompt, for any size. */
static inline bool app_chunk_by_blocks(const wnw_policy *policy)
{
    return strstr(wnw_policy_string(policy), "+partition") != NULL;
}

#endif
