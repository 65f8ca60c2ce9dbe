/* SPDX-License-Identifier: MIT */
/* Readings of one config: of those that drop entries while they read or generate, or whose times count. */
#include "eval/run/entry_impl.h"

#include "app/console.h"
#include "eval/base/grow.h"
#include "winnow_tools.h"

static int begin_separate(struct eval_entry *e, const struct eval_shared_reading *rd,
                          const wnw_prompt *prompt)
{
    const struct eval_config *c = e->config;
    struct eval_questions questions = {0};
    int rc = c->has_tasks ? eval_questions_make(&questions, rd->r) : APP_OK;
    const wnw_run run = {
        WNW_INIT(wnw_run),
        .phase = c->phase,
        .policy = c->policy,
        .size = c->size,
        .chunk = c->chunk,
        .every = c->every,
        .target = c->target,
        .every_ratio = c->every_ratio,
        .every_ratio_read = c->every_ratio_read,
        .profile = c->profile,
        .prompt = prompt,
        .more = &(wnw_run_more){WNW_INIT(wnw_run_more),
                                .question_later = c->mode == EVAL_AGNOSTIC || c->mode == EVAL_TASK,
                                .chunk_slack = c->slack, .n_tasks = questions.n, .task_tokens = questions.ids,
                                .n_task_tokens = questions.n_ids}};
    if (rc == APP_OK)
        (void)eval_entry_leave_out(e, wnw_session_begin(e->session, &run), &rc);
    eval_questions_clear(&questions);
    return rc;
}

static int read_separate(struct eval_entry *e, const struct eval_shared_reading *rd)
{
    const struct eval_chat *chat = rd->r->chat;
    struct eval_prompt *p = &rd->r->first[0];
    wnw_report report = wnw_report_default();
    wnw_prompt_parts parts = {WNW_INIT(wnw_prompt_parts), .tokens = p->ids,           .n_tokens = p->n,
                              .n_context = p->n_context,  .n_prefix = chat->n_prefix, .suffix = chat->suffix,
                              .n_suffix = chat->n_suffix};
    wnw_prompt *prompt;
    e->n_part = eval_reading_border(rd->r, e->config->mode);
    if (e->config->mode == EVAL_AWARE)
        parts.n_tokens = e->n_part;
    WNW_TRY(eval_new_session(&e->session, rd->m, e->config));
    WNW_TRY(eval_status_code(wnw_prompt_new(&prompt, &parts)));
    int rc = begin_separate(e, rd, prompt);
    wnw_prompt_free(prompt); /* the session has copied what it needs */
    if (rc != APP_OK || e->left_out ||
        eval_entry_leave_out(e, wnw_session_read(e->session, p->ids, e->n_part, &report), &rc) ||
        rc != APP_OK)
        return rc;
    if (e->config->every == 0 && !rd->m->recompress) {
        /* What follows stays, regardless of the policy's own rule. */
        const wnw_run nothing = wnw_run_default();
        WNW_TRY(eval_status_code(wnw_session_begin(e->session, &nothing)));
    }
    eval_entry_report(e, &report);
    e->prefill_ms = report.read_ms;
    eval_count_reading(rd, e->n_part, e->prefill_ms);
    eval_entry_measure(e, e->session);
    return APP_OK;
}

/* Reads for config i alone and adds it to e[*n], or hands it over where it is left out. */
static int add_separate(struct eval_shared_reading *rd, int32_t i, struct eval_entry *e, int32_t *n)
{
    struct eval_entry *one = &e[(*n)++];
    WNW_TRY(eval_entry_open(one, eval_config_at(rd, i), rd->r->n_turns));
    WNW_TRY(read_separate(one, rd));
    return eval_hand_over_left_out(rd, e, n);
}

int eval_read_separately(struct eval_shared_reading *rd)
{
    struct eval_entry e[EVAL_MAX_BATCH];
    int32_t n = 0;
    int rc = APP_OK;
    for (int32_t i = rd->first; rc == APP_OK && i < rd->first + rd->n; i++) {
        if (eval_role_of(rd, i) == EVAL_OWN_READ)
            rc = add_separate(rd, i, e, &n);
        if (n > 0 && (rc != APP_OK || n == rd->m->batch || i + 1 == rd->first + rd->n)) {
            if (rc == APP_OK)
                rc = eval_answer_wave(rd, e, n, NULL);
            else
                eval_entries_close(e, n);
            n = 0;
        }
    }
    return rc;
}
