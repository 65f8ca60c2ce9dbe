// SPDX-License-Identifier: MIT
#include "serve/generate.hpp"

#include "serve/bodies.h"
#include "serve/documents.h"
#include "serve/replies.hpp"

#include <algorithm>
#include <cstring>

namespace serve
{
namespace
{

using handler = server_http_context::handler_t;

// Clears a slot that holds a part of a prompt whose client has left: nobody will read the rest.
void clear_part(const server_http_req &req, int32_t slot)
{
    static const std::function<bool()> stays = [] { return is_ending(); };
    if (serve_slots_is_reading(slot))
        act_on_slot(server_http_req{{}, req.headers, "", "", "", {}, stays}, slot, "erase",
                    c_text(strdup("{}")));
}

// A reply of the server's from a slot that is given back last; null: it has none.
struct passed_reply : kept_reply {
    std::unique_ptr<held> slot;

    passed_reply(std::unique_ptr<held> s, std::unique_ptr<request> q, server_http_res_ptr r)
        : kept_reply(std::move(q), std::move(r)), slot(std::move(s))
    {
        if (slot)
            headers["X-Winnow-Slot"] = std::to_string(slot->claim.slot);
    }
    ~passed_reply() override
    {
        const bool left = req->stop();
        inner.reset(); // the server is told to stop
        if (left && slot && !is_ending())
            clear_part(req->of, slot->claim.slot);
    }
};

// Tokens with which every conversation begins that has the same system message: those that two messages have in common.
int32_t header_of(const server_http_req &req, const serve_request &r)
{
    const c_text a = rendered(req, c_text(serve_request_header(&r, "1")));
    const c_text b = rendered(req, c_text(serve_request_header(&r, "x")));
    return a && b ? common_prefix(tokens_of(req, a.get()), tokens_of(req, b.get())) : 0;
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

// What a look at a request finds: that it can be claimed for, that the server will say what is wrong with it, that its document has no
// place, that it cannot be counted where memory is bounded, or that there is no memory to look.
enum class found { good, faulty, no_place, uncounted, failed };

// Completes what the request asks for: its prompt as text, its header and its length.
found look_at(const server_http_req &req, serve_request &r, serve_form form)
{
    if (!take_chat(r, form))
        return found::faulty;
    if (r.chat)
        r.ask.want.n_protected = header_of(req, r);
    if (r.ask.behind > 0 && !serve_request_put_document(&r, form))
        return found::no_place;
    if (r.ask.behind > 0 && !take_chat(r, form))
        return found::faulty;
    if (r.chat)
        r.key = rendered(req, c_text(serve_request_passed(&r, nullptr))).release();
    if (!r.key)
        return found::faulty;
    if (serve_settings()->cap > 0 && serve_request_has_media(&r))
        return found::uncounted;
    if (r.ask.n_prompt < 0 && serve_settings()->cap > 0 && r.ask.behind == 0)
        r.ask.n_prompt = tokens_of(req, r.key).n;
    r.ask.n_prompt = r.ask.n_prompt < 0 ? 0 : r.ask.n_prompt;
    r.ask.key = r.key;
    r.ask.key_len = std::strlen(r.key);
    if (serve_request_bound(&r) != WNW_OK)
        return found::failed;
    r.ask.gone = has_left;
    r.ask.user = const_cast<server_http_req *>(&req);
    return found::good;
}

// Whether the prompt begins with the tokens of its document; what is protected and counted lies behind them.
bool stands_behind(const server_http_req &req, serve_request &r)
{
    const int32_t d = r.ask.behind - 1, n_header = serve_document_n_header(d);
    tokens document;
    const int32_t *ids = serve_document_tokens(d, &document.n);
    document.id.reset(const_cast<int32_t *>(ids));
    const tokens prompt = tokens_of(req, r.key);
    const int32_t same = common_prefix(prompt, document);
    document.id.release();
    r.ask.n_prompt = prompt.n - same;
    r.ask.want.n_protected = document.n + std::max(0, r.ask.want.n_protected - n_header);
    return same + SERVE_SEAM >= document.n;
}

server_http_res_ptr pass(const handler &route, const server_http_req &req, std::string body,
                         std::unique_ptr<held> slot)
{
    auto inner = std::make_unique<request>(req, std::move(body));
    auto res = route(inner->of);
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
        if (!act_on_slot(req, slot->claim.slot, "restore", c_text(serve_body_file(file))))
            return refuse(503, "the document cannot be put into a slot now", "winnow.document");
    }
    return pass(route, req, body.get(), std::move(slot));
}

} // namespace

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
    const found what = p.r.body ? look_at(req, p.r, form) : found::faulty;
    if (what == found::no_place)
        return refuse(400, "winnow.document: no message is there that it could stand in", "winnow.document");
    if (what == found::uncounted)
        return refuse(400,
                      "messages: where memory is bounded (--kv-bytes) they are text alone: how many tokens "
                      "images and sounds take is "
                      "not known before they are read",
                      "messages");
    if (what == found::failed)
        return refuse(500, wnw_last_error(), nullptr);
    if (what == found::faulty)
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

server_http_res_ptr uncounted(const handler &route, const server_http_req &req)
{
    if (serve_settings()->cap > 0)
        return refuse(400, "this route's memory is not counted, and the server's is bounded (--kv-bytes)",
                      nullptr);
    return pass(route, req, req.body, nullptr);
}

server_http_res_ptr without_field(const handler &route, const server_http_req &req)
{
    char why[SERVE_TEXT] = "";
    const char *param = nullptr;
    parsed p;
    const int status =
        serve_request_read(&p.r, SERVE_FORM_CHAT, req.body.data(), req.body.size(), why, &param);
    if (status == 0 && !p.r.has_field)
        return uncounted(route, req);
    return refuse(400,
                  status ? why
                         : "winnow: this route has the server's own policy; /v1/chat/completions and "
                           "/v1/completions take one",
                  "winnow");
}

} // namespace serve
