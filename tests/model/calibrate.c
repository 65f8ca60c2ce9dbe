/* SPDX-License-Identifier: MIT */
/* Calibrations of tiny models from parameters to profiles that methods read. */
#include "files.h"
#include "helpers.h"
#include "peek_calibrate.h"
#include "winnow_calibrate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Probes of 400 to 440 bytes: the vocabulary of tiny models has one token per byte. */
#define SMALL "facts=2,lengths=2,depths=2,shortest=560,longest=600,steps=12"

enum { TEXT_BYTES = 1400 };
static char text[TEXT_BYTES + 1];
static wnw_calibration_text texts[1] = {{"some.txt", text, TEXT_BYTES}};

/* Prose without meaning that does not repeat: numbers in words. */
static void fill_text(void)
{
    int at = 0;
    for (int i = 0; at < TEXT_BYTES; i++)
        at += snprintf(text + at, (size_t)(TEXT_BYTES + 1 - at), "Number %d is %s. ", i * 7919 % 1000,
                       i % 3 ? "odd" : "old");
}

static wnw_calibrate_params params_of(const char *options)
{
    wnw_calibrate_params p = wnw_calibrate_default_params();
    p.effort = WNW_EFFORT_QUICK;
    p.options = options;
    p.texts = texts;
    p.n_texts = 1;
    p.n_threads = 1;
    return p;
}

struct model_row {
    const char *name;
};
static const struct model_row model_rows[] = {{"tiny/tiny-llama.gguf"},
                                              {"tiny/tiny-qwen2.gguf"},
                                              {"tiny/tiny-qwen3-f32.gguf"},
                                              {"tiny/tiny-gemma3.gguf"}};

static char path[64];

static void store(const char *contents)
{
    strcpy(path, "/tmp/winnow-profile-XXXXXX");
    test_file_of(path, contents, strlen(contents));
}

/* Every family: a profile that is read again, and presets that work with it. */
static void profile_is_read(void **state)
{
    const struct model_row *row = *state;
    wnw_model *m = test_model_open(row->name);
    const wnw_calibrate_params p = params_of(SMALL ",forced=always");
    wnw_calibration *c;
    wnw_profile *profile;
    const char *name;
    assert_ok(wnw_calibrate(&c, m, "srh", &p));
    store(wnw_calibration_profile(c, 0, &name));
    assert_string_equal(name, "srh.json");
    assert_null(wnw_calibration_profile(c, 1, &name));
    assert_contains(wnw_calibration_output(c, "report"), "answers were fed");
    assert_null(wnw_calibration_output(c, "dump"));
    assert_ok(wnw_profile_new(&profile, m));
    assert_ok(wnw_profile_add_file(profile, path));
    assert_int_equal(wnw_profile_kinds(profile), 1u << WNW_PROFILE_SRH);
    wnw_profile_free(profile);
    unlink(path);
    wnw_calibration_free(c);
    wnw_model_free(m);
}

/* The dump's columns add up to the profile's means, and a semantic score is attention of at most 12 steps. */
static void dump_has_the_scores(void **state)
{
    (void)state;
    wnw_model *m = test_model_open("tiny/tiny-llama.gguf");
    const char *const outputs[] = {"dump", "probes"};
    wnw_calibrate_params p = params_of(SMALL ",forced=always");
    p.outputs = outputs;
    p.n_outputs = 2;
    wnw_calibration *c;
    assert_ok(wnw_calibrate(&c, m, "srh", &p));
    const char *line = strchr(wnw_calibration_output(c, "dump"), '\n') + 1;
    double sum[4][4] = {{0}};
    int n = 0, layer, head;
    double semantic, traditional;
    while (sscanf(line, "%*d.%*d.%*d,%d,%d,%lf,%lf", &layer, &head, &semantic, &traditional) == 4) {
        assert_cmp(semantic, >, 0.0);
        assert_cmp(semantic, <, 12.0);
        assert_cmp(traditional, >=, 0.0);
        sum[layer][head] += semantic;
        n++;
        line = strchr(line, '\n') + 1;
    }
    assert_int_equal(n, 8 * 4 * 4);
    json_t *o = json_loads(wnw_calibration_profile(c, 0, NULL), 0, NULL);
    const json_t *mean = json_object_get(json_object_get(o, "results"), "srh_mean");
    for (size_t i = 0; i < 16; i++)
        assert_near(json_number_value(json_array_get(json_array_get(mean, i / 4), i % 4)),
                    sum[i / 4][i % 4] / 8, 1e-7);
    json_decref(o);
    int n_probes = 0;
    for (line = wnw_calibration_output(c, "probes"); *line; line = strchr(line, '\n') + 1) {
        json_t *v = json_loads(line, JSON_DISABLE_EOF_CHECK, NULL);
        const json_t *tokens = json_object_get(v, "prompt_tokens");
        const size_t first = (size_t)json_integer_value(json_object_get(v, "target_first"));
        assert_cmp(json_array_size(tokens), <=, 600 - 12);
        assert_cmp(json_array_size(tokens), >=, 560 - 12 - 20);
        /* What was fed is the beginning of the answer. */
        const json_t *generated = json_object_get(v, "generated_tokens"), *token;
        size_t i;
        assert_int_equal(json_array_size(generated), 12);
        json_array_foreach(generated, i, token) assert_int_equal(
            json_integer_value(token), json_integer_value(json_array_get(tokens, first + i)));
        json_decref(v);
        n_probes++;
    }
    assert_int_equal(n_probes, 8);
    wnw_calibration_free(c);
    wnw_model_free(m);
}

