/* SPDX-License-Identifier: MIT */
#include "perturb/perturb.h"

#include "app/console.h"
#include "app/files.h"
#include "app/json.h"
#include "app/output.h"
#include "app/values.h"
#include "eval/args.h"
#include "eval/base/grow.h"
#include "eval/base/jsonl.h"
#include "eval/report/report.h"
#include "eval/results/results.h"
#include "eval/run/manifest.h"
#include "perturb/forms.h"
#include "perturb/record.h"

#include <stdlib.h>
#include <string.h>

/* A study as its folder has it. */
struct folder {
    char *path;  /* borrowed */
    json_t *run; /* run.json, owned; the next point into it */
    const char *policies[EVAL_MAX_SIZES * EVAL_MAX_SIZES], *sizes[EVAL_MAX_SIZES];
    struct perturb_numbers numbers;
    struct perturb_study study;
};

bool perturb_is_study(const char *folder)
{
    json_t *run = eval_manifest_load(folder);
    const bool is = json_is_object(json_object_get(run, "texts"));
    json_decref(run);
    return is;
}

/* ---- run.json ---- */

static int bad(const struct folder *f, const char *what)
{
    return app_fail(APP_BAD_INPUT,
                    "'%s/run.json' does not describe a perturbation study of this version: \"%s\"", f->path,
                    what);
}

/* A positive number of an object. */
static bool take(int32_t *out, const json_t *object, const char *key, int32_t most)
{
    const json_t *x = json_object_get(object, key);
    const json_int_t n = json_integer_value(x);
    *out = n > 0 && n <= most ? (int32_t)n : 0;
    return *out > 0;
}

/* The names of policies and sizes: after the full cache all sizes of the first policy, then those of the next. */
static int read_configs(struct folder *f)
{
    const json_t *configs = json_object_get(f->run, "configs");
    const char *first = json_string_value(json_object_get(json_array_get(configs, 1), "policy"));
    const size_t n = json_array_size(configs);
    int32_t n_sizes = 0;
    for (size_t i = 1; first && i < n; i++) {
        const char *policy = json_string_value(json_object_get(json_array_get(configs, i), "policy"));
        n_sizes += policy && strcmp(policy, first) == 0;
    }
    if (n_sizes == 0 || n_sizes > EVAL_MAX_SIZES || (n - 1) % (size_t)n_sizes != 0 ||
        (n - 1) / (size_t)n_sizes > EVAL_MAX_SIZES)
        return bad(f, "configs");
    f->numbers.n_sizes = n_sizes;
    f->numbers.n_policies = (int32_t)((n - 1) / (size_t)n_sizes);
    for (size_t i = 1; i < n; i++) {
        const json_t *config = json_array_get(configs, i);
        const char *recipe = json_string_value(json_object_get(config, "recipe")),
                   *size = json_string_value(json_object_get(config, "size"));
        if (!recipe || !size)
            return bad(f, "configs");
        f->policies[(i - 1) / (size_t)n_sizes] = recipe;
        f->sizes[(i - 1) % (size_t)n_sizes] = size;
    }
    return APP_OK;
}

/* What is known before the records are read. */
static int read_description(struct folder *f)
{
    enum { MOST_LAYERS = 4096, MOST_HEADS = 4096 };
    const json_t *model = json_object_get(f->run, "model"), *texts = json_object_get(f->run, "texts"),
                 *seed = json_object_get(f->run, "seed");
    const char *name = json_string_value(json_object_get(model, "name"));
    struct perturb_numbers *p = &f->numbers;
    if (!take(&p->n_layer, model, "n_layer", MOST_LAYERS) || !take(&p->n_head, model, "n_head", MOST_HEADS) ||
        !take(&p->n_head_kv, model, "n_head_kv", MOST_HEADS) || p->n_head % p->n_head_kv != 0)
        return bad(f, "model");
    if (!take(&f->study.n_tokens, texts, "tokens", INT32_MAX) ||
        !json_is_array(json_object_get(texts, "sliding")))
        return bad(f, "texts");
    if (!json_is_integer(seed))
        return bad(f, "seed");
    f->study.model = name ? name : "model without a name";
    f->study.seed = (uint64_t)json_integer_value(seed);
    f->study.command = json_object_get(f->run, "command");
    return read_configs(f);
}

static int mark_sliding(struct folder *f)
{
    const json_t *list = json_object_get(json_object_get(f->run, "texts"), "sliding");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *x = json_array_get(list, i);
        const json_int_t il = json_is_integer(x) ? json_integer_value(x) : -1;
        if (il < 0 || il >= f->numbers.n_layer)
            return bad(f, "texts");
        f->numbers.sliding[il] = true;
    }
    return APP_OK;
}

/* ---- Records ---- */

