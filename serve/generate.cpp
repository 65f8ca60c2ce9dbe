// SPDX-License-Identifier: MIT
#include "serve/generate.hpp"

#include "serve/adapters.hpp"
#include "serve/bodies.h"
#include "serve/call.hpp"
#include "serve/documents.h"
#include "serve/load_documents.hpp"
#include "serve/parking.hpp"
#include "serve/replies.hpp"

#include <algorithm>
#include <cstring>

#include <jansson.h>

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
        erase_slot(server_http_req{{}, req.headers, "", "", "", {}, stays}, slot);
}

// A reply of the server's from a slot that is given back last.
struct passed_reply : kept_reply {
    std::unique_ptr<claimed_slot> slot;

    passed_reply(std::unique_ptr<claimed_slot> s, std::unique_ptr<request> q, server_http_res_ptr r)
        : kept_reply(std::move(q), std::move(r)), slot(std::move(s))
    {
        headers["X-Winnow-Slot"] = std::to_string(slot->claim.slot);
        if (const int32_t n = serve_slots_removed(slot->claim.slot); n > 0 && !inner->is_stream())
            headers["X-Winnow-Removed"] = std::to_string(n);
        add_removed(data);
        if (inner->is_stream()) // its headers leave while the slot may still hold another conversation
            next = [this](std::string &out) {
                const bool more = inner->next(out);
                add_removed(out);
                return more;
            };
    }
    // Says in the `usage` of a reply, or of events, how many tokens of the conversation are there no more.
    void add_removed(std::string &text) const
    {
        if (status != 200 || text.find("\"usage\"") == std::string::npos)
            return;
        const int32_t n = serve_slots_removed(slot->claim.slot);
        if (n == 0)
            return;
        const c_text said(inner->is_stream() ? serve_events_add_removed(text.data(), text.size(), n)
                                             : serve_reply_add_removed(text.data(), text.size(), n));
        if (said)
            text = said.get();
    }
    ~passed_reply() override
    {
        const bool left = req->stop();
        inner.reset(); // the server stops generating
        if (left && !is_ending())
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
    int32_t join = -1; // the list of documents that it holds
    parsed() = default;
    parsed(const parsed &) = delete;
    parsed &operator=(const parsed &) = delete;
    ~parsed()
    {
        if (join >= 0)
            serve_join_give_back(join);
        serve_request_free(&r);
    }
};

server_http_res_ptr out_of_memory()
{
    return refuse(500, "out of memory", nullptr);
}

// The request as an ordinary chat request, where its route has another form. What is wrong with it, or null.
server_http_res_ptr take_chat(serve_request &r)
{
    char why[SERVE_TEXT] = "";
    if (r.form == SERVE_FORM_CHAT || r.form == SERVE_FORM_PROMPT)
        return nullptr;
    const c_text raw(serve_request_body(&r)), chat(raw ? serve_convert(r.form, raw.get(), why) : nullptr);
    if (chat && serve_request_set_chat(&r, chat.get()))
        return nullptr;
    auto res = refuse(500, raw ? why : "out of memory", nullptr);
    c_text said(raw ? serve_error_in_words(res->data.data(), res->data.size(), false, &res->status)
                    : nullptr);
    if (said)
        res->data = said.get();
    return res;
}

// Writes the prompt of a chat into the request. What the server says is wrong with it, or null.
server_http_res_ptr render(const server_http_req &req, serve_request &r)
{
    const c_text body(serve_request_passed(&r, nullptr));
    if (!body)
        return out_of_memory();
    const request inner(req, body.get());
    auto res = call(own().apply_template, inner.of);
    r.key = res->status == 200 ? serve_reply_prompt(res->data.data(), res->data.size()) : nullptr;
    if (r.key)
        return nullptr;
    return res->status == 200 ? out_of_memory() : std::move(res);
}

// Counts the prompt's tokens. What the server says is wrong with them, or null.
server_http_res_ptr count(const server_http_req &req, serve_request &r)
{
    const c_text body(serve_request_tokenize(&r));
    if (!body)
        return out_of_memory();
    const request inner(req, body.get());
    auto res = call(own().tokenize, inner.of);
    int32_t n = 0;
    const c_tokens ids(res->status == 200 ? serve_reply_tokens(res->data.data(), res->data.size(), &n)
                                          : nullptr);
    r.ask.n_prompt = n;
    if (ids)
        return nullptr;
    return res->status == 200 ? out_of_memory() : std::move(res);
}

server_http_res_ptr refuse_media(const char *field)
{
    const std::string why =
        std::string(field) +
        ": where memory is bounded (--kv-bytes) it is text alone: how many tokens images and "
        "sounds take is not known before they are read";
    return refuse(400, why.c_str(), field);
}

// Completes what the request asks for: its prompt as text, its header and its length. What is wrong with it, or null.
server_http_res_ptr look_at(const server_http_req &req, serve_request &r)
{
    auto refused = take_chat(r);
    if (!refused && r.chat)
        r.ask.keep_rule.n_protected = header_of(req, r);
    if (!refused && r.ask.document_plus_1 > 0 && !serve_request_put_document(&r))
        return refuse(400, "winnow.document: the request has no message to put it into", "winnow.document");
    if (!refused && r.ask.document_plus_1 > 0)
        refused = take_chat(r);
    if (!refused && r.chat)
        refused = render(req, r);
    if (refused)
        return refused;
    if (serve_settings()->cap > 0 && (r.has_media || serve_request_has_media(&r)))
        return refuse_media(r.has_media ? "prompt" : "messages");
    if (r.ask.n_prompt < 0 && serve_settings()->cap > 0 && r.ask.document_plus_1 == 0)
        refused = count(req, r);
    r.ask.n_prompt = r.ask.n_prompt < 0 ? 0 : r.ask.n_prompt;
    r.ask.key = r.key;
    r.ask.key_len = std::strlen(r.key);
    if (!refused && serve_request_bound(&r) != WNW_OK)
        return refuse(500, wnw_last_error(), nullptr);
    r.ask.owner = owner_of(req);
    r.ask.client_left = has_left;
    r.ask.user = const_cast<server_http_req *>(&req);
    return refused;
}

// Waits for the documents of a request, and has it begin with their list where they are several. What is wrong, or null.
server_http_res_ptr take_documents(const server_http_req &req, parsed &p)
{
    serve_request &r = p.r;
    const int32_t one = r.ask.document_plus_1 - 1, n = r.n_documents > 1 ? r.n_documents : one >= 0;
    for (int32_t i = 0; i < n; i++)
        if (!serve_document_wait(r.n_documents > 1 ? r.documents[i] : one, has_left,
                                 const_cast<server_http_req *>(&req)))
            return refuse(503, "the client has left", nullptr);
    if (n < 2)
        return nullptr;
    if (json_object_get(r.body, "lora"))
        return refuse(400, "winnow.documents: a server with adapters begins a request with one document",
                      "winnow.documents");
    p.join = serve_join_take(r.documents, n, r.again);
    if (p.join < 0)
        return refuse(503, "requests with other lists of documents are being answered; ask again later",
                      "winnow.documents");
    if (const char *wrong = plan_join(req, p.join)) {
        const std::string why = std::string("winnow.documents: ") + wrong;
        return refuse(400, why.c_str(), "winnow.documents");
    }
    serve_request_set_documents(&r, p.join);
    return nullptr;
}

// Whether the prompt begins with the tokens of its document. Only tokens after them are protected and counted.
bool follows_document(const server_http_req &req, serve_request &r)
{
    const int32_t d = r.ask.document_plus_1 - 1, n_header = serve_document_n_header(d);
    tokens document;
    const int32_t *ids = serve_document_tokens(d, &document.n);
    document.id.reset(const_cast<int32_t *>(ids));
    const plain_document one(d);
    const tokens prompt = tokens_of(req, r.key);
    const int32_t same = common_prefix(prompt, document);
    document.id.release();
    r.ask.n_prompt = prompt.n - same;
    r.ask.keep_rule.n_protected = document.n + std::max(0, r.ask.keep_rule.n_protected - n_header);
    return same + SERVE_DOCUMENT_OVERLAP >= document.n;
}

server_http_res_ptr pass(const handler &route, const server_http_req &req, std::string body,
                         std::unique_ptr<claimed_slot> slot)
{
    auto inner = std::make_unique<request>(req, std::move(body));
    auto res = call(route, inner->of);
    return std::make_unique<passed_reply>(std::move(slot), std::move(inner), std::move(res));
}

// Whether a prompt may be longer than `most` tokens with its answer. A text has at most as many tokens as bytes, and few that are of no text.
bool may_exceed(const serve_request &r, int32_t most)
{
    enum { SPARE = 64 };
    const int64_t n = r.ask.n_prompt > 0 ? r.ask.n_prompt : static_cast<int64_t>(r.ask.key_len) + SPARE;
    return r.is_open || n + r.ask.n_predict >= most;
}

// What is done where the prompt or its answer reaches the end of the context: room is made, or it is refused, or ends there.
server_http_res_ptr look_at_length(const server_http_req &req, serve_request &r)
{
    const char *why;
    const int32_t most = serve_slots_most(&why);
    const bool keeps_all = serve_keeps_all(&r.ask.keep_rule), several = r.ask.n_slots > 1,
               has_space = r.ask.keep_rule.n_protected <= most / 4;
    if (r.full == SERVE_FULL_COMPRESS && (most == 0 || keeps_all || several || !has_space)) {
        if (most != 0 && several)
            why = "several answers (n) share their prompt; ask for one";
        else if (most != 0)
            why = keeps_all
                      ? "the policy keeps everything; give another one, as keydiff, with a ratio or a budget"
                      : "the system message and the tools take more than a quarter of the context";
        const std::string said = std::string("winnow.full: no room can be made: ") + why;
        return refuse(400, said.c_str(), "winnow.full");
    }
    if (most == 0)
        return nullptr;
    r.ask.refuses = r.full == SERVE_FULL_REFUSE || keeps_all || several || !has_space ||
                    (r.full == SERVE_FULL_UNSAID && r.form == SERVE_FORM_PROMPT);
    r.most_answer = most;
    if (!r.ask.refuses) { // no more is there at once, which a cap counts
        r.ask.n_predict = std::min<int64_t>(r.ask.n_predict, most);
        r.ask.n_prompt = std::min<int64_t>(r.ask.n_prompt, most - r.ask.n_predict);
    }
    if (!r.ask.refuses || r.n_prompts > 1 || !may_exceed(r, most))
        return nullptr;
    if (r.ask.n_prompt == 0)
        if (auto refused = count(req, r))
            return refused;
    if (r.ask.n_prompt >= most)
        return reply(400, c_text(serve_error_too_long(r.ask.n_prompt, most,
                                                      r.form == SERVE_FORM_PROMPT ? "prompt" : "messages")));
    r.most_answer = most - r.ask.n_prompt;
    return nullptr;
}

// Erases slots without a request whose memory is needed while documents are put one after the other. Their conversations are parked.
void make_way(const server_http_req &req, int32_t slot)
{
    serve_claim claim{};
    for (int32_t i = 0; i < serve_slots_n() && serve_slots_claim_in_way(slot, &claim); i++) {
        claimed_slot idle(claim);
        park_lost(req, idle.claim);
        erase_slot(req, idle.claim.slot);
        serve_slots_forget_prompt(idle.claim.slot);
    }
}

// Puts the document into the slot, if it is not there, and passes the request on.
server_http_res_ptr pass_after_document(const handler &route, const server_http_req &req, serve_request &r,
                                        std::unique_ptr<claimed_slot> slot)
{
    char file[32];
    park_lost(req, slot->claim);
    erase_first(req, slot->claim);
    bring_parked(req, slot->claim, r.ask);
    c_text body(serve_request_passed(&r, &slot->claim));
    if (!body)
        return out_of_memory();
    if (slot->claim.must_restore) {
        make_way(req, slot->claim.slot);
        serve_document_file(r.ask.document_plus_1 - 1, file);
        if (!act_on_slot(req, slot->claim.slot, "restore", c_text(serve_body_file(file))))
            return refuse(503, "the document cannot be put into a slot now", "winnow.document");
    }
    const plain_document one(r.ask.document_plus_1 - 1);
    serve_request_free(&r); // the server makes a tree of its own
    std::string text(body.get());
    body.reset();
    return pass(route, req, std::move(text), std::move(slot));
}

server_http_res_ptr stands_elsewhere(const serve_request &r)
{
    return refuse(400,
                  serve_document_is_stored(r.ask.document_plus_1 - 1)
                      ? "winnow.document: for this request the model's chat template writes something else "
                        "before the document than when it was stored, such as tools, or another system "
                        "message"
                      : "winnow.document: for this request the model's chat template writes something "
                        "before the document, such as tools",
                  "winnow.document");
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
    if (auto refused = take_adapters(req, p.r))
        return refused;
    drop_body(req);
    auto refused = take_documents(req, p);
    if (refused)
        return refused;
    refused = look_at(req, p.r);
    if (refused)
        return refused;
    if (p.r.ask.document_plus_1 > 0 && !follows_document(req, p.r))
        return stands_elsewhere(p.r);
    if ((refused = look_at_length(req, p.r)))
        return refused;
    switch (serve_slots_claim(&p.r.ask, &claim, why)) {
    case SERVE_GONE:
        return refuse(503, "the client has left", nullptr);
    case SERVE_BUSY:
        return refuse(503, why, nullptr);
    case SERVE_TOO_LONG:
        return refuse(400, why, form == SERVE_FORM_PROMPT ? "prompt" : "messages");
    default:
        return pass_after_document(route, req, p.r, std::make_unique<claimed_slot>(claim));
    }
}

server_http_res_ptr uncounted(const handler &route, int form, const server_http_req &req)
{
    if (serve_settings()->cap > 0)
        return refuse(400, "this route's memory is not counted, and the server's is bounded (--kv-bytes)",
                      nullptr);
    return checked(route, form, req);
}

server_http_res_ptr without_field(const handler &route, const server_http_req &req)
{
    char why[SERVE_TEXT] = "";
    const char *param = nullptr;
    parsed p;
    const int status =
        serve_request_read(&p.r, SERVE_FORM_INFILL, req.body.data(), req.body.size(), why, &param);
    if (p.r.has_field)
        return refuse(400,
                      "winnow: this route has the server's own policy; /v1/chat/completions and "
                      "/v1/completions take one",
                      "winnow");
    if (status)
        return refuse(status, why, param);
    if (auto refused = take_adapters(req, p.r))
        return refused;
    if (p.r.ask.keep_rule.adapters == 0)
        return uncounted(route, -1, req);
    const c_text body(serve_request_body(&p.r));
    if (!body)
        return out_of_memory();
    const_cast<server_http_req &>(req).body = body.get();
    return uncounted(route, -1, req);
}

} // namespace serve
