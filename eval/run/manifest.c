/* SPDX-License-Identifier: MIT */
/* run.json. */
#include "eval/run/manifest.h"

#include "app/console.h"
#include "app/cpu.h"
#include "app/files.h"
#include "app/json.h"
#include "app/output.h"
#include "base/fingerprint_form.h"
#include "base/json.h"
#include "base/random.h"
#include "base/system.h"
#include "eval/base/grow.h"
#include "eval/base/info.h"
#include "eval/tasks/lists.h"
#include "winnow_tools.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The prompts' wording and where they are cut; changes with any template of a task. */
#define PROMPTS_VERSION "3"

/* ---- Making ---- */

static json_t *hash_of(uint64_t h)
{
    char text[17];
    eval_hash_text(text, h);
    return json_string(text);
}

/* A hash of the vocabulary: the texts of all its tokens. */
static json_t *tokenizer_of(const wnw_model *m, int32_t n_vocab)
{
    uint64_t h = WNW_HASH_START;
    for (int32_t id = 0; id < n_vocab; id++) {
        char *piece = NULL;
        if (wnw_token_piece(m, id, &piece) == WNW_OK)
            h = wnw__hash_join(h, piece, strlen(piece));
        wnw_free(piece);
    }
    return hash_of(h);
}

/* The model's file name without its folder. */
static json_t *model_of(const struct eval_setup *s, const wnw_model_info *info)
{
    char fingerprint[WNW_FINGERPRINT_SIZE];
    const char *slash = strrchr(s->model_path, '/');
    wnw_model_fingerprint(s->model, fingerprint);
    return json_pack("{s:o, s:o, s:s, s:I, s:s, s:i, s:i, s:i, s:i, s:i, s:i}", "file",
                     app_json_text(slash ? slash + 1 : s->model_path), "name", app_json_text(info->name),
                     "arch", info->arch, "weight_bytes", (json_int_t)info->weight_bytes, "fingerprint",
                     fingerprint, "n_layer", (int)info->n_layer, "n_head", (int)info->n_head, "n_head_kv",
                     (int)info->n_head_kv, "n_embd_head", (int)info->n_embd_head, "n_ctx",
                     (int)info->n_ctx_train, "n_vocab", (int)info->n_vocab);
}

static json_t *tasks_of(const struct eval_items *items)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < items->n; i++) {
        const struct eval_item *it = &items->items[i];
        if (!app_json_append(&list, json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:s, s:i, s:I, s:s*}", "task",
                                              it->task->name, "group", it->task->group, "N",
                                              (int)it->n_target, "n", (int)it->n, "probes", (int)it->n_probes,
                                              "n_trials", (int)it->n_trials, "metric", it->task->metric,
                                              "max_new", (int)it->max_new, "units", (json_int_t)it->fit.units,
                                              "file", it->file_hash[0] ? it->file_hash : NULL)))
            break;
    }
    return list;
}

static json_t *configs_of(const struct eval_configs *c)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < c->n; i++) {
        json_t *o = json_copy(c->items[i].json);
        app_json_set(&o, "config_id", json_string(c->items[i].id));
        app_json_set(&o, "recipe", json_string(c->items[i].recipe));
        app_json_set(&o, "full", json_boolean(c->items[i].full));
        app_json_set(&o, "reference", json_string(c->items[c->items[i].reference].id));
        uint64_t h;
        if (c->items[i].profile)
            app_json_set(&o, "profile", eval_profile_hash(&h, c->items[i].profile) ? hash_of(h) : NULL);
        if (!app_json_append(&list, o))
            break;
    }
    return list;
}

/* Recipes as they were asked for, by their shortest form, which answers have. */
static json_t *recipes_of(const struct eval_configs *c)
{
    json_t *o = json_object();
    for (int32_t i = 0; i < c->n_recipes; i++)
        app_json_set(&o, c->recipes[i].text, app_json_text(c->recipes[i].asked));
    return o;
}

