/* SPDX-License-Identifier: MIT */
/* winnow methods --markdown: docs/reference/methods.md, from the library's descriptors and a table of measured
 * costs. */
#include "app/console.h"
#include "app/files.h"
#include "app/names.h"
#include "base/err.h"
#include "cli/commands.h"
#include "winnow_method.h"
#include "winnow_tools.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_FIELDS = 32, COST_LENGTH = 8192, RECIPE_MAX = 1024 };
/* Columns of the table of costs. */
enum {
    F_RECIPE = 1,
    F_N,
    F_PLAIN = 4,
    F_READ = 7,
    F_OBSERVE = 10,
    F_SCORE = 13,
    F_SELECT = 16,
    F_COMPACT = 19,
    F_PERCENT = 22,
    F_PERCENT_MIN,
    F_PERCENT_MAX,
    F_MIB,
    F_WHOLE_CACHE,
    F_ROUNDS,
    F_WHY,
    N_COST_FIELDS
};

/* ---- Measured costs: what `winnow bench methods --csv` wrote ---- */

struct costs {
    char *data;          /* owned; NULL = none */
    const char *machine; /* from the first line; points into data */
    char *rows;          /* the lines after it; points into data */
};

/* Cuts a line into fields in place and removes their quotes. Returns the number of fields. */
static int split(char *line, char *fields[MAX_FIELDS])
{
    int n = 0;
    for (char *at = line; n < MAX_FIELDS;) {
        const bool quoted = *at == '"';
        fields[n++] = at += quoted;
        at += strcspn(at, quoted ? "\"" : ",");
        if (quoted && *at) {
            *at++ = '\0';
            at += strcspn(at, ",");
        }
        if (!*at)
            break;
        *at++ = '\0';
    }
    return n;
}

static int read_costs(struct costs *c, const char *path)
{
    size_t len;
    *c = (struct costs){.machine = ""};
    if (!path)
        return APP_OK;
    WNW_TRY(app_read_file(&c->data, &len, path));
    char *end = strchr(c->data, '\n');
    if (strncmp(c->data, "# ", 2) != 0 || !end ||
        strncmp(end + 1, "model,recipe,n,ratio,plain_ms,", 30) != 0) {
        free(c->data);
        return app_fail(APP_BAD_INPUT, "'%s' is not a table of `winnow bench methods --csv`", path);
    }
    *end = '\0';
    c->machine = c->data + 2;
    c->rows = end + 1;
    return APP_OK;
}

/* Finds the row of a recipe at COST_LENGTH; false if there is none. The fields point into `copy`. */
static bool find_cost(const struct costs *c, const char *recipe, char copy[1024], char *fields[MAX_FIELDS])
{
    for (const char *line = c->rows; line && *line;) {
        const size_t len = strcspn(line, "\n");
        snprintf(copy, 1024, "%.*s", (int)len, line);
        const int n = split(copy, fields);
        if (n == N_COST_FIELDS && strcmp(fields[F_RECIPE], recipe) == 0 && atoi(fields[F_N]) == COST_LENGTH)
            return true;
        line += len + (line[len] == '\n');
    }
    return false;
}

/* ---- Pieces of the page ---- */

/* Where the name of the paper begins that ends at `end`: after another one of the same text. */
static const char *name_of_paper(const char *text, const char *end)
{
    static const char *const between[] = {"; ", ", and ", "heads after "};
    const char *name = text;
    for (size_t i = 0; i < sizeof between / sizeof *between; i++)
        for (const char *at = text; (at = strstr(at, between[i])) != NULL && at < end;) {
            at += strlen(between[i]);
            name = at > name && at < end ? at : name;
        }
    return name;
}

/* Prints papers, with the name before each ", arXiv 2404.14469" as a link. */
static void print_paper(const char *paper)
{
    static const char mark[] = ", arXiv ";
    const char *at = paper, *id;
    while ((id = strstr(at, mark)) != NULL) {
        const char *number = id + strlen(mark), *name = name_of_paper(at, id);
        const size_t len = strspn(number, "0123456789.");
        printf("%.*s[%.*s](https://arxiv.org/abs/%.*s)", (int)(name - at), at, (int)(id - name), name,
               (int)len, number);
        at = number + len;
    }
    fputs(at, stdout);
}

