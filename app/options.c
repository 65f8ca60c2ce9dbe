/* SPDX-License-Identifier: MIT */
/* The option tables, and what is derived from them: popt's table, strict values, range errors, help. */
#include "app/app.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <popt.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(struct cli_args, field)
#define GROUP(id, heading, table) \
    const struct cli_group id = {.title = heading, .options = table, .n = (int)(sizeof table / sizeof *table)}

static const struct cli_option model_options[] = {
    {"model", 'm', CLI_TEXT, "MODEL", "smollm2-135m", NULL, "GGUF file, or a name from `winnow models`",
     AT(model), 0, 0, NULL},
    {"threads", 't', CLI_INT, "THREADS", NULL, "usable cores", "threads to compute with", AT(threads), 1, 512,
     "1 to 512"},
    {"kv-type", 0, CLI_TEXT, "TYPE", "f16", NULL, "cache type: f16, q8_0, q4_0 or f32", AT(kv_type), 0, 0,
     NULL},
    {"attn", 0, CLI_TEXT, "KIND", "own", NULL, "attention: own (our kernels) or ggml (standard operations)",
     AT(attn), 0, 0, NULL},
};
GROUP(cli_group_model, "Model", model_options);

static const struct cli_option input_options[] = {
    {"file", 'f', CLI_TEXT, "DOC", NULL, "none", "document, UTF-8 text", AT(file), 0, 0, NULL},
    {"tokens", 0, CLI_TEXT, "FILE", NULL, "none",
     "token ids, whitespace separated, fed exactly as given (instead of -f and -p)", AT(tokens), 0, 0, NULL},
    {"prompt", 'p', CLI_PROSE, "QUESTION", NULL, "none", "question, put after the document", AT(question), 0,
     0, NULL},
    {"system", 0, CLI_PROSE, "TEXT", NULL, "the template's own", "system message", AT(system), 0, 0, NULL},
    {"raw", 0, CLI_FLAG, NULL, NULL, "off",
     "no chat template: BOS where the vocabulary adds one, then the text", AT(raw), 0, 0, NULL},
    {"chat", 0, CLI_TEXT, "NAME", NULL, "the model's", "one of libllama's chat templates, e.g. chatml",
     AT(chat), 0, 0, NULL},
    {"context-only", 0, CLI_FLAG, NULL, NULL, "off",
     "compress the document before the question is read (default: compress both)", AT(context_only), 0, 0,
     NULL},
};
GROUP(cli_group_input, "Input", input_options);

static const struct cli_option policy_options[] = {
    {"policy", 0, CLI_TEXT, "RECIPE", NULL, "full, or snapkv where a size is given",
     "what to keep, e.g. snapkv:window=32+adakv; `winnow methods` lists the parts", AT(policy), 0, 0, NULL},
    {"budget", 0, CLI_INT, "N", NULL, "none", "size: average entries kept per layer and KV head", AT(budget),
     1, 2147483647, "1 to 2147483647"},
    {"ratio", 0, CLI_REAL, "R", NULL, "0.5 if the policy needs a size", "size: fraction removed, 0 <= R < 1",
     AT(ratio), 0, 0.9999999999999999, "at least 0 and less than 1"},
    {"kv-bytes", 0, CLI_BYTES, "SIZE", NULL, "none", "size: bytes of kept keys and values, suffix K, M or G",
     AT(kv_bytes), 1, 4611686018427387904.0, "1 byte to 4294967296G"},
    {"evict", 0, CLI_TEXT, "WHEN", "end", NULL,
     "when to compress: end (of the prompt), layer (one layer after the other), chunk[:C] (every C tokens, "
     "512 "
     "or the method's own)",
     AT(evict), 0, 0, NULL},
    {"evict-every", 0, CLI_TEXT, "I[:T]", NULL, "off, but for methods with a rule of their own (lagkv)",
     "while generating: after every I tokens shrink to T entries per layer and head (default: the prompt's "
     "size)",
     AT(evict_every), 0, 0, NULL},
    {"profile", 0, CLI_TEXT, "PATH", NULL, "the cache folder's, then shipped ones",
     "calibration results that the policy needs: a file, or a folder of them", AT(profile), 0, 0, NULL},
};
GROUP(cli_group_policy, "What to keep (at most one size)", policy_options);

