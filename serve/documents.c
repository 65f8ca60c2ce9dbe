/* SPDX-License-Identifier: MIT */
#include "serve/documents.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* Bytes of a text; more tokens than any context has. */
enum { MOST_BYTES = 1 << 28 };

static const char file_prefix[] = "winnow-document.";

struct document {
    char name[SERVE_DOCUMENT_NAME + 1];
    char *text, *system; /* owned; system: of what was stored, NULL = none */
    wnw_stored *stored;  /* owned, until it is loaded */
    int32_t *tokens, n_tokens, n_header;
    int64_t entries;
    struct serve_want by;
    bool is_stored, is_read;
};

/* One for the process. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t read;
    struct document of[SERVE_MAX_DOCUMENTS];
    int32_t n;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER, .read = PTHREAD_COND_INITIALIZER};

/* ---- Loading ---- */

static bool complain(char *why, const char *name, const char *what)
{
    snprintf(why, SERVE_TEXT, "document %.80s: %.300s", name, what);
    return false;
}

/* The whole of a file as text; NULL: errno says why. */
static char *read_file(const char *path, size_t *n)
{
    struct stat st;
    FILE *f = fopen(path, "rb");
    char *text = NULL;
    *n = 0;
    if (f && fstat(fileno(f), &st) == 0 && !S_ISREG(st.st_mode))
        errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
    else if (f && st.st_size > MOST_BYTES)
        errno = EFBIG;
    else if (f && (text = malloc((size_t)st.st_size + 1)) != NULL)
        *n = fread(text, 1, (size_t)st.st_size, f);
    if (text)
        text[*n] = '\0';
    if (f)
        fclose(f);
    return text;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\f' || c == '\v';
}

/* Chat templates trim what they write, so that the text would not be found again. */
static void trim(char *text)
{
    size_t n = strlen(text), from = 0;
    while (n > 0 && is_space(text[n - 1]))
        n--;
    text[n] = '\0';
    while (is_space(text[from]))
        from++;
    memmove(text, text + from, n - from + 1);
}

/* Length of the UTF-8 sequence that begins there, 0 = it is none. */
static size_t sequence_length(const unsigned char *s)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const size_t n = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 : s[0] >> 3 == 30 ? 4 : 0;
    uint32_t code = n > 1 ? s[0] & (0x7fu >> n) : s[0];
    for (size_t i = 1; i < n; i++) {
        if (s[i] >> 6 != 2)
            return 0;
        code = code << 6 | (s[i] & 0x3f);
    }
    return n > 1 && (code < least[n] || code > 0x10ffff || code >> 11 == 0x1b) ? 0 : n;
}

static bool is_utf8(const char *text)
{
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        const size_t n = sequence_length(s);
        if (n == 0)
            return false;
        s += n;
    }
    return true;
}

static bool load_text(struct document *d, const char *path, char *why)
{
    size_t n;
    d->text = read_file(path, &n);
    if (!d->text) {
        char line[SERVE_TEXT];
        snprintf(line, sizeof line, "cannot read %.200s: %s", path, strerror(errno));
        return complain(why, d->name, line);
    }
    if (strlen(d->text) != n || !is_utf8(d->text))
        return complain(why, d->name, "it is no text in UTF-8");
    trim(d->text);
    return *d->text || complain(why, d->name, "it is empty");
}

/* Whether the file begins as a stored cache does, or is called like one. */
static bool looks_stored(const char *path)
{
    static const char magic[] = "\x89WKV";
    char begin[4] = "";
    const size_t n = strlen(path);
    FILE *f = fopen(path, "rb");
    const bool same = f && fread(begin, sizeof begin, 1, f) == 1 && memcmp(begin, magic, sizeof begin) == 0;
    if (f)
        fclose(f);
    return same || (n >= 4 && strcmp(path + n - 4, ".wkv") == 0);
}

