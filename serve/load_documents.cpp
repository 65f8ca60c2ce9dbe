// SPDX-License-Identifier: MIT
// Documents are read as a client would have them read, by the server's own routes, so that templates, options of the server and batches are
// what requests meet; stored ones are loaded when a slot is restored from them. The thread begins when the server's loop does and
// ends before it is cleaned up.
#include "serve/load_documents.hpp"
#include "serve/bodies.h"
#include "serve/call.hpp"
#include "serve/documents.h"
#include "serve/internal_requests.hpp"
#include "serve/parks.h"
#include "serve/slots.h"
#include "serve/start.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>

namespace serve
{

namespace
{

bool is_stopping(void *)
{
    return is_ending();
}

// Says why the server must not go on, unless it is ending anyway.
bool fail(int32_t d, const char *what, void (*refuse)(const char *) = serve_refuse)
{
    char line[2 * SERVE_TEXT];
    if (!is_ending()) {
        std::snprintf(line, sizeof line, "document %s: %s", serve_document_name(d), what);
        refuse(line);
    }
    return false;
}

// The same of a document that cannot be had with this model and these options.
bool misfit(int32_t d, const char *what)
{
    return fail(d, what, serve_refuse_input);
}

// Finds where the text of a document is in a prompt, by another text that is written in its place, of characters that no template
// changes.
bool find_place(const server_http_req &req, int32_t d)
{
    static const char mark[] = "winnow-has-a-document-here";
    const c_text prompt = rendered(req, c_text(serve_document_is_stored(d)
                                                   ? serve_body_user(serve_document_system(d), mark, "x")
                                                   : serve_body_document(mark, "x")));
    const char *at = prompt ? std::strstr(prompt.get(), mark) : nullptr;
    if (at)
        serve_document_set_at(d, static_cast<size_t>(at - prompt.get()));
    return at != nullptr;
}

// The tokens of a prompt that has a document.
tokens tokens_behind(const server_http_req &req, int32_t d, const char *prompt)
{
    const plain_document one(d);
    return tokens_of(req, prompt);
}

// Finds the tokens that every conversation about the document begins with: those that three different conversations have in common.
bool find_tokens(const server_http_req &req, int32_t d)
{
    const char *text = serve_document_text(d);
    const char *const more[] = {"", "1", "x"};
    tokens t[3], header[2];
    const bool found = find_place(req, d);
    for (int i = 0; i < 3; i++) {
        const c_text prompt = rendered(req, c_text(serve_body_document(text, more[i])));
        if (!found || !prompt || !std::strstr(prompt.get(), text))
            return misfit(d, "the model's chat template does not write system messages as they are, in which "
                             "documents stand");
        t[i] = tokens_behind(req, d, prompt.get());
    }
    for (int i = 0; i < 2; i++) {
        const c_text prompt = rendered(req, c_text(serve_body_document("", more[i + 1])));
        header[i] = prompt ? tokens_of(req, prompt.get()) : tokens();
    }
    const int32_t n = std::min(common_prefix(t[0], t[1]), common_prefix(t[1], t[2]));
    const int32_t n_header = std::min(common_prefix(header[0], header[1]), common_prefix(header[0], t[0]));
    if (n == 0 || n <= n_header)
        return misfit(
            d,
            "the model's chat template puts something before the system message, in which documents stand");
    return serve_document_set_tokens(d, t[0].id.get(), n, n_header) || fail(d, "out of memory");
}

// Compares the tokens that were stored with those of two prompts that begin with the text.
bool find_stored_tokens(const server_http_req &req, int32_t d)
{
    const char *text = serve_document_text(d), *system = serve_document_system(d);
    const char *const more[] = {"1", "x"};
    tokens stored, header[2];
    const int32_t *ids = wnw_stored_tokens(serve_document_stored(d), &stored.n);
    stored.id.reset(const_cast<int32_t *>(ids));
    int32_t same = find_place(req, d) ? stored.n : 0;
    for (int i = 0; i < 2; i++) {
        const c_text prompt = rendered(req, c_text(serve_body_user(system, text, more[i])));
        const c_text alone = rendered(req, c_text(serve_body_user(system, "", more[i])));
        same = prompt ? std::min(same, common_prefix(tokens_behind(req, d, prompt.get()), stored)) : 0;
        header[i] = alone ? tokens_of(req, alone.get()) : tokens();
    }
    const int32_t n_header = std::min(common_prefix(header[0], header[1]), common_prefix(header[0], stored));
    stored.id.release(); // they are the file's
    if (same == 0 || same + SERVE_DOCUMENT_OVERLAP < stored.n)
        return misfit(
            d, "the model's chat template does not write it as it was stored: with another template, for "
               "another day");
    return serve_document_set_tokens(d, ids, stored.n, n_header) || fail(d, "out of memory");
}

// The tokens that a list of documents begins with in three conversations; t[0] has them. Their number, 0: the template writes them otherwise.
int32_t find_joined(const server_http_req &req, int32_t d, tokens t[3])
{
    const char *text = serve_document_text(d), *system = serve_document_system(d);
    const char *const more[] = {"1", "x", "?"};
    if (!find_place(req, d))
        return 0;
    for (int i = 0; i < 3; i++) {
        const c_text prompt =
            rendered(req, c_text(serve_document_is_stored(d) ? serve_body_user(system, text, more[i])
                                                             : serve_body_document(text, more[i])));
        if (!prompt)
            return 0;
        t[i] = tokens_behind(req, d, prompt.get());
    }
    return std::min(common_prefix(t[0], t[1]), common_prefix(t[1], t[2]));
}

// A slot that is claimed like any client's, for n_prompt tokens. False: there will be none.
bool claim_slot(int32_t d, int64_t n_prompt, serve_claim &claim)
{
    char why[SERVE_TEXT] = "";
    serve_ask asked{};
    asked.keep_rule = serve_settings()->keep_rule;
    if (serve_document_is_stored(d)) // nothing is read, and what was stored is taken as it is
        serve_keep_rule_set(&asked.keep_rule, "full", nullptr);
    asked.keep_rule.n_protected = serve_document_n_header(d);
    asked.reuse = SERVE_REUSE_NEVER;
    asked.key = "";
    asked.slot = -1;
    asked.n_slots = 1;
    asked.n_prompt = n_prompt;
    asked.stores = serve_document_is_stored(d) ? 0 : d + 1;
    asked.client_left = is_stopping;
    serve_answer answer = serve_slots_claim(&asked, &claim, why);
    while (answer == SERVE_BUSY && !is_ending()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        answer = serve_slots_claim(&asked, &claim, why);
    }
    if (answer == SERVE_TOO_LONG)
        return misfit(d, why);
    return answer == SERVE_CLAIMED || fail(d, "the server is ending");
}

// Has a slot begin with what was stored, which loads it (document_cells.c).
bool load_document(const server_http_req &req, int32_t d)
{
    char file[32];
    serve_claim claim{};
    wnw_stored_info info = wnw_stored_info_default();
    wnw_stored_get_info(serve_document_stored(d), &info);
    const uint64_t row = serve_slots_row_bytes();
    if (!claim_slot(d, row > 0 ? static_cast<int64_t>((info.bytes_entries + row - 1) / row) : 0, claim))
        return false;
    erase_first(req, claim);
    serve_document_file(d, file);
    const bool put = act_on_slot(req, claim.slot, "restore", c_text(serve_body_file(file)));
    erase_slot(req, claim.slot);
    serve_slots_release(&claim);
    return put || fail(d, "the server could not load it; its log says why");
}

// Reads it into a slot; the decoding thread keeps what is left of it (document_cells.c).
bool read_document(const server_http_req &req, int32_t d)
{
    serve_claim claim{};
    int32_t n;
    const int32_t *ids = serve_document_tokens(d, &n);
    if (!claim_slot(d, n, claim))
        return false;
    erase_first(req, claim);
    const std::string said = ask(own().completion, req, c_text(serve_body_read_tokens(ids, n, claim.slot)));
    const bool kept = !said.empty() && serve_document_wait(d, is_stopping, nullptr);
    erase_slot(req, claim.slot);
    serve_slots_release(&claim);
    return kept || fail(d, "the server could not read it; its log says why");
}

std::mutex plan_lock;

void read_all()
{
    static const std::function<bool()> should_stop = [] { return is_ending(); };
    const server_http_req req{{}, {}, "", "", "", {}, should_stop};
    // What is stored first: it takes no time, and cells that follow each other.
    for (int32_t d = 0; d < serve_documents_n() && !is_ending(); d++)
        if (serve_document_is_stored(d) && (!find_stored_tokens(req, d) || !load_document(req, d)))
            return;
    for (int32_t d = 0; d < serve_documents_n() && !is_ending(); d++)
        if (!serve_document_is_stored(d) && (!find_tokens(req, d) || !read_document(req, d)))
            return;
}

} // namespace

const char *plan_join(const server_http_req &req, int32_t d)
{
    const std::lock_guard<std::mutex> hold(plan_lock);
    app_join_source of[SERVE_JOINED];
    app_join_part parts[SERVE_JOINED];
    int32_t n, n_ids, total, wrong;
    if (serve_document_tokens(d, &n_ids))
        return nullptr;
    const int32_t *documents = serve_join_documents(d, &n);
    for (int32_t i = 0; i < n; i++) {
        of[i].ids = serve_document_tokens(documents[i], &of[i].n);
        of[i].n_header = serve_document_n_header(documents[i]);
    }
    tokens t[3];
    const int32_t n_prompt = find_joined(req, d, t);
    if (!app_join_plan(parts, of, n, t[0].id.get(), n_prompt, serve_join_share(d), &total, &wrong))
        return "the model's chat template or its tokens write a document otherwise after another one";
    serve_join_set_parts(d, parts);
    return serve_document_set_tokens(d, t[0].id.get(), total, of[0].n_header) ? nullptr : "out of memory";
}

} // namespace serve

void real_loop(void *server) __asm__("__real__ZN14server_context10start_loopEv");
void wrap_loop(void *server) __asm__("__wrap__ZN14server_context10start_loopEv");
void terminate(void *server) __asm__("_ZN14server_context9terminateEv");
extern "C" void serve_end_loop();

namespace
{

std::mutex loop_lock;
void *loop_of = nullptr; // the server whose loop runs, or is about to

void set_loop(void *server)
{
    const std::lock_guard<std::mutex> hold(loop_lock);
    loop_of = server;
}

} // namespace

void serve_end_loop()
{
    const std::lock_guard<std::mutex> hold(loop_lock);
    if (loop_of)
        terminate(loop_of);
}

void wrap_loop(void *server)
{
    std::thread reader(serve::read_all);
    set_loop(server);
    serve_started();
    real_loop(server);
    set_loop(nullptr);
    serve::set_ending();
    reader.join();
    if (serve_settings()->state)
        serve_park_slots();
    serve_parks_close();
}
