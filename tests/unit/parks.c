/* SPDX-License-Identifier: MIT */
/* Parked prompts (serve/parks.c, park_file.c, park_folder.c): limits, the order in which they go, whose they are, and files that are damaged. */
#include "serve/parks.h"
#include "files.h"
#include "helpers.h"
#include "serve/automatic.h"
#include "serve/park_folder.h"
#include "serve/restores.h"
#include "serve/why.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static struct serve_config config;

const struct serve_config *serve_settings(void)
{
    return &config;
}

int serve_check_policy(const wnw_policy *policy)
{
    (void)policy;
    return WNW_OK;
}

/* ---- Prompts ---- */

enum { BYTES = 10000 };

static struct serve_owner owner_of(const char *key)
{
    struct serve_owner owner;
    serve_sha256(owner.id, key, strlen(key));
    return owner;
}

static void set_recipe(struct serve_keep_rule *keep_rule, const char *recipe)
{
    *keep_rule = (struct serve_keep_rule){0};
    assert_int_equal(serve_keep_rule_set(keep_rule, recipe, NULL), WNW_OK);
}

static struct serve_park_about about_of(const char *owner, const char *text)
{
    struct serve_park_about about = {
        .owner = owner_of(owner), .key = strdup(text), .key_len = strlen(text), .n_tokens = 5};
    assert_non_null(about.key);
    set_recipe(&about.keep_rule, "full");
    set_recipe(&about.by, "full");
    return about;
}

/* Parks a slot without tokens, whose state is n bytes of this value. */
static void put_of(struct serve_park_about *about, uint8_t value, size_t n)
{
    struct serve_slot_read slot = {.file = {.model = {7, 8}, .fingerprint = "abc", .state_bytes = n}};
    slot.state = malloc(n);
    assert_non_null(slot.state);
    memset(slot.state, value, n);
    serve_parks_put(about, &slot);
    serve_slot_read_clear(&slot);
    serve_park_about_clear(about);
}

static void put(const char *owner, const char *text, uint8_t value)
{
    struct serve_park_about about = about_of(owner, text);
    put_of(&about, value, BYTES);
}

static uint64_t find(const char *owner, const char *text, size_t *n)
{
    struct serve_ask ask = {.key = text, .key_len = strlen(text), .owner = owner_of(owner)};
    set_recipe(&ask.keep_rule, "full");
    return serve_parks_find(n, &ask);
}

/* Gets what a prompt begins with and compares it; WNW_E_ARG where nothing is parked. */
static int get(const char *owner, const char *text, uint8_t value)
{
    struct serve_slot_read slot;
    size_t n;
    const uint64_t id = find(owner, text, &n);
    const int rc = serve_parks_get(&slot, id, text, strlen(text));
    if (rc == WNW_OK) {
        assert_int_equal(slot.file.state_bytes, BYTES);
        for (size_t i = 0; i < BYTES; i++)
            assert_int_equal(slot.state[i], value);
    }
    serve_slot_read_clear(&slot);
    return rc;
}

/* What /winnow/kv says of a number. */
static long shown(const char *name)
{
    char *text = NULL, quoted[64];
    size_t n;
    FILE *f = open_memstream(&text, &n);
    assert_non_null(f);
    serve_parks_print(f);
    fclose(f);
    snprintf(quoted, sizeof quoted, "\"%s\": ", name);
    const char *at = strstr(text, quoted);
    assert_non_null(at);
    const long value = strtol(at + strlen(quoted), NULL, 10);
    free(text);
    return value;
}

static void open_parks(uint64_t memory, uint64_t disk, const char *folder)
{
    const struct serve_slot_form form = {.model = {7, 8}, .fingerprint = "abc"};
    serve_restores_open(&form);
    assert_int_equal(serve_parks_open(&(struct serve_parks_limits){
                         .memory = memory, .disk = disk, .folder = folder, .fingerprint = "abc"}),
                     WNW_OK);
}

/* ---- In memory ---- */

