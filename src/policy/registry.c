/* SPDX-License-Identifier: MIT */
/* The registry of parts from outside. */
#include "policy/registry.h"
#include "base/opt.h"
#include "policy/part.h"
#include "policy/presets.h"

#include <stdlib.h>
#include <string.h>

int wnw_registry_new(wnw_registry **out)
{
    WNW_REQUIRE(out);
    *out = calloc(1, sizeof **out);
    return *out ? WNW_OK : wnw__fail(WNW_E_NOMEM, "out of memory for a registry");
}

void wnw_registry_free(wnw_registry *r)
{
    if (!r)
        return;
    free(r->scorers);
    free(r);
}

const wnw_scorer *wnw__registry_find(const wnw_registry *r, const char *name, size_t len)
{
    for (int32_t i = 0; r && i < r->n; i++)
        if (strlen(r->scorers[i]->name) == len && memcmp(r->scorers[i]->name, name, len) == 0)
            return r->scorers[i];
    return NULL;
}

int wnw_registry_add_scorer(wnw_registry *r, const wnw_scorer *s)
{
    struct wnw__part taken;
    if (!r || !s || !s->name)
        return wnw__fail(WNW_E_ARG, "a scorer needs a registry and a name");
    const size_t len = strlen(s->name);
    if (!wnw__name_ok(s->name, len) || len > 64)
        return wnw__fail(WNW_E_ARG, "scorer name \"%.80s\" is not 1 to 64 letters of [a-z0-9_-]", s->name);
    if (!s->score)
        return wnw__fail(WNW_E_ARG, "scorer %s has no score function", s->name);
    if (wnw__part_find(&taken, s->name, len) || wnw__preset_find(s->name, len) ||
        wnw__registry_find(r, s->name, len))
        return wnw__fail(WNW_E_ARG, "the name \"%s\" is taken; choose another for your scorer", s->name);
    WNW_TRY(wnw__opt_check_table(s->options, s->options_size, s->name));
    if (r->n == r->cap) {
        const int32_t cap = r->cap ? 2 * r->cap : 8;
        const wnw_scorer **grown = realloc(r->scorers, (size_t)cap * sizeof *grown);
        if (!grown)
            return wnw__fail(WNW_E_NOMEM, "out of memory for %d scorers", cap);
        r->scorers = grown;
        r->cap = cap;
    }
    r->scorers[r->n++] = s;
    return WNW_OK;
}