static const struct cli_option generate_options[] = {
    {NULL, 'n', CLI_INT, "N", "256", NULL, "most tokens to generate", AT(n), 0, 2147483647,
     "0 to 2147483647"},
    {"temp", 0, CLI_REAL, "T", "0", NULL, "temperature, 0 = greedy", AT(temp), 0, 100, "0 to 100"},
    {"top-k", 0, CLI_INT, "K", "40", NULL, "sample from the K best tokens, 0 = all", AT(top_k), 0, 2147483647,
     "0 to 2147483647"},
    {"top-p", 0, CLI_REAL, "P", "0.95", NULL, "sample from the best tokens with this probability, 1 = all",
     AT(top_p), 0, 1, "0 to 1"},
    {"seed", 0, CLI_INT, "S", "42", NULL, "seed of the sampler", AT(seed), 0, 4294967295.0,
     "0 to 4294967295"},
    {"json", 0, CLI_FLAG, NULL, NULL, "off", "print one JSON object instead of the answer", AT(json), 0, 0,
     NULL},
};
GROUP(cli_group_generate, "Answer", generate_options);

static const struct cli_option plan_options[] = {
    {"output", 'o', CLI_TEXT, "FILE", NULL, "none, must be given", "where to write the keep-plan", AT(out), 0,
     0, NULL},
};
GROUP(cli_group_plan, "Output", plan_options);

static const struct cli_option tokens_options[] = {
    {"pieces", 0, CLI_FLAG, NULL, NULL, "off",
     "one token a line with its text; line breaks, tabs, backslashes and stray bytes as in C", AT(pieces), 0,
     0, NULL},
};
GROUP(cli_group_tokens, "Output", tokens_options);

static const struct cli_option ppl_options[] = {
    {"file", 'f', CLI_TEXT, "TEXT", NULL, "none", "text to score, BOS is added where the vocabulary does",
     AT(file), 0, 0, NULL},
    {"tokens", 0, CLI_TEXT, "FILE", NULL, "none", "token ids to score (instead of -f)", AT(tokens), 0, 0,
     NULL},
    {NULL, 'n', CLI_INT, "N", NULL, "all that fit", "tokens of the text to read at most", AT(n), 2,
     2147483647, "2 to 2147483647"},
    {"prefix", 0, CLI_INT, "N", NULL, "0, or half where a policy compresses",
     "tokens that are read (and compressed) first and not scored", AT(prefix), 0, 2147483647,
     "0 to 2147483647"},
    {"json", 0, CLI_FLAG, NULL, NULL, "off", "print one JSON object", AT(json), 0, 0, NULL},
};
GROUP(cli_group_ppl, "Text", ppl_options);

static const struct cli_option bench_options[] = {
    {"model", 'm', CLI_TEXT, "MODEL", "smollm2-135m", NULL, "GGUF file, or a name from `winnow models`",
     AT(model), 0, 0, NULL},
    {"threads", 't', CLI_INT, "THREADS", NULL, "usable cores", "threads for both programs", AT(threads), 1,
     512, "1 to 512"},
    {"lengths", 0, CLI_TEXT, "LIST", "512,2048,8192", NULL, "context lengths in tokens", AT(lengths), 0, 0,
     NULL},
    {"reps", 0, CLI_INT, "N", "3", NULL, "rounds per length; medians are taken over them", AT(reps), 1, 1000,
     "1 to 1000"},
    {"decode-tokens", 0, CLI_INT, "N", "32", NULL, "tokens decoded per round", AT(decode_tokens), 1, 4096,
     "1 to 4096"},
    {"policy", 0, CLI_TEXT, "RECIPE", "snapkv", NULL, "what the compressed cache keeps", AT(policy), 0, 0,
     NULL},
    {"budget", 0, CLI_INT, "N", NULL, "1/8 of the length", "entries kept per layer and KV head", AT(budget),
     1, 2147483647, "1 to 2147483647"},
    {"csv", 0, CLI_TEXT, "FILE", NULL, "none", "write every number as a table", AT(csv), 0, 0, NULL},
    {"json", 0, CLI_FLAG, NULL, NULL, "off", "print one JSON object instead of the table", AT(json), 0, 0,
     NULL},
};
GROUP(cli_group_bench, "Options", bench_options);