/* Takes the numbers of a record; seen: the keys of those before it. */
static int take_record(struct folder *f, const struct eval_jsonl *j, const json_t *record, json_t *seen)
{
    const char *key = json_string_value(json_object_get(record, "key")),
               *source = json_string_value(json_object_get(record, "source"));
    if (key && json_object_get(seen, key))
        return eval_jsonl_bad(j, "the text '%.100s' is there twice; remove one of the lines", key);
    if ((key && json_object_set_new(seen, key, json_true()) != 0) ||
        !perturb_numbers_reserve(&f->numbers, f->numbers.n_texts + 1))
        return eval_no_memory("the study");
    f->study.n_of_file += source && strcmp(source, "file") == 0;
    return perturb_record_add(&f->numbers, record)
               ? APP_OK
               : eval_jsonl_bad(j, "this is not a record of the study; remove the line");
}

static int read_records(struct folder *f, const char *path)
{
    struct eval_jsonl j;
    json_t *record = NULL, *seen = json_object();
    int rc = eval_jsonl_open_regular(&j, path);
    j.growing = true;
    while (rc == APP_OK && (rc = eval_jsonl_next(&j, &record)) == APP_OK && record) {
        rc = take_record(f, &j, record, seen);
        json_decref(record);
    }
    eval_jsonl_close(&j);
    json_decref(seen);
    return rc;
}

static int read_folder(struct folder *f, char *path)
{
    *f = (struct folder){.path = path, .run = eval_manifest_load(path)};
    if (!f->run)
        return app_fail(APP_BAD_INPUT, "'%s/run.json' cannot be read", path);
    WNW_TRY(read_description(f));
    char *results = eval_results_path(path);
    int rc = results && perturb_numbers_open(&f->numbers) ? mark_sliding(f) : eval_no_memory("the study");
    if (rc == APP_OK)
        rc = read_records(f, results);
    free(results);
    f->study.numbers = &f->numbers;
    f->study.policies = f->policies;
    f->study.sizes = f->sizes;
    return rc;
}

/* ---- Forms ---- */

enum { PAGE, TEXT, CSV, N_FORMS };

static int write_form(const struct folder *f, const char *name, const char *out, const struct eval_doc *d)
{
    struct app_inputs inputs = {.n = 0};
    char *path = out ? strdup(out) : app_in_folder(f->path, name);
    eval_report_inputs(&inputs, &f->path, 1);
    const int rc = path ? eval_doc_write(d, path, &inputs) : eval_no_memory("the study");
    free(path);
    return rc;
}

static int write_and_print(const struct folder *f, const struct eval_args *args, const char *out,
                           const struct eval_doc *form, json_t *numbers)
{
    static const char *const names[] = {"report.html", "summary.txt", "perturbation.csv"};
    for (int i = 0; i < N_FORMS; i++)
        if (form[i].no_memory)
            return eval_no_memory("the study");
    /* The page comes last: where it is there, the others are. */
    for (int i = out ? PAGE : N_FORMS - 1; i >= 0; i--)
        WNW_TRY(write_form(f, names[i], out, &form[i]));
    if (args->app.json)
        return app_print_json(json_incref(numbers));
    fwrite(form[TEXT].text.s, 1, form[TEXT].text.len, stdout);
    return app_finish_stdout();
}

static int write_forms(const struct folder *f, const struct eval_args *args, const char *out)
{
    struct eval_doc form[N_FORMS] = {0};
    json_t *numbers = perturb_json(&f->study);
    perturb_text(&form[TEXT], &f->study);
    eval_doc_hide_controls(&form[TEXT]);
    perturb_csv(&form[CSV], &f->study);
    int rc = perturb_page(&form[PAGE], &f->study, numbers, &form[TEXT]);
    if (rc == APP_OK)
        rc = write_and_print(f, args, out, form, numbers);
    for (int i = 0; i < N_FORMS; i++)
        eval_doc_clear(&form[i]);
    json_decref(numbers);
    return rc;
}

static int check_options(const struct eval_args *a)
{
    const char *const other = APP_FIRST_GIVEN({a->compare, "compare"}, {a->fail_if, "fail-if"},
                                              {a->niah_score, "niah-score"}, {a->no_gate, "no-gate"});
    return other ? app_fail(APP_BAD_INPUT, "a perturbation study asks no questions; leave out --%s", other)
                 : APP_OK;
}

int perturb_report(char *folder, const struct eval_args *args, const char *out)
{
    struct folder f;
    WNW_TRY(check_options(args));
    int rc = read_folder(&f, folder);
    if (rc == APP_OK)
        rc = write_forms(&f, args, out);
    perturb_numbers_clear(&f.numbers);
    json_decref(f.run);
    return rc;
}
