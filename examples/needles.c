/* SPDX-License-Identifier: MIT */
/*
 * Needle questions: which policy still finds a number that was hidden in a long text?
 *
 *     needles -m MODEL.gguf [options]      (needles --help lists them)
 *
 * A text is cut to a length, a fact is put into it at some depth, and the model is asked for it. No sentence
 * stands in a prompt twice: the text is generated, or comes from a file that is long enough (text/source.h).
 * The prompt is read once; every policy and size then gets a copy of that session, applies its own plan to it
 * and answers greedily. In mode "aware" the question belongs to what is compressed, in mode "context" it is
 * read afterwards, so that the policy cannot know what will be asked. Policies that are told what to expect
 * (their task) get the question, the template's tail and the answer's first words in both modes. The wording
 * is that of RULER's single needles (arXiv 2404.06654): the answer's first words are given, what follows must
 * be the number.
 */
#include "text/source.h"
#include <winnow_method.h>

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_LIST = 16,
    MAX_POLICIES = 128,
    MAX_ENTRIES = MAX_LIST * MAX_POLICIES,
    MAX_ANSWER = 16,
    N_MODES = 2
};
static const char *const mode_names[N_MODES] = {"aware", "context"};

static const char usage[] =
    "usage: needles -m MODEL.gguf [options]\n"
    "  -m FILE           model\n"
    "  -f FILE           text to hide the fact in [generated prose, other text for every prompt]\n"
    "  --tokens LIST     lengths of the prompt's first piece, about [1500]\n"
    "  --depths LIST     where the fact stands, in per cent of the text [10,50,90]\n"
    "  --tries N         texts per length and depth [1]\n"
    "  --needles N       facts in the text, of which one is asked for [1]\n"
    "  --policies LIST   recipes; key=value goes on with the one before [all presets]\n"
    "  --ratios LIST     fractions removed [0.5,0.75,0.875]\n"
    "  --profile FILE    calibration results, may be repeated; policies without theirs are left out\n"
    "  --modes LIST      of aware, context [aware,context]\n"
    "  --kv-type TYPE    f16, q8_0, q4_0 or f32 [f16]\n"
    "  -t N              threads [usable cores]\n"
    "  --seed N          of words, numbers and texts [1]\n"
    "  --csv FILE        every answer as a row\n"
    "  --prompts FILE    write every prompt as text, behind a line === about it, and ask nothing\n";

/* ---- Arguments ---- */

struct args {
    const char *model, *text, *policies, *csv, *prompts;
    const char *profiles[MAX_LIST];
    int n_profiles;
    double tokens[MAX_LIST], depths[MAX_LIST], ratios[MAX_LIST];
    int n_tokens, n_depths, n_ratios, n_tries, n_needles, n_threads;
    bool modes[N_MODES];
    wnw_kv_type kv_type;
    uint64_t seed;
};

