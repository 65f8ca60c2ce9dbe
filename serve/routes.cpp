// SPDX-License-Identifier: MIT
// Which routes are ours and which pass through us. The linker sends calls of server_http_context::post, get and start here
// (--wrap, server.cmake), which are few lines of one header; the server's files are not changed.
#include "serve/adapters.hpp"
#include "serve/call.hpp"
#include "serve/config.h"
#include "serve/connections.hpp"
#include "serve/front.hpp"
#include "serve/generate.hpp"
#include "serve/moves.hpp"
#include "serve/pages.hpp"
#include "serve/replies.hpp"
#include "serve/slots.h"

#include "server-http.h"
#include "winnow.h"
#include "winnow_bridge.h"

#include <cstring>
#include <functional>
#include <string>
#include <strings.h>

namespace
{

using handler = server_http_context::handler_t;
using serve::own;

// Routes that generate and take a slot by its number. Others that generate are not asked for one.
const struct {
    const char *path;
    serve_form form;
} generating[] = {{"/completion", SERVE_FORM_PROMPT},        {"/completions", SERVE_FORM_PROMPT},
                  {"/v1/completions", SERVE_FORM_PROMPT},    {"/chat/completions", SERVE_FORM_CHAT},
                  {"/v1/chat/completions", SERVE_FORM_CHAT}, {"/v1/messages", SERVE_FORM_MESSAGES},
                  {"/v1/responses", SERVE_FORM_RESPONSES},   {"/responses", SERVE_FORM_RESPONSES}};

// Routes that write or count a prompt or tokens, and read nothing into a slot.
const struct {
    const char *path;
    serve_form form;
} counting[] = {{"/apply-template", SERVE_FORM_CHAT},
                {"/chat/completions/input_tokens", SERVE_FORM_CHAT},
                {"/v1/chat/completions/input_tokens", SERVE_FORM_CHAT},
                {"/responses/input_tokens", SERVE_FORM_RESPONSES},
                {"/v1/responses/input_tokens", SERVE_FORM_RESPONSES},
                {"/v1/messages/count_tokens", SERVE_FORM_MESSAGES},
                {"/tokenize", SERVE_FORM_TOKENIZE},
                {"/detokenize", SERVE_FORM_DETOKENIZE}};

// Routes that take slots, whichever are free, as far as the server was started with what they are for.
const struct {
    const char *path;
    int form;
} uncounted[] = {{"/v1/audio/transcriptions", -1},          {"/audio/transcriptions", -1},
                 {"/embedding", SERVE_FORM_EMBEDDINGS},     {"/embeddings", SERVE_FORM_EMBEDDINGS},
                 {"/v1/embeddings", SERVE_FORM_EMBEDDINGS}, {"/rerank", SERVE_FORM_RERANK},
                 {"/reranking", SERVE_FORM_RERANK},         {"/v1/rerank", SERVE_FORM_RERANK},
                 {"/v1/reranking", SERVE_FORM_RERANK}};

// Actions on slots: those with files only where the server was started with a folder for them. Several of one slot wait here, each until the
// slot is its own: the server would put them off and come back to the first alone.
server_http_res_ptr act(const handler &route, const server_http_req &req)
{
    const std::string action = req.get_param("action");
    const int32_t slot = serve_slots_named(req.get_param("id_slot").c_str());
    serve_claim claim{};
    if (slot < 0) // the server would take another one
        return serve::refuse(400, "id_slot: there is no slot of that number", "id_slot");
    if (action != "erase" && !serve_settings()->saves)
        return serve::refuse(
            400,
            "slots are saved and restored where the server has a folder for them: winnow serve --save DIR",
            "action");
    if (serve_slots_hold(slot, serve::has_left, const_cast<server_http_req *>(&req), &claim) != SERVE_CLAIMED)
        return serve::refuse(503, "the client has left", nullptr);
    const serve::claimed_slot one(claim);
    serve::erase_first(req, claim);
    if (action != "save")
        serve_slots_forget_prompt(slot);
    if (action == "save" || action == "restore")
        return serve::move_slot(route, req, slot, action);
    return serve::checked(route, -1, req);
}

// The server ends a connection after what it streamed and does not say so. A client that keeps connections would send its next
// request into one that is being closed.
server_http_res_ptr closing(server_http_res_ptr res)
{
    if (res && res->is_stream())
        res->headers["Connection"] = "close";
    return res;
}

// Under this header the server goes on answering a client that has left, so that another connection may ask for the rest. Here a client
// that has left gives its slot back.
void drop_conversation(std::map<std::string, std::string> &headers)
{
    for (auto at = headers.begin(); at != headers.end();)
        at = strcasecmp(at->first.c_str(), "X-Conversation-Id") == 0 ? headers.erase(at) : std::next(at);
}

// Takes over what came from a client; what the server asks of itself (/predict) it still has.
std::unique_ptr<serve::request> take(const server_http_req &req)
{
    auto own = serve::has_connection()
                   ? std::make_unique<serve::request>(std::move(const_cast<server_http_req &>(req)))
                   : std::make_unique<serve::request>(req, req.body);
    drop_conversation(own->of.headers);
    return own;
}

// A route, as far as it matters here.
struct way {
    handler h;
    bool always;   // it answers a server that is full
    bool computes; // numbers of its answer may come from a worker
    bool messages; // of the form of /v1/messages
};

// Numbers of a worker that is lost are none: what comes of them ends here, with the sentence.
std::function<bool(std::string &)> unless_lost(std::function<bool(std::string &)> next, bool messages)
{
    return [next = std::move(next), messages](std::string &out) {
        const bool more = next(out);
        if (wnw_bridge_check_workers(nullptr) == WNW_OK)
            return more;
        out = (messages ? "event: error\ndata: " : "data: ") +
              serve::refuse(503, wnw_last_error(), nullptr)->data + "\n\n";
        return false;
    };
}

server_http_res_ptr answer(const way &route, const server_http_req &req)
{
    if (!serve::begins_answer(route.always))
        return serve::refuse(503, "the server answers as many requests as it can; ask again later", nullptr);
    const serve::answered one(req);
    auto own = take(req);
    auto res = route.h(own->of);
    if (route.computes && wnw_bridge_check_workers(nullptr) != WNW_OK)
        return serve::refuse(503, wnw_last_error(), nullptr);
    if (serve::is_ending() && res->status == 200 && !res->is_stream() && res->data.empty())
        return serve::refuse(503, "the server is ending", nullptr);
    auto kept = std::make_unique<serve::kept_reply>(std::move(own), std::move(res));
    if (route.computes && kept->is_stream())
        kept->next = unless_lost(std::move(kept->next), route.messages);
    return closing(std::move(kept));
}

// Every route: what waits in it looks whether its client has left, and whether the server ends.
handler guarded(const std::string &path, const handler &h, bool computes = false)
{
    const way route{h, path == "/health" || path == "/v1/health", computes, path == "/v1/messages"};
    return [route](const server_http_req &req) { return answer(route, req); };
}

// What answers a POST request to a path in place of the server's handler, or that handler.
handler route_of(const std::string &path, const handler &h)
{
    for (const auto &g : generating)
        if (path == g.path)
            return [h, form = g.form](const server_http_req &req) { return serve::generate(h, form, req); };
    if (path == "/slots/:id_slot" || path == "/winnow/slots/:id_slot")
        return [h](const server_http_req &req) { return act(h, req); };
    if (path == "/infill")
        return [h](const server_http_req &req) { return serve::without_field(h, req); };
    if (path == "/lora-adapters")
        return [h](const server_http_req &req) { return serve::set_adapters(h, req); };
    if (path == "/props")
        return [h](const server_http_req &req) { return serve::set_nothing(h, req); };
    for (const auto &u : uncounted)
        if (path == u.path)
            return [h, form = u.form](const server_http_req &req) { return serve::uncounted(h, form, req); };
    if (path == "/cors-proxy" ||
        path == "/predict") // what passes there is not for us, or comes back by another route
        return h;
    for (const auto &c : counting)
        if (path == c.path)
            return [h, form = c.form](const server_http_req &req) { return serve::checked(h, form, req); };
    return [h](const server_http_req &req) { return serve::checked(h, -1, req); };
}

} // namespace