/* Adds the sentence "WHAT (TASKS)" on the tasks with a flag, if there are any. */
static void add_sentence(json_t **list, const char *what, const struct eval_items *items, uint32_t flag)
{
    struct app_text names = {0};
    char *text = NULL;
    for (int32_t i = 0; i < items->n; i++) {
        bool again = !(items->items[i].task->flags & flag);
        for (int32_t k = 0; k < i && !again; k++)
            again = items->items[k].task == items->items[i].task;
        if (!again)
            (void)app_text_put(&names, "%s%s", names.len > 0 ? ", " : "", items->items[i].task->name);
    }
    if (names.len > 0 && asprintf(&text, "%s (%s)", what, names.s) >= 0) {
        (void)app_json_append(list, json_string(text));
        free(text);
    }
    free(names.s);
}

/* Sentences on data that is made up where a benchmark has its own. */
static json_t *substitutes_of(const struct eval_setup *s)
{
    json_t *list = json_array();
    if (strcmp(s->source.haystack.name, "prose") == 0)
        add_sentence(&list, "generated prose in place of essays", &s->items, EVAL_HIDES_IN_TEXT);
    if (strcmp(s->source.haystack.name, "noise") == 0)
        add_sentence(&list, "generated noise in place of essays", &s->items, EVAL_HIDES_IN_TEXT);
    add_sentence(&list, "our own lists of words in place of the package wonderwords", &s->items,
                 EVAL_OWN_WORDS);
    add_sentence(&list, "made-up data in place of the benchmark's own", &s->items, EVAL_STANDS_IN);
    return list;
}

/* The arguments of this process. */
static json_t *command_of_process(void)
{
    json_t *list = json_array();
    char *data = NULL;
    size_t cap = 0;
    FILE *f = fopen("/proc/self/cmdline", "r");
    while (f && getdelim(&data, &cap, '\0', f) > 0 && app_json_append(&list, app_json_text(data)))
        ;
    if (f)
        fclose(f);
    free(data);
    return list;
}

/* What computes: times belong to it. */
static json_t *device_of(void)
{
    char cpu[160];
    app_cpu_name(cpu, sizeof cpu);
    return app_json_text(cpu);
}

static json_t *chat_of(const struct eval_setup *s)
{
    const struct eval_chat *c = &s->chat;
    return json_pack("{s:s, s:b, s:o, s:o}", "template", eval_chat_name(s->args, s->suite), "raw", c->raw,
                     "head", app_json_text(c->head), "tail", app_json_text(c->tail));
}

json_t *eval_manifest_make(const struct eval_setup *s, const struct eval_configs *c,
                           const struct eval_runtime *m)
{
    const struct eval_args *a = s->args;
    /* The last fields, with an asterisk, are there only where they say something. */
    return json_pack(
        "{s:i, s:s, s:o, s:s, s:o, s:o, s:o, s:s, s:i, s:s, s:o, s:o, s:I, s:s, s:s, s:s, s:s, s:s, s:o, "
        "s:b, "
        "s:b, s:s, "
        "s:b, s:s, s:b, s:s, s:s, s:s, s:o, s:o, s:o, s:o*, s:s*, s:s*, s:o*, s:o*, s:o*, s:o*, s:s*, s:s*, "
        "s:s*}",
        "v", 1, "split", a->split, "command", command_of_process(), "winnow", wnw_version(), "model",
        model_of(s, &m->info), "tokenizer", tokenizer_of(s->model, m->info.n_vocab), "chat", chat_of(s),
        "kernel", wnw_kernel_name(), "threads",
        a->app.threads == APP_UNSET ? (int)wnw_usable_cores() : (int)a->app.threads, "suite",
        s->suite ? s->suite->name : "", "tasks", tasks_of(&s->items), "configs", configs_of(c), "seed",
        (json_int_t)s->source.seed, "haystack", s->source.haystack.name, "prose", EVAL_PROSE_VERSION, "words",
        EVAL_WORDS_VERSION, "prompts", PROMPTS_VERSION, "needle", a->needle, "depths",
        wnw__json_f64s(s->source.depths, s->source.n_depths), "early_stop", m->early_stop, "batched",
        m->batch > 1, "turns", a->turns, "own_history", m->own_history, "lb_prefix", a->lb_prefix,
        "closed_book", a->closed_book, "text", s->text_hash, "time_budget",
        a->time_budget ? a->time_budget : "", "backend", "cpu" /* the library has no other */, "device",
        device_of(), "stand_ins", substitutes_of(s), "recipes", recipes_of(c), "mask_profile",
        c->masks_profiled ? hash_of(c->mask_profile) : NULL, "lb_chat",
        strcmp(a->lb_chat, "all") == 0 ? a->lb_chat : NULL, "niah_compat",
        s->source.needle_mark ? a->niah_compat : NULL, "alone",
        eval_reads_separately(a, s->suite) ? json_true() : NULL, "recompress",
        m->recompress ? json_true() : NULL, "answer_tokens",
        m->answer_tokens > 0 ? json_integer(m->answer_tokens) : NULL, "lb_max_prompt",
        a->max_prompt != APP_UNSET ? json_integer(a->max_prompt) : NULL, "squad",
        s->squad.hash[0] ? s->squad.hash : NULL, "hotpot", s->hotpot.hash[0] ? s->hotpot.hash : NULL,
        "documents", s->folder.hash[0] ? s->folder.hash : NULL);
}

