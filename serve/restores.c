/* SPDX-License-Identifier: MIT */
#include "serve/restores.h"

#include "app/console.h"
#include "app/files.h"
#include "serve/slots.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct serve_restore {
    int32_t slot, n_tokens;
    char *name;
    struct serve_slot_read read;
    bool taken;
    struct serve_restore *next;
};

/* One for the process. */
static struct {
    pthread_mutex_t lock;
    struct serve_slot_form form;
    struct serve_restore *first, **end;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct serve_slot_form form_now(void)
{
    pthread_mutex_lock(&all.lock);
    const struct serve_slot_form form = all.form;
    pthread_mutex_unlock(&all.lock);
    return form;
}

void serve_restores_open(const struct serve_slot_form *form)
{
    pthread_mutex_lock(&all.lock);
    all.form = *form;
    pthread_mutex_unlock(&all.lock);
}

void serve_restores_set_longest(int32_t n)
{
    pthread_mutex_lock(&all.lock);
    all.form.n_longest = n;
    pthread_mutex_unlock(&all.lock);
}

/* ---- Requests ---- */

static void add(struct serve_restore *r)
{
    pthread_mutex_lock(&all.lock);
    if (!all.end)
        all.end = &all.first;
    *all.end = r;
    all.end = &r->next;
    pthread_mutex_unlock(&all.lock);
}

static void drop(struct serve_restore *r)
{
    serve_slot_read_clear(&r->read);
    free(r->name);
    free(r);
}

static bool refuse(char *why, const char *name, const char *what)
{
    snprintf(why, SERVE_TEXT, "cannot restore '%.80s': %.380s", name, what);
    app_note("%s", why);
    return false;
}

static bool read_into(struct serve_restore *r, char *why)
{
    const struct serve_slot_form form = form_now();
    char *path = app_in_folder(serve_settings()->saves, r->name);
    const int rc = path ? serve_slot_file_read(&r->read, path, &form) : WNW_E_NOMEM;
    free(path);
    if (rc != WNW_OK)
        return refuse(why, r->name,
                      rc == WNW_E_IO ? "there is no such file, or it cannot be read" : wnw_last_error());
    r->n_tokens = r->read.file.n_sequence;
    return serve_slots_has_room(r->slot, r->n_tokens) ||
           refuse(why, r->name, "the cache has no room for it now; erase another slot first");
}

bool serve_restore_begin(struct serve_restore **out, int32_t slot, const char *name, char *why)
{
    struct serve_restore *r = calloc(1, sizeof *r);
    *out = NULL;
    if (r)
        *r = (struct serve_restore){.slot = slot, .name = strdup(name)};
    if (!r || !r->name || !read_into(r, why)) {
        if (!r || !r->name)
            refuse(why, name, "out of memory");
        if (r)
            drop(r);
        return false;
    }
    add(r);
    *out = r;
    return true;
}

bool serve_restore_offer(struct serve_restore **out, int32_t slot, const char *name,
                         struct serve_slot_read *read)
{
    struct serve_restore *r = calloc(1, sizeof *r);
    *out = NULL;
    if (r)
        *r = (struct serve_restore){
            .slot = slot, .name = strdup(name), .n_tokens = read->file.n_sequence, .read = *read};
    if (!r || !r->name) {
        free(r);
        return false;
    }
    *read = (struct serve_slot_read){0};
    add(r);
    *out = r;
    return true;
}

int32_t serve_restore_n_tokens(const struct serve_restore *r)
{
    return r->n_tokens;
}

void serve_restore_end(struct serve_restore *r)
{
    pthread_mutex_lock(&all.lock);
    struct serve_restore **at = &all.first;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    if (all.end == &r->next)
        all.end = at;
    pthread_mutex_unlock(&all.lock);
    drop(r);
}

/* ---- The decoding thread ---- */

bool serve_restore_take(struct serve_slot_read *out, int32_t slot, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    pthread_mutex_lock(&all.lock);
    struct serve_restore *r = all.first;
    while (r && (r->taken || r->slot != slot || strcmp(r->name, name) != 0))
        r = r->next;
    if (r) {
        *out = r->read;
        r->read = (struct serve_slot_read){0};
        r->taken = true;
    }
    pthread_mutex_unlock(&all.lock);
    return r != NULL;
}

int serve_restore_read(struct serve_slot_read *out, const char *path)
{
    const struct serve_slot_form form = form_now();
    return serve_slot_file_read(out, path, &form);
}

int serve_restore_unpack(struct serve_slot_read *out, const uint8_t *bytes, size_t n)
{
    const struct serve_slot_form form = form_now();
    return serve_slot_file_unpack(out, bytes, n, &form);
}

int serve_restore_count(int32_t *n_tokens, const int32_t *notes, size_t n_notes)
{
    const struct serve_slot_form form = form_now();
    bool several;
    return serve_slot_notes_check(n_tokens, &several, notes, n_notes, &form);
}

int serve_restore_check(const struct serve_slot_file *file, const int32_t *notes, const uint8_t *state)
{
    const struct serve_slot_form form = form_now();
    return serve_slot_file_check(file, notes, state, &form);
}

int serve_restore_sort(uint8_t *state, size_t n)
{
    const struct serve_slot_form form = form_now();
    return serve_slot_state_sort(state, n, &form);
}