/* What the benchmarks of parts of the library have in common. */
#define BENCH_PART_OPTIONS                                                                                   \
    {"model",   'm', CLI_TEXT, "MODEL", "smollm2-135m", NULL, "GGUF file, or a name from `winnow models`",   \
     AT(model), 0,   0,        NULL},                                                                        \
        {"threads",   't', CLI_INT, "THREADS", NULL, "usable cores", "threads to compute with",              \
         AT(threads), 1,   512,     "1 to 512"},                                                             \
        {"lengths", 0, CLI_TEXT, "LIST", "8192", NULL, "prompt lengths in tokens", AT(lengths), 0, 0, NULL}, \
        {"reps",   0, CLI_INT, "N",        "3", NULL, "rounds per length; medians are taken over them",      \
         AT(reps), 1, 1000,    "1 to 1000"},                                                                 \
        {"ratio",                                                                                            \
         0,                                                                                                  \
         CLI_REAL,                                                                                           \
         "R",                                                                                                \
         "0.5",                                                                                              \
         NULL,                                                                                               \
         "fraction removed, 0 <= R < 1",                                                                     \
         AT(ratio),                                                                                          \
         0,                                                                                                  \
         0.9999999999999999,                                                                                 \
         "at least 0 and less than 1"},                                                                      \
        {"csv", 0, CLI_TEXT, "FILE", NULL, "none", "write every number as a table", AT(csv), 0, 0, NULL},    \
        {"json",   0, CLI_FLAG, NULL, NULL, "off", "print one JSON object instead of the table",             \
         AT(json), 0, 0,        NULL},

static const struct cli_option bench_observe_options[] = {BENCH_PART_OPTIONS};
GROUP(cli_group_bench_observe, "Options", bench_observe_options);

static const struct cli_option bench_methods_options[] = {
    BENCH_PART_OPTIONS{"policies", 0, CLI_TEXT, "LIST", NULL, "all presets but parity presets",
                       "recipes; key=value goes on with the one before", AT(policies), 0, 0, NULL},
    {"profile", 0, CLI_TEXT, "PATH", NULL, "those of the model", "calibration results, a file or a folder",
     AT(profile), 0, 0, NULL},
    {"markdown", 0, CLI_FLAG, NULL, NULL, "off", "print a Markdown table", AT(markdown), 0, 0, NULL},
};
GROUP(cli_group_bench_methods, "Options", bench_methods_options);

static const struct cli_option methods_options[] = {
    {"markdown", 0, CLI_FLAG, NULL, NULL, "off", "print docs/methods.md", AT(markdown), 0, 0, NULL},
    {"costs", 0, CLI_TEXT, "FILE", NULL, "none",
     "with --markdown: what `winnow bench methods --csv` measured", AT(csv), 0, 0, NULL},
};
GROUP(cli_group_methods, "Documentation", methods_options);

static const struct cli_option common_options[] = {
    {"help", 'h', CLI_FLAG, NULL, NULL, "off", "print this help", AT(help), 0, 0, NULL},
};
GROUP(cli_group_common, "Other", common_options);

/* ---- Values ---- */

bool cli_parse_int(int64_t *out, const char *text)
{
    char *end;
    const char *digits = text[0] == '-' ? text + 1 : text;
    if (!isdigit((unsigned char)*digits))
        return false;
    errno = 0;
    /* A number that does not fit becomes the nearest that does, which no option takes: it is out of range. */
    const long long v = strtoll(text, &end, 10);
    if ((errno != 0 && errno != ERANGE) || *end != '\0')
        return false;
    *out = v;
    return true;
}

bool cli_parse_real(double *out, const char *text)
{
    char *end;
    /* strtod would also take blanks, hexadecimal numbers, "nan" and "inf". */
    if (*text == '\0' || text[strspn(text, "0123456789.eE+-")] != '\0' || *text == '+')
        return false;
    const double v = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(v))
        return false;
    *out = v;
    return true;
}

bool cli_parse_bytes(int64_t *out, const char *text)
{
    static const char suffixes[] = "KMG";
    char *end;
    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    const long long v = strtoll(text, &end, 10);
    const char *suffix = *end ? strchr(suffixes, *end) : NULL;
    if ((errno != 0 && errno != ERANGE) || (*end && (!suffix || end[1])))
        return false;
    const int shift = suffix ? 10 * (int)(suffix - suffixes + 1) : 0;
    *out = v > INT64_MAX >> shift ? INT64_MAX : v << shift;
    return true;
}

static void option_title(char *buf, size_t size, const struct cli_option *o)
{
    if (o->name)
        snprintf(buf, size, "--%s", o->name);
    else
        snprintf(buf, size, "-%c", o->letter);
}

static void *target(struct cli_args *args, const struct cli_option *o)
{
    return (char *)args + o->offset;
}

static bool in_range(const struct cli_option *o, double v)
{
    return v >= o->min && v <= o->max;
}

