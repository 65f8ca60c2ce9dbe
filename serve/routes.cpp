// SPDX-License-Identifier: MIT
// Which routes are ours and which pass through us. The linker sends calls of server_http_context::post, get and start here
// (--wrap, server.cmake), which are few lines of one header; the server's files are not changed.
#include "serve/config.h"
#include "serve/generate.hpp"
#include "serve/moves.hpp"
#include "serve/pages.hpp"
#include "serve/replies.hpp"
#include "serve/slots.h"

#include "server-http.h"

#include <string>

namespace
{

using handler = server_http_context::handler_t;
using serve::own;

// Routes that generate and take a slot by its number. Others that generate are not asked for one.
const struct {
    const char *path;
    serve_form form;
} generating[] = {{"/completion", SERVE_FORM_CHAT},          {"/completions", SERVE_FORM_CHAT},
                  {"/v1/completions", SERVE_FORM_CHAT},      {"/chat/completions", SERVE_FORM_CHAT},
                  {"/v1/chat/completions", SERVE_FORM_CHAT}, {"/v1/messages", SERVE_FORM_MESSAGES},
                  {"/v1/responses", SERVE_FORM_RESPONSES},   {"/responses", SERVE_FORM_RESPONSES}};

// Actions on slots: those with files only where the server was started with a folder for them.
server_http_res_ptr act(const handler &route, const server_http_req &req)
{
    const std::string action = req.get_param("action");
    const int32_t slot = serve_slots_named(req.get_param("id_slot").c_str());
    if (slot < 0) // the server would take another one
        return serve::refuse(400, "id_slot: there is no slot of that number", "id_slot");
    if (action != "erase" && !serve_settings()->saves)
        return serve::refuse(
            400,
            "slots are saved and restored where the server has a folder for them: winnow serve --save DIR",
            "action");
    if (action == "save" || action == "restore")
        return serve::move_slot(route, req, slot, action);
    return route(req);
}

// The server ends a connection after what it streamed and does not say so. A client that keeps connections would send its next
// request into one that is being closed.
server_http_res_ptr closing(server_http_res_ptr res)
{
    if (res && res->is_stream())
        res->headers["Connection"] = "close";
    return res;
}

// What answers a POST request to a path in place of the server's handler, or that handler.
handler route_of(const std::string &path, const handler &h)
{
    for (const auto &g : generating)
        if (path == g.path)
            return [h, form = g.form](const server_http_req &req) { return serve::generate(h, form, req); };
    if (path == "/slots/:id_slot")
        return [h](const server_http_req &req) { return act(h, req); };
    if (path == "/infill")
        return [h](const server_http_req &req) { return serve::without_field(h, req); };
    if (path == "/v1/audio/transcriptions" || path == "/audio/transcriptions" || path == "/predict")
        return [h](const server_http_req &req) { return serve::uncounted(h, req); };
    return h;
}

} // namespace

#define POST \
    _ZNK19server_http_context4postERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSt8functionIFSt10unique_ptrI15server_http_resSt14default_deleteISA_EERK15server_http_reqEE
#define GET \
    _ZNK19server_http_context3getERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSt8functionIFSt10unique_ptrI15server_http_resSt14default_deleteISA_EERK15server_http_reqEE
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
    const handler ours = route_of(path, h);
    REAL(POST)(self, path, [ours](const server_http_req &req) { return closing(ours(req)); });
}

void WRAP(GET)(const server_http_context *self, const std::string &path, const handler &h)
{
    if (path == "/metrics")
        REAL(GET)(self, path, [h](const server_http_req &req) { return serve::with_metrics(h, req); });
    else
        REAL(GET)(self, path, h);
}

bool WRAP(START)(server_http_context *self)
{
    REAL(GET)(self, "/", serve::page);
    REAL(GET)(self, "/winnow/kv", serve::show);
    REAL(GET)(self, "/winnow/page", serve::inspect);
    REAL(POST)
    (self, "/winnow/slots/:id_slot", [](const server_http_req &req) { return act(own().slot_action, req); });
    return REAL(START)(self);
}
}
