/* SPDX-License-Identifier: MIT */
/* libllama's exceptions end here: each call turns them into a status. */
#include "text/llama_calls.h"
#include "base/llama_log.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>

namespace
{

/* What libllama says during a call; its warnings go to the log sink in one line at the end. */
struct listener {
    wnw__said said;
    listener()
    {
        wnw__said_begin(&said);
    }
    ~listener()
    {
        wnw__said_end(&said);
        if (said.n_warning > 0)
            wnw__log(WNW_LOG_WARN, "libllama: %s%s", said.warning, said.n_warning > 3 ? "; and more" : "");
    }
    listener(const listener &) = delete;
    listener &operator=(const listener &) = delete;
};

/* Runs a call; an exception becomes a status with `code` and the sentence "what (the exception's words)". */
template <typename F> int guarded(int code, const char *what, F call)
{
    listener heard;
    try {
        call(heard.said);
        return WNW_OK;
    } catch (const std::bad_alloc &) {
        return wnw__fail(WNW_E_NOMEM, "no memory: %s", what);
    } catch (const std::exception &e) {
        return wnw__fail(code, "%s (%.200s)", what, e.what());
    } catch (...) {
        return wnw__fail(code, "%s", what);
    }
}

} // namespace

extern "C" int wnw__llama_load_vocab(struct llama_model **out, const char *path)
{
    *out = nullptr;
    llama_model_kv_override overrides[2] = {}; /* the second ends the list */
    std::strcpy(overrides[0].key, "tokenizer.ggml.add_space_prefix");
    overrides[0].tag = LLAMA_KV_OVERRIDE_TYPE_BOOL; /* the value is false */
    char reason[WNW_SAID_REASON] = "";
    const int rc = guarded(WNW_E_FORMAT, "libllama cannot read the vocabulary", [&](const wnw__said &said) {
        llama_model_params params = llama_model_default_params();
        params.vocab_only = true;
        params.kv_overrides = overrides;
        *out = llama_model_load_from_file(path, params);
        std::memcpy(reason, said.reason, sizeof reason);
    });
    if (rc == WNW_OK && !*out)
        return wnw__fail(WNW_E_FORMAT, "%.300s: libllama cannot read its vocabulary%s", path, reason);
    return rc;
}

extern "C" int wnw__llama_load(struct llama_model **out, const char *path, ggml_backend_dev_t device,
                               bool extra)
{
    *out = nullptr;
    llama_model_kv_override overrides[2] = {}; /* the second ends the list */
    std::strcpy(overrides[0].key, "tokenizer.ggml.add_space_prefix");
    overrides[0].tag = LLAMA_KV_OVERRIDE_TYPE_BOOL; /* the value is false */
    ggml_backend_dev_t devices[2] = {device, nullptr};
    char reason[WNW_SAID_REASON] = "";
    const int rc = guarded(WNW_E_FORMAT, "libllama cannot open the model", [&](const wnw__said &said) {
        llama_model_params params = llama_model_default_params();
        params.kv_overrides = overrides;
        params.devices = devices;
        params.n_gpu_layers = 999;
        params.use_extra_bufts = extra;
        *out = llama_model_load_from_file(path, params);
        std::memcpy(reason, said.reason, sizeof reason);
    });
    if (rc == WNW_OK && !*out)
        return wnw__fail(std::strstr(reason, "unknown model architecture") ? WNW_E_UNSUPPORTED : WNW_E_FORMAT,
                         "%.300s: libllama cannot open it%s", path, reason);
    return rc;
}

extern "C" int wnw__llama_context(struct llama_context **out, struct llama_model *m,
                                  const struct wnw__llama_sizes *sizes)
{
    *out = nullptr;
    char reason[WNW_SAID_REASON] = "";
    const int rc = guarded(WNW_E_BACKEND, "libllama cannot make a context", [&](wnw__said &said) {
        llama_context_params params = llama_context_default_params();
        params.n_ctx = (uint32_t)sizes->n_cell;
        params.n_batch = (uint32_t)sizes->n_batch;
        params.n_ubatch = (uint32_t)sizes->n_row;
        params.n_seq_max = (uint32_t)sizes->n_seq;
        params.n_threads = params.n_threads_batch = sizes->n_threads;
        params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
        params.kv_unified = true;
        params.swa_full = true;
        *out = llama_init_from_model(m, params);
        std::memcpy(reason, said.reason, sizeof reason);
        said.n_warning = 0; /* they tell of what is asked for here: whole caches, which have no memory */
    });
    if (rc == WNW_OK && !*out)
        return wnw__fail(WNW_E_BACKEND, "libllama cannot make a context of this model%s", reason);
    return rc;
}

extern "C" int wnw__llama_decode(int32_t *result, char *reason, struct llama_context *ctx,
                                 const struct llama_batch *batch)
{
    *result = -1;
    *reason = '\0';
    return guarded(WNW_E_BACKEND, "libllama could not read a batch", [&](wnw__said &said) {
        *result = llama_decode(ctx, *batch);
        if (*result != 0) /* warnings tell of the rows that are taken back; the result tells of the failure */
            said.n_warning = 0;
        std::memcpy(reason, said.reason, sizeof said.reason);
    });
}

extern "C" void wnw__llama_sort_special(int32_t *ids, int32_t n, const struct llama_vocab *vocab)
{
    std::sort(ids, ids + n, [vocab](int32_t a, int32_t b) {
        return std::strlen(llama_vocab_get_text(vocab, a)) > std::strlen(llama_vocab_get_text(vocab, b));
    });
}

extern "C" int wnw__llama_tokenize(int32_t *n, const struct llama_vocab *vocab, const char *text, int32_t len,
                                   int32_t *tokens, int32_t cap, bool add_special, bool parse_special)
{
    *n = 0;
    return guarded(WNW_E_UNSUPPORTED, "libllama could not tokenise the text", [&](const wnw__said &) {
        *n = llama_tokenize(vocab, text, len, tokens, cap, add_special, parse_special);
    });
}

extern "C" int wnw__llama_piece(int32_t *n, const struct llama_vocab *vocab, int32_t token, char *buf,
                                int32_t cap, bool special)
{
    *n = 0;
    return guarded(WNW_E_UNSUPPORTED, "libllama has no text for a token",
                   [&](const wnw__said &) { *n = llama_token_to_piece(vocab, token, buf, cap, 0, special); });
}

extern "C" int wnw__llama_apply_template(int32_t *n, const char *tmpl, const struct llama_chat_message *chat,
                                         size_t n_messages, char *buf, int32_t cap)
{
    *n = -1;
    return guarded(WNW_E_UNSUPPORTED, "libllama could not apply the chat template", [&](const wnw__said &) {
        *n = llama_chat_apply_template(tmpl, chat, n_messages, true, buf, cap);
    });
}