/* Why a stored cache cannot be a document here, NULL = it can; `line` is room for the sentence. */
static const char *stored_fault(const wnw_stored *st, char line[SERVE_TEXT])
{
    wnw_stored_info info = wnw_stored_info_default();
    wnw_prompt_params text = wnw_prompt_default_params();
    const char *own = serve_settings()->fingerprint ? serve_settings()->fingerprint : "";
    size_t n;
    (void)wnw_stored_get_info(st, &info); /* this call does not fail for an open file */
    if (strcmp(info.fingerprint, own) != 0) {
        snprintf(line, SERVE_TEXT, "it belongs to model %s (%.100s), and the server's is %s",
                 info.fingerprint, info.model, *own ? own : "not known");
        return line;
    }
    if (!wnw_stored_get_text(st, &text) || !text.document)
        return "it was stored without its text, which is what prompts are compared with";
    if (text.raw)
        return "it was stored without a chat template (--raw), and documents stand in messages";
    if (info.pieces)
        return "documents were added to it one by one, so that its tokens are not those of their text: store "
               "them anew, together";
    if (info.policy && strlen(info.policy) >= SERVE_RECIPE)
        return "the recipe that it was compressed by is too long";
    return wnw_stored_sequence(st, NULL, &n) == WNW_OK ? NULL : wnw_last_error();
}

static bool load_stored(struct document *d, const char *path, char *why)
{
    wnw_prompt_params text = wnw_prompt_default_params();
    char line[SERVE_TEXT];
    d->is_stored = true;
    if (wnw_stored_open(&d->stored, path) != WNW_OK)
        return complain(why, d->name, wnw_last_error());
    const char *fault = stored_fault(d->stored, line);
    if (fault)
        return complain(why, d->name, fault);
    (void)wnw_stored_get_text(d->stored, &text);
    d->text = strdup(text.document);
    d->system = text.system ? strdup(text.system) : NULL;
    return (d->text && !text.system == !d->system) || complain(why, d->name, "out of memory");
}

static bool load_one(struct document *d, const char *path, char *why)
{
    return looks_stored(path) ? load_stored(d, path, why) : load_text(d, path, why);
}

static bool is_name(const char *name, size_t n)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return n > 0 && n <= SERVE_DOCUMENT_NAME && strspn(name, letters) >= n;
}

static bool add_line(char *line, char *why)
{
    char *eq = strchr(line, '=');
    const size_t n = eq ? (size_t)(eq - line) : 0;
    if (!eq || !is_name(line, n))
        return complain(why, line, "it is NAME=FILE; a name has up to 64 letters, digits and . _ -");
    *eq = '\0';
    if (serve_documents_find(line) >= 0)
        return complain(why, line, "there are two of that name");
    if (all.n == SERVE_MAX_DOCUMENTS)
        return complain(why, line, "a server has 32 documents at most");
    struct document *d = &all.of[all.n++];
    memcpy(d->name, line, n + 1);
    return load_one(d, eq + 1, why);
}

bool serve_documents_load(const char *lines, char *why)
{
    char *copy = strdup(lines), *rest = NULL;
    bool ok = copy != NULL || complain(why, "list", "out of memory");
    for (char *line = ok ? strtok_r(copy, "\n", &rest) : NULL; ok && line; line = strtok_r(NULL, "\n", &rest))
        ok = add_line(line, why);
    free(copy);
    return ok;
}

void serve_documents_free(void)
{
    for (int32_t d = 0; d < all.n; d++) {
        wnw_stored_free(all.of[d].stored);
        free(all.of[d].text);
        free(all.of[d].system);
        free(all.of[d].tokens);
        all.of[d] = (struct document){0};
    }
    all.n = 0;
}

/* ---- What does not change ---- */

int32_t serve_documents_n(void)
{
    return all.n;
}

int32_t serve_documents_find(const char *name)
{
    for (int32_t d = 0; d < all.n; d++)
        if (strcmp(all.of[d].name, name) == 0)
            return d;
    return -1;
}

const char *serve_document_name(int32_t d)
{
    return all.of[d].name;
}

const char *serve_document_text(int32_t d)
{
    return all.of[d].text;
}

bool serve_document_is_stored(int32_t d)
{
    return all.of[d].is_stored;
}

const char *serve_document_system(int32_t d)
{
    return all.of[d].system;
}

const wnw_stored *serve_document_stored(int32_t d)
{
    return all.of[d].stored;
}

