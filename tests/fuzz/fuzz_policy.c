/* SPDX-License-Identifier: MIT */
/* The input is a recipe. What is parsed has a canonical form that parses to itself. */
#include "fuzz.h"
#include "winnow_method.h"
#include "winnow_tools.h"

#include <stdlib.h>
#include <string.h>

static void look_at(const wnw_policy *p)
{
    for (int32_t phase = 0; phase <= WNW_PHASE_DECODE; phase++) {
        const char *reason = NULL;
        if (!wnw_policy_allows(p, (wnw_phase)phase, &reason))
            fuzz_require(reason && *reason, "a phase is refused without a reason");
    }
    char *text = NULL;
    wnw_policy *again = NULL;
    if (fuzz_status(wnw_policy_short(p, &text))) {
        fuzz_require(wnw_policy_parse(&again, text, NULL) == WNW_OK, "a shortest recipe is refused");
        fuzz_require(strcmp(wnw_policy_string(p), wnw_policy_string(again)) == 0,
                     "a shortest recipe parses to another policy");
    }
    wnw_policy_free(again);
    wnw_free(text);
    (void)wnw_policy_needs(p);
    (void)wnw_policy_is_full(p);
    (void)wnw_policy_rerotates(p);
    (void)wnw_policy_has_own_size(p);
    (void)wnw_policy_has_own_times(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *recipe = malloc(size + 1);
    fuzz_require(recipe != NULL, "no memory for the recipe");
    if (size > 0)
        memcpy(recipe, data, size);
    recipe[size] = '\0';
    wnw_policy *p = NULL, *again = NULL;
    const int rc = wnw_policy_parse(&p, recipe, NULL);
    free(recipe);
    fuzz_require((rc == WNW_OK) == (p != NULL), "an error and a policy at once, or neither");
    if (fuzz_status(rc)) {
        look_at(p);
        fuzz_require(wnw_policy_parse(&again, wnw_policy_string(p), NULL) == WNW_OK,
                     "a canonical recipe is refused");
        fuzz_require(strcmp(wnw_policy_string(p), wnw_policy_string(again)) == 0,
                     "a canonical recipe parses to another one");
    } else {
        fuzz_require(rc == WNW_E_ARG, "a recipe is refused with another error than E_ARG");
    }
    wnw_policy_free(again);
    wnw_policy_free(p);
    return 0;
}
