/* SPDX-License-Identifier: MIT */
#include "serve/slot_file.h"

#include "base/err.h"
#include "base/system.h"
#include "base/whole_file.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

/* Bytes of a run that is worth leaving out. */
enum { LEAST_RUN = 32 };

static const char magic[16] = "winnow slot 5\n";
enum { MAGIC_NAME = 12 }; /* of its bytes, in front of the version */
_Static_assert(sizeof((struct serve_slot_file){0}.fingerprint) ==
                   sizeof((struct serve_slot_form){0}.fingerprint),
               "both have as many digits of a fingerprint");

/* A part of the state: a number of bytes that are stored, then a number of bytes with all bits set. */
struct part {
    uint64_t n_plain, n_ones;
};

static struct part next_part(const uint8_t *x, uint64_t n)
{
    struct part p = {0};
    uint64_t ones = 0;
    for (; p.n_plain + ones < n;) {
        if (x[p.n_plain + ones] == 0xff) {
            ones++;
            continue;
        }
        if (ones >= LEAST_RUN)
            break;
        p.n_plain += ones + 1;
        ones = 0;
    }
    p.n_ones = ones;
    return p;
}

/* ---- The checksum ---- */

/* Of a header whose bytes were read or will be written as they are. `rest` has taken in what follows it. */
static uint64_t sum_of(XXH3_state_t *rest, const struct serve_slot_file *file)
{
    static const uint64_t none = 0;
    const size_t at = offsetof(struct serve_slot_file, sum), end = at + sizeof file->sum;
    XXH3_64bits_update(rest, file, at);
    XXH3_64bits_update(rest, &none, sizeof none);
    XXH3_64bits_update(rest, (const char *)file + end, sizeof *file - end);
    return XXH3_64bits_digest(rest);
}

static int new_sum(XXH3_state_t **sum)
{
    *sum = XXH3_createState();
    if (!*sum)
        return wnw__fail(WNW_E_NOMEM, "no memory for a checksum");
    XXH3_64bits_reset(*sum);
    return WNW_OK;
}

/* Bytes of the notes with the positions. */
static uint64_t note_bytes(const struct serve_slot_file *file)
{
    return (file->n_tokens + (uint64_t)file->n_at) * sizeof(int32_t);
}

static size_t bytes_of(const struct serve_slot_file *file)
{
    return sizeof magic + sizeof *file + note_bytes(file) + file->packed_bytes + file->border_bytes;
}

/* ---- Writing ---- */

/* Parts are small: what they have is gathered before it is written. */
struct writer {
    struct wnw__whole_file f;
    bool in_memory; /* to `packed` [n_packed] in place of a file */
    uint8_t *packed;
    size_t n_packed, room;
    XXH3_state_t *sum;
    size_t n;
    uint8_t gathered[1 << 16];
};

static int append(struct writer *w, const void *bytes, size_t n)
{
    if (n > w->room - w->n_packed) {
        const size_t room = w->room + (n > w->room / 2 ? n : w->room / 2);
        uint8_t *packed = realloc(w->packed, room);
        if (!packed)
            return wnw__fail(WNW_E_NOMEM, "no memory for a slot of %zu bytes", room);
        w->packed = packed;
        w->room = room;
    }
    memcpy(w->packed + w->n_packed, bytes, n);
    w->n_packed += n;
    return WNW_OK;
}

static int put(struct writer *w, const void *bytes, size_t n)
{
    if (n == 0)
        return WNW_OK;
    return w->in_memory ? append(w, bytes, n) : wnw__whole_file_write(&w->f, bytes, n);
}

static int flush(struct writer *w)
{
    const size_t n = w->n;
    w->n = 0;
    return put(w, w->gathered, n);
}

static int gather(struct writer *w, const void *bytes, uint64_t n)
{
    if (n > sizeof w->gathered - w->n)
        WNW_TRY(flush(w));
    if (n > sizeof w->gathered)
        return put(w, bytes, n);
    if (n > 0)
        memcpy(w->gathered + w->n, bytes, n);
    w->n += n;
    return WNW_OK;
}

static int gather_summed(struct writer *w, const void *bytes, uint64_t n)
{
    if (n > 0)
        XXH3_64bits_update(w->sum, bytes, n);
    return gather(w, bytes, n);
}

static int write_state(struct writer *w, struct serve_slot_file *file, const uint8_t *state)
{
    file->packed_bytes = 0;
    for (uint64_t at = 0; at < file->state_bytes;) {
        const struct part p = next_part(state + at, file->state_bytes - at);
        WNW_TRY(gather_summed(w, &p, sizeof p));
        WNW_TRY(gather_summed(w, state + at, p.n_plain));
        at += p.n_plain + p.n_ones;
        file->packed_bytes += sizeof p + p.n_plain;
    }
    return WNW_OK;
}