static void test_what_is_parked_comes_back(void **state)
{
    (void)state;
    size_t n;
    open_parks(10 * BYTES, 0, NULL);
    put("me", "The first conversation. ", 1);
    put("me", "The second one. ", 2);
    assert_int_equal(get("me", "The first conversation. More.", 1), WNW_OK);
    assert_int_equal(get("me", "The second one. More.", 2), WNW_OK);
    assert_true(find("me", "The first con", &n) > 0);
    assert_int_equal(n, strlen("The first con"));
    assert_int_equal(find("me", "Another", &n), 0);
    assert_int_equal(n, 0);
    /* Nobody else has it, and where no key was sent nobody has. */
    assert_int_equal(find("you", "The first conversation. More.", &n), 0);
    assert_int_equal(find("", "The first conversation. More.", &n), 0);
    serve_parks_close();
    assert_int_equal(find("me", "The first conversation. More.", &n), 0);
}

static void test_a_longer_one_replaces_what_it_begins_with(void **state)
{
    (void)state;
    size_t n;
    open_parks(10 * BYTES, 0, NULL);
    put("me", "One. ", 1);
    put("you", "One. ", 2);
    put("me", "One. Two. ", 3);
    assert_int_equal(shown("in_memory"), 2);
    put("me", "One. Two. ", 4); /* the same again */
    assert_int_equal(shown("in_memory"), 2);
    put("me", "One. Three. ", 5); /* a fork */
    assert_int_equal(shown("in_memory"), 3);
    assert_int_equal(get("me", "One. Two. And", 4), WNW_OK);
    assert_int_equal(get("me", "One. Three. And", 5), WNW_OK);
    assert_int_equal(get("you", "One. Two. And", 2), WNW_OK);
    assert_true(find("me", "One. Fo", &n) > 0); /* both forks begin with it */
    assert_int_equal(n, strlen("One. "));
    serve_parks_close();
}

static void test_what_was_used_least_recently_goes_first(void **state)
{
    (void)state;
    size_t n;
    open_parks(3 * BYTES + 3 * 1000, 0, NULL);
    put("me", "a first", 1);
    put("me", "b second", 2);
    put("me", "c third", 3);
    assert_int_equal(shown("in_memory"), 3);
    assert_int_equal(get("me", "a fir", 1), WNW_OK); /* a part of it: it was used now */
    put("me", "d fourth", 4);
    assert_int_equal(find("me", "b second", &n), 0);
    assert_true(find("me", "a first", &n) > 0);
    assert_true(shown("bytes") <= shown("bytes_most"));
    /* Who goes on with the whole of it will be parked again: it goes before others. */
    assert_int_equal(get("me", "d fourth, and more", 4), WNW_OK);
    put("me", "e fifth", 5);
    assert_int_equal(find("me", "d fourth", &n), 0);
    assert_true(find("me", "c third", &n) > 0);
    assert_int_equal(shown("evicted"), 2);
    /* What is larger than all the room is not kept, and nothing else goes for it. */
    struct serve_park_about large = about_of("me", "f large");
    put_of(&large, 6, 5 * BYTES);
    assert_int_equal(find("me", "f large", &n), 0);
    assert_int_equal(shown("in_memory"), 3);
    serve_parks_close();
}

static void test_reuse_is_that_of_slots(void **state)
{
    (void)state;
    size_t n;
    struct serve_park_about about = about_of("me", "A text");
    set_recipe(&about.keep_rule, "keydiff");
    about.keep_rule.size = (wnw_size){.kind = WNW_SIZE_BUDGET, .budget = 60};
    about.by = about.keep_rule;
    about.compressed = true;
    open_parks(10 * BYTES, 0, NULL);
    put_of(&about, 1, BYTES);
    struct serve_ask ask = {.key = "A text and more", .key_len = 15, .owner = owner_of("me")};
    set_recipe(&ask.keep_rule, "full");
    assert_int_equal(serve_parks_find(&n, &ask), 0);
    ask.reuse = SERVE_REUSE_ANY;
    assert_true(serve_parks_find(&n, &ask) > 0);
    ask.reuse = SERVE_REUSE_SAME;
    set_recipe(&ask.keep_rule, "keydiff");
    ask.keep_rule.size = (wnw_size){.kind = WNW_SIZE_BUDGET, .budget = 60};
    assert_true(serve_parks_find(&n, &ask) > 0);
    ask.keep_rule.n_protected = 3; /* another header */
    assert_int_equal(serve_parks_find(&n, &ask), 0);
    ask.keep_rule.n_protected = 0;
    ask.reuse = SERVE_REUSE_NEVER;
    assert_int_equal(serve_parks_find(&n, &ask), 0);
    serve_parks_close();
}