static void print_cell(const char *text)
{
    for (; *text; text++) {
        if (*text == '|')
            putchar('\\');
        putchar(*text);
    }
}

static void print_options(const wnw_option *o)
{
    if (!o || !o->name)
        return;
    puts("\n| option | default | range | meaning |\n|---|---|---|---|");
    for (; o->name; o++) {
        printf("| `%s` | ", o->name);
        if (o->type == WNW_OPT_ENUM) {
            printf("%s | ", o->choices[(int)o->def]);
            for (int i = 0; o->choices[i]; i++)
                printf("%s%s", i > 0 ? ", " : "", o->choices[i]);
        } else if (o->type == WNW_OPT_BOOL) {
            printf("%d | 0, 1", o->def != 0.0);
        } else {
            printf("%.10g | %s%.10g to %.10g", o->def, o->type == WNW_OPT_LIST ? "list of " : "", o->min,
                   o->max);
        }
        fputs(" | ", stdout);
        print_cell(o->help);
        puts(" |");
    }
}

static bool next_of_kind(int32_t *i, const char *kind, wnw_method_info *info)
{
    while (wnw_method_get((*i)++, info))
        if (strcmp(info->kind, kind) == 0)
            return true;
    return false;
}

/* Where the last '+' before `end` is; 0 if there is none. */
static size_t last_plus(const char *recipe, size_t end)
{
    while (end > 0 && recipe[end - 1] != '+')
        end--;
    return end > 0 ? end - 1 : 0;
}

/* Whether a recipe is the policy whose long form is `whole`. */
static bool is_policy(const char *recipe, const char *whole)
{
    wnw_policy *p = NULL;
    const bool same =
        wnw_policy_parse(&p, recipe, NULL) == WNW_OK && strcmp(wnw_policy_string(p), whole) == 0;
    wnw_policy_free(p);
    return same;
}

/* Leaves out of a recipe its characters `begin` to `end`, if it stays the policy whose long form is `whole`. */
static bool leave_out(char recipe[RECIPE_MAX], size_t begin, size_t end, const char *whole)
{
    char shorter[RECIPE_MAX];
    snprintf(shorter, sizeof shorter, "%.*s%s", (int)begin, recipe, recipe + end);
    const bool same = is_policy(shorter, whole);
    if (same)
        strcpy(recipe, shorter);
    return same;
}

/* Leaves out options that have their defaults. */
static void drop_defaults(char recipe[RECIPE_MAX], const char *whole)
{
    for (size_t at = strcspn(recipe, ":,"); recipe[at];) {
        const size_t len = strcspn(recipe + at + 1, ",+"), next = at + 1 + len;
        /* The first option of several leaves its colon, another one its comma. */
        const bool first = recipe[at] == ':' && recipe[next] == ',';
        if (!leave_out(recipe, first ? at + 1 : at, first ? next + 1 : next, whole))
            at = next;
        at += strcspn(recipe + at, ":,");
    }
}

/* Sets the recipe of a preset, without parts and options that it has anyway; false if it is just the preset's name. */
static bool short_recipe(char recipe[RECIPE_MAX], const char *name)
{
    wnw_policy *p = NULL;
    const bool good = wnw_policy_parse(&p, name, NULL) == WNW_OK && strlen(wnw_policy_string(p)) < RECIPE_MAX;
    if (good) {
        const char *whole = wnw_policy_string(p);
        strcpy(recipe, whole);
        for (size_t end = strlen(recipe), begin; end > 0; end = begin) {
            begin = last_plus(recipe, end);
            if (begin > 0)
                (void)leave_out(recipe, begin, end, whole);
        }
        drop_defaults(recipe, whole);
    }
    wnw_policy_free(p);
    return good && strcmp(recipe, name) != 0;
}

static void print_phases(uint32_t phases)
{
    char text[256];
    const uint32_t all =
        1u << WNW_PHASE_END | 1u << WNW_PHASE_LAYER | 1u << WNW_PHASE_CHUNK | 1u << WNW_PHASE_DECODE;
    fputs(phases == all ? "all" : app_phases_text(phases, text, sizeof text), stdout);
}

