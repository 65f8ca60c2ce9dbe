/* SPDX-License-Identifier: MIT */
/* What a prompt may begin with (slots.h). */
#include "base/prefix.h"
#include "serve/slots.h"

bool serve_may_reuse(const struct serve_prefix *prefix, const struct serve_ask *ask)
{
    const struct serve_keep_rule *by = prefix->compressed_by;
    if (prefix->keep_rule->adapters != ask->keep_rule.adapters) /* it was computed by another model */
        return false;
    if (ask->reuse != SERVE_REUSE_SAME)
        return ask->reuse == SERVE_REUSE_ANY;
    if (prefix->document_plus_1 != ask->document_plus_1 || prefix->of_list) /* it is as nobody asks for it */
        return false;
    if ((prefix->unnoted || !serve_same_recipe(prefix->keep_rule, &ask->keep_rule)) &&
        serve_looks_back(&ask->keep_rule))
        return false;
    if (!by)
        return true;
    if (!serve_same_keep_rule(by, &ask->keep_rule) || by->n_protected != ask->keep_rule.n_protected)
        return false;
    return !serve_looks_at_question(&ask->keep_rule) ||
           (prefix->key &&
            wnw__common_bytes(ask->key, ask->key_len, prefix->key, prefix->key_len) == prefix->key_len);
}
