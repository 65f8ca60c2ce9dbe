/* SPDX-License-Identifier: MIT */
#include "serve/parks.h"

#include "app/console.h"
#include "base/err.h"
#include "base/prefix.h"
#include "serve/automatic.h"
#include "serve/park_folder.h"
#include "serve/restores.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* What the folder has of a prompt. */
enum on_disk { WAITS, WRITTEN, FAILED, NEVER };

struct parked {
    uint64_t id, used; /* used: when it was put or used last, to compare */
    struct serve_park_about about;
    uint8_t *image; /* owned; NULL: it is on disk alone */
    size_t n_image, n_file;
    enum on_disk disk;
    int32_t n_users; /* threads that read or write it now */
    bool dropped;    /* it ends with its last user */
    bool unfit; /* of another model or version, or not to be read now; it only takes room of the folder */
    struct parked *next;
};

/* One for the process. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct serve_parks_limits limits;
    struct serve_park_folder folder;
    struct parked *first;
    uint64_t n_ids, clock;
    uint64_t memory, disk; /* bytes that are taken */
    uint64_t n_put, n_back, n_gone, n_tokens_back;
    pthread_t writer;
    bool is_open, writes, ends, told_large, told_full;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* ---- Entries, with the lock ---- */

static void set_image(struct parked *p, uint8_t *image, size_t n)
{
    all.memory += n;
    all.memory -= p->n_image;
    free(p->image);
    p->image = image;
    p->n_image = n;
}

static void drop_file(struct parked *p)
{
    if (p->n_file > 0)
        serve_park_folder_remove(&all.folder, p->id);
    all.disk -= p->n_file;
    p->n_file = 0;
    p->disk = NEVER;
}

/* Ends an entry, unless a thread uses it: that one ends it. */
static void drop(struct parked *p)
{
    p->dropped = true;
    if (p->n_users > 0)
        return;
    struct parked **at = &all.first;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    drop_file(p);
    set_image(p, NULL, 0);
    serve_park_about_clear(&p->about);
    free(p);
}

static void leave(struct parked *p)
{
    p->n_users--;
    if (p->dropped)
        drop(p);
    pthread_cond_broadcast(&all.changed);
}

/* The one that was used least recently of those in memory that can go from there, or of those with a file. NULL: there is none. */
static struct parked *oldest(bool in_memory)
{
    struct parked *found = NULL;
    for (struct parked *p = all.first; p; p = p->next) {
        const bool counts = in_memory ? p->image && p->disk != WAITS : p->n_file > 0;
        if (counts && p->n_users == 0 && (!found || p->used < found->used))
            found = p;
    }
    return found;
}

static void shrink_memory(void)
{
    struct parked *p;
    while (all.memory > all.limits.memory && (p = oldest(true))) {
        set_image(p, NULL, 0);
        all.n_gone += p->n_file == 0;
        if (p->n_file == 0)
            drop(p);
    }
}

static void shrink_disk(void)
{
    struct parked *p;
    while (all.disk > all.limits.disk && (p = oldest(false))) {
        drop_file(p);
        all.n_gone += !p->image;
        if (!p->image)
            drop(p);
    }
}

static struct parked *find(uint64_t id)
{
    struct parked *p = all.first;
    while (p && (p->id != id || p->dropped || p->unfit))
        p = p->next;
    return p;
}

/* Ends those that the new one holds all of: of the same owner, read for the same policy and adapters, with a text that its own begins with. */
static void replace(const struct parked *by)
{
    for (struct parked *p = all.first, *next; p; p = next) {
        next = p->next;
        if (p != by && !p->dropped && !p->unfit && serve_same_owner(&p->about.owner, &by->about.owner) &&
            serve_same_keep_rule(&p->about.keep_rule, &by->about.keep_rule) &&
            p->about.keep_rule.adapters == by->about.keep_rule.adapters &&
            p->about.key_len <= by->about.key_len &&
            memcmp(p->about.key, by->about.key, p->about.key_len) == 0)
            drop(p);
    }
}

/* Says once that a conversation is larger than what may be parked. */
static void tell_large(size_t bytes, const char *what, const char *option, uint64_t limit)
{
    if (!all.told_large)
        app_note("a conversation of %zu bytes is not %s: %s allows %" PRIu64 " in all; give it more", bytes,
                 what, option, limit);
    all.told_large = true;
}

