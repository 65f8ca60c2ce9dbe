/* SPDX-License-Identifier: MIT */
/* The report of winnow doctor as text. */
#include "app/console.h"
#include "cli/doctor.h"

#include <stdio.h>
#include <string.h>

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static bool is(const json_t *o, const char *key)
{
    return json_is_true(json_object_get(o, key));
}

static void print_size(const char *before, const json_t *o, const char *key)
{
    const json_t *n = json_object_get(o, key);
    if (json_is_integer(n))
        printf("%s %.1f GiB", before, (double)json_integer_value(n) / 1073741824.0);
}

static void print_cpu(const json_t *cpu)
{
    size_t i;
    json_t *feature;
    printf("CPU       %s\n         ", text_of(cpu, "name"));
    json_array_foreach(json_object_get(cpu, "features"), i, feature)
        printf(" %s", json_string_value(feature));
    printf("\ncores     %d, of which this process may use %d",
           (int)json_integer_value(json_object_get(cpu, "cores")),
           (int)json_integer_value(json_object_get(cpu, "threads")));
    if (json_is_real(json_object_get(cpu, "quota")))
        printf(", for the time of %.2g", json_real_value(json_object_get(cpu, "quota")));
    putchar('\n');
}

/* One line a work: the kernel in use, and why those before it are not. */
static void print_kernels(const json_t *kernels)
{
    const char *work = "";
    size_t i;
    json_t *k;
    json_array_foreach(kernels, i, k)
    {
        if (strcmp(work, text_of(k, "work")) != 0)
            printf("%s%s%s:", *work ? "\n" : "", *work ? "          " : "kernels   ", text_of(k, "work"));
        else
            putchar(',');
        work = text_of(k, "work");
        printf(" %s", text_of(k, "name"));
        if (is(k, "used"))
            fputs(" in use", stdout);
        else if (json_is_string(json_object_get(k, "lacks")))
            printf(" needs %s", text_of(k, "lacks"));
        else if (!is(k, "built"))
            fputs(" not in this build", stdout);
        else
            fputs(" slower", stdout);
    }
    putchar('\n');
}

static void print_memory(const json_t *memory)
{
    fputs("memory   ", stdout);
    print_size("", memory, "total");
    print_size(", available", memory, "available");
    print_size("; control group", memory, "group_limit");
    print_size(", of which are left", memory, "group_available");
    print_size("; limit on addresses", memory, "address_limit");
    print_size("; limit on data", memory, "data_limit");
    print_size("; winnow can have", memory, "left");
    printf("\n          vm.overcommit_memory = %d\n",
           (int)json_integer_value(json_object_get(memory, "overcommit")));
}

/* A name from a folder or the environment, and room up to a column. */
static void put_name(const char *name, size_t width)
{
    app_print_line(name);
    for (size_t n = strlen(name); n < width; n++)
        putchar(' ');
}

static void print_models(const json_t *models)
{
    size_t i;
    json_t *m;
    json_array_foreach(models, i, m)
    {
        const char *state = "opens";
        if (!is(m, "present"))
            state = "absent";
        else if (!is(m, "opens"))
            state = "does not open";
        fputs(i ? "          " : "models    ", stdout);
        put_name(text_of(m, "name"), 20);
        printf(" %-14s", state);
        if (is(m, "present"))
            printf("%8.1f MiB  ", (double)json_integer_value(json_object_get(m, "bytes")) / 1048576.0);
        app_print_line(is(m, "present") ? text_of(m, "path") : "");
        putchar('\n');
    }
}

static void print_profiles(const json_t *profiles)
{
    size_t i;
    json_t *p;
    json_array_foreach(profiles, i, p)
    {
        fputs(i ? "          " : "profiles  ", stdout);
        put_name(text_of(p, "model"), 20);
        printf(" %d files in ", (int)json_integer_value(json_object_get(p, "files")));
        put_name(text_of(p, "folder"), 0);
        putchar('\n');
    }
}

static void print_devices(const json_t *devices)
{
    size_t i;
    json_t *dev;
    json_array_foreach(devices, i, dev)
    {
        fputs(i ? "          " : "devices   ", stdout);
        put_name(text_of(dev, "name"), 8);
        putchar(' ');
        app_print_line(text_of(dev, "about"));
        print_size(",", dev, "total");
        putchar('\n');
    }
}

void cli_doctor_print(const json_t *report)
{
    const json_t *v = json_object_get(report, "versions"), *backend = json_object_get(report, "backend");
    size_t i;
    json_t *f;
    printf("winnow    %s, ggml %s, libllama %s\n", text_of(v, "winnow"), text_of(v, "ggml"),
           text_of(v, "libllama"));
    print_cpu(json_object_get(report, "cpu"));
    print_kernels(json_object_get(report, "kernels"));
    print_memory(json_object_get(report, "memory"));
    print_devices(json_object_get(report, "devices"));
    print_models(json_object_get(report, "models"));
    if (json_is_string(json_object_get(backend, "path"))) {
        fputs("backend   ", stdout);
        app_print_line(text_of(backend, "path"));
        printf(", for ggml %s\n", text_of(backend, "built_for"));
    } else
        puts("backend   none");
    const char *server = text_of(json_object_get(report, "server"), "path");
    printf("server    ");
    put_name(*server ? server : "not built: make server", 0);
    putchar('\n');
    print_profiles(json_object_get(report, "profiles"));
    const char *edited = text_of(json_object_get(report, "chat"), "edited_with");
    printf("chat      lines %s%s\n", *edited ? "are edited with " : "are taken as they come", edited);
    putchar('\n');
    json_array_foreach(json_object_get(report, "findings"), i, f)
    {
        fputs(is(f, "wrong") ? "wrong: " : "note: ", stdout);
        app_print_line(text_of(f, "what"));
        fputs("; ", stdout);
        app_print_line(text_of(f, "todo"));
        putchar('\n');
    }
    puts(is(report, "ok") ? "nothing is wrong" : "what is wrong would keep winnow from working");
}
