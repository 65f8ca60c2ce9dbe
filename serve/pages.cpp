// SPDX-License-Identifier: MIT
#include "serve/pages.hpp"

#include "serve/bodies.h"
#include "serve/documents.h"
#include "serve/inspect.h"
#include "serve/parking.hpp"
#include "serve/replies.hpp"
#include "serve/slots.h"

#include <cstdio>

// page.c, written by embed.cmake from share/pages/serve.html
extern "C" {
extern const unsigned char serve_page[];
extern const size_t serve_page_size;
}

namespace serve
{
namespace
{

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

// What a request for the page of a slot or a document names: sets *slot (-1: any, by which the decoding thread looks at a document) and
// *document (-1: none); false with the reason.
bool find_shown(const server_http_req &req, int32_t *slot, int32_t *document, char *why)
{
    const std::string of_slot = req.get_param("slot"), of_document = req.get_param("document");
    const int32_t n = serve_slots_named(of_slot.c_str());
    *document = of_document.empty() ? -1 : serve_documents_find(of_document.c_str());
    *slot = of_slot.empty() ? -1 : n;
    if (of_slot.empty() == of_document.empty())
        std::snprintf(why, SERVE_TEXT, "name a slot or a document: /winnow/page?slot=0, or ?document=NAME");
    else if (!of_document.empty() && *document < 0)
        std::snprintf(why, SERVE_TEXT, "there is no document '%.64s'", of_document.c_str());
    else if (!of_slot.empty() && n < 0)
        std::snprintf(why, SERVE_TEXT, "there is no slot '%.20s'", of_slot.c_str());
    else
        return true;
    return false;
}

} // namespace

server_http_res_ptr page(const server_http_req &)
{
    return html(reinterpret_cast<const char *>(serve_page), serve_page_size);
}

server_http_res_ptr inspect(const server_http_req &req)
{
    char why[SERVE_TEXT] = "", file[64];
    int32_t slot, document;
    size_t n = 0;
    if (!find_shown(req, &slot, &document, why))
        return refuse(400, why, nullptr);
    serve_claim claim{};
    if (serve_slots_hold(slot, has_left, const_cast<server_http_req *>(&req), &claim) != SERVE_CLAIMED)
        return refuse(503, "the client has left", nullptr);
    const claimed_slot one(claim);
    erase_first(req, claim);
    const int32_t ticket = serve_inspect_begin();
    serve_inspect_file(ticket, document, file);
    act_on_slot(req, claim.slot, "save", c_text(serve_body_file(file)));
    json_t *seen = serve_inspect_end(ticket, why);
    const c_text text(seen ? serve_inspect_page(seen, &n) : nullptr);
    json_decref(seen);
    if (!text)
        return refuse(seen ? 500 : 409, seen ? "out of memory" : why, nullptr);
    return html(text.get(), n);
}

server_http_res_ptr show(const server_http_req &req)
{
    const serve_owner owner = owner_of(req);
    return reply(200, c_text(serve_slots_json(&owner)));
}

server_http_res_ptr with_metrics(const server_http_context::handler_t &route, const server_http_req &req)
{
    auto res = route(req);
    const c_text ours(serve_slots_metrics());
    if (res && res->status == 200 && ours)
        res->data += ours.get();
    return res;
}

} // namespace serve
