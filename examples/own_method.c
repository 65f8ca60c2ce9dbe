/* SPDX-License-Identifier: MIT */
/*
 * A method of your own, in your own program, without touching winnow's source.
 *
 *     own_method MODEL.gguf [TEXTFILE [QUESTION]]
 *
 * The scorer below prefers entries whose value vector is long compared with the average of their head, and
 * among them later ones a little more. It is here to show the steps, not to win. They are:
 * describe the options, fill a wnw_scorer, register it, and use its name in a recipe; budgets and selectors
 * of the library then combine with it ("stand_out+adakv"). docs/research/new-method.md walks through this file.
 *
 * The program reads one prompt and lets policies of the library and this one answer from copies of the same
 * cache. Without a text it makes one up in which a number is hidden, and says who still finds it.
 */
#include <winnow_method.h>
#include <winnow_tools.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns from the function where a call fails. The caller frees everything. */
#define TRY(call)                   \
    do {                            \
        const int status_ = (call); \
        if (status_ != WNW_OK)      \
            return status_;         \
    } while (0)

/* ---- The method ---- */

struct stand_out_opts {
    double recency;
    int32_t window;
};

static const wnw_option stand_out_options[] = {{.name = "recency",
                                                .help = "bonus of the newest entry over the oldest",
                                                .type = WNW_OPT_REAL,
                                                .offset = offsetof(struct stand_out_opts, recency),
                                                .def = 0.5,
                                                .min = 0,
                                                .max = 100},
                                               {.name = "window",
                                                .help = "newest entries that always stay",
                                                .type = WNW_OPT_INT,
                                                .offset = offsetof(struct stand_out_opts, window),
                                                .def = 32,
                                                .min = 0,
                                                .max = 4096},
                                               {.name = NULL}};

static void stand_out_needs(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_VALUES;
}

static void stand_out_keep(const void *opts, const wnw_keep_problem *p, wnw_protected *out)
{
    const struct stand_out_opts *o = opts;
    (void)p;
    out->n_first = 4;
    out->n_last = o->window;
}

/* score[ih][i] = ||v_i|| / mean ||v|| + recency * i / n */
static int stand_out_score(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    const struct stand_out_opts *o = opts;
    const int32_t d = obs->n_embd_head;
    (void)scratch;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        const float *v = obs->values(obs, ih); /* [n][d] */
        float *s = score + (size_t)ih * (size_t)obs->n;
        const int32_t n = obs->n_entry[ih];
        double sum = 0;
        for (int32_t i = 0; i < n; i++) {
            double square = 0;
            for (int32_t c = 0; c < d; c++)
                square += (double)v[(size_t)i * (size_t)d + (size_t)c] * v[(size_t)i * (size_t)d + (size_t)c];
            s[i] = (float)sqrt(square);
            sum += s[i];
        }
        const double mean = sum > 0 ? sum / n : 1;
        for (int32_t i = 0; i < n; i++)
            s[i] = (float)(s[i] / mean + o->recency * i / n);
    }
    return WNW_OK;
}

static const wnw_scorer stand_out = {
    .part =
        {
            WNW_SCORER_INIT,
            .name = "stand_out",
            .about = "Entries whose value vector is long, and recent ones.",
            .options = stand_out_options,
            .options_size = sizeof(struct stand_out_opts),
            .needs = stand_out_needs,
            .keep = stand_out_keep,
        },
    .score = stand_out_score,
};

/* ---- The prompt ---- */

static const char number[] = "7391624";

static char *read_text(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    size_t len = 0, cap = 1 << 16;
    char *text = malloc(cap);
    while (text) {
        len += fread(text + len, 1, cap - 1 - len, f);
        if (len < cap - 1)
            break;
        char *grown = realloc(text, cap *= 2);
        if (!grown)
            free(text);
        text = grown;
    }
    if (text)
        text[len] = '\0';
    fclose(f);
    return text;
}

/* Makes a monotonous text with one fact in its first half. */
static char *make_text(void)
{
    enum { N_LINES = 40, NEEDLE_LINE = 15, LINE = 96 };
    char *text = malloc((N_LINES + 3) * LINE);
    if (!text)
        return NULL;
    size_t len =
        (size_t)sprintf(text, "A special magic number is hidden within the following text. Make sure to "
                              "memorize it.\n\n");
    for (int i = 0; i < N_LINES; i++) {
        if (i == NEEDLE_LINE)
            len += (size_t)sprintf(text + len, "The special magic number for harbor is: %s.\n", number);
        len += (size_t)sprintf(text + len, "Train %d leaves in the morning and comes back in the evening.\n",
                               i + 1);
    }
    return text;
}

struct prompt {
    wnw_prompt *whole;
    const int32_t *tokens; /* [n_tokens] of it */
    int32_t n_tokens;
    int32_t *start, n_start; /* the answer's first words, for the made-up text */
};

static int build_prompt(struct prompt *p, const wnw_model *m, const char *text, const char *question)
{
    static const char start[] = "The special magic number for harbor mentioned in the provided text is";
    const bool made_up = !question;
    const wnw_prompt_params params = {
        WNW_INIT(wnw_prompt_params), .document = text,
        .question = made_up ? "What is the special magic number for harbor mentioned in the provided text?"
                            : question};
    TRY(wnw_prompt_build(&p->whole, m, &params));
    p->tokens = wnw_prompt_tokens(p->whole, &p->n_tokens);
    return made_up ? wnw_tokenize(m, start, sizeof start - 1, false, false, &p->start, &p->n_start) : WNW_OK;
}