/* ---- The thread that writes ---- */

static struct parked *next_to_write(void)
{
    struct parked *found = NULL;
    for (struct parked *p = all.first; p; p = p->next)
        if (p->disk == WAITS && p->image && !p->dropped && (!found || p->id < found->id))
            found = p;
    return found;
}

/* Has what could not be written tried again: the disk may have room now. One at a time, because each may be in vain. */
static void retry(void)
{
    struct parked *newest = NULL;
    for (struct parked *p = all.first; p; p = p->next)
        if (p->disk == FAILED && p->image && !p->dropped && (!newest || p->used > newest->used))
            newest = p;
    if (newest)
        newest->disk = WAITS;
}

/* Writes an entry, without the lock while it does. */
static void write_one(struct parked *p)
{
    size_t bytes;
    if (sizeof(struct serve_park_header) + p->about.key_len + p->n_image > all.limits.disk) {
        p->disk = NEVER;
        tell_large(p->n_image, "written", "--park-disk", all.limits.disk);
        shrink_memory();
        pthread_cond_broadcast(&all.changed);
        return;
    }
    p->n_users++;
    pthread_mutex_unlock(&all.lock);
    const int rc = serve_park_folder_write(&bytes, &all.folder, p->id, &p->about, p->image, p->n_image);
    pthread_mutex_lock(&all.lock);
    p->disk = rc == WNW_OK ? WRITTEN : FAILED;
    p->n_file = bytes;
    all.disk += bytes;
    if (rc != WNW_OK && !all.told_full)
        app_note("a parked prompt is not written and stays in memory: %s", wnw_last_error());
    all.told_full = rc != WNW_OK;
    if (rc == WNW_OK)
        retry();
    shrink_disk();
    leave(p);
    shrink_memory();
    pthread_cond_broadcast(&all.changed);
}

static void *write_all(void *user)
{
    struct parked *p;
    (void)user;
    pthread_mutex_lock(&all.lock);
    for (;;) {
        if ((p = next_to_write()))
            write_one(p);
        else if (all.ends)
            break;
        else
            pthread_cond_wait(&all.changed, &all.lock);
    }
    pthread_mutex_unlock(&all.lock);
    return NULL;
}

/* ---- Opening ---- */

/* Takes a file of the folder that serve_park_folder_open has found. */
static int take_file(const struct serve_park_found *found, void *user)
{
    struct parked *p = calloc(1, sizeof *p);
    (void)user;
    if (!p)
        return wnw__fail(WNW_E_NOMEM, "no memory for the parked prompts of a folder");
    p->id = found->id;
    p->used = ++all.clock;
    p->about = *found->about;
    p->n_file = found->bytes;
    p->disk = WRITTEN;
    p->unfit = found->unfit;
    p->next = all.first;
    all.first = p;
    all.disk += p->n_file;
    all.n_ids = p->id > all.n_ids ? p->id : all.n_ids;
    return WNW_OK;
}

int serve_parks_open(const struct serve_parks_limits *limits)
{
    int rc = WNW_OK;
    pthread_mutex_lock(&all.lock);
    all.limits = *limits;
    all.ends = false;
    if (limits->folder)
        rc = serve_park_folder_open(&all.folder, limits->folder, limits->fingerprint, take_file, NULL);
    all.is_open = rc == WNW_OK && (limits->memory > 0 || limits->folder);
    shrink_disk();
    pthread_mutex_unlock(&all.lock);
    return rc;
}

static bool is_in_use(void)
{
    const struct parked *p = all.first;
    while (p && p->n_users == 0)
        p = p->next;
    return p != NULL;
}

void serve_parks_close(void)
{
    pthread_mutex_lock(&all.lock);
    const bool writes = all.writes;
    all.ends = true;
    all.is_open = false;
    retry();
    pthread_cond_broadcast(&all.changed);
    pthread_mutex_unlock(&all.lock);
    if (writes)
        pthread_join(all.writer, NULL);
    pthread_mutex_lock(&all.lock);
    all.writes = false;
    while (is_in_use())
        pthread_cond_wait(&all.changed, &all.lock);
    for (struct parked *p = all.first, *next; p; p = next) {
        next = p->next;
        p->n_file = 0; /* the file stays */
        drop(p);
    }
    all.disk = 0;
    serve_park_folder_close(&all.folder);
    pthread_mutex_unlock(&all.lock);
}

