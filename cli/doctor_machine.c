/* SPDX-License-Identifier: MIT */
/* What winnow doctor says of versions, the CPU, kernels and memory. */
#include "app/cpu.h"
#include "app/devices.h"
#include "cli/chat_line.h"
#include "cli/doctor.h"
#include "winnow_bridge.h"
#include "winnow_study.h"
#include "winnow_tools.h"

#include <ggml-backend.h>
#include <ggml.h>
#include <llama.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

static void versions(struct cli_doctor *d)
{
    char has[256];
    const char *built = wnw_bridge_built_for();
    snprintf(has, sizeof has, "%s %s", ggml_version(), ggml_commit());
    if (built && strcmp(built, has) != 0)
        cli_doctor_find(d, false, "build winnow again with the ggml that it runs with",
                        "the backend was built for ggml %s, and this is ggml %s: it will not be loaded",
                        built, has);
    if (!ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU))
        cli_doctor_find(d, true, "install a ggml with it; scripts/setup.sh llama builds one",
                        "ggml has no backend for CPUs");
    cli_doctor_section(d, "versions",
                       json_pack("{s:s, s:o, s:o}", "winnow", wnw_version(), "ggml", app_json_text(has),
                                 "libllama", app_json_text(llama_version())));
}

/* Whether a list of words, with one blank between them, has this one. */
static bool has_word(const char *words, const char *word)
{
    const size_t n = strlen(word);
    for (const char *p = words; (p = strstr(p, word)); p += n)
        if ((p == words || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0'))
            return true;
    return false;
}

/* Those features of the CPU that arithmetic on weights and caches can use. */
static json_t *features(void)
{
    static const char *const names[] = {"f16c",     "fma",      "avx2",     "avx_vnni",    "avx512f",
                                        "avx512bw", "avx512vl", "avx512dq", "avx512_vnni", "avx512_bf16",
                                        "amx_int8", "amx_bf16", "asimd",    "asimddp",     "asimdhp",
                                        "i8mm",     "bf16",     "sve"};
    char flags[8192];
    json_t *list = json_array();
    if (!app_cpu_value(flags, sizeof flags, "flags"))
        (void)app_cpu_value(flags, sizeof flags, "Features");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (has_word(flags, names[i]) && !app_json_append(&list, json_string(names[i])))
            break;
    return list;
}

static void cpu(struct cli_doctor *d)
{
    char name[160];
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    const int usable = (int)wnw_usable_cores();
    app_cpu_name(name, sizeof name);
    if (d->limits.cores > 0 && d->limits.cores < usable)
        cli_doctor_find(d, false, "pass -t with that number of threads, rounded down, and at least 1",
                        "the control group gives %d threads the time of %.2g cores", usable, d->limits.cores);
    cli_doctor_section(d, "cpu",
                       json_pack("{s:o, s:o, s:i, s:i, s:o}", "name", app_json_text(name), "features",
                                 features(), "cores", (int)online, "threads", usable, "quota",
                                 d->limits.cores > 0 ? app_json_number(d->limits.cores) : json_null()));
}

/* A better kernel that the build leaves out, and a CPU that has none of the fast ones. */
static void check_kernel(struct cli_doctor *d, const wnw_kernel_info *k, bool better_in_use)
{
    if (!k->built && !k->lacks && !better_in_use)
        cli_doctor_find(d, false, "build winnow again with -DWNW_KERNELS=bf16",
                        "this CPU could run the kernel %s (%s), and this build does not have it", k->name,
                        k->work);
    if (k->used && strcmp(k->name, "scalar") == 0)
        cli_doctor_find(d, false, "a CPU with AVX2 or NEON has faster ones",
                        "the kernel in use is the slow reference (%s)", k->work);
}

static void kernels(struct cli_doctor *d)
{
    json_t *list = json_array();
    const char *work = "";
    bool in_use = false;
    for (int32_t i = 0; i < wnw_n_kernels() && list; i++) {
        wnw_kernel_info k = wnw_kernel_info_default();
        (void)wnw_kernel_get(i, &k); /* this call does not fail for a kernel of the list */
        in_use = in_use && strcmp(k.work, work) == 0;
        work = k.work;
        check_kernel(d, &k, in_use);
        in_use = in_use || k.used;
        app_json_append(&list, json_pack("{s:s, s:s, s:b, s:b, s:s?}", "work", k.work, "name", k.name, "used",
                                         (int)k.used, "built", (int)k.built, "lacks", k.lacks));
    }
    cli_doctor_section(d, "kernels", list);
}

/* The devices that ggml knows, with their free memory. */
static void devices(struct cli_doctor *d)
{
    json_t *list = json_array();
    app_devices_name_modules();
    if (wnw_bridge_built_for() && wnw_bridge_load_modules() != WNW_OK)
        cli_doctor_find(d, true, "name another file there, or unset it", "%s", wnw_last_error());
    for (size_t i = 0; i < ggml_backend_dev_count() && list; i++) {
        ggml_backend_dev_t dev = ggml_backend_dev_get(i);
        size_t left = 0, total = 0;
        ggml_backend_dev_memory(dev, &left, &total);
        app_json_append(&list,
                        json_pack("{s:o, s:o, s:I, s:I}", "name", app_json_text(ggml_backend_dev_name(dev)),
                                  "about", app_json_text(ggml_backend_dev_description(dev)), "total",
                                  (json_int_t)total, "left", (json_int_t)left));
    }
    cli_doctor_section(d, "devices", list);
}

/* What lines of a chat are edited with. */
static void chat(struct cli_doctor *d)
{
    const char *name = cli_edit_name();
    if (!name)
        cli_doctor_find(d, false, "install libedit-dev and build winnow again, if you use it at a terminal",
                        "`winnow chat` takes lines as they come, because this build has no libedit");
    cli_doctor_section(d, "chat", json_pack("{s:s?}", "edited_with", name));
}

/* A number of bytes; null where there is no limit, or none that the system says. */
static json_t *bytes(uint64_t n)
{
    return n == APP_NO_LIMIT ? json_null() : json_integer((json_int_t)n);
}

static void memory(struct cli_doctor *d)
{
    const struct app_limits *l = &d->limits;
    const double gib = 1073741824.0;
    if (l->addresses != APP_NO_LIMIT)
        cli_doctor_find(d, false, "use `ulimit -v unlimited`, or a smaller context",
                        "addresses are limited to %.1f GiB, and caches under libllama and large models take "
                        "addresses beyond the memory that they use",
                        (double)l->addresses / gib);
    if (l->overcommit == 2)
        cli_doctor_find(
            d, false, "set vm.overcommit_memory to 0, or use a smaller context",
            "this kernel does not overcommit memory, and caches under libllama map more than they use");
    cli_doctor_section(d, "memory",
                       json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:i}", "total", bytes(l->total),
                                 "available", bytes(l->available), "group_limit", bytes(l->group),
                                 "group_available", bytes(l->group_room), "address_limit",
                                 bytes(l->addresses), "data_limit", bytes(l->data), "left", bytes(l->room),
                                 "overcommit", l->overcommit));
}

void cli_doctor_machine(struct cli_doctor *d)
{
    versions(d);
    cpu(d);
    kernels(d);
    devices(d);
    chat(d);
    memory(d);
}
