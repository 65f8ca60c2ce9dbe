// SPDX-License-Identifier: MIT
#include "serve/call.hpp"

#include "serve/bodies.h"
#include "serve/documents.h"
#include "serve/memory.h"
#include "serve/parse.h"
#include "serve/plain.h"
#include "serve/replies.hpp"
#include "serve/request.h"

#include <jansson.h>

// Calls of the server's that give tasks to the decoding thread. The linker sends them here (--wrap, server.cmake).
#define POST_TASK  "_ZN22server_response_reader9post_taskEO11server_taskb"
#define POST_TASKS "_ZN22server_response_reader10post_tasksEOSt6vectorI11server_taskSaIS1_EEb"
void real_post_task(void *reader, void *task, bool front) __asm__("__real_" POST_TASK);
void wrap_post_task(void *reader, void *task, bool front) __asm__("__wrap_" POST_TASK);
void real_post_tasks(void *reader, void *tasks, bool front) __asm__("__real_" POST_TASKS);
void wrap_post_tasks(void *reader, void *tasks, bool front) __asm__("__wrap_" POST_TASKS);

namespace serve
{
namespace
{

// Whether the route that this thread has called has given the decoding thread a task.
thread_local bool has_posted = false;

struct json_freed {
    void operator()(json_t *o) const
    {
        json_decref(o);
    }
};

// Says an error of the server's in our words, if it is a client's mistake.
void put_in_words(server_http_res &res)
{
    int status = res.status;
    c_text said(serve_error_in_words(res.data.data(), res.data.size(), has_posted, &status));
    if (!said)
        return;
    res.status = status;
    res.data = said.get();
}

} // namespace

server_http_res_ptr call(const server_http_context::handler_t &route, const server_http_req &req)
{
    has_posted = false;
    auto res = route(req);
    if (res && res->status >= 400 && !res->is_stream())
        put_in_words(*res);
    return res;
}

server_http_res_ptr pass_on(const server_http_context::handler_t &route, const server_http_req &req,
                            std::string body)
{
    auto inner = std::make_unique<request>(req, std::move(body));
    auto res = call(route, inner->of);
    return std::make_unique<kept_reply>(std::move(inner), std::move(res));
}

answered::~answered()
{
    serve_memory_end(n_body);
}

plain_document::plain_document(int32_t d)
{
    if (d >= 0)
        serve_plain_begin(serve_document_text(d), serve_document_at(d));
}

plain_document::~plain_document()
{
    serve_plain_end();
}

void drop_body(const server_http_req &req)
{
    std::string().swap(const_cast<server_http_req &>(req).body);
}

server_http_res_ptr wrong_body(int form, const server_http_req &req, std::string *passed)
{
    char why[SERVE_TEXT] = "";
    const char *param = nullptr;
    json_t *read = nullptr;
    int status = serve_parse(&read, req.body.data(), req.body.size(), why);
    std::unique_ptr<json_t, json_freed> body(read);
    status = status ? status : serve_request_check_other(read, form, why, &param);
    if (status)
        return refuse(status, why, param);
    const c_text text(json_dumps(read, JSON_COMPACT | JSON_ENCODE_ANY));
    if (!text)
        return refuse(500, "out of memory", nullptr);
    body.reset();
    passed->assign(text.get());
    return nullptr;
}

server_http_res_ptr checked(const server_http_context::handler_t &route, int form, const server_http_req &req)
{
    std::string passed;
    if (!req.body.empty())
        if (auto wrong = wrong_body(form, req, &passed))
            return wrong;
    drop_body(req);
    return pass_on(route, req, std::move(passed));
}

} // namespace serve

void wrap_post_task(void *reader, void *task, bool front)
{
    serve::has_posted = true;
    real_post_task(reader, task, front);
}

void wrap_post_tasks(void *reader, void *tasks, bool front)
{
    serve::has_posted = true;
    real_post_tasks(reader, tasks, front);
}