/* ---- In a folder ---- */

static char *new_folder(char *path)
{
    strcpy(path, "/tmp/winnow-parks-XXXXXX");
    assert_non_null(mkdtemp(path));
    return path;
}

/* Calls `each` for the files of parked prompts, or with NULL only counts them. */
static int32_t each_file(const char *folder, void (*each)(const char *path))
{
    DIR *dir = opendir(folder);
    int32_t n = 0;
    assert_non_null(dir);
    for (const struct dirent *e; (e = readdir(dir));) {
        char path[512];
        if (!strstr(e->d_name, ".park"))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        n++;
        if (each)
            each(path);
    }
    closedir(dir);
    return n;
}

static void remove_one(const char *path)
{
    unlink(path);
}

static void remove_folder(const char *folder)
{
    char lock[512];
    each_file(folder, remove_one);
    snprintf(lock, sizeof lock, "%s/winnow.lock", folder);
    unlink(lock);
    assert_int_equal(rmdir(folder), 0);
}

static void test_a_folder_is_found_again(void **state)
{
    (void)state;
    char folder[64];
    size_t n;
    new_folder(folder);
    open_parks(0, 10 * BYTES * 4, folder);
    put("me", "The first. ", 1);
    put("me", "The second. ", 2);
    put("me", "The first. More. ", 3); /* its file replaces the first one */
    serve_parks_close();
    assert_int_equal(each_file(folder, NULL), 2);
    /* What a killed server was writing goes, and what is somebody else's stays. */
    char half[128], own[128];
    snprintf(half, sizeof half, "%s/winnow-0000000000000009.park.1-1.tmp", folder);
    snprintf(own, sizeof own, "%s/winnow-notes.tmp", folder);
    fclose(fopen(half, "w"));
    fclose(fopen(own, "w"));
    open_parks(0, 10 * BYTES * 4, folder);
    assert_int_equal(access(half, F_OK), -1);
    assert_int_equal(unlink(own), 0);
    assert_int_equal(shown("on_disk"), 2);
    assert_int_equal(get("me", "The first. More. And", 3), WNW_OK);
    assert_int_equal(get("me", "The second. And", 2), WNW_OK);
    assert_int_equal(find("you", "The second. And", &n), 0);
    /* One process at a time. */
    struct serve_park_folder other;
    assert_int_equal(serve_park_folder_open(&other, folder, "abc", NULL, NULL), WNW_E_ARG);
    assert_non_null(strstr(wnw_last_error(), "another server uses this folder"));
    serve_parks_close();
    remove_folder(folder);
}

/* Has the process open no more files, or as many as it might before; the limit that was there is returned. */
static rlim_t set_files(rlim_t n)
{
    struct rlimit files;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    const rlim_t before = files.rlim_cur;
    files.rlim_cur = n;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    return before;
}

struct looked {
    rlim_t files;
    int n, n_unfit;
};

static int look_once(const struct serve_park_found *found, void *user)
{
    struct looked *l = user;
    const rlim_t before = set_files(0);
    l->files = l->n++ == 0 ? before : l->files;
    l->n_unfit += found->unfit;
    serve_park_about_clear(found->about);
    return WNW_OK;
}

