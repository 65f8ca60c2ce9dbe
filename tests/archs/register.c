/* SPDX-License-Identifier: MIT */
/*
 * Makes a program of llama.cpp's know the device WINNOW, and says on stderr what becomes of each cache. That program compares devices with the
 * CPU. WINNOW_ARCHS_REFERENCE names another device to compare with: the one that ours is around, whose own rounding is then no error of ours.
 */
#include "winnow_bridge.h"

#include <ggml-backend.h>
#include <llama.h>
#include <stdio.h>
#include <stdlib.h>

static void say(wnw_log_level level, const char *line, void *user)
{
    (void)level;
    (void)user;
    fprintf(stderr, "%s\n", line);
}

__attribute__((constructor)) static void register_device(void)
{
    wnw_set_log(say, NULL);
    if (wnw_bridge_register() != WNW_OK) {
        fprintf(stderr, "%s\n", wnw_last_error());
        exit(2);
    }
}

struct llama_model *__real_llama_model_init_from_user(struct gguf_context *metadata,
                                                      llama_model_set_tensor_data_t set, void *user,
                                                      struct llama_model_params params);
struct llama_model *__wrap_llama_model_init_from_user(struct gguf_context *metadata,
                                                      llama_model_set_tensor_data_t set, void *user,
                                                      struct llama_model_params params);

/* The program asks for a model without devices only where it computes what it compares with. */
struct llama_model *__wrap_llama_model_init_from_user(struct gguf_context *metadata,
                                                      llama_model_set_tensor_data_t set, void *user,
                                                      struct llama_model_params params)
{
    const char *name = getenv("WINNOW_ARCHS_REFERENCE");
    ggml_backend_dev_t list[] = {name ? ggml_backend_dev_by_name(name) : NULL, NULL};
    if (name && !list[0]) {
        fprintf(stderr, "there is no device '%s' to compare with\n", name);
        exit(2);
    }
    if (params.devices && !params.devices[0])
        params.devices = list;
    return __real_llama_model_init_from_user(metadata, set, user, params);
}