/* ---- Remarks ---- */

/* Adds the notes of the study, which are lines. */
static bool add_notes(json_t **list, const struct eval_suite *suite)
{
    char *copy = suite->notes.len > 0 ? strdup(suite->notes.s) : NULL, *rest = copy;
    bool good = copy || suite->notes.len == 0;
    for (char *line; good && (line = strsep(&rest, "\n"));)
        good = *line == '\0' || app_json_append(list, app_json_text(line));
    free(copy);
    return good;
}

/* Adds how many heads choose, from the canonical recipe; k = 0 means the profile's number. */
static bool add_heads(json_t **list, const struct eval_recipe *r, int32_t n_head)
{
    static const char part[] = "+retrieval_heads:k=", named[] = ",heads=";
    char line[400];
    const char *at = strstr(wnw_policy_string(r->policy), part), *heads = at ? strstr(at, named) : NULL;
    if (!heads)
        return true;
    const long asked = strtol(at + strlen(part), NULL, 10);
    const int32_t eighth = (n_head + 4) / 8 > 1 ? (n_head + 4) / 8 : 1;
    const bool all = strncmp(heads + strlen(named), "all", 3) == 0;
    const int32_t some = asked > 0 ? (int32_t)asked : eighth, k = all || asked > n_head ? n_head : some;
    snprintf(line, sizeof line, "%.300s: %d of %d heads of a layer choose%s.", r->text, (int)k, (int)n_head,
             all || asked > 0 ? "" : ", an eighth, unless its profile says another number");
    return app_json_append(list, app_json_text(line));
}

int eval_manifest_remarks(json_t **out, const struct eval_args *args, const struct eval_suite *suite,
                          const struct eval_configs *c, int32_t n_head)
{
    json_t *list = json_array();
    bool good = list && (!suite || eval_replaces_study(args) || add_notes(&list, suite));
    for (int32_t i = 0; good && i < c->n_recipes; i++)
        good = add_heads(&list, &c->recipes[i], n_head);
    if (good && json_array_size(list) == 0) {
        json_decref(list);
        list = NULL;
    }
    *out = list;
    return good ? APP_OK : eval_no_memory("the remarks");
}

/* ---- Claiming a folder ---- */

json_t *eval_manifest_load(const char *dir)
{
    char *path = app_in_folder(dir, "run.json");
    int fd = -1;
    int64_t size;
    const bool opened = path && wnw__open_file(&fd, &size, "description", path) == WNW_OK;
    json_t *run = opened ? json_loadfd(fd, JSON_REJECT_DUPLICATES, NULL) : NULL;
    if (opened)
        close(fd);
    free(path);
    return run;
}

bool eval_manifest_exists(const char *dir)
{
    char *path = app_in_folder(dir, "run.json");
    const bool exists = path && access(path, F_OK) == 0;
    free(path);
    return exists;
}

/* Lowers a number of samples to one of run.json. */
static void lower(int32_t *n, const json_t *to)
{
    if (json_is_integer(to) && json_integer_value(to) >= 0 && json_integer_value(to) < *n)
        *n = (int32_t)json_integer_value(to);
}

bool eval_manifest_samples(struct eval_setup *s, const char *dir)
{
    json_t *old = eval_manifest_load(dir);
    const json_t *tasks = json_object_get(old, "tasks");
    const char *budget = json_string_value(json_object_get(old, "time_budget"));
    const bool found =
        budget && strcmp(budget, s->args->time_budget) == 0 && json_array_size(tasks) == (size_t)s->items.n;
    for (int32_t i = 0; found && i < s->items.n; i++) {
        const json_t *task = json_array_get(tasks, (size_t)i);
        lower(&s->items.items[i].n, json_object_get(task, "n"));
        lower(&s->items.items[i].n_probes, json_object_get(task, "probes"));
    }
    json_decref(old);
    return found;
}

