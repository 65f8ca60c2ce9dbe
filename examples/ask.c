/* SPDX-License-Identifier: MIT */
/* Reads a document, keeps a quarter of its cache, stores that, and asks the stored document two questions:
 *
 *     ask MODEL.gguf DOCUMENT.txt DOCUMENT.wkv QUESTION QUESTION
 */
#include <stdio.h>
#include <stdlib.h>
#include <winnow_store.h>

/* Returns from the function where a call fails. The caller frees everything. */
#define TRY(call)                   \
    do {                            \
        const int status_ = (call); \
        if (status_ != WNW_OK)      \
            return status_;         \
    } while (0)

static bool print(const char *text, size_t n_bytes, int32_t n_tokens, void *user)
{
    (void)user;
    fwrite(text, 1, n_bytes, stdout);
    return n_tokens < 40; /* false ends the answer */
}

/* A reader's session is one as any other. */
static void print_size(const wnw_reader *reader)
{
    wnw_cache_stats stats = wnw_cache_stats_default();
    if (wnw_cache_get_stats(wnw_reader_session(reader), &stats) == WNW_OK)
        fprintf(stderr, "[%.1f of %.1f MiB kept of the document]\n", (double)stats.bytes / 1048576,
                (double)stats.bytes_full / 1048576);
}

/* Reads the document, removes three quarters of its entries, answers the first question, and stores what is left. */
static int read_and_store(wnw_reader **reader, char **argv, const char *text)
{
    TRY(wnw_open(reader, argv[1]));
    TRY(wnw_ask(*reader, "auto", 0.75, text, argv[4], print, NULL));
    print_size(*reader);
    return wnw_reader_store(*reader, argv[3]);
}

/* As the next program does: opens the file and reads nothing again. */
static int ask_stored(wnw_reader **reader, char **argv)
{
    TRY(wnw_open(reader, argv[1]));
    TRY(wnw_reader_load(*reader, argv[3]));
    for (int i = 4; i < 6; i++) {
        const int rc = wnw_ask(*reader, NULL, 0, NULL, argv[i], print, NULL);
        puts("\n--");
        TRY(rc);
    }
    return WNW_OK;
}

int main(int argc, char **argv)
{
    char *text = calloc(1, 1 << 20);
    wnw_reader *reader = NULL;
    FILE *f = argc == 6 && text ? fopen(argv[2], "rb") : NULL;
    if (!f || fread(text, 1, (1 << 20) - 1, f) == 0) {
        fprintf(stderr, "usage: ask MODEL.gguf DOCUMENT.txt DOCUMENT.wkv QUESTION QUESTION\n");
        return 2;
    }
    fclose(f);
    int rc = read_and_store(&reader, argv, text);
    wnw_close(reader);
    reader = NULL;
    puts("\n--");
    if (rc == WNW_OK)
        rc = ask_stored(&reader, argv);
    if (rc != WNW_OK)
        fprintf(stderr, "%s\n", wnw_last_error());
    wnw_close(reader);
    free(text);
    return rc == WNW_OK ? 0 : 1;
}
