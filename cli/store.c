/* SPDX-License-Identifier: MIT */
/* winnow store: a folder of documents that `run --store` keeps. */
#include "app/args.h"
#include "app/console.h"
#include "app/files.h"
#include "app/json.h"
#include "base/err.h"
#include "cli/commands.h"
#include "cli/parked.h"
#include "winnow_store.h"

#include <jansson.h>
#include <stdio.h>
#include <time.h>

static int cannot_open(const char *folder, int status)
{
    return app_fail(app_folder_code(folder, "index.sqlite", status), "%s", wnw_last_error());
}

/* The folder that the first argument names, which is not made where it is not there. */
static int check_folder(const struct app_args *args)
{
    if (args->n_rest < 1)
        return app_fail(APP_BAD_INPUT, "which folder? Name one that `winnow run --store` keeps documents in");
    if (cli_parked_is(args->rest[0]))
        return app_fail(
            APP_BAD_INPUT,
            "'%s' is a server's folder: `winnow chat --state %s --resume list` lists what is parked",
            args->rest[0], args->rest[0]);
    return wnw_store_is(args->rest[0])
               ? APP_OK
               : app_fail(APP_BAD_INPUT, "'%s' is no folder that documents are kept in", args->rest[0]);
}

static int open_store(wnw_store **store, const struct app_args *args)
{
    *store = NULL;
    WNW_TRY(check_folder(args));
    const int status = wnw_store_open(store, args->rest[0], 0);
    return status == WNW_OK ? APP_OK : cannot_open(args->rest[0], status);
}

static int finish(wnw_store *store, int status)
{
    const int rc = status == WNW_OK ? app_finish_stdout() : app_fail_status(status);
    wnw_store_close(store);
    return rc;
}

static void time_text(char out[32], int64_t seconds)
{
    const time_t t = (time_t)seconds;
    struct tm tm;
    if (!localtime_r(&t, &tm) || strftime(out, 32, "%Y-%m-%d %H:%M", &tm) == 0)
        snprintf(out, 32, "?");
}

static bool print_row(const wnw_store_entry *e, void *user)
{
    char used[32];
    (void)user;
    time_text(used, e->used);
    app_print_line(e->name);
    printf("  %8d tokens  %9.2f MiB  %s  model ", e->n_tokens, (double)e->bytes / 1048576.0, used);
    app_print_line(e->fingerprint);
    printf("  ");
    app_print_line(e->policy);
    putchar('\n');
    return true;
}

static bool print_object(const wnw_store_entry *e, void *user)
{
    (void)user;
    return app_print_json(json_pack("{s:o, s:i, s:I, s:I, s:I, s:o, s:o}", "name", app_json_text(e->name),
                                    "n_tokens", (int)e->n_tokens, "bytes", (json_int_t)e->bytes, "made",
                                    (json_int_t)e->made, "used", (json_int_t)e->used, "fingerprint",
                                    app_json_text(e->fingerprint), "policy", app_json_text(e->policy))) ==
           APP_OK;
}

int cli_store_list(const struct app_args *args)
{
    wnw_store *store;
    WNW_TRY(open_store(&store, args));
    return finish(store, wnw_store_list(store, args->json ? print_object : print_row, NULL));
}

int cli_store_rm(const struct app_args *args)
{
    wnw_store *store;
    const int rc = open_store(&store, args);
    int status = WNW_OK;
    if (rc != APP_OK)
        return rc;
    if (args->n_rest < 2) {
        wnw_store_close(store);
        return app_fail(APP_BAD_INPUT, "which document? `winnow store list` has their names");
    }
    for (int i = 1; status == WNW_OK && i < args->n_rest; i++)
        status = wnw_store_remove(store, args->rest[i]);
    return finish(store, status);
}

static void note_found(const char *name, const char *what, void *user)
{
    (void)user;
    app_note("'%s': %s", name, what);
}

/* Opens and checks the folder. An index that is found to be damaged at that is made again, and what it should name is checked then. */
static int check(wnw_store **store, wnw_store_report *report, const char *folder)
{
    int status = wnw_store_open(store, folder, 0);
    if (status == WNW_OK)
        status = wnw_store_check(*store, report, note_found, NULL);
    if (status != WNW_E_FORMAT)
        return status;
    wnw_store_close(*store);
    *store = NULL;
    WNW_TRY(wnw_store_repair(folder));
    app_note("'index.sqlite': it is damaged, was moved to 'unreadable', and made again from the documents");
    WNW_TRY(wnw_store_open(store, folder, 0));
    return wnw_store_check(*store, report, note_found, NULL);
}

static void print_report(const wnw_store_report *r)
{
    printf("%lld documents are whole, %lld were moved to 'unreadable', %lld were added to the index, %lld "
           "are gone",
           (long long)r->n_whole, (long long)r->n_aside, (long long)r->n_added, (long long)r->n_gone);
    if (r->n_other > 0)
        printf(", %lld need another program", (long long)r->n_other);
    putchar('\n');
}

int cli_store_check(const struct app_args *args)
{
    wnw_store *store = NULL;
    wnw_store_report report = wnw_store_report_default();
    int rc = check_folder(args);
    if (rc != APP_OK)
        return rc;
    const int status = check(&store, &report, args->rest[0]);
    if (status == WNW_OK) {
        print_report(&report);
        rc = app_finish_stdout();
    } else {
        rc = cannot_open(args->rest[0], status);
    }
    wnw_store_close(store);
    return rc == APP_OK && report.n_aside + report.n_gone > 0 ? APP_FAILED : rc;
}

struct sum {
    int64_t n;
    uint64_t bytes;
};

static bool add(const wnw_store_entry *e, void *user)
{
    struct sum *sum = user;
    sum->n++;
    sum->bytes += e->bytes;
    return true;
}

int cli_store_du(const struct app_args *args)
{
    wnw_store *store;
    struct sum sum = {0};
    WNW_TRY(open_store(&store, args));
    const int status = wnw_store_list(store, add, &sum);
    if (status == WNW_OK)
        printf("%lld documents, %.2f MiB\n", (long long)sum.n, (double)sum.bytes / 1048576.0);
    return finish(store, status);
}
