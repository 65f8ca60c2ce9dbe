/* SPDX-License-Identifier: MIT */
/* Sequences on devices for the package (app/sequence.h). */
#include "python/entry.h"

#include "app/devices.h"
#include "base/err.h"
#include "winnow_bridge.h"

#include <ggml-backend.h>
#include <stdlib.h>
#include <string.h>

static bool is_ours(const char *name)
{
    return strncmp(name, "WINNOW", 6) == 0 && name[6] >= '0' && name[6] <= '9';
}

/* Writes the names of winnow's devices from number `first` on to out, with commas between. Returns the number of all such devices. */
static size_t list_ours(size_t first, char *out, size_t size)
{
    size_t n = 0, len = 0;
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        const char *name = ggml_backend_dev_name(ggml_backend_dev_get(i));
        if (!is_ours(name) || n++ < first)
            continue;
        const size_t more = strlen(name) + (len > 0);
        if (len + more >= size)
            continue;
        if (len > 0)
            out[len] = ',';
        memcpy(out + len + (len > 0), name, more - (len > 0));
        len += more;
    }
    if (size > 0)
        out[len] = '\0';
    return n;
}

int wnw_python_devices(const char *name, char *ours, size_t size)
{
    unsetenv("WINNOW_DEVICES"); /* the program names its devices itself */
    const size_t before = list_ours(0, NULL, 0);
    WNW_TRY(wnw_bridge_wrap(name));
    list_ours(before, ours, size);
    return *ours ? WNW_OK : wnw__fail(WNW_E_ARG, "there is no device %s", name);
}

int64_t wnw_python_count_layers(const char *model)
{
    return app_devices_count_layers(model);
}

int wnw_python_sequence_new(struct app_sequence **out, const struct wnw_python_sequence_params *params)
{
    const struct app_sequence_params p = {.model = params->model,
                                          .devices = params->devices,
                                          .split = params->split,
                                          .n_ctx = params->n_ctx,
                                          .n_threads = params->n_threads,
                                          .kv_type = (wnw_kv_type)params->kv_type,
                                          .profiles = params->profiles,
                                          .policy = params->policy,
                                          .progress = params->progress};
    return app_sequence_new(out, &p);
}

void wnw_python_sequence_free(struct app_sequence *s)
{
    app_sequence_free(s);
}

int wnw_python_sequence_set_policy(struct app_sequence *s, const wnw_policy *policy)
{
    return app_sequence_set_policy(s, policy);
}

int wnw_python_sequence_give(struct app_sequence *s, wnw_session *to, const int32_t *tokens)
{
    return app_sequence_give(s, to, tokens);
}

int wnw_python_sequence_head(const struct app_sequence *s, int32_t il, int32_t ih, int32_t n_swa,
                             int32_t *positions, int32_t *n)
{
    return app_sequence_head(s, il, ih, n_swa, positions, n);
}

bool wnw_python_sequence_rotates(int32_t n_embd_head)
{
    return app_sequence_rotates(n_embd_head);
}

int wnw_python_sequence_load(struct app_sequence *s, const uint8_t *state, size_t n, int32_t n_past)
{
    return app_sequence_load(s, state, n, n_past);
}

int wnw_python_sequence_read(struct app_sequence *s, const int32_t *tokens, int32_t n)
{
    return app_sequence_read(s, tokens, n, NULL, NULL);
}

int wnw_python_sequence_compress(struct app_sequence *s, const wnw_size *size, int32_t n_prefix)
{
    return app_sequence_compress(s, size, n_prefix);
}

int wnw_python_sequence_rewind(struct app_sequence *s, int32_t n)
{
    return app_sequence_rewind(s, n);
}

int32_t wnw_python_sequence_n_read(const struct app_sequence *s)
{
    return app_sequence_n_read(s);
}

void wnw_python_sequence_measure(const struct app_sequence *s, struct wnw_python_sequence_size *out)
{
    struct app_sequence_size size = {0};
    app_sequence_measure(s, &size);
    *out = (struct wnw_python_sequence_size){
        .kept_mean = size.kept_mean, .bytes = size.bytes, .bytes_full = size.bytes_full};
}

int wnw_python_sequence_generate(wnw_generated *out, struct app_sequence *s, const wnw_model *model,
                                 wnw_sampler *sampler, const wnw_generate_params *params)
{
    const wnw_decoder by = app_sequence_decoder(s, model);
    return wnw_generate_by(out, &by, sampler, params);
}
