/* SPDX-License-Identifier: MIT */
/* winnow profile show: what a profile holds, as text and as a picture. */
#include "app/args.h"
#include "app/console.h"
#include "app/heatmap.h"
#include "app/output.h"
#include "app/text.h"
#include "base/err.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "winnow.h"
#include "winnow_calibrate.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What is drawn of a table. */
struct map {
    double *cell; /* [n_row][n_column], owned */
    int32_t n_row, n_column;
    const char *row, *column; /* what a row and a column is */
    char title[80];
};

/* A table of the profile with its values. */
struct table {
    wnw_profile_table info;
    double *value; /* [n], owned */
    int64_t n;
    struct map map[2];
    int n_map; /* 0: nothing is drawn, because the values are ranks */
};

/* Gates of a model of eight billion weights have a third of these numbers. */
enum { MAX_TABLES = 32, MAX_VALUES = 1 << 28 };

struct tables {
    struct table t[MAX_TABLES];
    int n;
};

static void free_tables(struct tables *all)
{
    for (int i = 0; i < all->n; i++) {
        free(all->t[i].value);
        for (int k = 0; k < all->t[i].n_map; k++)
            free(all->t[i].map[k].cell);
    }
}

/* ---- Reading ---- */

/* A map without values yet; NULL without memory. */
static struct map *add_map(struct table *t, int32_t n_row, int32_t n_column, const char *row,
                           const char *column)
{
    struct map *m = &t->map[t->n_map];
    *m = (struct map){.n_row = n_row, .n_column = n_column, .row = row, .column = column};
    m->cell = calloc((size_t)n_row * (size_t)n_column + 1, sizeof *m->cell);
    if (!m->cell)
        return NULL;
    t->n_map++;
    return m;
}

/* The value itself, or with more than two dimensions the vector's length. */
static bool map_by_head(struct table *t)
{
    const int32_t *shape = t->info.shape;
    const bool line = t->info.n_dim == 1;
    struct map *m = line ? add_map(t, 1, shape[0], t->info.name, "layer")
                         : add_map(t, shape[0], shape[1], "layer", "head");
    if (!m)
        return false;
    const int64_t n_cell = (int64_t)m->n_row * m->n_column, step = n_cell > 0 ? t->n / n_cell : 0;
    for (int64_t i = 0; i < n_cell; i++) {
        double sum = 0;
        for (int64_t k = 0; k < step; k++)
            sum += t->value[i * step + k] * t->value[i * step + k];
        m->cell[i] = step == 1 ? t->value[i] : sqrt(sum);
    }
    snprintf(m->title, sizeof m->title, "%s%s", t->info.name, step > 1 ? ", length of the vectors" : "");
    return true;
}

/* CompilerKV's thresholds [layer][entropy bin][perplexity bin]: their mean over layers as the paper's figure A3 has them, and all. */
static bool map_thresholds(struct table *t)
{
    const int32_t n_layer = t->info.shape[0], n_entropy = t->info.shape[1], n_ppl = t->info.shape[2];
    const int32_t n_bin = n_entropy * n_ppl;
    struct map *mean = add_map(t, n_entropy, n_ppl, "entropy bin", "perplexity bin");
    struct map *whole = mean ? add_map(t, n_layer, n_bin, "layer", "bin") : NULL;
    if (!whole)
        return false;
    snprintf(mean->title, sizeof mean->title, "%s, mean over the layers", t->info.name);
    snprintf(whole->title, sizeof whole->title, "%s, bin = entropy bin * %d + perplexity bin", t->info.name,
             (int)n_ppl);
    for (int32_t il = 0; il < n_layer; il++)
        for (int32_t k = 0; k < n_bin; k++) {
            whole->cell[(int64_t)il * n_bin + k] = t->value[(int64_t)il * n_bin + k];
            mean->cell[k] += t->value[(int64_t)il * n_bin + k] / n_layer;
        }
    return true;
}

static bool make_maps(struct table *t)
{
    const bool thresholds = t->info.kind == WNW_PROFILE_COMPILER && t->info.n_dim == 3;
    return thresholds ? map_thresholds(t) : map_by_head(t);
}

