/* SPDX-License-Identifier: MIT */
/* winnow methods: presets and parts, printed from the library's descriptors. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

const char *cli_needs_text(uint32_t needs, char *out, size_t size)
{
    size_t n = 0;
    const char *name;
    out[0] = '\0';
    for (int32_t bit = 0; (name = wnw_need_name(bit)) && n < size; bit++)
        if (needs >> bit & 1u)
            n += (size_t)snprintf(out + n, size - n, "%s%s", n > 0 ? ", " : "", name);
    return n > 0 ? out : "nothing";
}

const char *cli_phases_text(uint32_t phases, char *out, size_t size)
{
    size_t n = 0;
    out[0] = '\0';
    for (int phase = WNW_PHASE_END; phase <= WNW_PHASE_DECODE && n < size; phase++)
        if (phases >> phase & 1u)
            n += (size_t)snprintf(out + n, size - n, "%s%s", n > 0 ? ", " : "",
                                  wnw_phase_name((wnw_phase)phase));
    return out;
}

static void print_table(void)
{
    static const char *const kinds[] = {"preset",      "scorer",   "head aggregation", "layer budget",
                                        "head budget", "selector", "parity preset"};
    static const char *const titles[] = {"Presets",      "Scorers",   "Head aggregations", "Layer budgets",
                                         "Head budgets", "Selectors", "Parity presets"};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        wnw_method_info info;
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
                       cli_needs_text(info.needs, needs, sizeof needs), info.about);
            else
                printf("  %-30s %s\n", info.name, info.about);
        }
    }
    puts("\nPresets show name, layout of the plan, and what is observed. `winnow methods NAME` shows "
         "options.\n"
         "A recipe is NAME[:key=value,...][+NAME...], e.g. snapkv:window=32+adakv.");
}

static void print_option(const wnw_option *o)
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
    case WNW_OPT_BOOL:
        snprintf(def, sizeof def, "%d", o->def != 0.0);
        snprintf(range, sizeof range, ", 0 or 1");
        break;
    case WNW_OPT_ENUM:
        snprintf(def, sizeof def, "%s", o->choices[(int)o->def]);
        break;
    }
    printf("  %-14s %s [%s%s", o->name, o->help, def, range);
    for (int i = 0; o->type == WNW_OPT_ENUM && o->choices[i]; i++)
        printf("%s%s", i > 0 ? "|" : ", one of ", o->choices[i]);
    puts("]");
}

static void print_details(const wnw_method_info *info)
{
    char needs[256], phases[64];
    const bool scores = *info->layout || strcmp(info->kind, "scorer") == 0;
    printf("%s (%s)\n  %s\n", info->name, info->kind, info->about);
    const char *const rows[][2] = {
        {"paper", info->paper},
        {"recipe", info->recipe},
        {"layout", info->layout},
        {"observes", scores ? cli_needs_text(info->needs, needs, sizeof needs) : ""},
        {"phases", cli_phases_text(info->phases, phases, sizeof phases)}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i][1] && *rows[i][1])
            printf("  %-10s %s\n", rows[i][0], rows[i][1]);
    }
    if (*info->details)
        printf("\n%s\n\n", info->details);
    if (!info->options || !info->options[0].name) {
        puts("  no options");
        return;
    }
    puts("  options [default, range]:");
    for (const wnw_option *o = info->options; o->name; o++) {
        fputs("  ", stdout);
        print_option(o);
    }
}

static int unknown(const char *name)
{
    wnw_method_info info;
    int32_t n = 0;
    while (wnw_method_get(n, &info))
        n++;
    const char **names = calloc((size_t)n + 1, sizeof *names);
    if (!names)
        return cli_fail(CLI_FAILED, "out of memory");
    for (int32_t i = 0; i < n; i++) {
        if (wnw_method_get(i, &info))
            names[i] = info.name;
    }
    const char *near = cli_nearest(name, names);
    const int rc = near ? cli_fail(CLI_BAD_INPUT, "unknown method '%s'; did you mean %s?", name, near)
                        : cli_fail(CLI_BAD_INPUT, "unknown method '%s'; `winnow methods` lists them", name);
    free(names);
    return rc;
}

int cli_methods(const struct cli_args *args)
{
    if (args->csv && !args->markdown)
        return cli_fail(CLI_BAD_INPUT, "--costs belongs to --markdown; give both");
    if (args->markdown && args->n_rest > 0)
        return cli_fail(CLI_BAD_INPUT, "--markdown prints all methods; leave out '%s'", args->rest[0]);
    if (args->markdown)
        return cli_methods_markdown(args);
    if (args->n_rest == 0) {
        print_table();
        return cli_finish_stdout();
    }
    wnw_method_info info;
    bool found = false;
    /* A preset may have the name of its scorer: both are shown. */
    for (int32_t i = 0; wnw_method_get(i, &info); i++) {
        if (strcmp(info.name, args->rest[0]) != 0)
            continue;
        if (found)
            puts("");
        print_details(&info);
        found = true;
    }
    return found ? cli_finish_stdout() : unknown(args->rest[0]);
}
