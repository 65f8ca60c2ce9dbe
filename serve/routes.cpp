// SPDX-License-Identifier: MIT
// Requests on their way to llama.cpp's server. The linker sends calls of server_http_context::post, get and start here
// (--wrap, server.cmake), which are few lines of one header; the server's files are not changed. A request that generates
// claims a slot, goes on with its number, and gives it back when its reply is through.
#include "serve/documents.h"
#include "serve/inspect.h"
#include "serve/reader.hpp"
#include "serve/serve.h"

#include "server-http.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

namespace
{

using handler = server_http_context::handler_t;
using serve::ask;
using serve::c_text;
using serve::own;
using serve::rendered;
using serve::tokens_of;

server_http_res_ptr reply(int status, c_text text)
{
    auto res = std::make_unique<server_http_res>();
    res->status = text ? status : 500;
    res->data =
        text ? text.get()
             : "{\"error\": {\"code\": 500, \"message\": \"out of memory\", \"type\": \"server_error\"}}";
    return res;
}

server_http_res_ptr refuse(int status, const char *why, const char *param)
{
    auto res = reply(status, c_text(serve_error(status, why, param)));
    if (status == 503)
        res->headers["Retry-After"] = "2";
    return res;
}

// Clears a slot that holds a part of a prompt whose client has left: nobody will read the rest.
void clear_part(const server_http_req &req, int32_t slot)
{
    static const std::function<bool()> stays = [] { return serve::is_ending(); };
    if (serve_slots_is_reading(slot))
        serve::act_on_slot(server_http_req{{}, req.headers, "", "", "", {}, stays}, slot, "erase",
                           c_text(strdup("{}")));
}

// A slot that is given back in any case.
struct held {
    serve_claim claim;
    explicit held(const serve_claim &c) : claim(c)
    {
    }
    held(const held &) = delete;
    held &operator=(const held &) = delete;
    ~held()
    {
        serve_slots_release(&claim);
    }
};

// A reply of the server's, and what must live as long.
struct passed_reply : server_http_res {
    std::unique_ptr<held> slot; // given back last; null: it has none
    std::unique_ptr<serve::request> req;
    server_http_res_ptr inner;

