/* SPDX-License-Identifier: MIT */
/*
 * A conversation about a document under a policy: every line of the input is a question.
 *
 *     chat MODEL POLICY [DOCUMENT-FILE] < questions
 *
 * Each turn is read after the tokens that the session has, and what it adds is compressed too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <winnow.h>
#include <winnow_chat.h>

enum { MOST_TEXT = 1 << 20, MOST_LINE = 4096 };

/* Returns from the function where a call fails. The caller frees everything. */
#define TRY(call)                   \
    do {                            \
        const int status_ = (call); \
        if (status_ != WNW_OK)      \
            return status_;         \
    } while (0)

struct talk {
    wnw_model *model;
    wnw_policy *policy;
    wnw_session *session;
    wnw_sampler *sampler;
    wnw_chat *chat;
    char *document; /* NULL = none, or it was read already */
    int32_t
        n_read; /* tokens of the conversation; positions are fewer where a policy gives entries new ones */
};

static bool print(const char *text, size_t n_bytes, int32_t n_tokens, void *user)
{
    (void)n_tokens;
    (void)user;
    return fwrite(text, 1, n_bytes, stdout) == n_bytes && fflush(stdout) == 0;
}

/* Has the session read what it lacks of the conversation's tokens. */
static int read_turn(struct talk *t, const wnw_prompt *turn)
{
    const wnw_run run = {WNW_INIT(wnw_run), .policy = t->policy,
                         .size = {.kind = WNW_SIZE_RATIO, .ratio = 0.5}, .prompt = turn};
    wnw_report report = wnw_report_default();
    const int32_t n_before = wnw_prompt_n_past(turn), n_past = wnw_session_n_past(t->session);
    int32_t n;
    const int32_t *tokens = wnw_chat_tokens(t->chat, &n);
    if (n_before < t->n_read) { /* the template rewrote earlier turns */
        TRY(wnw_session_rewind(t->session, n_past - (t->n_read - n_before)));
        t->n_read = n_before;
    }
    if (n_before == 0) /* a ratio counts all turns from here on */
        TRY(wnw_session_begin(t->session, &run));
    TRY(wnw_session_read(t->session, tokens + t->n_read, n - t->n_read, &report));
    t->n_read = n;
    fprintf(stderr, "[%d tokens, %.0f kept per head]\n", (int)n, report.kept_mean);
    return WNW_OK;
}

static int read_and_speak(struct talk *t, const wnw_prompt *turn, wnw_generated *said)
{
    const wnw_generate_params how = {WNW_INIT(wnw_generate_params), .n_max = 128, .on_text = print};
    TRY(read_turn(t, turn));
    const int32_t n_past = wnw_session_n_past(t->session);
    TRY(wnw_generate(said, t->session, t->sampler, &how));
    t->n_read += wnw_session_n_past(t->session) - n_past;
    return wnw_chat_answer(t->chat, said->tokens, said->n_tokens);
}

static int answer(struct talk *t, const char *question)
{
    wnw_prompt *turn = NULL;
    wnw_generated said = wnw_generated_default();
    int rc = wnw_chat_user(&turn, t->chat, t->document, question, NULL);
    free(t->document);
    t->document = NULL;
    if (rc == WNW_OK)
        rc = read_and_speak(t, turn, &said);
    putchar('\n');
    wnw_generated_clear(&said);
    wnw_prompt_free(turn);
    return rc;
}

static char *read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    char *text = f ? calloc(1, MOST_TEXT) : NULL;
    if (text)
        (void)fread(text, 1, MOST_TEXT - 1, f);
    if (f)
        fclose(f);
    return text;
}

static int open_all(struct talk *t, const char *model, const char *policy)
{
    TRY(wnw_model_open(&t->model, model, NULL));
    TRY(wnw_policy_parse(&t->policy, policy, NULL));
    TRY(wnw_session_new(&t->session, t->model, NULL));
    TRY(wnw_sampler_new(&t->sampler, NULL));
    return wnw_chat_open(&t->chat, t->model, NULL);
}

int main(int argc, char **argv)
{
    struct talk t = {0};
    char line[MOST_LINE];
    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: %s MODEL POLICY [DOCUMENT-FILE] < questions\n", argv[0]);
        return 1;
    }
    if (argc == 4 && !(t.document = read_file(argv[3]))) {
        fprintf(stderr, "%s cannot be read\n", argv[3]);
        return 1;
    }
    int rc = open_all(&t, argv[1], argv[2]);
    while (rc == WNW_OK && fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        if (*line)
            rc = answer(&t, line);
    }
    if (rc != WNW_OK)
        fprintf(stderr, "%s: %s\n", wnw_strerror(rc), wnw_last_error());
    free(t.document);
    wnw_chat_free(t.chat);
    wnw_sampler_free(t.sampler);
    wnw_session_free(t.session);
    wnw_policy_free(t.policy);
    wnw_model_free(t.model);
    return rc == WNW_OK ? 0 : 1;
}