static void print_presets(void)
{
    char text[256];
    wnw_method_info info = {WNW_INIT(wnw_method_info)};
    puts("\n## Presets\n\n| preset | keeps | observes | plan | phases | paper |\n|---|---|---|---|---|---|");
    for (int32_t i = 0; next_of_kind(&i, "preset", &info);) {
        printf("| `%s` | ", info.name);
        print_cell(info.about);
        printf(" | %s | %s | ", app_needs_text(info.needs, text, sizeof text), info.layout);
        print_phases(info.phases);
        fputs(" | ", stdout);
        print_paper(info.paper);
        puts(" |");
    }
    puts("\n## Recipes of presets\n\nParts and options that are left out have their defaults. "
         "A preset without a line is the scorer of that name.\n\n| preset | recipe |\n|---|---|");
    for (int32_t i = 0; next_of_kind(&i, "preset", &info);) {
        char recipe[RECIPE_MAX];
        if (short_recipe(recipe, info.name))
            printf("| `%s` | `%s` |\n", info.name, recipe);
    }
    for (int32_t i = 0; next_of_kind(&i, "preset", &info);)
        if (*info.details)
            printf("\n### Preset %s\n\n%s\n", info.name, info.details);
}

static void print_cost_row(char *f[N_COST_FIELDS])
{
    const char *whole = atoi(f[F_WHOLE_CACHE]) ? "yes" : "no";
    if (!*f[F_PLAIN]) {
        printf("| `%s` | %s | | | | | | | %s |\n", f[F_RECIPE], f[F_WHY], whole);
        return;
    }
    printf("| `%s` | %.0f | %.0f | %.0f | %.0f | %.0f | %.1f (%.1f to %.1f) | %s | %s |\n", f[F_RECIPE],
           atof(f[F_READ]), atof(f[F_OBSERVE]), atof(f[F_SCORE]), atof(f[F_SELECT]), atof(f[F_COMPACT]),
           atof(f[F_PERCENT]), atof(f[F_PERCENT_MIN]), atof(f[F_PERCENT_MAX]), f[F_MIB], whole);
}

static void print_costs(const struct costs *c)
{
    char copy[1024], *f[MAX_FIELDS];
    wnw_method_info info = {WNW_INIT(wnw_method_info)};
    if (!c->data)
        return;
    printf(
        "\n## Costs\n\nMilliseconds after %d tokens with half of them removed, by `winnow bench methods` on "
        "%s.\n\n"
        "- *Read*: what observing adds to prefill. Presets that observe the same while reading shared one "
        "reading and its figure.\n"
        "- *Observe* to *compact*: compressing a copy of that session. *Observe* includes a second pass.\n"
        "- *All*: the sum in per cent of a plain prefill of the same round, median (lowest to highest "
        "round). "
        "Small or negative\n  values are the prefill's own noise.\n"
        "- *MiB*: peak resident memory beyond that of a plain prefill.\n"
        "- *Whole cache*: whether the full cache must exist before counts of layers are known.\n\n"
        "[methods-cost.csv](methods-cost.csv) has all values.\n\n"
        "| preset | read | observe | score | select | compact | all, %% of prefill | MiB | whole cache |\n"
        "|---|---:|---:|---:|---:|---:|---:|---:|---|\n",
        COST_LENGTH, c->machine);
    for (int32_t i = 0; next_of_kind(&i, "preset", &info);)
        if (find_cost(c, info.name, copy, f))
            print_cost_row(f);
}

static void print_parts(const char *kind, const char *title, const char *anchor)
{
    char text[256];
    wnw_method_info info = {WNW_INIT(wnw_method_info)};
    printf("\n## %s\n", title);
    for (int32_t i = 0; next_of_kind(&i, kind, &info);) {
        printf("\n### %s %s\n\n%s\n", anchor, info.name, info.about);
        if (*info.paper) {
            fputs("Paper: ", stdout);
            print_paper(info.paper);
            puts(".");
        }
        if (strcmp(kind, "scorer") == 0)
            printf("Observes: %s.\n", app_needs_text(info.needs, text, sizeof text));
        if (*info.details)
            printf("\n%s\n", info.details);
        print_options(info.options);
    }
}

