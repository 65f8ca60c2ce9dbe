/* SPDX-License-Identifier: MIT */
#include "app/devices.h"

#include "app/console.h"
#include "app/share.h"
#include "winnow_bridge.h"

#include <ggml-backend.h>
#include <gguf.h>
#include <stdlib.h>
#include <string.h>

/* ---- Layers of a model ---- */

static int64_t number_of(const struct gguf_context *file, const char *family, const char *key)
{
    char full[256];
    snprintf(full, sizeof full, "%s.%s", family, key);
    const int64_t id = gguf_find_key(file, full);
    return id >= 0 && gguf_get_kv_type(file, id) == GGUF_TYPE_UINT32 ? (int64_t)gguf_get_val_u32(file, id)
                                                                     : 0;
}

int64_t app_devices_count_layers(const char *model)
{
    struct gguf_context *file =
        gguf_init_from_file(model, (struct gguf_init_params){.no_alloc = true, .ctx = NULL});
    const int64_t id = file ? gguf_find_key(file, "general.architecture") : -1;
    int64_t n = 0;
    if (id >= 0 && gguf_get_kv_type(file, id) == GGUF_TYPE_STRING) {
        const char *family = gguf_get_val_str(file, id);
        n = number_of(file, family, "block_count") - number_of(file, family, "nextn_predict_layers");
    }
    if (file)
        gguf_free(file);
    return n;
}

/* ---- --layers ---- */

/* The next number of a list, which is moved on; 0: there is none. */
static int32_t take_number(const char **list)
{
    const size_t n = strspn(*list, "0123456789");
    const long x = n > 0 && n < 8 ? strtol(*list, NULL, 10) : 0;
    const char end = (*list)[n];
    if (x < 1 || (end != ',' && end != '\0') || (end == ',' && (*list)[n + 1] == '\0'))
        return 0;
    *list += n + (end == ',');
    return (int32_t)x;
}

static int share_out(struct app_devices *d, const char *layers, const char *model)
{
    const int64_t n_layer = app_devices_count_layers(model);
    const char *rest = layers;
    int32_t share[APP_MOST_DEVICES] = {0}, n = 0;
    int64_t sum = 0;
    if (n_layer < 1)
        return app_fail(APP_FAILED, "cannot count the layers of %s", model);
    while (*rest || n == 0) {
        const int32_t x = take_number(&rest);
        if (x == 0)
            return app_fail(APP_BAD_INPUT,
                            "--layers '%s': give a number of at least 1 for each device, with commas between",
                            layers);
        if (n < d->n)
            share[n] = x;
        n++;
        sum += x;
    }
    if (n != d->n)
        return app_fail(APP_BAD_INPUT, "--layers '%s' has %d numbers, and --devices names %d devices", layers,
                        (int)n, (int)d->n);
    if (sum != n_layer)
        return app_fail(APP_BAD_INPUT, "--layers '%s' are %lld layers, and this model has %lld", layers,
                        (long long)sum, (long long)n_layer);
    share[n - 1]++; /* libllama counts the output as one more layer, of the last device */
    bool good = true;
    for (int32_t i = 0; i < n; i++)
        good = good && app_text_put(&d->split, "%s%d", i ? "," : "", (int)share[i]);
    return good ? APP_OK : app_fail(APP_FAILED, "out of memory");
}

/* ---- Devices ---- */

void app_devices_name_modules(void)
{
    char path[4096];
    if (app_program_part(path, sizeof path, "libggml-vulkan.so", false))
        (void)setenv("WINNOW_GGML_MODULES", path, 0);
}

static bool is_ours(const char *name)
{
    return strncmp(name, "WINNOW", 6) == 0 && name[6] >= '0' && name[6] <= '9';
}

/* Names those that were just made: all that this process has. */
static int name_ours(struct app_devices *d)
{
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        const char *name = ggml_backend_dev_name(ggml_backend_dev_get(i));
        if (!is_ours(name))
            continue;
        if (d->n == APP_MOST_DEVICES)
            return app_fail(APP_BAD_INPUT, "--devices names more than %d devices", APP_MOST_DEVICES);
        if (!app_text_put(&d->ours, "%s%s", d->n ? "," : "", name))
            return app_fail(APP_FAILED, "out of memory");
        d->n++;
    }
    return APP_OK;
}

int app_devices_make(struct app_devices *d, const struct app_args *args, const char *model)
{
    if (!args->devices)
        return args->layers ? app_fail(APP_BAD_INPUT, "--layers shares layers out among --devices: name them")
                            : APP_OK;
    unsetenv("WINNOW_DEVICES"); /* the option counts */
    app_devices_name_modules();
    const int made = wnw_bridge_wrap(args->devices);
    if (made != WNW_OK)
        return app_fail_status(made);
    const int rc = name_ours(d);
    return rc == APP_OK && args->layers ? share_out(d, args->layers, model) : rc;
}

void app_devices_clear(struct app_devices *d)
{
    free(d->ours.s);
    free(d->split.s);
    *d = (struct app_devices){0};
}