    passed_reply(std::unique_ptr<held> s, std::unique_ptr<serve::request> q, server_http_res_ptr r)
        : slot(std::move(s)), req(std::move(q)), inner(std::move(r))
    {
        content_type = inner->content_type;
        status = inner->status;
        data = std::move(inner->data);
        headers = inner->headers;
        if (slot)
            headers["X-Winnow-Slot"] = std::to_string(slot->claim.slot);
        if (inner->is_stream())
            next = [this](std::string &out) { return inner->next(out); };
    }
    void on_complete() override
    {
        inner->on_complete();
    }
    ~passed_reply() override
    {
        const bool left = req->stop();
        inner.reset(); // the server is told to stop
        if (left && slot && !serve::is_ending())
            clear_part(req->of, slot->claim.slot);
    }
};

// Tokens with which every conversation begins that has the same system message: those that two messages have in common.
int32_t header_of(const server_http_req &req, const serve_request &r)
{
    const c_text a = rendered(req, c_text(serve_request_header(&r, "1")));
    const c_text b = rendered(req, c_text(serve_request_header(&r, "x")));
    return a && b ? serve::common_prefix(tokens_of(req, a.get()), tokens_of(req, b.get())) : 0;
}

bool has_left(void *user)
{
    return serve::is_ending() || static_cast<const server_http_req *>(user)->should_stop();
}

struct parsed {
    serve_request r{};
    parsed() = default;
    parsed(const parsed &) = delete;
    parsed &operator=(const parsed &) = delete;
    ~parsed()
    {
        serve_request_free(&r);
    }
};

// The request as an ordinary chat request, where its route has another form. False: the server will say what is wrong with it.
bool take_chat(serve_request &r, serve_form form)
{
    if (form == SERVE_FORM_CHAT)
        return true;
    const c_text raw(serve_request_body(&r)), chat(raw ? serve_convert(form, raw.get()) : nullptr);
    return chat && serve_request_set_chat(&r, chat.get());
}

// Completes what the request asks for: its prompt as text, its header and its length. False: the server will say what is wrong with it.
bool look_at(const server_http_req &req, serve_request &r, serve_form form)
{
    if (!take_chat(r, form))
        return false;
    if (r.chat)
        r.ask.want.n_protected = header_of(req, r);
    if (r.ask.behind > 0 && (!serve_request_put_document(&r, form) || !take_chat(r, form)))
        return false;
    if (r.chat)
        r.key = rendered(req, c_text(serve_request_passed(&r, nullptr))).release();
    if (!r.key)
        return false;
    if (r.ask.n_prompt < 0 && serve_settings()->cap > 0 && r.ask.behind == 0)
        r.ask.n_prompt = tokens_of(req, r.key).n;
    r.ask.n_prompt = r.ask.n_prompt < 0 ? 0 : r.ask.n_prompt;
    r.ask.key = r.key;
    r.ask.key_len = std::strlen(r.key);
    r.ask.gone = has_left;
    r.ask.user = const_cast<server_http_req *>(&req);
    return true;
}

// Whether the prompt begins with the tokens of its document; what is protected and counted lies behind them.
bool stands_behind(const server_http_req &req, serve_request &r)
{
    const int32_t d = r.ask.behind - 1, n_header = serve_document_n_header(d);
    serve::tokens document;
    const int32_t *ids = serve_document_tokens(d, &document.n);
    document.id.reset(const_cast<int32_t *>(ids));
    const serve::tokens prompt = tokens_of(req, r.key);
    const int32_t same = serve::common_prefix(prompt, document);
    document.id.release();
    r.ask.n_prompt = prompt.n - same;
    r.ask.want.n_protected = document.n + std::max(0, r.ask.want.n_protected - n_header);
    return same + SERVE_SEAM >= document.n;
}

// Passes a request on. Who waits when the server ends is told so.
server_http_res_ptr pass(const handler &route, const server_http_req &req, std::string body,
                         std::unique_ptr<held> slot)
{
    auto inner = std::make_unique<serve::request>(req, std::move(body));
    auto res = route(inner->of);
    if (serve::is_ending() && !res->is_stream() && res->data.empty())
        return refuse(503, "the server is ending", nullptr);
    return std::make_unique<passed_reply>(std::move(slot), std::move(inner), std::move(res));
}

// Puts the document into the slot, if it is not there, and passes the request on.
server_http_res_ptr pass_behind(const handler &route, const server_http_req &req, const serve_request &r,
                                std::unique_ptr<held> slot)
{
    char file[32];
    const c_text body(serve_request_passed(&r, &slot->claim));
    if (!body)
        return refuse(500, "out of memory", nullptr);
    if (slot->claim.puts) {
        serve_document_file(r.ask.behind - 1, file);
        if (!serve::act_on_slot(req, slot->claim.slot, "restore", c_text(serve_request_restore(file))))
            return refuse(503, "the document cannot be put into a slot now", "winnow.document");
    }
    return pass(route, req, body.get(), std::move(slot));
}

server_http_res_ptr generate(const handler &route, serve_form form, const server_http_req &req)
{
    char why[SERVE_TEXT] = "";
    const char *param = nullptr;
    parsed p;
    serve_claim claim{};
    const int status = serve_request_read(&p.r, form, req.body.data(), req.body.size(), why, &param);
    if (status)
        return refuse(status, why, param);
    if (p.r.ask.behind > 0 &&
        !serve_document_wait(p.r.ask.behind - 1, has_left, const_cast<server_http_req *>(&req)))
        return refuse(503, "the client has left", nullptr);
    if (!p.r.body || !look_at(req, p.r, form))
        return pass(route, req, req.body, nullptr);
    if (p.r.ask.behind > 0 && !stands_behind(req, p.r))
        return refuse(
            400,
            serve_document_is_stored(p.r.ask.behind - 1)
                ? "winnow.document: for this request the model's chat template writes something else "
                  "before the document than when it was stored, such as tools, or another system "
                  "message"
                : "winnow.document: for this request the model's chat template writes something "
                  "before the document, such as tools",
            "winnow.document");
    switch (serve_slots_claim(&p.r.ask, &claim, why)) {
    case SERVE_GONE:
        return refuse(503, "the client has left", nullptr);
    case SERVE_BUSY:
        return refuse(503, why, nullptr);
    case SERVE_TOO_LONG:
        return refuse(400, why, "messages");
    default:
        return pass_behind(route, req, p.r, std::make_unique<held>(claim));
    }
}

// Routes that generate and take a slot by its number.
const struct {
    const char *path;
    serve_form form;
} generating[] = {{"/completion", SERVE_FORM_CHAT},          {"/completions", SERVE_FORM_CHAT},
                  {"/v1/completions", SERVE_FORM_CHAT},      {"/chat/completions", SERVE_FORM_CHAT},
                  {"/v1/chat/completions", SERVE_FORM_CHAT}, {"/v1/messages", SERVE_FORM_MESSAGES},
                  {"/v1/responses", SERVE_FORM_RESPONSES},   {"/responses", SERVE_FORM_RESPONSES}};

// A route that the field `winnow` has no meaning for.
server_http_res_ptr without_field(const handler &route, const server_http_req &req)
{
    char why[SERVE_TEXT] = "";
    const char *param = nullptr;
    parsed p;
    const int status =
        serve_request_read(&p.r, SERVE_FORM_CHAT, req.body.data(), req.body.size(), why, &param);
    if (status == 0 && serve_settings()->cap > 0)
        return refuse(400, "this route's memory is not counted, and the server's is bounded (--kv-bytes)",
                      nullptr);
    if (status == 0 && !p.r.has_field)
        return pass(route, req, req.body, nullptr);
    return refuse(400,
                  status ? why
                         : "winnow: this route has the server's own policy; /v1/chat/completions and "
                           "/v1/completions take one",
                  "winnow");
}

// Actions on slots: those with files only where the server was started with a folder for them.
server_http_res_ptr act(const handler &route, const server_http_req &req)
{
    const std::string action = req.get_param("action");
    if (action != "erase" && !serve_settings()->saves)
        return refuse(
            400,
            "slots are saved and restored where the server has a folder for them: winnow serve --save DIR",
            "action");
    return route(req);
}

// A page, which shows itself in no other page.
server_http_res_ptr html(const char *text, size_t n)
{
    auto res = std::make_unique<server_http_res>();
    res->content_type = "text/html; charset=utf-8";
    res->headers = {{"Content-Security-Policy", "frame-ancestors 'none'"},
                    {"X-Content-Type-Options", "nosniff"},
                    {"Referrer-Policy", "no-referrer"},
                    {"Cache-Control", "no-cache"}};
    res->data.assign(text, n);
    return res;
}

// The page, which asks this server.
server_http_res_ptr page(const server_http_req &)
{
    return html(reinterpret_cast<const char *>(serve_page), serve_page_size);
}

// A slot to be saved so that the decoding thread looks at a document: one without a request, if there is any.
int32_t idle_slot()
{
    for (int32_t i = 0; i < serve_slots_n(); i++)
        if (!serve_slots_is_claimed(i))
            return i;
    return 0;
}

// What a request for the page of a slot or a document names: sets *slot and *document (-1: none); false with the reason.
bool find_shown(const server_http_req &req, int32_t *slot, int32_t *document, char *why)
{
    const std::string of_slot = req.get_param("slot"), of_document = req.get_param("document");
    char *end = nullptr;
    *document = of_document.empty() ? -1 : serve_documents_find(of_document.c_str());
    *slot = of_slot.empty() ? idle_slot() : static_cast<int32_t>(std::strtol(of_slot.c_str(), &end, 10));
    if (of_slot.empty() == of_document.empty())
        std::snprintf(why, SERVE_TEXT, "name a slot or a document: /winnow/page?slot=0, or ?document=NAME");
    else if (!of_document.empty() && *document < 0)
        std::snprintf(why, SERVE_TEXT, "there is no document '%.64s'", of_document.c_str());
    else if (!of_slot.empty() && (*end || *slot < 0 || *slot >= serve_slots_n()))
        std::snprintf(why, SERVE_TEXT, "there is no slot '%.20s'", of_slot.c_str());
    else
        return true;
    return false;
}

// The page of what a slot or a document holds now. A slot that answers is shown when it has.
server_http_res_ptr inspect(const server_http_req &req)
{
    char why[SERVE_TEXT] = "", file[64];
    int32_t slot, document;
    size_t n = 0;
    if (!find_shown(req, &slot, &document, why))
        return refuse(400, why, nullptr);
    const int32_t ticket = serve_inspect_begin();
    serve_inspect_file(ticket, document, file);
    serve::act_on_slot(req, slot, "save", c_text(serve_request_restore(file)));
    json_t *seen = serve_inspect_end(ticket, why);
    const c_text text(seen ? serve_inspect_page(seen, &n) : nullptr);
    json_decref(seen);
    if (!text)
        return refuse(seen ? 500 : 409, seen ? "out of memory" : why, nullptr);
    return html(text.get(), n);
}

server_http_res_ptr show(const server_http_req &)
{
    return reply(200, c_text(serve_slots_json()));
}

server_http_res_ptr with_metrics(const handler &route, const server_http_req &req)
{
    auto res = route(req);
    const c_text ours(serve_slots_metrics());
    if (res && res->status == 200 && ours)
        res->data += ours.get();
    return res;
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
    if (path == "/slots/:id_slot") {
        own().slot_action = h;
        REAL(POST)(self, path, [h](const server_http_req &req) { return act(h, req); });
        return;
    }
    for (const auto &g : generating)
        if (path == g.path) {
            REAL(POST)
            (self, path, [h, form = g.form](const server_http_req &req) { return generate(h, form, req); });
            return;
        }
    if (path == "/infill")
        REAL(POST)(self, path, [h](const server_http_req &req) { return without_field(h, req); });
    else
        REAL(POST)(self, path, h);
}

void WRAP(GET)(const server_http_context *self, const std::string &path, const handler &h)
{
    if (path == "/metrics")
        REAL(GET)(self, path, [h](const server_http_req &req) { return with_metrics(h, req); });
    else
        REAL(GET)(self, path, h);
}

bool WRAP(START)(server_http_context *self)
{
    REAL(GET)(self, "/", page);
    REAL(GET)(self, "/winnow/kv", show);
    REAL(GET)(self, "/winnow/page", inspect);
    REAL(POST)
    (self, "/winnow/slots/:id_slot", [](const server_http_req &req) { return act(own().slot_action, req); });
    return REAL(START)(self);
}
}