static int write_all(struct writer *w, struct serve_slot_file *file, const int32_t *notes,
                     const uint8_t *state, const uint8_t *borders)
{
    WNW_TRY(gather(w, magic, sizeof magic));
    WNW_TRY(gather(w, file, sizeof *file));
    WNW_TRY(gather_summed(w, notes, note_bytes(file)));
    WNW_TRY(write_state(w, file, state));
    WNW_TRY(gather_summed(w, borders, file->border_bytes));
    WNW_TRY(flush(w));
    /* Now that it is known what was written. */
    file->sum = sum_of(w->sum, file);
    if (w->in_memory) {
        memcpy(w->packed + sizeof magic, file, sizeof *file);
        return WNW_OK;
    }
    return wnw__whole_file_rewrite(&w->f, file, sizeof *file, sizeof magic);
}

static int write_file(struct writer *w, const char *path, struct serve_slot_file *file, const int32_t *notes,
                      const uint8_t *state)
{
    WNW_TRY(new_sum(&w->sum));
    WNW_TRY(wnw__whole_file_open(&w->f, path));
    WNW_TRY(write_all(w, file, notes, state, NULL));
    return wnw__whole_file_commit(&w->f);
}

int serve_slot_file_write(size_t *bytes, const char *path, struct serve_slot_file *file, const int32_t *notes,
                          const uint8_t *state)
{
    struct writer *w = calloc(1, sizeof *w);
    *bytes = 0;
    if (!w)
        return wnw__fail(WNW_E_NOMEM, "no memory to write '%.200s'", path);
    w->f.fd = -1;
    const int rc = write_file(w, path, file, notes, state);
    wnw__whole_file_abort(&w->f);
    XXH3_freeState(w->sum);
    free(w);
    *bytes = rc == WNW_OK ? bytes_of(file) : 0;
    return rc;
}

int serve_slot_file_pack(uint8_t **bytes, size_t *n, struct serve_slot_read *slot)
{
    struct writer *w = calloc(1, sizeof *w);
    *bytes = NULL;
    *n = 0;
    if (!w)
        return wnw__fail(WNW_E_NOMEM, "no memory to pack a slot");
    w->in_memory = true;
    int rc = new_sum(&w->sum);
    if (rc == WNW_OK)
        rc = write_all(w, &slot->file, slot->notes, slot->state, slot->borders);
    if (rc == WNW_OK) {
        uint8_t *fitting = realloc(w->packed, w->n_packed);
        *bytes = fitting ? fitting : w->packed;
        *n = w->n_packed;
        w->packed = NULL;
    }
    free(w->packed);
    XXH3_freeState(w->sum);
    free(w);
    return rc;
}

/* ---- Checking ---- */

bool serve_slot_file_fits(const struct serve_slot_file *file, const uint64_t model[2],
                          const char *fingerprint)
{
    const bool by_numbers = file->model[0] > 0 || file->model[1] > 0,
               has_numbers = model[0] > 0 || model[1] > 0 || !*fingerprint;
    return (by_numbers || *file->fingerprint) &&
           (!by_numbers || !has_numbers || memcmp(file->model, model, sizeof file->model) == 0) &&
           strcmp(file->fingerprint, fingerprint) == 0;
}

bool serve_is_plain(const char *text, size_t room)
{
    const char *end = memchr(text, '\0', room);
    for (; end && text < end; text++)
        if (*text < ' ' || *text > '~' || *text == '"' || *text == '\\')
            return false;
    return end != NULL;
}

bool serve_is_size(const wnw_size *size)
{
    switch (size->kind) {
    case WNW_SIZE_NONE:
    case WNW_SIZE_BYTES:
        return true;
    case WNW_SIZE_BUDGET:
        return size->budget >= 1;
    case WNW_SIZE_RATIO:
        return isfinite(size->ratio) && size->ratio >= 0.0 && size->ratio < 1.0;
    }
    return false;
}

static bool is_by(const struct serve_slot_file *file)
{
    return serve_is_plain(file->by.recipe, sizeof file->by.recipe) && serve_is_size(&file->by.size) &&
           file->by.n_protected >= 0 && file->by.n_protected <= file->n_sequence;
}

static const char damaged[] = "it is damaged; read its text again, or take another copy";

