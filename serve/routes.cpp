// SPDX-License-Identifier: MIT
// Requests on their way to llama.cpp's server. The linker sends calls of server_http_context::post, get and start here
// (--wrap, server.cmake), which are few lines of one header; the server's files are not changed. A request that generates
// claims a slot, goes on with its number, and gives it back when its reply is through.
#include "serve/serve.h"

#include "server-http.h"

#include <cstdlib>
#include <cstring>
#include <string>

namespace {

using handler = server_http_context::handler_t;

struct freed {
    void operator()(void *p) const { std::free(p); }
};
using c_text = std::unique_ptr<char, freed>;

// The server's own routes that are asked, set while routes are registered, before the server listens.
handler apply_template, tokenize, slot_action;

server_http_res_ptr reply(int status, c_text text)
{
    auto res = std::make_unique<server_http_res>();
    res->status = text ? status : 500;
    res->data = text ? text.get() : "{\"error\": {\"code\": 500, \"message\": \"out of memory\", \"type\": \"server_error\"}}";
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
    static const std::function<bool()> stays = [] { return false; };
    if (!slot_action || !serve_slots_is_reading(slot))
        return;
    slot_action(server_http_req{{{"id_slot", std::to_string(slot)}, {"action", "erase"}}, req.headers, "/slots/" + std::to_string(slot), "action=erase", "{}", {}, stays});
}

// A slot that is given back in any case.
struct held {
    serve_claim claim;
    explicit held(const serve_claim &c) : claim(c) {}
    held(const held &) = delete;
    held &operator=(const held &) = delete;
    ~held() { serve_slots_release(&claim); }
};

// A reply of the server's, and what must live as long.
struct passed_reply : server_http_res {
    std::unique_ptr<held> slot; // given back last
    std::unique_ptr<server_http_req> req;
    server_http_res_ptr inner;