static bool repair(char **s)
{
    struct cli_text text = {.s = *s, .len = strlen(*s), .cap = strlen(*s) + 1};
    const bool done = cli_text_repair(&text);
    *s = text.s;
    return done;
}

/* Stores one value. NULL text = the option is not given and has no default. */
static int store(struct cli_args *args, const struct cli_option *o, const char *text)
{
    char title[64];
    double real = NAN;
    int64_t whole = CLI_UNSET;
    option_title(title, sizeof title, o);
    switch (o->type) {
    case CLI_FLAG:
        *(bool *)target(args, o) = text != NULL;
        return CLI_OK;
    case CLI_TEXT:
    case CLI_PROSE: {
        char *copy = text ? strdup(text) : NULL;
        if (text && (!copy || (o->type == CLI_PROSE && !repair(&copy)))) {
            free(copy);
            return cli_fail(CLI_FAILED, "out of memory");
        }
        free(*(char **)target(args, o));
        *(char **)target(args, o) = copy;
        return CLI_OK;
    }
    case CLI_REAL:
        if (text && !cli_parse_real(&real, text))
            return cli_fail(CLI_BAD_INPUT, "%s: '%s' is not a number", title, text);
        if (text && !in_range(o, real))
            return cli_fail(CLI_BAD_INPUT, "%s %s is out of range; it must be %s", title, text, o->range);
        *(double *)target(args, o) = real;
        return CLI_OK;
    case CLI_INT:
    case CLI_BYTES:
        if (text && !(o->type == CLI_INT ? cli_parse_int(&whole, text) : cli_parse_bytes(&whole, text)))
            return cli_fail(CLI_BAD_INPUT, "%s: '%s' is not %s", title, text,
                            o->type == CLI_INT ? "a whole number" : "a number of bytes (suffix K, M or G)");
        if (text && !in_range(o, (double)whole))
            return cli_fail(CLI_BAD_INPUT, "%s %s is out of range; it must be %s", title, text, o->range);
        *(int64_t *)target(args, o) = whole;
        return CLI_OK;
    }
    return CLI_OK;
}

/* ---- Parsing ---- */

enum { MAX_OPTIONS = 48 };

/* The command's options in one list; returns how many. */
static int collect(const struct cli_option **list, const struct cli_command *cmd)
{
    int n = 0;
    for (int g = 0; cmd->groups[g]; g++) {
        for (int i = 0; i < cmd->groups[g]->n && n < MAX_OPTIONS; i++)
            list[n++] = &cmd->groups[g]->options[i];
    }
    return n;
}

static int edit_distance(const char *a, const char *b)
{
    enum { MAX = 64 };
    const size_t na = strlen(a), nb = strlen(b);
    int row[MAX + 1];
    if (na > MAX || nb > MAX)
        return MAX;
    for (size_t j = 0; j <= nb; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= na; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= nb; j++) {
            const int swap = diagonal + (a[i - 1] != b[j - 1]);
            const int gap = 1 + (row[j] < row[j - 1] ? row[j] : row[j - 1]);
            diagonal = row[j];
            row[j] = swap < gap ? swap : gap;
        }
    }
    return row[nb];
}

const char *cli_nearest(const char *word, const char *const *words)
{
    const char *best = NULL;
    int best_distance = (int)strlen(word) / 3 + 1;
    for (int i = 0; words[i]; i++) {
        const int d = edit_distance(word, words[i]);
        if (d < best_distance || (d == best_distance && !best)) {
            best = words[i];
            best_distance = d;
        }
    }
    return best;
}

/* Says what popt did not like. */
static int popt_failed(poptContext con, int rc, const struct cli_command *cmd,
                       const struct cli_option *const *list, int n)
{
    const char *bad = poptBadOption(con, POPT_BADOPTION_NOALIAS);
    const char *names[MAX_OPTIONS + 1];
    char word[80];
    int n_names = 0;
    if (rc == POPT_ERROR_MALLOC || !bad)
        return cli_fail(CLI_FAILED, "out of memory");
    if (rc != POPT_ERROR_BADOPT)
        return cli_fail(CLI_BAD_INPUT, "%s: %s; see `winnow %s --help`", bad, poptStrerror(rc), cmd->name);
    for (int i = 0; i < n; i++) {
        if (list[i]->name)
            names[n_names++] = list[i]->name;
    }
    names[n_names] = NULL;
    snprintf(word, sizeof word, "%s", bad);
    word[strcspn(word, "=")] = '\0';
    const char *near = strncmp(word, "--", 2) == 0 ? cli_nearest(word + 2, names) : NULL;
    if (near)
        return cli_fail(CLI_BAD_INPUT, "unknown option %s; did you mean --%s?", word, near);
    return cli_fail(CLI_BAD_INPUT, "unknown option %s; see `winnow %s --help`", word, cmd->name);
}

