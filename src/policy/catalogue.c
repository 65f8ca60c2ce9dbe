/* SPDX-License-Identifier: MIT */
/* The method list for help and documentation: presets and parts, and the names of what they need. */
#include "base/err.h"
#include "policy/policy.h"

#include <string.h>

const char *wnw_phase_name(wnw_phase phase)
{
    static const char *const names[] = {"end", "layer", "chunk", "decode"};
    return (size_t)phase < sizeof names / sizeof *names ? names[phase] : "?";
}

/* Fills the fields that only a parsed policy knows, from the name of a preset or scorer of the library. The texts are static, and
 * empty when memory is short. */
static void describe(const char *name, bool preset, wnw_method_info *out)
{
    wnw_policy *p = NULL;
    if ((preset ? wnw_policy_parse(&p, name, NULL) : wnw__policy_parse_parts(&p, name)) != WNW_OK)
        return;
    out->needs = wnw_policy_needs(p).flags;
    for (int phase = WNW_PHASE_END; phase <= WNW_PHASE_DECODE; phase++)
        out->phases |= (uint32_t)wnw_policy_allows(p, (wnw_phase)phase, NULL) << phase;
    out->layout = wnw__policy_layout(p);
    wnw_policy_free(p);
}

static bool get(int32_t i, wnw_method_info *out)
{
    *out = (wnw_method_info){
        .name = "", .kind = "", .about = "", .paper = "", .details = "", .recipe = "", .layout = ""};
    if (i < 0)
        return false;
    int32_t n_preset = 0;
    while (wnw__preset_get(n_preset))
        n_preset++;
    if (i < n_preset) {
        const struct wnw__preset *row = wnw__preset_get(i);
        out->name = row->name;
        out->kind = row->parity ? "parity preset" : "preset";
        out->about = row->about;
        out->paper = row->paper;
        out->details = row->details ? row->details : "";
        out->recipe = row->recipe;
        const wnw_part *scorer = wnw__part_find(row->recipe, strcspn(row->recipe, ":+"));
        out->options = scorer ? scorer->options : NULL;
        describe(row->name, true, out);
        return true;
    }
    const wnw_part *part = wnw__part_get(i - n_preset);
    if (!part)
        return false;
    out->name = part->name;
    out->kind = wnw__part_kind_name(part->kind);
    out->about = part->about;
    out->paper = part->paper ? part->paper : "";
    out->details = part->details ? part->details : "";
    out->options = part->options;
    if (part->kind == WNW_PART_SCORER) {
        describe(part->name, false, out);
        out->layout = "";
    }
    return true;
}

bool wnw_method_get(int32_t i, wnw_method_info *out)
{
    wnw_method_info info;
    if (!out || WNW_SIZED_CHECK(wnw_method_info, out) != WNW_OK)
        return false;
    const bool found = get(i, &info);
    wnw__sized_give(out, &info);
    return found;
}
