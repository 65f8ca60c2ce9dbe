/* SPDX-License-Identifier: MIT */
/* What a conversation tells of itself, in lines of 40 columns. */
#include "cli/chat.h"

#include "app/names.h"
#include "app/text.h"

#include <stdio.h>
#include <string.h>

void cli_chat_print_help(void)
{
    for (int i = 0; i < CHAT_N_WORDS; i++) {
        const struct cli_chat_command *c = &cli_chat_commands[i];
        char left[24];
        snprintf(left, sizeof left, "/%s%s%s", c->name, c->argument ? " " : "",
                 c->argument ? c->argument : "");
        fprintf(stderr, "%-14s %s\n", left, c->help);
    }
    fputs("\\ at its end continues a line.\n// begins a text with a slash.\n", stderr);
}

/* Prints the last part of a path. */
static void print_file(const char *path)
{
    char name[256];
    const char *slash = strrchr(path, '/');
    snprintf(name, sizeof name, "%s", slash && slash[1] ? slash + 1 : path);
    app_hide_controls(name, false);
    fputs(name, stderr);
}

static void measure(struct cli_chat *c)
{
    if (c->devices.sequence)
        cli_on_devices_measure(&c->devices, &c->job);
    else if (c->job.session)
        app_job_measure(&c->job);
}

void cli_chat_print_start(struct cli_chat *c)
{
    const struct app_list *documents = &c->args.app.documents;
    const char *given = documents->n > 0 ? documents->s[0] : NULL,
               *document = c->args.cache ? c->args.cache : given;
    measure(c);
    print_file(c->job.model_path);
    if (document) {
        fputs(", ", stderr);
        print_file(document);
        fprintf(stderr, "%s: %.0f of %d entries kept", documents->n > 1 ? " and more" : "", c->job.kept_mean,
                c->n_read);
    } else
        fprintf(stderr, ", %s",
                wnw_policy_is_full(c->job.keep.policy) && !c->job.keep.automatic ? "all entries kept"
                                                                                 : "turns are compressed");
    fputs("\n/help lists commands, Ctrl-D ends.\n", stderr);
}

static double per_second(int32_t n, double ms)
{
    return n > 0 && ms > 0 ? n * 1e3 / ms : 0;
}

static void print_size(const wnw_size *size)
{
    switch (size->kind) {
    case WNW_SIZE_BUDGET:
        fprintf(stderr, "size      %lld entries per head\n", (long long)size->budget);
        break;
    case WNW_SIZE_RATIO:
        fprintf(stderr, "size      %.4g of all removed\n", size->ratio);
        break;
    case WNW_SIZE_BYTES:
        fprintf(stderr, "size      %.2f MiB\n", (double)size->bytes / 1048576.0);
        break;
    case WNW_SIZE_NONE:
        break;
    }
}

void cli_chat_print_stats(struct cli_chat *c)
{
    char *own = NULL;
    const struct app_sequence *s = c->devices.sequence;
    const int32_t n_session = c->job.session ? wnw_session_n_past(c->job.session) : 0,
                  n_past = s ? app_sequence_n_read(s) : n_session;
    measure(c);
    fprintf(stderr, "turns     %d, %d tokens read\n", (int)c->conversation.n, c->n_read);
    fprintf(stderr, "context   %d of %d%s\n", n_past, c->n_ctx, c->endless ? ", endless" : "");
    fprintf(stderr, "entries   %.1f per head\n", c->job.session || s ? c->job.kept_mean : 0.0);
    fprintf(stderr, "memory    %.2f MiB, full %.2f MiB\n", (double)c->job.kv_bytes / 1048576.0,
            (double)c->job.kv_bytes_full / 1048576.0);
    fprintf(stderr, "policy    %s\n", app_policy_text(c->job.keep.policy, &own));
    print_size(&c->job.keep.size);
    fprintf(stderr, "reading   %.1f tokens/s\n", per_second(c->n_turn_read, c->read_ms));
    fprintf(stderr, "answering %.1f tokens/s\n", per_second(c->n_answer_read, c->answer_ms));
    if (c->stale)
        fputs("The next turn reads all again.\n", stderr);
    wnw_free(own);
}