bool serve_parks_are_on(void)
{
    pthread_mutex_lock(&all.lock);
    const bool on = all.is_open;
    pthread_mutex_unlock(&all.lock);
    return on;
}

/* ---- Requests ---- */

/* What was noted of its tokens while they were read is not parked. "auto" takes another row then. */
static bool may_begin(const struct parked *p, const struct serve_ask *ask)
{
    /* It would not be compressed again where little is new. */
    if (ask->reuse == SERVE_REUSE_SAME && !serve_same_keep_rule(&p->about.keep_rule, &ask->keep_rule))
        return false;
    return serve_may_reuse(&(struct serve_prefix){.key = p->about.key,
                                                  .key_len = p->about.key_len,
                                                  .keep_rule = &p->about.keep_rule,
                                                  .compressed_by = p->about.compressed ? &p->about.by : NULL,
                                                  .unnoted = !serve_is_automatic(&ask->keep_rule)},
                           ask);
}

uint64_t serve_parks_find(size_t *n, const struct serve_ask *ask)
{
    const struct parked *best = NULL;
    *n = 0;
    pthread_mutex_lock(&all.lock);
    for (const struct parked *p = all.first; all.is_open && p; p = p->next) {
        if (p->dropped || p->unfit || !serve_same_owner(&p->about.owner, &ask->owner))
            continue;
        const size_t same = wnw__common_bytes(ask->key, ask->key_len, p->about.key, p->about.key_len);
        if (same == 0 || same < *n || (same == *n && p->about.key_len >= best->about.key_len) ||
            !may_begin(p, ask))
            continue;
        best = p;
        *n = same;
    }
    const uint64_t id = best ? best->id : 0;
    pthread_mutex_unlock(&all.lock);
    return id;
}

/* Adds an entry and makes room for it. It may be gone afterwards. */
static void add(struct parked *p)
{
    p->id = ++all.n_ids;
    p->used = ++all.clock;
    p->disk = all.limits.folder ? WAITS : NEVER;
    p->next = all.first;
    all.first = p;
    all.memory += p->n_image;
    all.n_put++;
    replace(p);
    if (p->n_image > all.limits.memory && !all.limits.folder) { /* others do not go for it */
        tell_large(p->n_image, "parked", "--park", all.limits.memory);
        all.n_gone++;
        drop(p);
        return;
    }
    p->n_users++;
    shrink_memory();
    pthread_cond_broadcast(&all.changed);
    /* The older ones leave memory once they are written. */
    while (all.memory > all.limits.memory && all.memory > p->n_image && next_to_write() && all.writes) {
        pthread_cond_wait(&all.changed, &all.lock);
        shrink_memory();
    }
    leave(p);
    shrink_memory();
}

/* Starts the thread once. Without it nothing is written. */
static void start_writer(void)
{
    if (all.limits.folder && !all.writes)
        all.writes = pthread_create(&all.writer, NULL, write_all, NULL) == 0;
}

void serve_parks_put(struct serve_park_about *about, struct serve_slot_read *slot)
{
    struct parked *p = calloc(1, sizeof *p);
    const int rc = p ? serve_slot_file_pack(&p->image, &p->n_image, slot)
                     : wnw__fail(WNW_E_NOMEM, "no memory for a parked prompt");
    if (rc != WNW_OK)
        app_note("a conversation is not parked: %s", wnw_last_error());
    pthread_mutex_lock(&all.lock);
    if (rc == WNW_OK && all.is_open) {
        p->about = *about;
        *about = (struct serve_park_about){0};
        start_writer();
        add(p);
        p = NULL;
    }
    pthread_mutex_unlock(&all.lock);
    if (p)
        free(p->image);
    free(p);
}

/* Reads an entry that is in use, without the lock. */
static int read_one(struct serve_slot_read *out, const struct parked *p)
{
    uint8_t *image = NULL;
    size_t n = p->n_image;
    int rc = p->image ? WNW_OK : serve_park_folder_image(&image, &n, &all.folder, p->id);
    if (rc == WNW_OK) {
        rc = serve_restore_unpack(out, p->image ? p->image : image, n);
        rc = rc == WNW_E_FORMAT ? WNW_E_MISMATCH : rc; /* the file is whole, and not for this server */
    }
    free(image);
    return rc;
}

