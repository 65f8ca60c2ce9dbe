/* SPDX-License-Identifier: MIT */
/* Stored documents and keep-plans as JSON. */
#include "cli/inspect.h"

#include "app/console.h"
#include "app/json.h"
#include "app/kv.h"
#include "app/plan_file.h"
#include "base/err.h"
#include "base/json.h"
#include "cli/stored.h"

static json_t *layer_json(const wnw_stored *st, int32_t il, int32_t n_head_kv)
{
    json_t *heads = json_array();
    for (int32_t ih = 0; heads && ih < n_head_kv; ih++) {
        const int32_t *pos;
        const int32_t n = wnw_stored_head(st, il, ih, &pos);
        if (!app_json_append(&heads, wnw__json_i32s(pos, n)))
            return NULL;
    }
    return json_pack("{s:o}", "heads", heads);
}

static json_t *layers_json(const wnw_stored *st, const wnw_stored_info *info)
{
    json_t *layers = json_array();
    for (int32_t il = 0; layers && il < info->n_layer; il++)
        if (!app_json_append(&layers, layer_json(st, il, info->n_head_kv)))
            return NULL;
    return layers;
}

static json_t *size_json(const wnw_size *size)
{
    if (size->kind == WNW_SIZE_BUDGET)
        return json_pack("{s:I}", "budget", (json_int_t)size->budget);
    if (size->kind == WNW_SIZE_RATIO)
        return json_pack("{s:f}", "ratio", size->ratio);
    if (size->kind == WNW_SIZE_BYTES)
        return json_pack("{s:I}", "kv_bytes", (json_int_t)size->bytes);
    return json_object();
}

static json_t *text_json(const char *text)
{
    return text ? app_json_text(text) : json_null();
}

json_t *cli_inspect_stored(const wnw_stored *st)
{
    wnw_stored_info info = wnw_stored_info_default();
    wnw_prompt_params text = wnw_prompt_default_params();
    int32_t n;
    const int32_t *tokens = wnw_stored_tokens(st, &n);
    char kv[APP_KV_WORD];
    (void)wnw_stored_get_info(st, &info);
    const bool has_text = wnw_stored_get_text(st, &text);
    app_kv_word(kv,
                &(struct app_kv){.type = info.kv_type, .tail = info.kv_tail, .unrotated = info.kv_unrotated});
    return json_pack("{s:s, s:i, s:s, s:{s:o, s:o, s:s}, s:i, s:i, s:o, s:o, s:s, s:i, s:f, s:s, s:b, s:b, "
                     "s:f, s:I, s:I, s:o, "
                     "s:o, s:o, s:o}",
                     "format", "winnow-wkv", "version", (int)info.version, "writer", info.writer, "model",
                     "name", app_json_text(info.model), "arch", app_json_text(info.arch), "fingerprint",
                     info.fingerprint, "n_tokens", (int)info.n_tokens, "n_past", (int)info.n_past, "policy",
                     text_json(info.policy), "size", size_json(&info.size), "phase",
                     wnw_phase_name(info.phase), "chunk", (int)info.chunk, "chunk_slack", info.chunk_slack,
                     "kv_type", kv, "recurrent", (int)info.recurrent, "pieces", (int)info.pieces,
                     "kept_tokens_mean", (double)info.n_entries / ((double)info.n_layer * info.n_head_kv),
                     "kv_bytes", (json_int_t)info.bytes_entries, "file_bytes", (json_int_t)info.bytes_file,
                     "document", has_text ? text_json(text.document) : json_null(), "system",
                     has_text ? text_json(text.system) : json_null(), "tokens", wnw__json_i32s(tokens, n),
                     "layers", layers_json(st, &info));
}

static int read_stored(json_t **o, const char *path)
{
    wnw_stored *st;
    int rc = cli_stored_open(&st, path);
    if (rc != APP_OK)
        return rc;
    *o = cli_inspect_stored(st);
    if (!*o)
        rc = app_fail(APP_FAILED, "out of memory");
    wnw_stored_free(st);
    return rc;
}

int cli_inspect_read(json_t **o, const char *path)
{
    bool stored = false;
    *o = NULL;
    WNW_TRY(cli_stored_is(&stored, path));
    return stored ? read_stored(o, path) : app_plan_read(o, path);
}