static void same_for_any_thread_count(void **state)
{
    (void)state;
    wnw_model *m = test_model_open("tiny/tiny-llama.gguf");
    wnw_calibrate_params p = params_of(SMALL ",forced=always");
    wnw_calibration *a, *b;
    assert_ok(wnw_calibrate(&a, m, "srh", &p));
    p.n_threads = 3;
    assert_ok(wnw_calibrate(&b, m, "srh", &p));
    assert_string_equal(wnw_calibration_profile(a, 0, NULL), wnw_calibration_profile(b, 0, NULL));
    wnw_calibration_free(a);
    wnw_calibration_free(b);
    wnw_model_free(m);
}

/* ---- Stopping ---- */

struct stop {
    int64_t at, last;
    int calls;
};

static bool stop_at(int64_t done, int64_t total, const char *what, void *user)
{
    struct stop *s = user;
    assert_cmp(done, >=, s->last);
    assert_cmp(done, <=, total);
    assert_non_null(what);
    s->last = done;
    return s->at < 0 || done < s->at;
}

/* Stopped at several places, the last time in the middle of a line, and taken up again: the same bytes. */
static void goes_on_where_it_was(void **state)
{
    (void)state;
    wnw_model *m = test_model_open("tiny/tiny-llama.gguf");
    wnw_calibrate_params p = params_of(SMALL ",forced=always");
    wnw_calibration *whole, *c;
    assert_ok(wnw_calibrate(&whole, m, "srh", &p));
    store("");
    p.journal = path;
    p.progress = stop_at;
    for (int64_t at = 300; at <= 3300; at += 1000) {
        struct stop stop = {.at = at};
        p.progress_user = &stop;
        assert_error(wnw_calibrate(&c, m, "srh", &p), WNW_E_CANCELLED);
        assert_null(c);
    }
    FILE *f = fopen(path, "r+");
    fseek(f, -40, SEEK_END);
    assert_int_equal(ftruncate(fileno(f), ftell(f)), 0);
    fclose(f);
    struct stop never = {.at = -1};
    p.progress_user = &never;
    p.n_threads = 2;
    assert_ok(wnw_calibrate(&c, m, "srh", &p));
    assert_string_equal(wnw_calibration_profile(c, 0, NULL), wnw_calibration_profile(whole, 0, NULL));
    assert_string_equal(wnw_calibration_output(c, "report"), wnw_calibration_output(whole, "report"));
    wnw_calibration_free(c);

    /* Another run does not take its results. */
    struct {
        const char *says;
        wnw_calibrate_params p;
    } others[] = {{"another effort", p},
                  {"another facts", p},
                  {"another seed", p},
                  {"another kv_type", p},
                  {"another texts", p}};
    const wnw_calibration_text other[1] = {{"some.txt", text + 1, TEXT_BYTES - 1}};
    others[0].p.effort = WNW_EFFORT_NORMAL;
    others[1].p.options = "facts=1,lengths=2,depths=2,shortest=560,longest=600,steps=12,forced=always";
    others[2].p.seed = 7;
    others[3].p.kv_type = WNW_KV_F32;
    others[4].p.texts = other;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_error(wnw_calibrate(&c, m, "srh", &others[i].p), WNW_E_MISMATCH);
        assert_says(others[i].says);
    }
    wnw_model *second = test_model_open("tiny/tiny-qwen2.gguf");
    assert_error(wnw_calibrate(&c, second, "srh", &p), WNW_E_MISMATCH);
    assert_says("another fingerprint");
    wnw_model_free(second);
    unlink(path);
    wnw_calibration_free(whole);
    wnw_model_free(m);
}