static void print_parity(void)
{
    wnw_method_info info = {WNW_INIT(wnw_method_info)};
    puts("\n## Parity presets\n\nSettings of other programs (`kvpress-`) and of comparisons inside one paper "
         "(`paper-`).\n`winnow methods NAME` prints all options.\n\n"
         "| preset | what it reproduces | recipe | paper |\n|---|---|---|---|");
    for (int32_t i = 0; next_of_kind(&i, "parity preset", &info);) {
        printf("| `%s` | ", info.name);
        print_cell(info.about);
        fputs(" | ", stdout);
        printf("`%s` | ", info.recipe);
        print_cell(info.paper);
        puts(" |");
    }
}

/* Links from the root of the tree, with blanks between, as numbered links from a page in docs/reference/; "none" as it is. */
static void print_links(const char *links)
{
    static const char docs[] = "docs/";
    int n = 0;
    while (strncmp(links, docs, strlen(docs)) == 0) {
        const char *link = links + strlen(docs);
        const size_t len = strcspn(link, " ");
        printf("%s[%d](../%.*s)", n > 0 ? ", " : "", n + 1, (int)len, link);
        links = link + len + strspn(link + len, " ");
        n++;
    }
    fputs(links, stdout);
}

/* The table that --policy auto is chosen from. */
static void print_choice(void)
{
    wnw_policy_choice row = wnw_policy_choice_default();
    puts("\n## Chosen by itself\n\n`--policy auto`, and a size without a policy, take the first row whose "
         "condition holds\n([why a table](../internals/design/choosing.md#table-of-choices)). The cache's "
         "type is "
         "no condition: no measurement\nfavours another policy for one type.\n\n| where | policy | why | "
         "measured "
         "|\n|---|---|---|---|");
    for (int32_t i = 0; wnw_policy_rule(i, &row); i++) {
        fputs("| ", stdout);
        print_cell(row.when);
        printf(" | `%s`", row.recipe);
        if (strcmp(row.recipe, row.recipe_known) != 0)
            printf("; the question known: `%s`", row.recipe_known);
        fputs(" | ", stdout);
        print_cell(row.why);
        fputs(" | ", stdout);
        print_links(row.evidence);
        puts(" |");
    }
}

int cli_methods_markdown(const char *costs)
{
    struct costs c;
    WNW_TRY(read_costs(&c, costs));
    puts("# Methods\n\n"
         "Printed by `winnow methods --markdown --costs docs/reference/methods-cost.csv` from the "
         "descriptors in "
         "the source.\nChange the texts there, then run `make docs`.\n\n"
         "A policy has seven parts: a scorer, a head aggregation, a layer budget, a head budget, a selector, "
         "a "
         "position rule\nand a content rule. A preset is a named combination. Its parts can be replaced: "
         "`snapkv:window=64+group_max+adakv`.\n\n"
         "- Letters: n entries of a head, w observed queries, d head size, H_q query heads, H_kv KV heads. "
         "The "
         "query heads that\n  read one KV head are its group.\n"
         "- Plan: *uniform* keeps the same tokens everywhere. *layer* has one list per layer. *composite* "
         "keeps "
         "the same count in\n  every head of a layer, and each head has its own tokens. *ragged* has a count "
         "for "
         "each head.\n"
         "- Phases: *end* compresses once after the prompt, *layer* each layer before the next one is read, "
         "*chunk* after every\n  chunk, *decode* while generating. Without *layer* the whole prompt must be "
         "cached "
         "before counts are known.");
    print_presets();
    print_parity();
    print_costs(&c);
    print_parts("scorer", "Scorers", "Scorer");
    print_parts("head aggregation", "Head aggregations", "Head aggregation");
    print_parts("layer budget", "Layer budgets", "Layer budget");
    print_parts("head budget", "Head budgets", "Head budget");
    print_parts("selector", "Selectors", "Selector");
    print_parts("position rule", "Position rules", "Position rule");
    print_parts("content rule", "Content rules", "Content rule");
    print_choice();
    free(c.data);
    return app_finish_stdout();
}
