/* SPDX-License-Identifier: MIT */
/* winnow profile show: what a profile holds, as text and as a picture. */
#include "app/args.h"
#include "app/console.h"
#include "app/heatmap.h"
#include "app/output.h"
#include "app/text.h"
#include "cli/args.h"
#include "cli/commands.h"
#include "winnow.h"
#include "winnow_calibrate.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A table of the profile with its values. */
struct table {
    wnw_profile_table info;
    double *value; /* [n], owned */
    int64_t n;
    /* What is drawn of it: the value itself, or with more than two dimensions the vector's length. */
    double *cell; /* [n_row][n_column], owned; NULL = nothing, because the values are ranks */
    int32_t n_row, n_column;
    char title[80];
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
        free(all->t[i].cell);
    }
}

/* ---- Reading ---- */

static bool make_cells(struct table *t)
{
    const int32_t *shape = t->info.shape;
    const bool line = t->info.n_dim == 1;
    t->n_row = line ? 1 : shape[0];
    t->n_column = line ? shape[0] : shape[1];
    const int64_t n_cell = (int64_t)t->n_row * t->n_column, step = n_cell > 0 ? t->n / n_cell : 0;
    t->cell = calloc((size_t)n_cell + 1, sizeof *t->cell);
    for (int64_t i = 0; t->cell && i < n_cell; i++) {
        double sum = 0;
        for (int64_t k = 0; k < step; k++)
            sum += t->value[i * step + k] * t->value[i * step + k];
        t->cell[i] = step == 1 ? t->value[i] : sqrt(sum);
    }
    snprintf(t->title, sizeof t->title, "%s%s", t->info.name, step > 1 ? ", length of the vectors" : "");
    return t->cell != NULL;
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
    return !drawn || make_cells(t) ? APP_OK : app_fail(APP_FAILED, "out of memory");
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

static struct app_heatmap map_of(const struct table *t)
{
    const bool line = t->info.n_dim == 1;
    return (struct app_heatmap){.title = t->title,
                                .row = line ? t->info.name : "layer",
                                .column = line                               ? "layer"
                                          : strcmp(t->info.name, "tau") == 0 ? "entropy bin"
                                                                             : "head",
                                .value = t->cell,
                                .n_row = t->n_row,
                                .n_column = t->n_column};
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
        const struct app_heatmap map = map_of(&all->t[i]);
        puts("");
        if (all->t[i].info.is_whole)
            print_ranks(&all->t[i]);
        else if (all->t[i].cell)
            app_heatmap_print(stdout, &map);
    }
}

/* ---- The picture ---- */

static int draw(const char *path, const struct tables *all, const struct app_inputs *inputs)
{
    struct app_heatmap maps[MAX_TABLES];
    struct app_out out;
    int n = 0;
    for (int i = 0; i < all->n; i++)
        if (all->t[i].cell)
            maps[n++] = map_of(&all->t[i]);
    if (n == 0)
        return app_fail(APP_BAD_INPUT, "the profile has rankings alone, which --map does not draw");
    const int rc = app_out_open(&out, path, inputs);
    if (rc != APP_OK)
        return rc;
    app_heatmap_svg(out.f, maps, n);
    return app_out_commit(&out);
}

static int show(const struct cli_args *args, const wnw_profile *p, const struct app_inputs *inputs)
{
    struct tables all = {.n = 0};
    json_error_t error;
    json_t *root = json_load_file(args->app.rest[0], 0, &error);
    int rc = root ? read_tables(&all, p)
                  : app_fail(APP_FAILED, "reading '%s' again failed: %s", args->app.rest[0], error.text);
    if (rc == APP_OK && args->map)
        rc = draw(args->map, &all, inputs);
    if (rc == APP_OK)
        print_all(root, &all);
    free_tables(&all);
    json_decref(root);
    return rc == APP_OK ? app_finish_stdout() : rc;
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
    rc = status == WNW_OK     ? show(args, p, &inputs)
         : status == WNW_E_IO ? app_fail(APP_BAD_INPUT, "%s", wnw_last_error())
                              : app_fail_status(status);
    if (rc == APP_OK && warnings.s)
        app_note("%s", warnings.s);
    free(warnings.s);
    wnw_profile_free(p);
    return rc;
}