/* Whether the model of a run is named by a fingerprint of a part of it, which another model may have, too. */
static bool is_older(const json_t *run)
{
    const json_t *model = json_object_get(run, "model");
    return wnw__fingerprint_form(json_string_value(json_object_get(model, "fingerprint"))) ==
           WNW_FINGERPRINT_OLD;
}

/* Refuses a file that describes another run. old: its JSON; NULL = none. now: the new description; NULL = no memory. */
static int refuse_other(const char *path, const json_t *old, const json_t *now)
{
    if (!json_is_object(old))
        return app_fail(APP_BAD_INPUT, "'%s' does not describe a run; use another --out", path);
    if (!now)
        return app_fail(APP_FAILED, "out of memory for '%s'", path);
    const char *field = eval_info_difference(old, now, false);
    if (!field)
        return APP_OK;
    if (is_older(old))
        return app_fail(
            APP_BAD_INPUT,
            "'%s' was begun by an older winnow, whose fingerprint covers a part of the model alone: begin it "
            "again with another --out",
            path);
    return app_fail(
        APP_BAD_INPUT,
        "'%s' describes another run: \"%s\" differs; go on with what it began with, or use another --out",
        path, field);
}

static int compare(const char *path, const json_t *run)
{
    char *text;
    size_t len;
    WNW_TRY(app_read_regular(&text, &len, path));
    json_t *old = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    /* The new description takes the same way through text, so that numbers compare as they are written. */
    char *own = json_dumps(run, JSON_COMPACT);
    json_t *now = own ? json_loads(own, 0, NULL) : NULL;
    const int rc = refuse_other(path, old, now);
    json_decref(old);
    json_decref(now);
    free(own);
    free(text);
    return rc;
}

static int write_run(const char *dir, const json_t *run)
{
    struct app_out out;
    char *path = app_in_folder(dir, "run.json");
    int rc = path ? app_out_open(&out, path, NULL) : eval_no_memory("the run's description");
    if (rc == APP_OK)
        rc = app_out_json(&out, run);
    free(path);
    return rc == APP_OK ? app_out_commit(&out) : rc;
}

int eval_manifest_check(const char *dir, const json_t *run)
{
    struct stat st;
    char *path = app_in_folder(dir, "run.json"), *results = app_in_folder(dir, "results.jsonl");
    int rc = run && path && results ? APP_OK : eval_no_memory("the run's description");
    if (rc == APP_OK && access(path, F_OK) == 0)
        rc = compare(path, run);
    else if (rc == APP_OK && stat(results, &st) == 0 && st.st_size > 0)
        rc = app_fail(APP_BAD_INPUT, "'%s' has results but no run.json; use another --out", dir);
    free(path);
    free(results);
    return rc;
}

int eval_manifest_claim(const char *dir, const json_t *run)
{
    const int rc = eval_manifest_check(dir, run);
    return rc == APP_OK && !eval_manifest_exists(dir) ? write_run(dir, run) : rc;
}

int eval_manifest_open(struct eval_journal *j, const char *dir, json_t *run)
{
    int rc = eval_manifest_check(dir, run);
    if (rc == APP_OK)
        rc = eval_journal_open(j, dir);
    if (rc == APP_OK)
        rc = eval_manifest_claim(dir, run);
    json_decref(run);
    return rc;
}

int eval_manifest_left_out(const char *dir, int64_t n_too_long, int64_t n_unmade)
{
    json_t *run = eval_manifest_load(dir);
    int rc = APP_OK;
    if (!json_is_object(run))
        rc = app_fail(APP_BAD_INPUT, "'%s/run.json' does not describe a run any more", dir);
    if (rc == APP_OK && (json_integer_value(json_object_get(run, "too_long")) != n_too_long ||
                         json_integer_value(json_object_get(run, "unmade")) != n_unmade)) {
        app_json_set(&run, "too_long", json_integer(n_too_long));
        app_json_set(&run, "unmade", json_integer(n_unmade));
        rc = write_run(dir, run);
    }
    json_decref(run);
    return rc;
}