/* ---- The comparison ---- */

/* Compresses the session by half and prints how many entries the first layer keeps. */
static int compress(wnw_session *s, const wnw_model *m, const struct prompt *prompt, const wnw_policy *policy)
{
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    wnw_report report = {WNW_INIT(wnw_report)};
    const wnw_size size = {.kind = wnw_policy_is_full(policy) ? WNW_SIZE_NONE : WNW_SIZE_RATIO, .ratio = 0.5};
    TRY(wnw_model_get_info(m, &info));
    TRY(wnw_session_compress(s, policy, &size, &report));
    printf("%s\n  keeps %.1f of %d entries per head, in layer 0:", wnw_policy_string(policy),
           report.kept_mean, prompt->n_tokens);
    for (int32_t ih = 0; ih < info.n_head_kv; ih++)
        printf(" %d", wnw_cache_n(s, 0, ih));
    printf("\n");
    return WNW_OK;
}

static int answer(wnw_session *s, const struct prompt *prompt)
{
    const wnw_generate_params params = {WNW_INIT(wnw_generate_params),
                                        .n_max = prompt->n_start > 0 ? 12 : 48};
    wnw_sampler *sampler = NULL;
    wnw_generated said = wnw_generated_default();
    if (prompt->n_start > 0)
        TRY(wnw_session_prefill(s, prompt->start, prompt->n_start, NULL, NULL));
    TRY(wnw_sampler_new(&sampler, NULL));
    const int rc = wnw_generate(&said, s, sampler, &params);
    if (rc == WNW_OK)
        printf("  answer: %s\n", said.text);
    if (rc == WNW_OK && prompt->n_start > 0)
        printf("  the number was %s\n", strstr(said.text, number) ? "found" : "lost");
    wnw_generated_clear(&said);
    wnw_sampler_free(sampler);
    return rc;
}

/* Lets a compressed copy of the session answer. */
static int run_policy(const wnw_session *read, const wnw_model *m, const struct prompt *prompt,
                      const wnw_policy *policy)
{
    wnw_session *s = NULL;
    TRY(wnw_session_copy(&s, read));
    int rc = compress(s, m, prompt, policy);
    if (rc == WNW_OK)
        rc = answer(s, prompt);
    wnw_session_free(s);
    return rc;
}

static const char *const recipes[] = {"full", "streaming_llm", "snapkv",
                                      "tova", "stand_out",     "stand_out:recency=0.1+adakv"};
enum { N_RECIPES = sizeof recipes / sizeof *recipes };

/* What the program makes. main frees it in any case. */
struct made {
    wnw_registry *registry;
    wnw_model *model;
    struct prompt prompt;
    wnw_session *session; /* reads the prompt once, and is copied for every policy */
    wnw_policy *policies[N_RECIPES];
};

static int compare(struct made *x)
{
    TRY(wnw_session_new(&x->session, x->model, NULL));
    for (int i = 0; i < N_RECIPES; i++)
        TRY(wnw_policy_parse(&x->policies[i], recipes[i], x->registry));
    /* One reading collects what all policies observe. */
    const wnw_run run = {WNW_INIT(wnw_run), .prompt = x->prompt.whole,
                         .more = &(wnw_run_more){WNW_INIT(wnw_run_more), .question_later = true,
                                                 .policies = (const wnw_policy *const *)x->policies,
                                                 .n_policies = N_RECIPES}};
    TRY(wnw_session_begin(x->session, &run));
    TRY(wnw_session_prefill(x->session, x->prompt.tokens, x->prompt.n_tokens, NULL, NULL));
    for (int i = 0; i < N_RECIPES; i++)
        TRY(run_policy(x->session, x->model, &x->prompt, x->policies[i]));
    return WNW_OK;
}

static int open_and_compare(struct made *x, const char *path, const char *text, const char *question)
{
    TRY(wnw_registry_new(&x->registry));
    TRY(wnw_registry_add(x->registry, &stand_out.part));
    TRY(wnw_model_open(&x->model, path, NULL));
    TRY(build_prompt(&x->prompt, x->model, text, question));
    return compare(x);
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 4) {
        fprintf(stderr, "usage: own_method MODEL.gguf [TEXTFILE [QUESTION]]\n");
        return 2;
    }
    struct made x = {.registry = NULL};
    char *text = argc > 2 ? read_text(argv[2]) : make_text();
    const char *usual = argc > 2 ? "What is this text about?" : NULL, *question = argc > 3 ? argv[3] : usual;
    if (!text) {
        fprintf(stderr, "own_method: cannot read %s\n", argc > 2 ? argv[2] : "the made-up text");
        return 2;
    }
    const int rc = open_and_compare(&x, argv[1], text, question);
    if (rc != WNW_OK)
        fprintf(stderr, "own_method: %s\n", wnw_last_error());

    for (int i = 0; i < N_RECIPES; i++)
        wnw_policy_free(x.policies[i]);
    wnw_session_free(x.session);
    wnw_prompt_free(x.prompt.whole);
    wnw_free(x.prompt.start);
    wnw_model_free(x.model);
    wnw_registry_free(x.registry);
    free(text);
    return rc == WNW_OK ? 0 : 1;
}