/* A result in the journal that is not what the kind has written. */
static void foreign_results_are_found(void **state)
{
    (void)state;
    wnw_model *m = test_model_open("tiny/tiny-llama.gguf");
    wnw_calibrate_params p = params_of(SMALL ",forced=always");
    struct stop stop = {.at = 300};
    wnw_calibration *c;
    store("");
    p.journal = path;
    p.progress = stop_at;
    p.progress_user = &stop;
    assert_error(wnw_calibrate(&c, m, "srh", &p), WNW_E_CANCELLED);
    static const char *const results[] = {
        "{}", "[]", "{\"answered\":true,\"generated\":[1]}",
        "{\"answered\":true,\"generated\":[1],\"semantic\":[1],\"traditional\":[1]}",
        "{\"answered\":false,\"generated\":[1.5]}"};
    FILE *f = fopen(path, "r+");
    fseek(f, 0, SEEK_END);
    const long end = ftell(f);
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        assert_int_equal(ftruncate(fileno(f), end), 0);
        fseek(f, end, SEEK_SET);
        fprintf(f, "{\"unit\":\"forced probe 0.560.0\",\"result\":%s}\n", results[i]);
        fflush(f);
        stop = (struct stop){.at = -1};
        assert_error(wnw_calibrate(&c, m, "srh", &p), WNW_E_FORMAT);
        assert_says("forced probe 0.560.0");
    }
    fclose(f);
    unlink(path);
    wnw_model_free(m);
}

/* ---- What is refused ---- */

struct bad_row {
    const char *name, *kind, *options;
    int code;
    const char *says;
};

static const struct bad_row bad_rows[] = {
    {"kind", "shr", NULL, WNW_E_ARG, "did you mean srh?"},
    {"option", "srh", "lenghts=3", WNW_E_ARG, "did you mean lengths?"},
    {"value", "srh", "steps=0", WNW_E_ARG, "from 1 to 1000"},
    {"twice", "srh", "steps=3,steps=4", WNW_E_ARG, "given twice"},
    {"without value", "srh", "steps", WNW_E_ARG, "steps=VALUE"},
    {"context too short", "srh", "shortest=100,longest=200", WNW_E_RANGE, "too short for a probe"},
    {"text too short", "srh", "longest=1500", WNW_E_RANGE, "the text has 1"},
    {"more heads than there are", "srh", "k=5", WNW_E_RANGE, "k is 5, and a layer has 4"},
    {"nothing answered", "srh", SMALL, WNW_E_UNSUPPORTED, "answers none of 8 probes"},
    {"nothing answered, not fed", "srh", SMALL ",forced=never", WNW_E_UNSUPPORTED,
     "answers none of 8 probes"},
};

static void refused(void **state)
{
    const struct bad_row *row = *state;
    wnw_model *m = test_model_open("tiny/tiny-llama.gguf");
    const wnw_calibrate_params p = params_of(row->options);
    wnw_calibration *c;
    assert_error(wnw_calibrate(&c, m, row->kind, &p), row->code);
    assert_null(c);
    assert_says(row->says);
    wnw_model_free(m);
}

static void bad_arguments(void **state)
{
    (void)state;
    wnw_model *m = test_model_open("tiny/tiny-llama.gguf");
    wnw_calibrate_params p = params_of(NULL);
    wnw_calibration *c;
    assert_error(wnw_calibrate(NULL, m, "srh", &p), WNW_E_ARG);
    assert_error(wnw_calibrate(&c, NULL, "srh", &p), WNW_E_ARG);
    assert_error(wnw_calibrate(&c, m, NULL, &p), WNW_E_ARG);
    assert_error(wnw_calibrate(&c, m, "srh", NULL), WNW_E_ARG);
    assert_says("reads a text");
    p.struct_size = 0;
    assert_error(wnw_calibrate(&c, m, "srh", &p), WNW_E_ARG);
    p = params_of(NULL);
    p.journal = "/nowhere/at/all";
    assert_error(wnw_calibrate(&c, m, "srh", &p), WNW_E_IO);
    p = params_of(NULL);
    p.n_texts = -1;
    assert_error(wnw_calibrate(&c, m, "srh", &p), WNW_E_RANGE);
    const wnw_calibration_text named[] = {texts[0], {"caf\xe9.txt", text, TEXT_BYTES}};
    p = params_of(SMALL);
    p.texts = named;
    p.n_texts = 2;
    assert_error(wnw_calibrate(&c, m, "srh", &p), WNW_E_ARG);
    assert_says("the name of text 2 is not UTF-8");
    assert_null(wnw_calibration_profile(NULL, 0, NULL));
    assert_null(wnw_calibration_output(NULL, "report"));
    wnw_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dump_has_the_scores),  cmocka_unit_test(same_for_any_thread_count),
        cmocka_unit_test(goes_on_where_it_was), cmocka_unit_test(foreign_results_are_found),
        cmocka_unit_test(bad_arguments),
    };
    fill_text();
    int failed = run_rows(profile_is_read, model_rows);
    failed += run_rows(refused, bad_rows);
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