static int read_table(struct table *t, const wnw_profile *p)
{
    t->n = 1;
    for (int32_t k = 0; k < t->info.n_dim; k++)
        t->n *= t->info.shape[k];
    if (t->n > MAX_VALUES)
        return app_fail(APP_BAD_INPUT, "the table %s has %lld numbers; tables of up to %d are shown",
                        t->info.name, (long long)t->n, MAX_VALUES);
    t->value = calloc((size_t)t->n + 1, sizeof *t->value);
    if (!t->value)
        return app_fail(APP_FAILED, "out of memory");
    const int status = wnw_profile_get_values(t->value, t->n, p, t->info.name);
    if (status != WNW_OK)
        return app_fail_status(status);
    /* Rankings and edges of bins are lists, not maps. */
    const bool drawn = !t->info.is_whole && !(t->info.n_dim == 1 && t->info.kind == WNW_PROFILE_COMPILER);
    return !drawn || make_maps(t) ? APP_OK : app_fail(APP_FAILED, "out of memory");
}

static int read_tables(struct tables *all, const wnw_profile *p)
{
    int rc = APP_OK;
    for (; rc == APP_OK && all->n < MAX_TABLES; all->n++) {
        struct table *t = &all->t[all->n];
        t->info = wnw_profile_table_default();
        if (!wnw_profile_get_table(p, all->n, &t->info))
            break;
        rc = read_table(t, p);
    }
    return rc;
}

/* ---- Text ---- */

/* Prints a value of settings or data on one line; most control characters stay escaped, as JSON has them. */
static void print_value(const char *key, const json_t *v, int indent)
{
    const char *inner;
    json_t *item;
    size_t i;
    if (json_is_object(v) && json_object_size(v) > 0) {
        printf("%*s", indent, "");
        app_print_line(key);
        puts(":");
        json_object_foreach((json_t *)v, inner, item) print_value(inner, item, indent + 2);
    } else if (json_is_array(v) && json_is_object(json_array_get(v, 0))) {
        json_array_foreach(v, i, item) print_value(key, item, indent);
    } else {
        char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));
        printf("%*s", indent, "");
        app_print_line(key);
        printf("%*s", strlen(key) < 15 ? 15 - (int)strlen(key) : 1, "");
        app_print_line(text ? text : "");
        putchar('\n');
        free(text);
    }
}

static void print_section(const json_t *root, const char *name)
{
    const json_t *section = json_object_get(root, name);
    if (json_is_object(section) && json_object_size(section) > 0)
        print_value(name, section, 0);
}

static void print_head(const json_t *root)
{
    const json_t *m = json_object_get(root, "model");
    printf("profile of kind %s\nmodel %s: %d layers, %d query heads, %d KV heads of %d elements\n",
           json_string_value(json_object_get(root, "kind")),
           json_string_value(json_object_get(m, "fingerprint")),
           (int)json_integer_value(json_object_get(m, "n_layer")),
           (int)json_integer_value(json_object_get(m, "n_head")),
           (int)json_integer_value(json_object_get(m, "n_head_kv")),
           (int)json_integer_value(json_object_get(m, "n_embd_head")));
}

static void print_range(const struct table *t)
{
    double low = INFINITY, high = -INFINITY, sum = 0;
    char shape[64] = "";
    for (int32_t k = 0; k < t->info.n_dim; k++)
        snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "[%d]", (int)t->info.shape[k]);
    for (int64_t i = 0; i < t->n; i++) {
        low = fmin(low, t->value[i]);
        high = fmax(high, t->value[i]);
        sum += t->value[i];
    }
    printf("  %-14s %-18s", t->info.name, shape);
    if (t->info.is_whole)
        puts(" heads of every layer, best first");
    else if (t->n > 0)
        printf(" %.4g to %.4g, mean %.4g\n", low, high, sum / (double)t->n);
    else
        puts(" empty");
}

