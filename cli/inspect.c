/* SPDX-License-Identifier: MIT */
/* winnow inspect: what a stored document or a keep-plan holds. */
#include "cli/inspect.h"
#include "app/args.h"
#include "app/console.h"
#include "app/files.h"
#include "app/json.h"
#include "app/kv.h"
#include "app/names.h"
#include "app/plan_file.h"
#include "base/err.h"
#include "cli/commands.h"
#include "cli/stored.h"
#include "winnow_store.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What both kinds of files have: a list of layers, each a list of heads, each a list of positions. */
struct held {
    const json_t *layers;
    int32_t n_tokens;
};

/* ---- Printing ---- */

/* Mean entries of a layer's heads. */
static double mean_of(const json_t *heads)
{
    const size_t n_head = json_array_size(heads);
    size_t sum = 0;
    for (size_t ih = 0; ih < n_head; ih++)
        sum += json_array_size(json_array_get(heads, ih));
    return n_head > 0 ? (double)sum / (double)n_head : 0;
}

/* longest: the mean of the layer that has most, whose bar is the longest. */
static void print_layer(int32_t il, const json_t *heads, int32_t n_tokens, double longest)
{
    static const char bar[] = "########################################";
    const size_t n_head = json_array_size(heads);
    size_t least = SIZE_MAX, most = 0;
    for (size_t ih = 0; ih < n_head; ih++) {
        const size_t n = json_array_size(json_array_get(heads, ih));
        least = n < least ? n : least;
        most = n > most ? n : most;
    }
    const double mean = mean_of(heads);
    printf("%5d %9.1f %8zu %8zu %7.1f %%  %.*s\n", il, mean, n_head > 0 ? least : 0, most,
           n_tokens > 0 ? 100 * mean / n_tokens : 0,
           longest > 0 ? (int)((double)(sizeof bar - 1) * mean / longest + 0.5) : 0, bar);
}

static void print_layers(const struct held *held)
{
    size_t il;
    const json_t *layer;
    double longest = 0;
    printf("\nlayer   entries    least     most     kept\n");
    json_array_foreach(held->layers, il, layer)
    {
        const double mean = mean_of(json_object_get(layer, "heads"));
        longest = mean > longest ? mean : longest;
    }
    json_array_foreach(held->layers, il, layer)
        print_layer((int32_t)il, json_object_get(layer, "heads"), held->n_tokens, longest);
}

static void print_size(const wnw_size *size)
{
    if (size->kind == WNW_SIZE_BUDGET)
        printf(", %lld entries per head", (long long)size->budget);
    else if (size->kind == WNW_SIZE_RATIO)
        printf(", %g %% removed", 100 * size->ratio);
    else if (size->kind == WNW_SIZE_BYTES)
        printf(", at most %llu bytes", (unsigned long long)size->bytes);
}

static void print_recipe(const wnw_stored_info *info)
{
    wnw_policy *policy = NULL;
    char *own = NULL;
    if (!info->policy) {
        printf("recipe    none\n");
        return;
    }
    const bool known = wnw_policy_parse(&policy, info->policy, NULL) == WNW_OK;
    printf("recipe    ");
    app_print_line(known ? app_policy_text(policy, &own) : info->policy);
    print_size(&info->size);
    printf(", phase %s\n", wnw_phase_name(info->phase));
    wnw_free(own);
    wnw_policy_free(policy);
}

static void print_stored(const wnw_stored *st)
{
    wnw_stored_info info = wnw_stored_info_default();
    wnw_prompt_params text = wnw_prompt_default_params();
    char kv[96];
    (void)wnw_stored_get_info(st, &info);
    app_kv_text(kv, sizeof kv,
                &(struct app_kv){.type = info.kv_type, .tail = info.kv_tail, .unrotated = info.kv_unrotated});
    printf("model     ");
    app_print_line(info.model);
    printf(" (");
    app_print_line(info.arch);
    printf(", ");
    app_print_line(info.fingerprint);
    printf(")\n");
    printf("tokens    %d read, the next has position %d\n", info.n_tokens, info.n_past);
    print_recipe(&info);
    printf("entries   %.1f per head of %d layers with %d heads, %s, %.2f MiB\n",
           (double)info.n_entries / ((double)info.n_layer * info.n_head_kv), info.n_layer, info.n_head_kv, kv,
           (double)info.bytes_entries / 1048576.0);
    if (info.recurrent)
        printf("          and a state of recurrent layers\n");
    if (wnw_stored_get_text(st, &text) && text.document)
        printf("document  %zu bytes%s\n", strlen(text.document), info.pieces ? ", added in pieces" : "");
    printf("file      %.2f MiB, version %d, written by winnow ", (double)info.bytes_file / 1048576.0,
           info.version);
    app_print_line(info.writer);
    putchar('\n');
}

static int show_stored(const char *path, bool json)
{
    wnw_stored *st;
    int32_t n;
    int rc = cli_stored_open(&st, path);
    if (rc != APP_OK)
        return rc;
    json_t *o = cli_inspect_stored(st);
    (void)wnw_stored_tokens(st, &n);
    if (o && !json) {
        print_stored(st);
        print_layers(&(struct held){json_object_get(o, "layers"), n});
        json_decref(o);
        rc = app_finish_stdout();
    } else {
        rc = app_print_json(o);
    }
    wnw_stored_free(st);
    return rc;
}

/* ---- A keep-plan ---- */

static int show_plan(const char *path, bool json)
{
    json_t *o = NULL;
    const int rc = app_plan_read(&o, path);
    if (rc == APP_OK && json)
        return app_print_json(o);
    if (rc != APP_OK) {
        json_decref(o);
        return rc;
    }
    const json_t *layers = json_object_get(o, "layers");
    const int32_t n = (int32_t)json_integer_value(json_object_get(o, "n_tokens"));
    printf("plan      of %d tokens, %zu layers\nrecipe    ", n, json_array_size(layers));
    app_print_line(json_string_value(json_object_get(o, "policy")));
    putchar('\n');
    print_layers(&(struct held){layers, n});
    json_decref(o);
    return app_finish_stdout();
}

int cli_inspect(const struct app_args *args)
{
    bool stored = false;
    if (args->n_rest != 1)
        return app_fail(APP_BAD_INPUT, "which file? Name a stored document or a keep-plan");
    const char *path = args->rest[0];
    if (args->out)
        return cli_inspect_page((const struct cli_args *)args);
    const struct cli_args *own = (const struct cli_args *)args;
    if (args->model || own->compare || own->answer)
        return app_fail(APP_BAD_INPUT, "-m, --compare and --answer are for a page; name it with -o");
    WNW_TRY(cli_stored_is(&stored, path));
    return stored ? show_stored(path, args->json) : show_plan(path, args->json);
}