#define POST \
    _ZNK19server_http_context4postERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSt8functionIFSt10unique_ptrI15server_http_resSt14default_deleteISA_EERK15server_http_reqEE
#define GET \
    _ZNK19server_http_context3getERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSt8functionIFSt10unique_ptrI15server_http_resSt14default_deleteISA_EERK15server_http_reqEE
#define DEL \
    _ZNK19server_http_context3delERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSt8functionIFSt10unique_ptrI15server_http_resSt14default_deleteISA_EERK15server_http_reqEE
#define START      _ZN19server_http_context5startEv
#define JOIN(a, b) a##b
#define WRAP(name) JOIN(__wrap_, name)
#define REAL(name) JOIN(__real_, name)

// Bytes of a body; cpp-httplib would take what comes.
enum { MOST_BODY = 64 << 20 };

void limit_bodies(void *server, size_t bytes) __asm__("_ZN7httplib6Server22set_payload_max_lengthEm");
bool real_listen(void *server) __asm__("__real__ZN7httplib6Server17listen_after_bindEv");
bool wrap_listen(void *server) __asm__("__wrap__ZN7httplib6Server17listen_after_bindEv");

bool wrap_listen(void *server)
{
    limit_bodies(server, MOST_BODY);
    return real_listen(server);
}

extern "C" {
void REAL(POST)(const server_http_context *self, const std::string &path, const handler &h);
void WRAP(POST)(const server_http_context *self, const std::string &path, const handler &h);
void REAL(GET)(const server_http_context *self, const std::string &path, const handler &h);
void WRAP(GET)(const server_http_context *self, const std::string &path, const handler &h);
void REAL(DEL)(const server_http_context *self, const std::string &path, const handler &h);
void WRAP(DEL)(const server_http_context *self, const std::string &path, const handler &h);
bool REAL(START)(server_http_context *self);
bool WRAP(START)(server_http_context *self);

void WRAP(POST)(const server_http_context *self, const std::string &path, const handler &h)
{
    if (path == "/apply-template")
        own().apply_template = h;
    if (path == "/tokenize")
        own().tokenize = h;
    if (path == "/completion")
        own().completion = h;
    if (path == "/slots/:id_slot")
        own().slot_action = h;
    REAL(POST)(self, path, guarded(path, route_of(path, h), true));
}

void WRAP(GET)(const server_http_context *self, const std::string &path, const handler &h)
{
    const bool ours = path == "/metrics";
    if (path == "/lora-adapters")
        own().adapters = h;
    const handler metrics = [h](const server_http_req &req) { return serve::with_metrics(h, req); };
    REAL(GET)(self, path, guarded(path, ours ? metrics : h));
}

void WRAP(DEL)(const server_http_context *self, const std::string &path, const handler &h)
{
    REAL(DEL)(self, path, guarded(path, h));
}

bool WRAP(START)(server_http_context *self)
{
    serve::open_front(self->path_prefix, self->is_ssl);
    WRAP(GET)(self, "/", serve::page);
    WRAP(GET)(self, "/winnow/kv", serve::show);
    WRAP(GET)(self, "/winnow/page", serve::inspect);
    WRAP(POST)(self, "/winnow/slots/:id_slot", own().slot_action);
    return REAL(START)(self);
}
}