/* A file that the system does not let be read is not a damaged one. */
static void test_what_cannot_be_read_stays(void **state)
{
    (void)state;
    char folder[64];
    struct serve_park_folder other;
    struct looked l = {0};
    new_folder(folder);
    open_parks(0, 10 * BYTES * 4, folder);
    put("me", "The first. ", 1);
    put("me", "The second. ", 2);
    put("me", "The third. ", 3);
    serve_parks_close();
    open_parks(0, 10 * BYTES * 4, folder);
    const rlim_t files = set_files(0);
    const int rc = get("me", "The first. And", 1);
    set_files(files);
    assert_int_equal(rc, WNW_E_IO);
    assert_int_equal(get("me", "The second. And", 2), WNW_OK);
    serve_parks_close();
    assert_int_equal(each_file(folder, NULL), 3);
    const int opened = serve_park_folder_open(&other, folder, "abc", look_once, &l);
    set_files(l.files);
    assert_int_equal(opened, WNW_OK);
    assert_int_equal(l.n, 3);
    assert_int_equal(l.n_unfit, 2);
    serve_park_folder_close(&other);
    assert_int_equal(each_file(folder, NULL), 3);
    open_parks(0, 10 * BYTES * 4, folder);
    assert_int_equal(get("me", "The first. And", 1), WNW_OK);
    serve_parks_close();
    remove_folder(folder);
}

static void link_as_last(const char *path)
{
    char last[512];
    snprintf(last, sizeof last, "%.*s/winnow-ffffffffffffffff.park", (int)(strrchr(path, '/') - path), path);
    assert_int_equal(link(path, last), 0);
}

/* The largest number there is has no next one: a file of that name is nobody's. */
static void test_numbers_do_not_begin_again(void **state)
{
    (void)state;
    char folder[64], last[128];
    new_folder(folder);
    open_parks(0, 10 * BYTES * 4, folder);
    put("me", "The first. ", 1);
    serve_parks_close();
    assert_int_equal(each_file(folder, link_as_last), 1);
    snprintf(last, sizeof last, "%s/winnow-ffffffffffffffff.park", folder);
    open_parks(0, 10 * BYTES * 4, folder);
    assert_int_equal(shown("on_disk"), 1);
    put("me", "The second. ", 2);
    assert_int_equal(get("me", "The first. And", 1), WNW_OK);
    assert_int_equal(get("me", "The second. And", 2), WNW_OK);
    serve_parks_close();
    assert_int_equal(unlink(last), 0);
    assert_int_equal(each_file(folder, NULL), 2);
    remove_folder(folder);
}

static void test_a_folder_has_its_limit(void **state)
{
    (void)state;
    char folder[64];
    size_t n;
    new_folder(folder);
    open_parks(0, 3 * (BYTES + sizeof(struct serve_park_header) + 1000), folder);
    put("me", "a", 1);
    put("me", "b", 2);
    put("me", "c", 3);
    put("me", "d", 4);
    serve_parks_close();
    assert_int_equal(each_file(folder, NULL), 3);
    open_parks(0, 2 * (BYTES + sizeof(struct serve_park_header) + 1000), folder);
    assert_int_equal(each_file(folder, NULL), 2);
    assert_int_equal(find("me", "b", &n), 0);
    assert_int_equal(get("me", "c", 3), WNW_OK);
    assert_int_equal(get("me", "d", 4), WNW_OK);
    serve_parks_close();
    remove_folder(folder);
}

/* Has the process write files of n bytes at most, or of any size. */
static void set_file_size(rlim_t n)
{
    struct rlimit size;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &size), 0);
    size.rlim_cur = n;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &size), 0);
}

