/* SPDX-License-Identifier: MIT */
/* Turns as the note of a stored session, JSON (decision 087). */
#include "app/console.h"
#include "app/json.h"
#include "base/err.h"
#include "base/json.h"
#include "cli/conversation.h"

#include <stdlib.h>
#include <string.h>

static const char format[] = "winnow-chat-1";

/* ---- Writing ---- */

static json_t *optional(const char *s)
{
    return s ? json_string(s) : json_null();
}

static json_t *turns_json(const struct cli_conversation *t)
{
    json_t *list = json_array();
    for (int32_t i = 0; list && i < t->n; i++) {
        const struct cli_turn *turn = &t->turns[i];
        (void)app_json_append(
            &list, json_pack("{s:o, s:s, s:s, s:o, s:i}", "document", optional(turn->document), "question",
                             turn->question, "said", turn->said, "answer",
                             wnw__json_i32s(turn->answer, turn->n_answer), "n_read", (int)turn->n_read));
    }
    return list;
}

int cli_conversation_note(char **text, const struct cli_conversation *t, int32_t n_read)
{
    const wnw_prompt_params *l = &t->layout;
    size_t len;
    json_t *o = json_pack("{s:s, s:i, s:b, s:b, s:o, s:o, s:I, s:o}", "format", format, "n_read", (int)n_read,
                          "raw", (int)l->raw, "special", (int)l->special, "system", optional(l->system),
                          "chat", optional(l->chat), "now", (json_int_t)l->now, "turns", turns_json(t));
    const int status = wnw__json_text(text, &len, o, true);
    json_decref(o);
    return app_status_code(status);
}

/* ---- Reading ---- */

static int bad_note(const char *path)
{
    return app_fail(APP_BAD_INPUT, "'%s' has a conversation that this program cannot read; store it again",
                    path);
}

/* Copies a turn from JSON. False: it is none, or memory ran out. */
static bool read_turn(struct cli_turn *turn, const json_t *o)
{
    const char *document = json_string_value(json_object_get(o, "document")),
               *question = json_string_value(json_object_get(o, "question")),
               *said = json_string_value(json_object_get(o, "said"));
    const json_t *answer = json_object_get(o, "answer");
    const int32_t n = (int32_t)json_array_size(answer);
    const int64_t n_read = json_integer_value(json_object_get(o, "n_read"));
    *turn = (struct cli_turn){.n_answer = n, .n_read = (int32_t)n_read};
    if (!question || !said || !json_is_array(answer) || n_read < 0 || n_read > n)
        return false;
    turn->document = document ? strdup(document) : NULL;
    turn->question = strdup(question);
    turn->said = strdup(said);
    turn->answer = malloc(((size_t)n + 1) * sizeof *turn->answer);
    return turn->question && turn->said && turn->answer && (!document || turn->document) &&
           wnw__json_get_i32s(o, "answer", turn->answer, n);
}

static void read_layout(wnw_prompt_params *l, const json_t *o)
{
    *l = wnw_prompt_default_params();
    l->raw = json_is_true(json_object_get(o, "raw"));
    l->special = json_is_true(json_object_get(o, "special"));
    l->system = json_string_value(json_object_get(o, "system"));
    l->chat = json_string_value(json_object_get(o, "chat"));
    l->now = json_integer_value(json_object_get(o, "now"));
}

/* Reads the turns of a note. Strings of the layout are borrowed from *note. */
static int read_note(struct cli_conversation *t, json_t **note, int64_t *n_read, const char *text,
                     const char *path)
{
    const int status = wnw__json_parse(note, text, strlen(text));
    if (status != WNW_OK && status != WNW_E_FORMAT)
        return app_fail_status(status);
    const char *is = json_string_value(json_object_get(*note, "format"));
    const json_t *turns = json_object_get(*note, "turns");
    const size_t n = json_array_size(turns);
    *n_read = json_integer_value(json_object_get(*note, "n_read"));
    if (!is || strcmp(is, format) != 0 || n < 1 || n > INT32_MAX / 2)
        return bad_note(path);
    read_layout(&t->layout, *note);
    t->turns = calloc(n, sizeof *t->turns);
    if (!t->turns)
        return app_fail(APP_FAILED, "out of memory for the conversation");
    t->cap = (int32_t)n;
    for (size_t i = 0; i < n; i++) {
        t->n++; /* what was copied of it is released with the others */
        if (!read_turn(&t->turns[i], json_array_get(turns, i)))
            return bad_note(path);
    }
    return APP_OK;
}

/* Whether the session of a file has read the first n tokens of the turns. */
static bool has_read(const struct cli_conversation *t, int64_t n, const wnw_stored *st)
{
    wnw_stored_info info = wnw_stored_info_default();
    int32_t n_stored, n_laid;
    const int32_t *stored = wnw_stored_tokens(st, &n_stored), *laid = wnw_chat_tokens(t->chat, &n_laid);
    (void)wnw_stored_get_info(st, &info); /* this call does not fail for an open file */
    if (n < 1 || n > n_laid)
        return false;
    return info.pieces || (n == n_stored && memcmp(stored, laid, (size_t)n * sizeof *laid) == 0);
}

int cli_conversation_open(struct cli_conversation *t, json_t **note, int32_t *n_read, const wnw_stored *st,
                          const char *path)
{
    int64_t n = 0;
    WNW_TRY(read_note(t, note, &n, wnw_stored_note(st), path));
    WNW_TRY(cli_conversation_lay_out(t));
    if (!has_read(t, n, st))
        return app_fail(
            APP_BAD_INPUT,
            "the model's template writes the conversation of '%s' differently than when it was stored", path);
    *n_read = (int32_t)n;
    return APP_OK;
}