static int complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static int complain(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("needles: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    return 2;
}

static bool read_number(double *out, const char *text, double min, double max)
{
    char *end;
    errno = 0;
    *out = strtod(text, &end);
    return *text != '\0' && *end == '\0' && errno == 0 && *out >= min && *out <= max;
}

static int read_list(double *out, int *n, const char *name, const char *text, double min, double max)
{
    char copy[256], *save = NULL;
    *n = 0;
    if (snprintf(copy, sizeof copy, "%s", text) >= (int)sizeof copy)
        return complain("%s: the list is too long", name);
    for (char *word = strtok_r(copy, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
        if (*n == MAX_LIST || !read_number(&out[*n], word, min, max))
            return complain("%s: '%s' is not a number from %g to %g", name, word, min, max);
        ++*n;
    }
    return *n > 0 ? 0 : complain("%s: the list is empty", name);
}

static int read_modes(struct args *a, const char *text)
{
    for (int m = 0; m < N_MODES; m++)
        a->modes[m] = strstr(text, mode_names[m]) != NULL;
    return a->modes[0] || a->modes[1] ? 0 : complain("--modes: '%s' names neither aware nor context", text);
}

static int read_args(struct args *a, int argc, char **argv)
{
    *a = (struct args){.tokens = {1500},
                       .depths = {10, 50, 90},
                       .ratios = {0.5, 0.75, 0.875},
                       .n_tokens = 1,
                       .n_depths = 3,
                       .n_ratios = 3,
                       .n_tries = 1,
                       .n_needles = 1,
                       .modes = {true, true},
                       .seed = 1};
    for (int i = 1; i < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1]; /* argv ends with NULL */
        double number = 0;
        int rc = 0;
        if (strcmp(name, "--help") == 0) {
            fputs(usage, stdout);
            exit(0);
        }
        if (!value)
            return complain("%s: unknown, or its value is missing; see needles --help", name);
        if (strcmp(name, "-m") == 0)
            a->model = value;
        else if (strcmp(name, "-f") == 0)
            a->text = value;
        else if (strcmp(name, "--policies") == 0)
            a->policies = value;
        else if (strcmp(name, "--csv") == 0)
            a->csv = value;
        else if (strcmp(name, "--prompts") == 0)
            a->prompts = value;
        else if (strcmp(name, "--profile") == 0 && a->n_profiles < MAX_LIST)
            a->profiles[a->n_profiles++] = value;
        else if (strcmp(name, "--tokens") == 0)
            rc = read_list(a->tokens, &a->n_tokens, name, value, 64, 1e7);
        else if (strcmp(name, "--depths") == 0)
            rc = read_list(a->depths, &a->n_depths, name, value, 0, 100);
        else if (strcmp(name, "--ratios") == 0)
            rc = read_list(a->ratios, &a->n_ratios, name, value, 0, 0.999);
        else if (strcmp(name, "--modes") == 0)
            rc = read_modes(a, value);
        else if (strcmp(name, "--kv-type") == 0)
            rc = wnw_kv_type_parse(&a->kv_type, value) == WNW_OK ? 0 : complain("%s", wnw_last_error());
        else if (strcmp(name, "--tries") == 0 && read_number(&number, value, 1, 1000))
            a->n_tries = (int)number;
        else if (strcmp(name, "--needles") == 0 && read_number(&number, value, 1, 16))
            a->n_needles = (int)number;
        else if (strcmp(name, "-t") == 0 && read_number(&number, value, 1, 512))
            a->n_threads = (int)number;
        else if (strcmp(name, "--seed") == 0 && read_number(&number, value, 0, 1e9))
            a->seed = (uint64_t)number;
        else
            return complain("%s %s: unknown, or out of range; see needles --help", name, value);
        if (rc != 0)
            return rc;
    }
    return a->model ? 0 : complain("give a model with -m");
}

/* ---- Texts with a fact in them ---- */

static const char *const words[] = {"harbor",  "lantern", "meadow",  "copper",  "violin",  "glacier",
                                    "orchard", "saddle",  "compass", "velvet",  "thunder", "pebble",
                                    "chimney", "falcon",  "garden",  "mirror",  "nectar",  "anchor",
                                    "pigeon",  "quartz",  "ribbon",  "sparrow", "timber",  "walnut"};
enum { N_WORDS = sizeof words / sizeof *words };

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

struct text {
    char *s;
    size_t len, cap;
};

static bool add_text(struct text *t, const char *s, size_t len)
{
    if (t->len + len + 1 > t->cap) {
        char *grown = realloc(t->s, t->cap = 2 * (t->len + len + 1));
        if (!grown)
            return false;
        t->s = grown;
    }
    memcpy(t->s + t->len, s, len);
    t->len += len;
    t->s[t->len] = '\0';
    return true;
}

/* One question about one text. */
struct needle {
    const char *word;
    char number[8];
    struct text document, question, prefix;
};

static void free_needle(struct needle *q)
{
    free(q->document.s);
    free(q->question.s);
    free(q->prefix.s);
    *q = (struct needle){0};
}

struct fact {
    size_t at; /* offset in the text in bytes */
    char text[96];
    bool done;
};

/* Makes the fact that is asked for, at its depth, and others at random places. */
static void make_facts(struct fact *facts, struct needle *q, const struct args *a, size_t n_bytes,
                       double depth, uint64_t *seed)
{
    const uint64_t first_word = next_random(seed);
    q->word = words[first_word % N_WORDS];
    snprintf(q->number, sizeof q->number, "%d", (int)(1000000 + next_random(seed) % 9000000));
    for (int k = 0; k < a->n_needles; k++) {
        const double where = k == 0 ? depth / 100 : (double)(next_random(seed) % 1000) / 1000;
        const int other = (int)(1000000 + next_random(seed) % 9000000);
        const char *word = words[(first_word + (uint64_t)k) % N_WORDS];
        facts[k] = (struct fact){.at = (size_t)(where * (double)n_bytes)};
        if (k == 0)
            snprintf(facts[k].text, sizeof facts[k].text, "The special magic number for %s is: %s. ", word,
                     q->number);
        else
            snprintf(facts[k].text, sizeof facts[k].text, "The special magic number for %s is: %d. ", word,
                     other);
    }
}

/* Writes the text with the facts between its sentences. */
static bool hide(struct text *document, const char *text, struct fact *facts, int n_facts)
{
    const size_t len = strlen(text);
    bool ok = true;
    for (size_t n = 0; ok;) {
        const size_t next = n < len ? source_sentence(text + n, len - n) : 0;
        for (int k = 0; ok && k < n_facts; k++)
            if (!facts[k].done && (n >= facts[k].at || n == len)) {
                ok = add_text(document, facts[k].text, strlen(facts[k].text));
                facts[k].done = true;
            }
        if (next == 0)
            break;
        ok = ok && add_text(document, text + n, next);
        n += next;
    }
    return ok;
}

static bool make_needle(struct needle *q, const struct args *a, const struct source *source, size_t n_bytes,
                        double depth, uint64_t seed)
{
    static const char intro[] =
        "Some special magic numbers are hidden within the following text. Make sure to "
        "memorize it. I will quiz you about the numbers afterwards.\n\n";
    struct fact facts[16];
    char line[160];
    *q = (struct needle){0};
    char *text = source_take(source, n_bytes, next_random(&seed));
    make_facts(facts, q, a, n_bytes, depth, &seed);
    bool ok = text && add_text(&q->document, intro, sizeof intro - 1) &&
              hide(&q->document, text, facts, a->n_needles);
    free(text);
    snprintf(line, sizeof line, "What is the special magic number for %s mentioned in the provided text?",
             q->word);
    ok = ok && add_text(&q->question, line, strlen(line));
    snprintf(line, sizeof line, "The special magic number for %s mentioned in the provided text is", q->word);
    return ok && add_text(&q->prefix, line, strlen(line));
}

/* ---- Policies ---- */

struct contender {
    char *recipe;
    wnw_policy *policy;
    int group;     /* policies that one session can observe for */
    bool left_out; /* its profile is missing */
    int right[N_MODES][MAX_LIST], asked[N_MODES][MAX_LIST];
};

struct contest {
    struct args args;
    wnw_model *model;
    wnw_model_info info;
    wnw_profile *profile;
    struct source source;
    double bytes_per_token;
    struct contender c[MAX_POLICIES];
    int n, n_groups;
    FILE *csv, *prompts;
};

static int add_contender(struct contest *ct, const char *recipe, size_t len)
{
    if (ct->n == MAX_POLICIES)
        return complain("more than %d policies", MAX_POLICIES);
    struct contender *c = &ct->c[ct->n++];
    c->recipe = strndup(recipe, len);
    if (!c->recipe || wnw_policy_parse(&c->policy, c->recipe, NULL) != WNW_OK)
        return complain("%s", c->recipe ? wnw_last_error() : "out of memory");
    return 0;
}

/* An item `key=value` of the list belongs to the recipe before it. */
static int add_list(struct contest *ct, const char *list)
{
    for (const char *at = list; *at;) {
        size_t len = 0;
        for (;;) {
            len += strcspn(at + len, ",");
            const char *next = at + len + (at[len] == ',');
            const size_t key = strcspn(next, "=:+,");
            if (at[len] == '\0' || next[key] != '=')
                break;
            len++;
        }
        const int rc = add_contender(ct, at, len);
        if (rc != 0)
            return rc;
        at += len + (at[len] == ',');
    }
    return 0;
}

static int add_presets(struct contest *ct)
{
    wnw_method_info info = {WNW_INIT(wnw_method_info)};
    for (int32_t i = 0; wnw_method_get(i, &info); i++) {
        const int rc = strcmp(info.kind, "preset") == 0 ? add_contender(ct, info.name, strlen(info.name)) : 0;
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int load_profile(struct contest *ct)
{
    int rc = wnw_profile_new(&ct->profile, ct->model);
    for (int i = 0; i < ct->args.n_profiles && rc == WNW_OK; i++)
        rc = wnw_profile_add_file(ct->profile, ct->args.profiles[i]);
    for (int i = 0; i < ct->n && rc == WNW_OK; i++) {
        const wnw_needs needs = wnw_policy_needs(ct->c[i].policy);
        const uint32_t missing =
            needs.flags & WNW_NEED_PROFILE ? needs.profiles & ~wnw_profile_kinds(ct->profile) : 0;
        for (int kind = 0; kind < WNW_N_PROFILE_KINDS; kind++)
            if (missing >> kind & 1u)
                fprintf(stderr, "needles: %s needs a calibration profile of kind %s and is left out\n",
                        ct->c[i].recipe, wnw_profile_kind_name(kind));
        ct->c[i].left_out = missing != 0;
    }
    return rc;
}

/* Two policies whose needs contradict each other cannot share a session. */
static bool agree(const struct contender *a, const struct contender *b)
{
    const wnw_needs x = wnw_policy_needs(a->policy), y = wnw_policy_needs(b->policy);
    const uint32_t both = x.flags & y.flags;
    if ((x.flags ^ y.flags) & WNW_NEED_QUERIES)
        return false; /* copying a session that holds every query is expensive */
    return !((both & WNW_NEED_SECOND_PASS) && x.second_pass != y.second_pass) &&
           !((both & WNW_NEED_QUERY_STATS) && x.skip != y.skip);
}

static void make_groups(struct contest *ct)
{
    for (int i = 0; i < ct->n; i++) {
        bool fits = false;
        for (int g = 0; g <= ct->n_groups && !fits; g++) {
            fits = true;
            for (int j = 0; j < i && fits; j++)
                fits = ct->c[j].left_out || ct->c[j].group != g || agree(&ct->c[i], &ct->c[j]);
            ct->c[i].group = g;
        }
        if (!ct->c[i].left_out && ct->c[i].group >= ct->n_groups)
            ct->n_groups = ct->c[i].group + 1;
    }
}

/* ---- Asking ---- */

/* The tokens of the prompt and of the answer's first words. */
struct question {
    const struct needle *needle;
    wnw_prompt prompt;
    int32_t *prefix, n_prefix;
    int32_t *task, n_task; /* all that follows the document, the answer's first words included */
    double tokens, depth;
    int attempt;
};

static int32_t best_token(const float *logits, int32_t n_vocab)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n_vocab; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

/* Reads the rest of the prompt, of which `from` tokens were read, and the answer's first words, then goes on
 * greedily. */
static int answer(const struct contest *ct, wnw_session *s, const struct question *q, int32_t from,
                  char **text)
{
    int32_t tokens[MAX_ANSWER], n = 0;
    int rc = WNW_OK;
    *text = NULL;
    if (from < q->prompt.n_tokens)
        rc = wnw_session_prefill(s, q->prompt.tokens + from, q->prompt.n_tokens - from, NULL, NULL);
    if (rc == WNW_OK)
        rc = wnw_session_prefill(s, q->prefix, q->n_prefix, NULL, NULL);
    while (rc == WNW_OK && n < MAX_ANSWER) {
        const int32_t token = best_token(wnw_session_logits(s), ct->info.n_vocab);
        if (wnw_token_is_eog(ct->model, token))
            break;
        tokens[n++] = token;
        wnw_free(*text);
        rc = wnw_detokenize(ct->model, tokens, n, text);
        if (rc != WNW_OK || strchr(*text, '\n') || strstr(*text, q->needle->number) || n == MAX_ANSWER)
            break;
        rc = wnw_session_decode(s, token);
    }
    return rc;
}

static void note_answer(struct contest *ct, struct contender *c, const struct question *q, int mode,
                        int ratio, double kept, const char *text)
{
    const bool right = text && strstr(text, q->needle->number);
    c->right[mode][ratio] += right;
    c->asked[mode][ratio]++;
    if (!ct->csv)
        return;
    fprintf(ct->csv, "%s,%d,%g,%d,%s,\"%s\",%g,%.1f,%d,\"", ct->info.name, q->prompt.n_tokens, q->depth,
            q->attempt, mode_names[mode], c->recipe, ct->args.ratios[ratio], kept, right);
    for (const char *at = text ? text : ""; *at; at++)
        fputc(*at == '"' || (unsigned char)*at < ' ' ? ' ' : *at, ct->csv);
    fputs("\"\n", ct->csv);
}

/* One policy at one ratio. */
struct entry {
    struct contender *c;
    int ratio;
    wnw_report report;
    wnw_plan *plan;
};

/* Makes the plans of n entries from one observation of the cache. If that fails, they are made one by one,
 * because a single policy may be the cause. */
static void plan_entries(const struct contest *ct, wnw_session *s, struct entry *e, int n, int mode)
{
    const wnw_policy *policies[MAX_ENTRIES] = {0};
    wnw_size sizes[MAX_ENTRIES] = {0};
    wnw_plan *plans[MAX_ENTRIES] = {0};
    wnw_report *reports = calloc((size_t)n + 1, sizeof *reports);
    for (int i = 0; i < n; i++) {
        const bool full = wnw_policy_is_full(e[i].c->policy);
        policies[i] = e[i].c->policy;
        e[i].report = wnw_report_default();
        if (reports)
            reports[i] = wnw_report_default();
        sizes[i] =
            (wnw_size){.kind = full ? WNW_SIZE_NONE : WNW_SIZE_RATIO, .ratio = ct->args.ratios[e[i].ratio]};
    }
    const bool ok = reports && wnw_session_plan_many(s, policies, sizes, n, plans, reports) == WNW_OK;
    for (int i = 0; i < n; i++) {
        if (!ok && wnw_session_plan(s, policies[i], &sizes[i], &plans[i], &e[i].report) != WNW_OK)
            fprintf(stderr, "needles: %s, %s: %s\n", e[i].c->recipe, mode_names[mode], wnw_last_error());
        else if (ok)
            e[i].report = reports[i];
        e[i].plan = plans[i];
    }
    free(reports);
}

/* Compresses a copy of the session by the entry's plan and answers. The full cache answers once for all
 * ratios. */
static int ask_entry(struct contest *ct, const struct entry *e, const wnw_session *s,
                     const struct question *q, int mode)
{
    wnw_session *copy = NULL;
    char *text = NULL;
    if (!e->plan)
        return WNW_OK; /* the other policies go on */
    int rc = wnw_session_copy(&copy, s);
    if (rc == WNW_OK)
        rc = wnw_session_apply(copy, e->plan, NULL);
    if (rc == WNW_OK && wnw_policy_rerotates(e->c->policy))
        rc = wnw_session_renumber(copy);
    if (rc == WNW_OK)
        rc = answer(ct, copy, q, wnw_session_n_past(s), &text);
    const int last = wnw_policy_is_full(e->c->policy) ? ct->args.n_ratios - 1 : e->ratio;
    for (int r = e->ratio; r <= last && rc == WNW_OK; r++)
        note_answer(ct, e->c, q, mode, r, e->report.kept_mean, text);
    wnw_free(text);
    wnw_session_free(copy);
    return rc;
}

static int ask_mode(struct contest *ct, wnw_session *s, const struct question *q, int group, int mode)
{
    static struct entry entries[MAX_ENTRIES]; /* too large for the stack */
    int n = 0, rc = WNW_OK;
    for (int i = 0; i < ct->n; i++) {
        struct contender *c = &ct->c[i];
        const int n_ratios = wnw_policy_is_full(c->policy) ? 1 : ct->args.n_ratios;
        for (int r = 0; r < n_ratios && !c->left_out && c->group == group; r++)
            entries[n++] = (struct entry){.c = c, .ratio = r};
    }
    plan_entries(ct, s, entries, n, mode);
    for (int i = 0; i < n; i++) {
        if (rc == WNW_OK)
            rc = ask_entry(ct, &entries[i], s, q, mode);
        wnw_plan_free(entries[i].plan);
    }
    return rc;
}

static int ask_group(struct contest *ct, const struct question *q, int group)
{
    const wnw_policy *policies[MAX_POLICIES];
    wnw_session_params params = wnw_session_default_params();
    wnw_session *s = NULL;
    int32_t n = 0;
    params.n_ctx = q->prompt.n_tokens + q->n_prefix + MAX_ANSWER;
    params.n_threads = ct->args.n_threads;
    params.kv_type = ct->args.kv_type;
    for (int i = 0; i < ct->n; i++)
        if (!ct->c[i].left_out && ct->c[i].group == group)
            policies[n++] = ct->c[i].policy;
    int rc = wnw_session_new(&s, ct->model, &params);
    if (rc == WNW_OK)
        rc = wnw_session_set_profile(s, ct->profile);
    if (rc == WNW_OK)
        rc = wnw_session_set_tasks(s, (const int32_t *const[]){q->task}, &q->n_task, 1);
    if (rc == WNW_OK)
        rc = wnw_session_observe(s, policies, n);
    if (rc == WNW_OK)
        rc = wnw_session_set_template(s, q->prompt.n_prefix, q->prompt.suffix, q->prompt.n_suffix);
    for (int mode = N_MODES - 1; mode >= 0 && rc == WNW_OK; mode--) {
        const int32_t from = wnw_session_n_past(s), to = mode == 0 ? q->prompt.n_tokens : q->prompt.n_context;
        if (!ct->args.modes[mode])
            continue;
        rc = wnw_session_prefill(s, q->prompt.tokens + from, to - from, NULL, NULL);
        if (rc == WNW_OK)
            rc = ask_mode(ct, s, q, group, mode);
    }
    wnw_session_free(s);
    return rc;
}

/* The task of a policy, as in kvpress: question, the template's tail and the answer's first words. */
static int make_task(struct question *q)
{
    const int32_t n = q->prompt.n_tokens - q->prompt.n_context;
    q->n_task = n + q->n_prefix;
    q->task = malloc((size_t)q->n_task * sizeof *q->task);
    if (!q->task)
        return WNW_E_NOMEM;
    memcpy(q->task, q->prompt.tokens + q->prompt.n_context, (size_t)n * sizeof *q->task);
    memcpy(q->task + n, q->prefix, (size_t)q->n_prefix * sizeof *q->task);
    return WNW_OK;
}

/* Writes the prompt's tokens as text, without the template's control tokens. */
static int write_prompt(const struct contest *ct, const struct question *q)
{
    char *prompt, *prefix = NULL, *task = NULL;
    int rc = wnw_detokenize(ct->model, q->prompt.tokens, q->prompt.n_tokens, &prompt);
    if (rc == WNW_OK)
        rc = wnw_detokenize(ct->model, q->prefix, q->n_prefix, &prefix);
    if (rc == WNW_OK)
        rc = wnw_detokenize(ct->model, q->task, q->n_task, &task);
    if (rc == WNW_OK)
        fprintf(ct->prompts, "=== %d tokens, depth %g, try %d\n%s%s\n=== task\n%s\n", q->prompt.n_tokens,
                q->depth, q->attempt, prompt, prefix, task);
    wnw_free(prompt);
    wnw_free(prefix);
    wnw_free(task);
    return rc;
}

static int ask(struct contest *ct, double tokens, double depth, int attempt)
{
    struct needle needle;
    struct question q = {.needle = &needle,
                         .prompt = wnw_prompt_default(),
                         .tokens = tokens,
                         .depth = depth,
                         .attempt = attempt};
    const uint64_t seed =
        ct->args.seed * 1000003 + (uint64_t)tokens * 1009 + (uint64_t)depth * 101 + (uint64_t)attempt;
    int rc = make_needle(&needle, &ct->args, &ct->source, (size_t)(tokens * ct->bytes_per_token), depth, seed)
                 ? WNW_OK
                 : WNW_E_NOMEM;
    const wnw_prompt_params params = {WNW_INIT(wnw_prompt_params), .document = needle.document.s,
                                      .question = needle.question.s};
    if (rc == WNW_OK)
        rc = wnw_prompt_build(&q.prompt, ct->model, &params);
    if (rc == WNW_OK)
        rc =
            wnw_tokenize(ct->model, needle.prefix.s, needle.prefix.len, false, false, &q.prefix, &q.n_prefix);
    if (rc == WNW_OK)
        rc = make_task(&q);
    if (rc == WNW_OK && ct->prompts)
        rc = write_prompt(ct, &q);
    for (int g = 0; g < ct->n_groups && rc == WNW_OK && !ct->prompts; g++)
        rc = ask_group(ct, &q, g);
    fprintf(stderr, "needles: %d tokens, depth %g %%, try %d: %s\n", q.prompt.n_tokens, depth, attempt,
            rc == WNW_OK ? "done" : wnw_last_error());
    wnw_free(q.prefix);
    free(q.task);
    wnw_prompt_clear(&q.prompt);
    free_needle(&needle);
    return rc;
}

/* ---- The table ---- */

static void print_table(const struct contest *ct)
{
    const struct args *a = &ct->args;
    int width = 8;
    for (int i = 0; i < ct->n; i++)
        width = (int)strlen(ct->c[i].recipe) > width ? (int)strlen(ct->c[i].recipe) : width;
    printf("%s: right answers\n%-*s", ct->info.name, width, "");
    for (int m = 0; m < N_MODES; m++)
        if (a->modes[m])
            printf("  %-*s", 9 * a->n_ratios - 2, mode_names[m]);
    printf("\n%-*s", width, "kept");
    for (int m = 0; m < N_MODES; m++)
        for (int r = 0; r < a->n_ratios && a->modes[m]; r++)
            printf("  %5.1f %%", 100 * (1 - a->ratios[r]));
    puts("");
    for (int i = 0; i < ct->n; i++) {
        const struct contender *c = &ct->c[i];
        printf("%-*s", width, c->recipe);
        for (int m = 0; m < N_MODES; m++)
            for (int r = 0; r < a->n_ratios && a->modes[m]; r++) {
                char cell[32] = "-";
                if (c->asked[m][r] > 0)
                    snprintf(cell, sizeof cell, "%d/%d", c->right[m][r], c->asked[m][r]);
                printf("  %7s", cell);
            }
        puts("");
    }
}

/* Measures the bytes of the source per token, from which the size of a text of a given length follows. */
static int measure_source(struct contest *ct)
{
    int32_t *tokens, n;
    const size_t most = ct->source.len < 65536 ? ct->source.len : 65536;
    char *sample = source_take(&ct->source, most, ct->args.seed);
    const size_t len = sample ? strlen(sample) : 0;
    const int rc = sample ? wnw_tokenize(ct->model, sample, len, false, false, &tokens, &n) : WNW_E_NOMEM;
    if (rc == WNW_OK) {
        ct->bytes_per_token = n > 0 ? (double)len / n : 4;
        wnw_free(tokens);
    }
    free(sample);
    return rc;
}

/* Refuses lengths beyond the source, because a text must not repeat: the queries in a method's observation
 * window would attend to the first copy of a sentence that they repeat. */
static int check_lengths(const struct contest *ct)
{
    for (int t = 0; t < ct->args.n_tokens; t++)
        if (ct->args.tokens[t] * ct->bytes_per_token > (double)ct->source.len)
            return complain(
                "--tokens %g: %s has about %.0f tokens without a repeated sentence; ask for fewer or "
                "give a longer text with -f",
                ct->args.tokens[t], ct->args.text ? ct->args.text : "generated prose",
                floor((double)ct->source.len / ct->bytes_per_token));
    return 0;
}

static int run(struct contest *ct)
{
    const struct args *a = &ct->args;
    int rc = wnw_model_open(&ct->model, a->model, NULL);
    if (rc == WNW_OK) {
        ct->info = wnw_model_info_default();
        rc = wnw_model_get_info(ct->model, &ct->info);
    }
    if (rc == WNW_OK)
        rc = measure_source(ct);
    if (rc == WNW_OK && check_lengths(ct) != 0)
        return 2;
    if (rc == WNW_OK)
        rc = load_profile(ct);
    make_groups(ct);
    for (int t = 0; t < a->n_tokens; t++)
        for (int d = 0; d < a->n_depths; d++)
            for (int k = 0; k < a->n_tries && rc == WNW_OK; k++)
                rc = ask(ct, a->tokens[t], a->depths[d], k);
    if (rc == WNW_OK && !ct->prompts)
        print_table(ct);
    return rc == WNW_OK ? 0 : (complain("%s", wnw_last_error()), 1);
}

int main(int argc, char **argv)
{
    static struct contest ct;
    int rc = read_args(&ct.args, argc, argv);
    if (rc == 0)
        rc = ct.args.policies ? add_list(&ct, ct.args.policies) : add_presets(&ct);
    if (rc == 0 && !source_open(&ct.source, ct.args.text))
        rc = complain("cannot read '%s', or nothing is in it", ct.args.text);
    if (rc == 0 && ct.args.csv && !(ct.csv = fopen(ct.args.csv, "w")))
        rc = complain("cannot write '%s'", ct.args.csv);
    if (rc == 0 && ct.args.prompts && !(ct.prompts = fopen(ct.args.prompts, "w")))
        rc = complain("cannot write '%s'", ct.args.prompts);
    if (ct.csv)
        fputs("model,prompt_tokens,depth,try,mode,policy,ratio,kept_mean,right,answer\n", ct.csv);
    if (rc == 0)
        rc = run(&ct);
    if (ct.csv && fclose(ct.csv) != 0)
        rc = (complain("cannot write '%s'", ct.args.csv), 1);
    if (ct.prompts && fclose(ct.prompts) != 0)
        rc = (complain("cannot write '%s'", ct.args.prompts), 1);
    for (int i = 0; i < ct.n; i++) {
        wnw_policy_free(ct.c[i].policy);
        free(ct.c[i].recipe);
    }
    wnw_profile_free(ct.profile);
    wnw_model_free(ct.model);
    source_close(&ct.source);
    return rc;
}
