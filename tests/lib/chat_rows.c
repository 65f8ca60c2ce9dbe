/* SPDX-License-Identifier: MIT */
#include "chat_rows.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *text_of(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key)); /* NULL where there is none */
}

static void fill(struct chat_row *row, const json_t *o)
{
    const json_t *turns = json_object_get(o, "turns"), *ids = json_object_get(o, "ids");
    *row = (struct chat_row){.name = text_of(o, "case"),
                             .template = text_of(o, "template"),
                             .first = text_of(o, "first"),
                             .second = text_of(o, "second"),
                             .n_context = (int32_t)json_integer_value(json_object_get(o, "n_context")),
                             .n_ids = (int32_t)json_array_size(ids)};
    assert_non_null(row->name);
    assert_non_null(row->first);
    assert_non_null(row->second);
    assert_cmp(row->n_ids, >, 0);
    assert_cmp(json_array_size(turns), <=, CHAT_MAX_TURNS);
    for (size_t i = 0; i < json_array_size(turns); i++) {
        const json_t *turn = json_array_get(turns, i);
        row->turns[i] = (wnw_chat_message){json_string_value(json_array_get(turn, 0)),
                                           json_string_value(json_array_get(turn, 1))};
    }
    row->params = (wnw_prompt_params){WNW_INIT(wnw_prompt_params), .document = text_of(o, "document"),
                                      .question = text_of(o, "question"), .system = text_of(o, "system"),
                                      .messages = row->turns, .n_messages = (int32_t)json_array_size(turns),
                                      .raw = !row->template,
                                      /* transformers parses all of a prompt. */
                                      .special = strcmp(row->name, "control tokens in the text") == 0};
    row->ids = calloc((size_t)row->n_ids, sizeof *row->ids);
    assert_non_null(row->ids);
    for (int32_t i = 0; i < row->n_ids; i++)
        row->ids[i] = (int32_t)json_integer_value(json_array_get(ids, (size_t)i));
}

void chat_each_row(const char *model, void (*use)(const struct chat_row *row, void *user), void *user)
{
    json_error_t error;
    json_t *rows = json_load_file(WNW_TEST_SOURCE_DIR "/tests/chat/fixtures.json", 0, &error);
    int n = 0;
    if (!rows)
        fail_msg("fixtures.json: %s", error.text);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *o = json_array_get(rows, i);
        struct chat_row row;
        if (strcmp(text_of(o, "model"), model) != 0)
            continue;
        fill(&row, o);
        use(&row, user);
        free(row.ids);
        n++;
    }
    json_decref(rows);
    assert_cmp(n, >, 10);
}

char *chat_template(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/tests/chat/%s.jinja", WNW_TEST_SOURCE_DIR, name);
    FILE *f = fopen(path, "rb");
    char *text = calloc(1, 65536);
    assert_non_null(f);
    assert_non_null(text);
    assert_cmp(fread(text, 1, 65535, f), >, 0);
    fclose(f);
    return text;
}