/* What a header says, against the file's size and the server's context. */
static int check_header(const struct serve_slot_file *file, uint64_t size, const struct serve_slot_form *form)
{
    const uint64_t most_entries = (uint64_t)(file->n_sequence > 0 ? file->n_sequence : 0) *
                                  (uint64_t)(form->n_heads > 0 ? form->n_heads : INT32_MAX);
    if (file->n_tokens > size / sizeof(int32_t) || file->packed_bytes > size || file->border_bytes > size ||
        file->n_sequence < 0 || (uint64_t)file->n_sequence > file->n_tokens ||
        (file->n_at != 0 && file->n_at != file->n_sequence) || file->n_settled < 0 ||
        file->n_settled > file->n_sequence || bytes_of(file) != size)
        return wnw__fail(WNW_E_FORMAT, "%s", damaged);
    if (!serve_is_plain(file->fingerprint, sizeof file->fingerprint) || (file->compressed & ~1) != 0 ||
        (file->compressed && !is_by(file)) || file->entries < 0 || (uint64_t)file->entries > most_entries)
        return wnw__fail(WNW_E_FORMAT,
                         "its header is impossible for a slot: %lld entries of %d tokens, by '%.*s'",
                         (long long)file->entries, (int)file->n_sequence,
                         serve_is_plain(file->by.recipe, sizeof file->by.recipe) ? 80 : 0, file->by.recipe);
    if (!serve_slot_file_fits(file, form->model, form->fingerprint))
        return wnw__fail(WNW_E_FORMAT, "it is of another model");
    /* Before memory is taken for it. */
    if (form->n_cells > 0 && file->n_sequence > form->n_cells)
        return wnw__fail(WNW_E_FORMAT, "it has %d tokens, and the server's cache %d cells",
                         (int)file->n_sequence, (int)form->n_cells);
    /* Only dropped entries are left out, so the state cannot be larger than this. */
    if (file->state_bytes >
        file->packed_bytes + (uint64_t)file->n_sequence * form->row_bytes + form->window_bytes + 1024)
        return wnw__fail(WNW_E_FORMAT, "its state has %llu bytes, more than %d tokens of this model have",
                         (unsigned long long)file->state_bytes, (int)file->n_sequence);
    return WNW_OK;
}

/* Whether positions rise to that of the last noted token. */
static bool are_positions(const int32_t *at, int32_t n, int32_t n_noted)
{
    for (int32_t k = 0; k < n; k++)
        if (at[k] < (k > 0 ? at[k - 1] + 1 : 0) || at[k] >= n_noted)
            return false;
    return n > 0 && at[n - 1] == n_noted - 1;
}

/* Whether what is left of n_noted tokens can be one slot of this server. */
static int check_left(const struct serve_slot_file *file, const int32_t *notes, int32_t n_noted, bool several)
{
    if (file->n_at == 0)
        return file->n_sequence == n_noted
                   ? WNW_OK
                   : wnw__fail(WNW_E_FORMAT, "%d tokens are noted, and the keys and values of %d are there",
                               (int)n_noted, (int)file->n_sequence);
    return !several && are_positions(notes + file->n_tokens, file->n_at, n_noted)
               ? WNW_OK
               : wnw__fail(WNW_E_FORMAT, "its positions are not those of %d of %d tokens", (int)file->n_at,
                           (int)n_noted);
}

int serve_slot_file_check(const struct serve_slot_file *file, const int32_t *notes, const uint8_t *state,
                          const struct serve_slot_form *form)
{
    int32_t n_noted;
    bool several;
    if (file->n_at > 0 && form->n_longest == 0)
        return wnw__fail(WNW_E_FORMAT, "tokens were removed from its middle, and this server makes no room; "
                                       "start it with --when-full compress");
    WNW_TRY(serve_slot_notes_check(&n_noted, &several, notes, file->n_tokens, form));
    WNW_TRY(check_left(file, notes, n_noted, several));
    if (form->n_most > 0 && file->n_sequence > form->n_most)
        return wnw__fail(WNW_E_FORMAT, "it has %d tokens, and the server's slots have room for %d",
                         (int)file->n_sequence, (int)form->n_most);
    return serve_slot_state_check(state, file->state_bytes, file->n_sequence, several, form);
}

/* ---- Reading ---- */

static int cut_off(FILE *f)
{
    return ferror(f) ? wnw__fail(WNW_E_IO, "it cannot be read") : wnw__fail(WNW_E_FORMAT, "%s", damaged);
}

static int read_summed(FILE *f, XXH3_state_t *sum, void *bytes, uint64_t n)
{
    if (n == 0)
        return WNW_OK;
    if (fread(bytes, 1, n, f) != n)
        return cut_off(f);
    XXH3_64bits_update(sum, bytes, n);
    return WNW_OK;
}