static int take_rest(struct cli_args *args, const struct cli_command *cmd, const char **rest)
{
    int n = 0;
    while (rest && rest[n])
        n++;
    if (n > cmd->max_rest)
        return cli_fail(CLI_BAD_INPUT, "unexpected argument '%s'; see `winnow %s --help`",
                        rest[cmd->max_rest], cmd->name);
    args->rest = calloc((size_t)n + 1, sizeof *args->rest);
    if (!args->rest)
        return cli_fail(CLI_FAILED, "out of memory");
    for (int i = 0; i < n; i++) {
        args->rest[i] = strdup(rest[i]);
        if (!args->rest[i])
            return cli_fail(CLI_FAILED, "out of memory");
        args->n_rest++;
    }
    return CLI_OK;
}

int cli_parse(struct cli_args *args, const struct cli_command *cmd, int argc, const char **argv)
{
    const struct cli_option *list[MAX_OPTIONS];
    struct poptOption table[MAX_OPTIONS + 1];
    const int n = collect(list, cmd);
    int rc = CLI_OK;
    *args = (struct cli_args){0};
    memset(table, 0, sizeof table);
    for (int i = 0; i < n; i++) {
        table[i].longName = list[i]->name;
        table[i].shortName = list[i]->letter;
        table[i].argInfo = list[i]->type == CLI_FLAG ? POPT_ARG_NONE : POPT_ARG_STRING;
        table[i].val = i + 1;
        rc = store(args, list[i], list[i]->def);
        if (rc != CLI_OK)
            return rc;
    }
    poptContext con = poptGetContext("winnow", argc, argv, table, 0);
    if (!con)
        return cli_fail(CLI_FAILED, "out of memory");
    int val;
    while (rc == CLI_OK && (val = poptGetNextOpt(con)) > 0) {
        const struct cli_option *o = list[val - 1];
        char *text = o->type == CLI_FLAG ? NULL : poptGetOptArg(con);
        /* An option without its argument never gets here; what popt has no memory for is NULL. */
        rc = o->type != CLI_FLAG && !text ? cli_fail(CLI_FAILED, "out of memory")
                                          : store(args, o, text ? text : "");
        free(text);
    }
    if (rc == CLI_OK && val < -1)
        rc = popt_failed(con, val, cmd, list, n);
    if (rc == CLI_OK && !args->help)
        rc = take_rest(args, cmd, poptGetArgs(con));
    poptFreeContext(con);
    return rc;
}

void cli_args_clear(struct cli_args *args, const struct cli_command *cmd)
{
    const struct cli_option *list[MAX_OPTIONS];
    const int n = collect(list, cmd);
    for (int i = 0; i < n; i++) {
        if (list[i]->type == CLI_TEXT || list[i]->type == CLI_PROSE)
            free(*(char **)target(args, list[i]));
    }
    for (int i = 0; i < args->n_rest; i++)
        free(args->rest[i]);
    free(args->rest);
    *args = (struct cli_args){0};
}

/* ---- Help ---- */

void cli_print_help(FILE *f, const struct cli_command *cmd)
{
    fprintf(f, "usage: winnow %s %s\n%s\n", cmd->name, cmd->usage, cmd->about);
    for (int g = 0; cmd->groups[g]; g++) {
        fprintf(f, "\n%s:\n", cmd->groups[g]->title);
        for (int i = 0; i < cmd->groups[g]->n; i++) {
            const struct cli_option *o = &cmd->groups[g]->options[i];
            char left[64];
            const int len = o->letter ? snprintf(left, sizeof left, "-%c%s%s", o->letter,
                                                 o->name ? ", --" : "", o->name ? o->name : "")
                                      : snprintf(left, sizeof left, "    --%s", o->name);
            if (o->arg)
                snprintf(left + len, sizeof left - (size_t)len, " %s", o->arg);
            fprintf(f, "  %-26s %s [%s]\n", left, o->help, o->shown ? o->shown : o->def);
        }
    }
    if (*cmd->notes)
        fprintf(f, "\n%s\n", cmd->notes);
}