/* What cannot be read is passed over from now on. A file that is whole may be of use to a server with other options. One that the system does
 * not let be read now is left to the next server. */
static void pass_over(struct parked *p, int rc)
{
    app_note("a parked prompt of %d tokens is passed over: %s", (int)p->about.n_tokens, wnw_last_error());
    all.n_gone++;
    p->unfit = rc == WNW_E_MISMATCH || rc == WNW_E_IO || rc == WNW_E_NOMEM;
    p->dropped = !p->unfit; /* it is in use, and ends with that */
}

int serve_parks_get(struct serve_slot_read *out, uint64_t id, const char *key, size_t key_len)
{
    *out = (struct serve_slot_read){0};
    pthread_mutex_lock(&all.lock);
    struct parked *p = find(id);
    if (!p) {
        pthread_mutex_unlock(&all.lock);
        return wnw__fail(WNW_E_ARG, "it is parked no more");
    }
    p->n_users++;
    pthread_mutex_unlock(&all.lock);
    const int rc = read_one(out, p);
    pthread_mutex_lock(&all.lock);
    /* A conversation that goes on is parked again, and this is the first to go. */
    p->used =
        wnw__common_bytes(key, key_len, p->about.key, p->about.key_len) < p->about.key_len ? ++all.clock : 0;
    all.n_back += rc == WNW_OK;
    all.n_tokens_back += rc == WNW_OK ? (uint64_t)p->about.n_tokens : 0;
    if (rc != WNW_OK && rc != WNW_E_NOMEM)
        pass_over(p, rc);
    else if (p->n_file > 0)
        serve_park_folder_touch(&all.folder, id);
    leave(p);
    shrink_memory();
    pthread_mutex_unlock(&all.lock);
    return rc;
}

/* ---- What is shown ---- */

struct counts {
    int32_t in_memory, on_disk, unwritten; /* unwritten: the disk did not take them */
};

static struct counts count(void)
{
    struct counts n = {0};
    for (const struct parked *p = all.first; p; p = p->next) {
        n.in_memory += p->image != NULL;
        n.on_disk += p->n_file > 0 && !p->unfit;
        n.unwritten += p->image && p->disk == FAILED;
    }
    return n;
}

void serve_parks_print(FILE *f)
{
    pthread_mutex_lock(&all.lock);
    const struct counts n = count();
    fprintf(f,
            "{\"in_memory\": %d, \"bytes\": %" PRIu64 ", \"bytes_most\": %" PRIu64
            ", \"on_disk\": %d, \"unwritten\": %d, \"disk_bytes\": %" PRIu64 ", \"disk_bytes_most\": %" PRIu64
            ", \"parked\": %" PRIu64 ", \"used\": %" PRIu64 ", \"tokens_used\": %" PRIu64
            ", \"evicted\": %" PRIu64 "}",
            (int)n.in_memory, all.memory, all.limits.memory, (int)n.on_disk, (int)n.unwritten, all.disk,
            all.limits.folder ? all.limits.disk : 0, all.n_put, all.n_back, all.n_tokens_back, all.n_gone);
    pthread_mutex_unlock(&all.lock);
}

static void print_metric(FILE *f, const char *name, const char *type, const char *help, uint64_t value)
{
    fprintf(f, "# HELP winnow:%s %s\n# TYPE winnow:%s %s\nwinnow:%s %" PRIu64 "\n", name, help, name, type,
            name, value);
}

void serve_parks_print_metrics(FILE *f)
{
    pthread_mutex_lock(&all.lock);
    print_metric(f, "parked_bytes", "gauge", "Bytes of parked prompts in memory.", all.memory);
    print_metric(f, "parked_disk_bytes", "gauge", "Bytes of parked prompts in files.", all.disk);
    print_metric(f, "parked_total", "counter", "Prompts that were parked.", all.n_put);
    print_metric(f, "parked_used_total", "counter", "Parked prompts that a request began with.", all.n_back);
    print_metric(f, "parked_evicted_total", "counter", "Parked prompts that are gone.", all.n_gone);
    pthread_mutex_unlock(&all.lock);
}
