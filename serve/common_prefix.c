/* SPDX-License-Identifier: MIT */
/* server_tokens::get_common_prefix of llama.cpp's server: how many of a slot's tokens a prompt begins with. What it returns for a slot that was restored
 * is a border of it, where the model cannot go back to another place (borders.h). */
#include "serve/common_prefix.h"

#include <stddef.h>

size_t real_common_prefix(const void *self,
                          const void *other) __asm__("__real__ZNK13server_tokens17get_common_prefixERKS_");
size_t wrapped_common_prefix(const void *self,
                             const void *other) __asm__("__wrap__ZNK13server_tokens17get_common_prefixERKS_");

size_t wrapped_common_prefix(const void *self, const void *other)
{
    return serve_common_prefix_of(self, real_common_prefix(self, other));
}