/* What a full disk did not take is written once there is room: with the next one, or when the server ends. */
static void test_a_full_disk_is_tried_again(void **state)
{
    (void)state;
    char folder[64];
    new_folder(folder);
    signal(SIGXFSZ, SIG_IGN);
    for (int next = 0; next < 2; next++) {
        open_parks(20 * BYTES, 20 * BYTES, folder);
        set_file_size(BYTES / 2);
        put("me", next ? "c" : "a", 1);
        put("me", next ? "d" : "b", 2);
        while (shown("unwritten") < 2)
            usleep(1000);
        assert_int_equal(each_file(folder, NULL), next ? 3 : 0);
        set_file_size(RLIM_INFINITY);
        if (!next)
            put("me", "e", 3);
        serve_parks_close();
        assert_int_equal(each_file(folder, NULL), next ? 5 : 3);
    }
    open_parks(0, 20 * BYTES, folder);
    assert_int_equal(get("me", "a", 1), WNW_OK);
    assert_int_equal(get("me", "d", 2), WNW_OK);
    assert_int_equal(get("me", "e", 3), WNW_OK);
    serve_parks_close();
    remove_folder(folder);
}

/* ---- Files ---- */

static void flip(const char *path, long at)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    const int c = fgetc(f);
    assert_int_equal(fseek(f, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    fputc(c ^ 0x10, f);
    fclose(f);
}

static void cut(const char *path, long n)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size - n), 0);
}

static void write_file(char *path, const uint8_t *image, size_t n)
{
    struct serve_park_about about = about_of("me", "A text that was parked");
    size_t bytes;
    struct stat st;
    set_recipe(&about.by, "keydiff");
    about.compressed = true;
    about.by.size = (wnw_size){.kind = WNW_SIZE_RATIO, .ratio = 0.5};
    assert_int_equal(serve_park_file_write(&bytes, path, &about, "abcdef", image, n), WNW_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, bytes);
    assert_int_equal(st.st_mode & 077, 0);
    serve_park_about_clear(&about);
}

static void test_a_file_is_read_as_it_was_written(void **state)
{
    (void)state;
    char path[] = "/tmp/winnow-park-XXXXXX";
    uint8_t image[300], *again;
    size_t n;
    struct serve_park_about about;
    for (size_t i = 0; i < sizeof image; i++)
        image[i] = (uint8_t)(i * 7);
    test_file_new(path);
    write_file(path, image, sizeof image);
    assert_int_equal(serve_park_file_look(&about, path, "abcdef"), WNW_OK);
    assert_string_equal(about.key, "A text that was parked");
    assert_string_equal(about.by.recipe, "keydiff");
    assert_true(about.by.size.kind == WNW_SIZE_RATIO && about.compressed && about.n_tokens == 5);
    const struct serve_owner me = owner_of("me");
    assert_memory_equal(about.owner.id, me.id, sizeof me.id);
    serve_park_about_clear(&about);
    assert_int_equal(serve_park_file_image(&again, &n, path), WNW_OK);
    assert_int_equal(n, sizeof image);
    assert_memory_equal(again, image, sizeof image);
    free(again);
    assert_int_equal(serve_park_file_look(&about, path, "other"), WNW_E_MISMATCH);
    unlink(path);
}

static void test_a_damaged_file_is_refused(void **state)
{
    (void)state;
    const long header = (long)sizeof(struct serve_park_header);
    const uint8_t image[300] = {1, 2, 3};
    uint8_t *again;
    size_t n;
    struct serve_park_about about;
    /* A byte of the magic, its version, a size, a recipe, the checksum, the text. */
    const long heads[] = {2, 12, 40, 120, header - 4, header + 3};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        char path[] = "/tmp/winnow-park-XXXXXX";
        test_file_new(path);
        write_file(path, image, sizeof image);
        flip(path, heads[i]);
        assert_int_equal(serve_park_file_look(&about, path, "abcdef"),
                         i == 1 ? WNW_E_MISMATCH : WNW_E_FORMAT);
        assert_null(about.key);
        unlink(path);
    }
    /* The slot itself, and ends. */
    const long ends[] = {0, 1, 299, 301, 330, header};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char path[] = "/tmp/winnow-park-XXXXXX";
        test_file_new(path);
        write_file(path, image, sizeof image);
        if (ends[i] == 0)
            flip(path, -5);
        else
            cut(path, ends[i]);
        assert_int_equal(serve_park_file_image(&again, &n, path), WNW_E_FORMAT);
        assert_null(again);
        unlink(path);
    }
}

