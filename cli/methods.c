/* SPDX-License-Identifier: MIT */
/* winnow methods: presets and parts, printed from the library's descriptors. */
#include "app/args.h"
#include "app/console.h"
#include "app/names.h"
#include "app/profiles.h"
#include "base/err.h"
#include "base/strings.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "winnow_calibrate.h"
#include "winnow_method.h"
#include "winnow_tools.h"

#include <stdlib.h>
#include <string.h>

static void print_table(void)
{
    static const char *const kinds[] = {"preset",        "scorer",       "head aggregation",
                                        "layer budget",  "head budget",  "selector",
                                        "position rule", "content rule", "parity preset"};
    static const char *const titles[] = {"Presets",        "Scorers",       "Head aggregations",
                                         "Layer budgets",  "Head budgets",  "Selectors",
                                         "Position rules", "Content rules", "Parity presets"};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        wnw_method_info info = {WNW_INIT(wnw_method_info)};
        char needs[256];
        bool first = true;
        for (int32_t i = 0; wnw_method_get(i, &info); i++) {
            if (strcmp(info.kind, kinds[k]) != 0)
                continue;
            if (first)
                printf("%s%s:\n", k > 0 ? "\n" : "", titles[k]);
            first = false;
            if (*info.layout)
                printf("  %-30s %-10s %-18s %s\n", info.name, info.layout,
                       app_needs_text(info.needs, needs, sizeof needs), info.about);
            else
                printf("  %-30s %s\n", info.name, info.about);
        }
    }
    puts("\nPresets show name, layout of the plan, and what is observed. `winnow methods NAME` shows parts "
         "and options, `winnow methods RECIPE` those of any recipe.\n"
         "A recipe is NAME[:key=value,...][+NAME...], e.g. snapkv:window=32+adakv.");
}

/* Finds the value of `key` in a part's options, "key=value,..."; *value points to it, the result is its
 * length. */
static int given_value(const char *options, size_t len, const char *key, const char **value)
{
    for (const char *at = options; at < options + len;) {
        const size_t item = strcspn(at, ",+"), key_len = strcspn(at, "=");
        if (key_len == strlen(key) && strncmp(at, key, key_len) == 0) {
            *value = at + key_len + 1;
            return (int)(item - key_len - 1);
        }
        at += item + 1;
    }
    return 0;
}

/* Prints an option after `indent` spaces. If given_len is not 0, the first given_len bytes of `given` are
 * shown as its value in place of the default. */
static void print_option(const wnw_option *o, int indent, const char *given, int given_len)
{
    char def[64], range[96] = "";
    switch (o->type) {
    case WNW_OPT_INT:
        snprintf(def, sizeof def, "%.0f", o->def);
        snprintf(range, sizeof range, ", whole number %.0f to %.0f", o->min, o->max);
        break;
    case WNW_OPT_REAL:
        snprintf(def, sizeof def, "%g", o->def);
        snprintf(range, sizeof range, ", number %g to %g", o->min, o->max);
        break;
    case WNW_OPT_LIST:
        snprintf(def, sizeof def, "%g", o->def);
        snprintf(range, sizeof range, ", numbers %g to %g with / between them", o->min, o->max);
        break;
    case WNW_OPT_BOOL:
        snprintf(def, sizeof def, "%d", o->def != 0.0);
        snprintf(range, sizeof range, ", 0 or 1");
        break;
    case WNW_OPT_ENUM:
        snprintf(def, sizeof def, "%s", o->choices[(int)o->def]);
        break;
    }
    printf("%*s%-14s %s [%.*s%s", indent, "", o->name, o->help, given_len > 0 ? given_len : 64,
           given_len > 0 ? given : def, range);
    for (int i = 0; o->type == WNW_OPT_ENUM && o->choices[i]; i++)
        printf("%s%s", i > 0 ? "|" : ", one of ", o->choices[i]);
    puts("]");
}

static bool find_part(const char *name, size_t len, wnw_method_info *out)
{
    for (int32_t i = 0; wnw_method_get(i, out); i++)
        if (!*out->recipe && wnw__is_name(name, len, out->name))
            return true;
    return false;
}

/* Prints the parts of a recipe with the values that the recipe gives their options. */
static void print_recipe_parts(const char *recipe)
{
    puts("  parts, and their options [value here, range]:");
    for (const char *at = recipe; *at;) {
        const size_t len = strcspn(at, "+"), name_len = strcspn(at, ":+");
        wnw_method_info part = {WNW_INIT(wnw_method_info)};
        if (find_part(at, name_len, &part)) {
            printf("    %s %s: %s\n", part.kind, part.name, part.about);
            for (const wnw_option *o = part.options; o && o->name; o++) {
                const char *value = "";
                const int n =
                    name_len < len ? given_value(at + name_len + 1, len - name_len - 1, o->name, &value) : 0;
                print_option(o, 6, value, n);
            }
        }
        at += len + (at[len] == '+');
    }
}

static void print_part_options(const wnw_option *options)
{
    if (!options || !options[0].name) {
        puts("  no options");
        return;
    }
    puts("  options [default, range]:");
    for (const wnw_option *o = options; o->name; o++)
        print_option(o, 4, "", 0);
}

/* Prints which files of calibration results a policy would read for this model, and how to make those that are
 * not there. */