/* The first heads of every layer's ranking. */
static void print_ranks(const struct table *t)
{
    enum { SHOWN = 3 };
    const int32_t n_head = t->info.shape[1], n = n_head < SHOWN ? n_head : SHOWN;
    printf("%s: layer and its first heads\n", t->info.name);
    for (int32_t il = 0; il < t->info.shape[0]; il++) {
        printf("  %4d ", il);
        for (int32_t i = 0; i < n; i++)
            printf(" %d", (int)t->value[(int64_t)il * n_head + i]);
        fputs(il % 6 == 5 || il + 1 == t->info.shape[0] ? "\n" : "   ", stdout);
    }
}

static struct app_heatmap heatmap_of(const struct map *m)
{
    return (struct app_heatmap){.title = m->title,
                                .row = m->row,
                                .column = m->column,
                                .value = m->cell,
                                .n_row = m->n_row,
                                .n_column = m->n_column};
}

static void print_all(const json_t *root, const struct tables *all)
{
    print_head(root);
    print_section(root, "settings");
    print_section(root, "data");
    puts("results:");
    for (int i = 0; i < all->n; i++)
        print_range(&all->t[i]);
    for (int i = 0; i < all->n; i++) {
        const struct table *t = &all->t[i];
        puts("");
        if (t->info.is_whole)
            print_ranks(t);
        for (int k = 0; k < t->n_map; k++) {
            const struct app_heatmap map = heatmap_of(&t->map[k]);
            if (k > 0)
                puts("");
            app_heatmap_print(stdout, &map);
        }
    }
}

/* ---- The picture ---- */

static int draw(const char *path, const struct tables *all, const struct app_inputs *inputs)
{
    struct app_heatmap maps[2 * MAX_TABLES];
    struct app_out out;
    int n = 0;
    for (int i = 0; i < all->n; i++)
        for (int k = 0; k < all->t[i].n_map; k++)
            maps[n++] = heatmap_of(&all->t[i].map[k]);
    if (n == 0)
        return app_fail(APP_BAD_INPUT, "the profile has rankings alone, which --map does not draw");
    WNW_TRY(app_out_open(&out, path, inputs));
    app_heatmap_svg(out.f, maps, n);
    return app_out_commit(&out);
}

static int show_tables(const json_t *root, struct tables *all, const struct cli_args *args,
                       const wnw_profile *p, const struct app_inputs *inputs)
{
    WNW_TRY(read_tables(all, p));
    if (args->map)
        WNW_TRY(draw(args->map, all, inputs));
    print_all(root, all);
    return app_finish_stdout();
}

static int show(const struct cli_args *args, const wnw_profile *p, const struct app_inputs *inputs)
{
    struct tables all = {.n = 0};
    json_error_t error;
    json_t *root = json_load_file(args->app.rest[0], 0, &error);
    if (!root)
        return app_fail(APP_FAILED, "reading '%s' again failed: %s", args->app.rest[0], error.text);
    const int rc = show_tables(root, &all, args, p, inputs);
    free_tables(&all);
    json_decref(root);
    return rc;
}

int cli_profile_show(const struct app_args *app)
{
    const struct cli_args *args = (const struct cli_args *)app;
    struct app_inputs inputs = {.n = 0};
    struct app_text warnings = {0};
    wnw_profile *p;
    if (app->n_rest != 1)
        return app_fail(APP_BAD_INPUT, "no profile; write `winnow profile show FILE`");
    app_inputs_add(&inputs, app->rest[0]);
    int rc = args->map ? app_out_check(args->map, &inputs) : APP_OK;
    if (rc != APP_OK)
        return rc;
    wnw_set_log(app_note_warning, &warnings);
    const int status = wnw_profile_open(&p, app->rest[0]);
    wnw_set_log(NULL, NULL);
    /* A file that is not there is the user's mistake here. */
    if (status == WNW_OK)
        rc = show(args, p, &inputs);
    else
        rc = status == WNW_E_IO ? app_fail(APP_BAD_INPUT, "%s", wnw_last_error()) : app_fail_status(status);
    if (rc == APP_OK && warnings.s)
        app_note("%s", warnings.s);
    free(warnings.s);
    wnw_profile_free(p);
    return rc;
}