void serve_document_close(int32_t d)
{
    wnw_stored_free(all.of[d].stored);
    all.of[d].stored = NULL;
}

struct serve_want serve_document_stored_by(int32_t d)
{
    wnw_stored_info info = wnw_stored_info_default();
    struct serve_want by = {.n_protected = serve_document_n_header(d)};
    wnw_policy *policy = NULL;
    char *recipe = NULL;
    (void)wnw_stored_get_info(all.of[d].stored, &info);
    if (info.policy && wnw_policy_parse(&policy, info.policy, NULL) == WNW_OK)
        (void)wnw_policy_short(policy, &recipe); /* the long form is as good */
    snprintf(by.recipe, sizeof by.recipe, "%s", recipe ? recipe : info.policy ? info.policy : "full");
    wnw_free(recipe);
    wnw_policy_free(policy);
    by.size = info.size;
    return by;
}

/* ---- What is found out ---- */

bool serve_document_set_tokens(int32_t d, const int32_t *tokens, int32_t n, int32_t n_header)
{
    int32_t *copy = malloc(((size_t)n + 1) * sizeof *copy);
    if (!copy)
        return false;
    memcpy(copy, tokens, (size_t)n * sizeof *copy);
    pthread_mutex_lock(&all.lock);
    all.of[d].tokens = copy;
    all.of[d].n_tokens = n;
    all.of[d].n_header = n_header;
    pthread_mutex_unlock(&all.lock);
    return true;
}

const int32_t *serve_document_tokens(int32_t d, int32_t *n)
{
    pthread_mutex_lock(&all.lock);
    const int32_t *tokens = all.of[d].tokens;
    *n = tokens ? all.of[d].n_tokens : 0;
    pthread_mutex_unlock(&all.lock);
    return tokens;
}

int32_t serve_document_n_header(int32_t d)
{
    pthread_mutex_lock(&all.lock);
    const int32_t n = all.of[d].n_header;
    pthread_mutex_unlock(&all.lock);
    return n;
}

void serve_document_kept(int32_t d, int64_t entries, const struct serve_want *by)
{
    pthread_mutex_lock(&all.lock);
    all.of[d].entries = entries;
    all.of[d].by = *by;
    all.of[d].is_read = true;
    pthread_cond_broadcast(&all.read);
    pthread_mutex_unlock(&all.lock);
}

bool serve_document_wait(int32_t d, bool (*gone)(void *user), void *user)
{
    bool left = false;
    pthread_mutex_lock(&all.lock);
    while (!all.of[d].is_read && !left) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        pthread_cond_timedwait(&all.read, &all.lock, &until);
        left = gone && gone(user);
    }
    const bool is_read = all.of[d].is_read;
    pthread_mutex_unlock(&all.lock);
    return is_read;
}

int64_t serve_documents_entries(void)
{
    int64_t n = 0;
    pthread_mutex_lock(&all.lock);
    for (int32_t d = 0; d < all.n; d++)
        n += all.of[d].is_read ? all.of[d].entries : 0;
    pthread_mutex_unlock(&all.lock);
    return n;
}

bool serve_document_look(int32_t d, int32_t *n_tokens, int64_t *entries, struct serve_want *by)
{
    pthread_mutex_lock(&all.lock);
    const struct document *of = &all.of[d];
    const bool is_read = of->is_read;
    *n_tokens = of->n_tokens;
    *entries = of->entries;
    *by = is_read ? of->by : serve_settings()->want;
    pthread_mutex_unlock(&all.lock);
    return is_read;
}

/* ---- Names for the decoding thread ---- */

void serve_document_file(int32_t d, char name[32])
{
    snprintf(name, 32, "%s%d", file_prefix, (int)d);
}

int32_t serve_document_of_file(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char *end;
    if (strncmp(name, file_prefix, sizeof file_prefix - 1) != 0)
        return -1;
    const long d = strtol(name + sizeof file_prefix - 1, &end, 10);
    return *end == '\0' && end > name + sizeof file_prefix - 1 && d >= 0 && d < all.n ? (int32_t)d : -1;
}