    passed_reply(std::unique_ptr<held> s, std::unique_ptr<server_http_req> q, server_http_res_ptr r)
        : slot(std::move(s)), req(std::move(q)), inner(std::move(r))
    {
        content_type = inner->content_type;
        status = inner->status;
        data = std::move(inner->data);
        headers = inner->headers;
        if (inner->is_stream())
            next = [this](std::string &out) { return inner->next(out); };
    }
    void on_complete() override { inner->on_complete(); }
    ~passed_reply() override
    {
        const bool left = req->should_stop();
        inner.reset(); // the server is told to stop
        if (left)
            clear_part(*req, slot->claim.slot);
    }
};

std::unique_ptr<server_http_req> with_body(const server_http_req &req, const char *body)
{
    return std::make_unique<server_http_req>(
        server_http_req{req.params, req.headers, req.path, req.query_string, body, req.files, req.should_stop});
}

// What one of the server's own routes says to a body; empty if it refuses.
std::string ask(const handler &route, const server_http_req &req, c_text body)
{
    if (!route || !body)
        return "";
    const auto inner_req = with_body(req, body.get());
    const auto res = route(*inner_req);
    return res && res->status == 200 ? res->data : "";
}

c_text rendered(const server_http_req &req, c_text body)
{
    const std::string said = ask(apply_template, req, std::move(body));
    return c_text(serve_reply_prompt(said.data(), said.size()));
}

std::unique_ptr<int32_t, freed> tokens_of(const server_http_req &req, const char *text, int32_t *n)
{
    const std::string said = ask(tokenize, req, c_text(serve_request_tokenize(text)));
    return std::unique_ptr<int32_t, freed>(serve_reply_tokens(said.data(), said.size(), n));
}

// Tokens with which every conversation begins that has the same system message: those that two messages have in common.
int32_t header_of(const server_http_req &req, const serve_request &r)
{
    int32_t n[2] = {0, 0}, same = 0;
    const c_text a = rendered(req, c_text(serve_request_header(&r, "1")));
    const c_text b = rendered(req, c_text(serve_request_header(&r, "x")));
    if (!a || !b)
        return 0;
    const auto ta = tokens_of(req, a.get(), &n[0]), tb = tokens_of(req, b.get(), &n[1]);
    while (same < n[0] && same < n[1] && ta.get()[same] == tb.get()[same])
        same++;
    return same;
}

bool has_left(void *user)
{
    return static_cast<const server_http_req *>(user)->should_stop();
}

struct parsed {
    serve_request r{};
    parsed() = default;
    parsed(const parsed &) = delete;
    parsed &operator=(const parsed &) = delete;
    ~parsed() { serve_request_free(&r); }
};

// Completes what the request asks for: its prompt as text, its header and its length. False: the server will say what is wrong with it.
bool look_at(const server_http_req &req, serve_request &r)
{
    if (r.is_chat) {
        c_text body(serve_request_passed(&r, nullptr));
        r.key = rendered(req, std::move(body)).release();
        r.ask.want.n_protected = header_of(req, r);
    }
    if (!r.key)
        return false;
    if (r.ask.n_prompt < 0 && serve_settings()->cap > 0) {
        int32_t n = 0;
        tokens_of(req, r.key, &n);
        r.ask.n_prompt = n;
    }
    r.ask.n_prompt = r.ask.n_prompt < 0 ? 0 : r.ask.n_prompt;
    r.ask.key = r.key;
    r.ask.key_len = std::strlen(r.key);
    r.ask.gone = has_left;
    r.ask.user = const_cast<server_http_req *>(&req);
    return true;
}

server_http_res_ptr generate(const handler &route, const server_http_req &req)
{
    char why[SERVE_TEXT] = "";
    const char *param = nullptr;
    parsed p;
    serve_claim claim{};
    const int status = serve_request_read(&p.r, req.body.data(), req.body.size(), why, &param);
    if (status)
        return refuse(status, why, param);
    if (!p.r.body || !look_at(req, p.r))
        return route(req);
    switch (serve_slots_claim(&p.r.ask, &claim, why)) {
    case SERVE_GONE:
        return refuse(503, "the client has left", nullptr);
    case SERVE_BUSY:
        return refuse(503, why, nullptr);
    case SERVE_TOO_LONG:
        return refuse(400, why, "messages");
    default:
        break;
    }
    auto slot = std::make_unique<held>(claim);
    const c_text body(serve_request_passed(&p.r, &claim));
    if (!body)
        return refuse(500, "out of memory", nullptr);
    auto inner_req = with_body(req, body.get());
    auto res = route(*inner_req);
    return std::make_unique<passed_reply>(std::move(slot), std::move(inner_req), std::move(res));
}

// Routes that generate and take a slot by its number. Anthropic's drops fields that it does not know.
bool generates(const std::string &path)
{
    static const char *const paths[] = {"/completion", "/completions", "/v1/completions", "/chat/completions", "/v1/chat/completions"};
    for (const char *p : paths)
        if (path == p)
            return true;
    return false;
}

// A route that the field `winnow` has no meaning for.
server_http_res_ptr without_field(const handler &route, const server_http_req &req)
{
    char why[SERVE_TEXT] = "";
    const char *param = nullptr;
    parsed p;
    const int status = serve_request_read(&p.r, req.body.data(), req.body.size(), why, &param);
    if (status == 0 && !p.r.has_field)
        return route(req);
    return refuse(400, status ? why : "winnow: this route has the server's own policy; /v1/chat/completions and /v1/completions take one", "winnow");
}

// Actions on slots: those with files only where the server was started with a folder for them.
server_http_res_ptr act(const handler &route, const server_http_req &req)
{
    const std::string action = req.get_param("action");
    if (action != "erase" && !serve_settings()->saves)
        return refuse(400, "slots are saved and restored where the server has a folder for them: winnow serve --save DIR", "action");
    return route(req);
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

#define POST                                                                                                      \
    _ZNK19server_http_context4postERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSt8functionIFSt10unique_ptrI15server_http_resSt14default_deleteISA_EERK15server_http_reqEE
#define GET                                                                                                       \
    _ZNK19server_http_context3getERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSt8functionIFSt10unique_ptrI15server_http_resSt14default_deleteISA_EERK15server_http_reqEE
#define START _ZN19server_http_context5startEv
#define JOIN(a, b) a##b
#define WRAP(name) JOIN(__wrap_, name)
#define REAL(name) JOIN(__real_, name)

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
        apply_template = h;
    if (path == "/tokenize")
        tokenize = h;
    if (path == "/slots/:id_slot")
        slot_action = h;
    if (path == "/slots/:id_slot")
        REAL(POST)(self, path, [h](const server_http_req &req) { return act(h, req); });
    else if (generates(path))
        REAL(POST)(self, path, [h](const server_http_req &req) { return generate(h, req); });
    else if (path == "/v1/messages" || path == "/v1/responses" || path == "/responses" || path == "/infill")
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
    REAL(GET)(self, "/winnow/kv", show);
    REAL(POST)(self, "/winnow/slots/:id_slot", [](const server_http_req &req) { return act(slot_action, req); });
    return REAL(START)(self);
}
}