/* Reads the state in its parts. */
static int read_parts(FILE *f, XXH3_state_t *sum, uint8_t *state, uint64_t n)
{
    for (uint64_t at = 0; at < n;) {
        struct part p;
        WNW_TRY(read_summed(f, sum, &p, sizeof p));
        if (p.n_plain > n - at || p.n_ones > n - at - p.n_plain || p.n_plain + p.n_ones == 0)
            return wnw__fail(WNW_E_FORMAT, "%s", damaged);
        WNW_TRY(read_summed(f, sum, state + at, p.n_plain));
        memset(state + at + p.n_plain, 0xff, p.n_ones);
        at += p.n_plain + p.n_ones;
    }
    return WNW_OK;
}

static int read_header(struct serve_slot_file *file, FILE *f)
{
    char begins[sizeof magic];
    if (fread(begins, sizeof begins, 1, f) != 1 || memcmp(begins, magic, MAGIC_NAME) != 0)
        return ferror(f) ? cut_off(f) : wnw__fail(WNW_E_FORMAT, "it is no slot of winnow's");
    if (memcmp(begins, magic, sizeof magic) != 0)
        return wnw__fail(WNW_E_FORMAT,
                         "another version of winnow wrote it; read its text again and save the slot here");
    return fread(file, sizeof *file, 1, f) == 1 ? WNW_OK : cut_off(f);
}

/* Reads the notes, the state and the borders, and compares the checksum. */
static int read_checked(struct serve_slot_read *x, FILE *f, XXH3_state_t *sum)
{
    WNW_TRY(read_summed(f, sum, x->notes, note_bytes(&x->file)));
    WNW_TRY(read_parts(f, sum, x->state, x->file.state_bytes));
    WNW_TRY(read_summed(f, sum, x->borders, x->file.border_bytes));
    return sum_of(sum, &x->file) == x->file.sum ? WNW_OK : wnw__fail(WNW_E_FORMAT, "%s", damaged);
}

/* Reads what follows the header. */
static int read_rest(struct serve_slot_read *x, FILE *f)
{
    XXH3_state_t *sum = NULL;
    x->notes = malloc(note_bytes(&x->file) + 1);
    x->state = malloc((size_t)x->file.state_bytes + 1);
    x->borders = malloc((size_t)x->file.border_bytes + 1);
    if (!x->notes || !x->state || !x->borders)
        return wnw__fail(WNW_E_NOMEM, "no memory for a state of %llu bytes",
                         (unsigned long long)x->file.state_bytes);
    int rc = new_sum(&sum);
    if (rc == WNW_OK)
        rc = read_checked(x, f, sum);
    XXH3_freeState(sum);
    return rc;
}

static int read_and_check(struct serve_slot_read *out, FILE *f, int64_t size,
                          const struct serve_slot_form *form)
{
    WNW_TRY(read_header(&out->file, f));
    WNW_TRY(check_header(&out->file, (uint64_t)size, form));
    WNW_TRY(read_rest(out, f));
    return serve_slot_file_check(&out->file, out->notes, out->state, form);
}

/* Reads all of a stream that has `size` bytes, and closes it. */
static int read_all(struct serve_slot_read *out, FILE *f, int64_t size, const struct serve_slot_form *form)
{
    const int rc = read_and_check(out, f, size, form);
    fclose(f);
    out->bytes = (size_t)size;
    if (rc != WNW_OK)
        serve_slot_read_clear(out);
    return rc;
}

int serve_slot_file_read(struct serve_slot_read *out, const char *path, const struct serve_slot_form *form)
{
    FILE *f;
    int64_t size;
    *out = (struct serve_slot_read){0};
    /* A pipe in the folder would be waited for. */
    WNW_TRY(wnw__open_stream(&f, &size, "slot", path));
    WNW_TRY(read_all(out, f, size, form));
    if (out->file.border_bytes == 0)
        return WNW_OK;
    serve_slot_read_clear(out); /* what libllama makes of them is not checked */
    return wnw__fail(WNW_E_FORMAT, "it is a parked slot: keep it in the folder of --state");
}

int serve_slot_file_unpack(struct serve_slot_read *out, const uint8_t *bytes, size_t n,
                           const struct serve_slot_form *form)
{
    *out = (struct serve_slot_read){0};
    FILE *f = n > 0 ? fmemopen((void *)(uintptr_t)bytes, n, "r") : NULL;
    if (!f)
        return n > 0 ? wnw__fail(WNW_E_NOMEM, "no memory to read a packed slot")
                     : wnw__fail(WNW_E_FORMAT, "%s", damaged);
    return read_all(out, f, (int64_t)n, form);
}

void serve_slot_read_clear(struct serve_slot_read *x)
{
    free(x->notes);
    free(x->state);
    free(x->borders);
    *x = (struct serve_slot_read){0};
}
