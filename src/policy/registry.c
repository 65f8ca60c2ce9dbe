/* SPDX-License-Identifier: MIT */
/* The registry of parts that programs bring. Errors in a descriptor are found here, so that the driver can
 * rely on it as on one of the library's. */
#include "base/opt.h"
#include "base/strings.h"
#include "policy/part.h"
#include "policy/policy.h"

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
    free(r->parts);
    free(r);
}

const wnw_part *wnw__registry_find(const wnw_registry *r, const char *name, size_t len)
{
    for (int32_t i = 0; r && i < r->n; i++)
        if (wnw__is_name(name, len, r->parts[i]->name))
            return r->parts[i];
    return NULL;
}

/* ---- Checks ---- */

/* Checks that the descriptor is as long as its kind's, so that reading its fields is safe. */
static int check_size(const wnw_part *part)
{
    const size_t size = wnw__part_size(part->kind);
    if (part->struct_size < sizeof *part)
        return wnw__fail(WNW_E_ARG,
                         "a part's struct_size is %u bytes; begin its descriptor with WNW_SCORER_INIT or "
                         "that of its kind",
                         (unsigned)part->struct_size);
    if (size == 0)
        return wnw__fail(WNW_E_ARG, "there is no kind of part %d", (int)part->kind);
    if (part->struct_size != size)
        return wnw__fail(WNW_E_ARG,
                         "the descriptor of a %s has %u bytes, this library knows %zu; compile the program "
                         "with the header of this version",
                         wnw__part_kind_name(part->kind), (unsigned)part->struct_size, size);
    return WNW_OK;
}

static int check_name(const wnw_registry *r, const wnw_part *part)
{
    const char *kind = wnw__part_kind_name(part->kind);
    if (!part->name)
        return wnw__fail(WNW_E_ARG, "a %s needs a name", kind);
    const size_t len = strlen(part->name);
    if (!wnw__name_ok(part->name, len) || len > 64)
        return wnw__fail(WNW_E_ARG, "%s name \"%.80s\" is not 1 to 64 letters of [a-z0-9_-]", kind,
                         part->name);
    if (wnw__part_find(part->name, len) || wnw__preset_find(part->name, len) ||
        wnw__registry_find(r, part->name, len))
        return wnw__fail(WNW_E_ARG, "the name \"%s\" is taken; choose another for your %s", part->name, kind);
    return WNW_OK;
}

static const char *missing_of_scorer(const wnw_scorer *s)
{
    if (!s->score)
        return "score function";
    return s->blocks && !s->blocks->of ? "function of in its blocks" : NULL;
}

static const char *missing_of_selector(const wnw_selector *s)
{
    const wnw_recursive *r = s->recursive;
    if (!s->select)
        return "select function";
    return r && !(r->own_size && r->fit && r->settled) ? "complete set of functions in recursive" : NULL;
}

/* Name of a function that a part of its kind must have and this one lacks; NULL if none is missing. */
static const char *missing_function(const union wnw__part *p)
{
    switch (p->head.kind) {
    case WNW_PART_SCORER:
        return missing_of_scorer(&p->scorer);
    case WNW_PART_AGGREGATION:
        return p->aggregation.aggregate ? NULL : "aggregate function";
    case WNW_PART_LAYER_BUDGET:
        return p->layer.allocate ? NULL : "allocate function";
    case WNW_PART_HEAD_BUDGET:
        return !p->heads.allocate == !p->heads.allocate_model ? "allocate or allocate_model, one of the two"
                                                              : NULL;
    case WNW_PART_SELECTOR:
        return missing_of_selector(&p->selector);
    case WNW_PART_CONTENTS:
        return wnw__contents_works(&p->contents) ? NULL : "merge, prune or fit function";
    case WNW_PART_POSITIONS:
        break;
    }
    return NULL;
}

static int check_functions(const wnw_part *part)
{
    union wnw__part copy = {0};
    memcpy(&copy, part, part->struct_size);
    const char *missing = missing_function(&copy);
    if (missing)
        return wnw__fail(WNW_E_ARG, "%s %s has no %s", wnw__part_kind_name(part->kind), part->name, missing);
    if (part->gather && !wnw__part_gathers(part->kind))
        return wnw__fail(WNW_E_ARG, "%s %s cannot gather: scorers, budgets and selectors do",
                         wnw__part_kind_name(part->kind), part->name);
    if (part->gather && !(part->gather->size && part->gather->visit))
        return wnw__fail(WNW_E_ARG, "%s %s has no size or no visit function in gather",
                         wnw__part_kind_name(part->kind), part->name);
    return WNW_OK;
}

static int check_part(const wnw_registry *r, const wnw_part *part)
{
    WNW_TRY(check_size(part));
    WNW_TRY(check_name(r, part));
    WNW_TRY(check_functions(part));
    if (part->flags & ~wnw__part_flags(part->kind))
        return wnw__fail(WNW_E_ARG, "%s %s has flags 0x%x, which are not those of its kind",
                         wnw__part_kind_name(part->kind), part->name,
                         (unsigned)(part->flags & ~wnw__part_flags(part->kind)));
    return wnw__opt_check_table(part->options, part->options_size, part->name);
}

int wnw_registry_add(wnw_registry *r, const wnw_part *part)
{
    WNW_REQUIRE(r);
    WNW_REQUIRE(part);
    WNW_TRY(check_part(r, part));
    if (r->n == r->cap) {
        const int32_t cap = r->cap ? 2 * r->cap : 8;
        const wnw_part **grown = realloc(r->parts, (size_t)cap * sizeof *grown);
        if (!grown)
            return wnw__fail(WNW_E_NOMEM, "out of memory for %d parts", cap);
        r->parts = grown;
        r->cap = cap;
    }
    r->parts[r->n++] = part;
    return WNW_OK;
}
