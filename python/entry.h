/* SPDX-License-Identifier: MIT */
/* What the package calls in addition to the public functions. */
#ifndef WNW_PYTHON_ENTRY_H
#define WNW_PYTHON_ENTRY_H

#include "app/sequence.h"
#include "winnow_method.h"

/* Runs the command with these arguments, argv[0] included, as a process of its own would: what it prints goes to the process' standard
 * descriptors. Only one call may run at a time. registry: parts that recipes may name; NULL = none. Returns the exit code. */
WNW_API int wnw_python_command(int argc, char **argv, wnw_registry *registry);

/* Makes winnow's devices around a device of ggml, and writes their names to ours[size], with commas between. A name can be made once only.
 * Errors are those of wnw_bridge_wrap. One thread at a time. */
WNW_API int wnw_python_devices(const char *name, char *ours, size_t size);

/* app_devices_count_layers of a model's file. */
WNW_API int64_t wnw_python_count_layers(const char *model);

/* As struct app_sequence_params and struct app_sequence_size, with the fields that python/winnow/_devices.py declares. */
struct wnw_python_sequence_params {
    const char *model, *devices, *split; /* split: struct app_sequence_params */
    int32_t n_ctx, n_threads;
    int32_t kv_type;
    const char *profiles;
    const wnw_policy *policy;
    bool (*progress)(int32_t done, int32_t total, void *user);
};

struct wnw_python_sequence_size {
    double kept_mean;
    uint64_t bytes, bytes_full;
};

/* The functions of app/sequence.h, for ctypes. */
WNW_API int wnw_python_sequence_new(struct app_sequence **out,
                                    const struct wnw_python_sequence_params *params);
WNW_API void wnw_python_sequence_free(struct app_sequence *s);
WNW_API int wnw_python_sequence_set_policy(struct app_sequence *s, const wnw_policy *policy);
WNW_API int wnw_python_sequence_give(struct app_sequence *s, wnw_session *to, const int32_t *tokens);
WNW_API int wnw_python_sequence_head(const struct app_sequence *s, int32_t il, int32_t ih, int32_t n_swa,
                                     int32_t *positions, int32_t *n);
WNW_API bool wnw_python_sequence_rotates(int32_t n_embd_head);
WNW_API int wnw_python_sequence_load(struct app_sequence *s, const uint8_t *state, size_t n, int32_t n_past);
WNW_API int wnw_python_sequence_read(struct app_sequence *s, const int32_t *tokens, int32_t n);
WNW_API int wnw_python_sequence_compress(struct app_sequence *s, const wnw_size *size, int32_t n_prefix);
WNW_API int wnw_python_sequence_rewind(struct app_sequence *s, int32_t n);
WNW_API int32_t wnw_python_sequence_n_read(const struct app_sequence *s);
WNW_API void wnw_python_sequence_measure(const struct app_sequence *s, struct wnw_python_sequence_size *out);
WNW_API int wnw_python_sequence_generate(wnw_generated *out, struct app_sequence *s, const wnw_model *model,
                                         wnw_sampler *sampler, const wnw_generate_params *params);

#endif