static int print_profiles(const wnw_policy *policy, const char *model)
{
    const wnw_needs needs = wnw_policy_needs(policy);
    const char *title = "profiles";
    for (int32_t kind = 0; kind < WNW_N_PROFILE_KINDS; kind++) {
        const struct app_profile_want want = {.model_path = model};
        const char *name = wnw_profile_kind_name(kind);
        char *path;
        if (!((needs.profiles | needs.profiles_optional) >> kind & 1u))
            continue;
        WNW_TRY(app_profile_find(&path, &want, kind));
        printf("  %-10s %s%s: ", title, name, needs.profiles >> kind & 1u ? "" : " (not required)");
        if (path)
            puts(path);
        else
            printf("none for %s; make it with `winnow calibrate %s -m %s%s`\n", model, name, model,
                   kind == WNW_PROFILE_COMPILER ? " --budget N" : "");
        free(path);
        title = "";
    }
    return APP_OK;
}

static int print_details(const wnw_method_info *info, const char *model)
{
    char needs[256], phases[64];
    wnw_policy *policy = NULL; /* of a preset */
    const int status = *info->recipe ? wnw_policy_parse(&policy, info->name, NULL) : WNW_OK;
    if (status != WNW_OK)
        return app_fail_status(status);
    const bool scores = *info->layout || strcmp(info->kind, "scorer") == 0;
    printf("%s (%s)\n  %s\n", info->name, info->kind, info->about);
    const char *const rows[][2] = {
        {"paper", info->paper},
        {"recipe", policy ? wnw_policy_string(policy) : ""},
        {"layout", info->layout},
        {"observes", scores ? app_needs_text(info->needs, needs, sizeof needs) : ""},
        {"phases", app_phases_text(info->phases, phases, sizeof phases)}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i][1] && *rows[i][1])
            printf("  %-10s %s\n", rows[i][0], rows[i][1]);
    }
    const int rc = policy ? print_profiles(policy, model) : APP_OK;
    if (*info->details)
        printf("\n%s\n\n", info->details);
    if (policy)
        print_recipe_parts(wnw_policy_string(policy));
    else
        print_part_options(info->options);
    wnw_policy_free(policy);
    return rc;
}

/* Prints a recipe that is not the name of a method: its shortest form, the form with every default written
 * out, and its parts. */
static int print_recipe(const char *recipe, const char *model)
{
    static const wnw_phase phases[] = {WNW_PHASE_END, WNW_PHASE_LAYER, WNW_PHASE_CHUNK, WNW_PHASE_DECODE};
    wnw_policy *policy;
    char words[256], *own;
    uint32_t allowed = 0;
    const int status = wnw_policy_parse(&policy, recipe, NULL);
    if (status != WNW_OK)
        return app_fail_status(status);
    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++)
        allowed |= wnw_policy_allows(policy, phases[i], NULL) ? 1u << phases[i] : 0;
    printf("%s (recipe)\n  %-10s %s\n", app_policy_text(policy, &own), "recipe", wnw_policy_string(policy));
    printf("  %-10s %s\n", "observes", app_needs_text(wnw_policy_needs(policy).flags, words, sizeof words));
    printf("  %-10s %s\n", "phases", app_phases_text(allowed, words, sizeof words));
    const int rc = print_profiles(policy, model);
    print_recipe_parts(wnw_policy_string(policy));
    wnw_free(own);
    wnw_policy_free(policy);
    return rc == APP_OK ? app_finish_stdout() : rc;
}

static int unknown(const char *name)
{
    wnw_method_info info = {WNW_INIT(wnw_method_info)};
    int32_t n = 0;
    while (wnw_method_get(n, &info))
        n++;
    const char **names = calloc((size_t)n + 1, sizeof *names);
    if (!names)
        return app_fail(APP_FAILED, "out of memory");
    for (int32_t i = 0; i < n; i++) {
        if (wnw_method_get(i, &info))
            names[i] = info.name;
    }
    const char *near = wnw__nearest(name, names);
    const int rc = near ? app_fail(APP_BAD_INPUT, "unknown method '%s'; did you mean %s?", name, near)
                        : app_fail(APP_BAD_INPUT, "unknown method '%s'; `winnow methods` lists them", name);
    free(names);
    return rc;
}

int cli_methods(const struct app_args *app)
{
    const struct cli_args *args = (const struct cli_args *)app;
    if (args->costs && !args->markdown)
        return app_fail(APP_BAD_INPUT, "--costs belongs to --markdown; give both");
    if (args->markdown && app->n_rest > 0)
        return app_fail(APP_BAD_INPUT, "--markdown prints all methods; leave out '%s'", app->rest[0]);
    if (args->markdown)
        return cli_methods_markdown(args->costs);
    if (app->n_rest == 0) {
        print_table();
        return app_finish_stdout();
    }
    wnw_method_info info = {WNW_INIT(wnw_method_info)};
    bool found = false;
    /* A preset may have the name of its scorer: both are shown. */
    for (int32_t i = 0; wnw_method_get(i, &info); i++) {
        if (strcmp(info.name, app->rest[0]) != 0)
            continue;
        if (found)
            puts("");
        WNW_TRY(print_details(&info, app->model));
        found = true;
    }
    if (!found && strpbrk(app->rest[0], ":+"))
        return print_recipe(app->rest[0], app->model);
    return found ? app_finish_stdout() : unknown(app->rest[0]);
}