static void test_keys_of_the_api_are_hashed(void **state)
{
    (void)state;
    static const uint8_t abc[4] = {0xba, 0x78, 0x16, 0xbf}, none[4] = {0xe3, 0xb0, 0xc4, 0x42};
    uint8_t out[SERVE_SHA256], other[SERVE_SHA256];
    char text[130];
    serve_sha256(out, "abc", 3);
    assert_memory_equal(out, abc, sizeof abc);
    serve_sha256(out, "", 0);
    assert_memory_equal(out, none, sizeof none);
    memset(text, 'x', sizeof text);
    for (size_t n = 50; n < sizeof text; n++) { /* where the last block begins and ends */
        serve_sha256(out, text, n);
        serve_sha256(other, text, n + 1);
        assert_memory_not_equal(out, other, sizeof out);
    }
}

/* ---- Why a prompt was read ---- */

static void test_likely_causes(void **state)
{
    (void)state;
    static const char *const rows[][4] = {
        {"Today is 2026-11-2", "7. Be", "8. Be", "a date or a time has changed"},
        {"assistant\n", "<think>so</think>Yes", "Yes", "earlier reasoning was removed"},
        {"<tools>{\"name\": ", "\"read\", \"parameters\"", "\"find\", \"parameters\"",
         "tools have changed, or their order"},
        {"x-billing-header: cch=", "a1", "f7", "a line of the client that changes with each request"},
        {"user\nand", "?", " more", SERVE_WHY_DIFFERS},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(serve_why_cause(rows[i][0], rows[i][1], rows[i][2]), rows[i][3]);
}

static char *why_of(const char *owner)
{
    const struct serve_owner of = owner_of(owner);
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);
    assert_non_null(f);
    serve_why_print(f, &of);
    fclose(f);
    return text;
}

static void test_texts_are_shown_to_their_owner(void **state)
{
    (void)state;
    struct serve_why x = {.owner = owner_of("me"), .n_read = 5, .broke = true, .at = 3, .cause = "a cause"};
    serve_why_text(x.before, "cut \xc3", 5); /* a character that is cut */
    assert_string_equal(x.before, "cut ?");
    serve_why_text(x.was, "was \"this\"", 10);
    serve_why_text(x.is, "\xc3\xa4", 2);
    assert_string_equal(x.is, "\xc3\xa4");
    for (int32_t i = 0; i < SERVE_WHY_KEPT + 2; i++) {
        x.slot = i;
        serve_why_add(&x);
    }
    char *own = why_of("me"), *other = why_of("you");
    assert_non_null(strstr(own, "\"was\":\"was \\\"this\\\"\""));
    assert_non_null(strstr(own, "\"slot\":11"));
    assert_non_null(strstr(own, "\"slot\":2,"));
    assert_null(strstr(own, "\"slot\":1,")); /* ten are kept */
    assert_null(strstr(other, "\"was\""));
    assert_non_null(strstr(other, "\"cause\":\"a cause\""));
    free(own);
    free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_parked_comes_back),
        cmocka_unit_test(test_a_longer_one_replaces_what_it_begins_with),
        cmocka_unit_test(test_what_was_used_least_recently_goes_first),
        cmocka_unit_test(test_reuse_is_that_of_slots),
        cmocka_unit_test(test_a_folder_is_found_again),
        cmocka_unit_test(test_what_cannot_be_read_stays),
        cmocka_unit_test(test_numbers_do_not_begin_again),
        cmocka_unit_test(test_a_folder_has_its_limit),
        cmocka_unit_test(test_a_full_disk_is_tried_again),
        cmocka_unit_test(test_a_file_is_read_as_it_was_written),
        cmocka_unit_test(test_a_damaged_file_is_refused),
        cmocka_unit_test(test_keys_of_the_api_are_hashed),
        cmocka_unit_test(test_likely_causes),
        cmocka_unit_test(test_texts_are_shown_to_their_owner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
