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
    int rc = wnw_prompt_build(&p->whole, m, &params);
    p->tokens = wnw_prompt_tokens(p->whole, &p->n_tokens);
    if (rc == WNW_OK && made_up)
        rc = wnw_tokenize(m, start, sizeof start - 1, false, false, &p->start, &p->n_start);
    return rc;
}

/* ---- The comparison ---- */

/* Compresses a copy of the session by half and lets it answer. */
static int run_policy(const wnw_session *read, const wnw_model *m, const struct prompt *prompt,
                      const wnw_policy *policy)
{
    wnw_session *s = NULL;
    wnw_model_info info = {WNW_INIT(wnw_model_info)};
    wnw_report report = {WNW_INIT(wnw_report)};
    wnw_sampler *sampler = NULL;
    wnw_generated answer = wnw_generated_default();
    const wnw_generate_params of_answer = {WNW_INIT(wnw_generate_params),
                                           .n_max = prompt->n_start > 0 ? 12 : 48};
    const wnw_size size = {.kind = wnw_policy_is_full(policy) ? WNW_SIZE_NONE : WNW_SIZE_RATIO, .ratio = 0.5};
    int rc = wnw_model_get_info(m, &info);
    if (rc == WNW_OK)
        rc = wnw_session_copy(&s, read);
    if (rc == WNW_OK)
        rc = wnw_session_compress(s, policy, &size, &report);
    if (rc == WNW_OK) {
        printf("%s\n  keeps %.1f of %d entries per head, in layer 0:", wnw_policy_string(policy),
               report.kept_mean, prompt->n_tokens);
        for (int32_t ih = 0; ih < info.n_head_kv; ih++)
            printf(" %d", wnw_cache_n(s, 0, ih));
        printf("\n");
    }
    if (rc == WNW_OK && prompt->n_start > 0)
        rc = wnw_session_prefill(s, prompt->start, prompt->n_start, NULL, NULL);
    if (rc == WNW_OK)
        rc = wnw_sampler_new(&sampler, NULL);
    if (rc == WNW_OK)
        rc = wnw_generate(&answer, s, sampler, &of_answer);
    if (rc == WNW_OK)
        printf("  answer: %s\n", answer.text);
    if (rc == WNW_OK && prompt->n_start > 0)
        printf("  the number was %s\n", strstr(answer.text, number) ? "found" : "lost");
    wnw_generated_clear(&answer);
    wnw_sampler_free(sampler);
    wnw_session_free(s);
    return rc;
}

static int compare(const wnw_model *m, const struct prompt *prompt, const wnw_registry *registry)
{
    static const char *const recipes[] = {"full", "streaming_llm", "snapkv",
                                          "tova", "stand_out",     "stand_out:recency=0.1+adakv"};
    enum { N = sizeof recipes / sizeof *recipes };
    wnw_policy *policies[N] = {NULL};
    wnw_session *s = NULL;
    int rc = wnw_session_new(&s, m, NULL);
    for (int i = 0; rc == WNW_OK && i < N; i++)
        rc = wnw_policy_parse(&policies[i], recipes[i], registry);
    /* One reading collects what all policies observe. */
    const wnw_run run = {WNW_INIT(wnw_run), .prompt = prompt->whole,
                         .more = &(wnw_run_more){WNW_INIT(wnw_run_more), .question_later = true,
                                                 .policies = (const wnw_policy *const *)policies,
                                                 .n_policies = N}};
    if (rc == WNW_OK)
        rc = wnw_session_begin(s, &run);
    if (rc == WNW_OK)
        rc = wnw_session_prefill(s, prompt->tokens, prompt->n_tokens, NULL, NULL);
    for (int i = 0; rc == WNW_OK && i < N; i++)
        rc = run_policy(s, m, prompt, policies[i]);
    for (int i = 0; i < N; i++)
        wnw_policy_free(policies[i]);
    wnw_session_free(s);
    return rc;
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 4) {
        fprintf(stderr, "usage: own_method MODEL.gguf [TEXTFILE [QUESTION]]\n");
        return 2;
    }
    wnw_model *model = NULL;
    wnw_registry *registry = NULL;
    struct prompt prompt = {.whole = NULL};
    char *text = argc > 2 ? read_text(argv[2]) : make_text();
    const char *usual = argc > 2 ? "What is this text about?" : NULL, *question = argc > 3 ? argv[3] : usual;
    if (!text) {
        fprintf(stderr, "own_method: cannot read %s\n", argc > 2 ? argv[2] : "the made-up text");
        return 2;
    }
    int rc = wnw_registry_new(&registry);
    if (rc == WNW_OK)
        rc = wnw_registry_add(registry, &stand_out.part);
    if (rc == WNW_OK)
        rc = wnw_model_open(&model, argv[1], NULL);
    if (rc == WNW_OK)
        rc = build_prompt(&prompt, model, text, question);
    if (rc == WNW_OK)
        rc = compare(model, &prompt, registry);
    if (rc != WNW_OK)
        fprintf(stderr, "own_method: %s\n", wnw_last_error());

    wnw_prompt_free(prompt.whole);
    wnw_free(prompt.start);
    wnw_model_free(model);
    wnw_registry_free(registry);
    free(text);
    return rc == WNW_OK ? 0 : 1;
}
