/* SPDX-License-Identifier: MIT */
/* The model's own chat template, run by llama.cpp's Jinja engine. C++ and its exceptions end in this file. */
#include "text/jinja.h"

#include <jinja/lexer.h>
#include <jinja/parser.h>
#include <jinja/runtime.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>

namespace
{

/* The engine recurses over expressions and blocks, so sizes above these could exhaust the stack. Templates of
 * published models stay below a tenth of them. */
constexpr int MAX_BLOCKS = 100;      /* nested if, for, macro ... */
constexpr int MAX_ELIFS = 500;       /* in the whole template: each one nests in the one before */
constexpr int MAX_NESTING = 200;     /* brackets, `not`, signs and conditions in one expression */
constexpr int MAX_EXPRESSION = 2000; /* tokens of one expression */

/* Thrown by raise_exception. It is no std::exception, because the engine would wrap that in its own words. */
struct refusal {
    std::string message;
};

jinja::value raise_exception(const jinja::func_args &args)
{
    throw refusal{args.count() > 0 ? args.get_pos(0)->as_string().str() : std::string("no reason given")};
}

bool opens_bracket(jinja::token::type t)
{
    using token = jinja::token;
    return t == token::open_paren || t == token::open_square_bracket || t == token::open_curly_bracket;
}

bool recurses(const jinja::token &t)
{
    return opens_bracket(t.t) || t.t == jinja::token::unary_operator ||
           (t.t == jinja::token::identifier && (t.value == "not" || t.value == "if" || t.value == "else"));
}

/* +1 for a statement that opens a block, -1 for one that closes it. */
int block_step(const std::string &word)
{
    if (word.compare(0, 3, "end") == 0)
        return -1;
    return word == "if" || word == "for" || word == "macro" || word == "call" || word == "filter" ||
                   word == "set" /* its block form; the plain form is counted down at its end */
               ? 1
               : 0;
}

void check_size(const std::vector<jinja::token> &tokens)
{
    using token = jinja::token;
    int blocks = 0, elifs = 0, nesting = 0, length = 0;
    bool first = false, assigns = false, set = false;
    for (const token &t : tokens) {
        if (t.t == token::open_statement || t.t == token::open_expression) {
            nesting = length = 0;
            assigns = set = false;
            first = t.t == token::open_statement;
            continue;
        }
        if (first) {
            first = false;
            set = t.value == "set";
            blocks += block_step(t.value);
            elifs += t.value == "elif" ? 1 : 0;
        }
        if (set && t.t == token::equals)
            assigns = true;
        if (t.t == token::close_statement && set && assigns)
            blocks--;
        nesting += recurses(t) ? 1 : 0;
        length++;
        if (t.t == token::text)
            length = 0;
        if (blocks > MAX_BLOCKS || elifs > MAX_ELIFS || nesting > MAX_NESTING || length > MAX_EXPRESSION)
            throw std::runtime_error("it is nested too deeply");
    }
}

jinja::value text_value(const char *text)
{
    return jinja::mk_val<jinja::value_string>(std::string(text));
}

/* The content as a text, or as the list of one text part that templates of multimodal models go through. */
jinja::value content_value(const wnw_chat_message &message, bool marked, bool as_parts)
{
    jinja::value_string text = jinja::mk_val<jinja::value_string>(std::string(message.content));
    if (marked)
        text->mark_input();
    if (!as_parts)
        return text;
    jinja::value_object part = jinja::mk_val<jinja::value_object>();
    part->insert("type", text_value("text"));
    part->insert("text", text);
    jinja::value_array parts = jinja::mk_val<jinja::value_array>();
    parts->push_back(part);
    return parts;
}

/* Sets the variables that the transformers library gives a template. */
void set_variables(jinja::context &ctx, const wnw__jinja_input &in, bool as_parts)
{
    jinja::value_array messages = jinja::mk_val<jinja::value_array>();
    for (int32_t i = 0; i < in.n_messages; i++) {
        jinja::value_object message = jinja::mk_val<jinja::value_object>();
        message->insert("role", text_value(in.messages[i].role));
        message->insert("content", content_value(in.messages[i], i == in.marked, as_parts));
        messages->push_back(message);
    }
    ctx.set_val("messages", messages);
    ctx.set_val("tools", jinja::mk_val<jinja::value_none>());
    ctx.set_val("documents", jinja::mk_val<jinja::value_none>());
    ctx.set_val("add_generation_prompt", jinja::mk_val<jinja::value_bool>(true));
    ctx.set_val("bos_token", text_value(in.bos));
    ctx.set_val("eos_token", text_value(in.eos));
    ctx.set_val("raise_exception", jinja::mk_val<jinja::value_func>("raise_exception", raise_exception));
}

struct result {
    std::string text;
    size_t first = 0, end = 0;
    bool found = false;
};

result run(const jinja::program &program, const wnw__jinja_input &in, bool as_parts)
{
    jinja::context ctx{std::string(in.source)};
    set_variables(ctx, in, as_parts);
    jinja::runtime runtime(ctx);
    const jinja::value_string parts = jinja::runtime::gather_string_parts(runtime.execute(program));
    result out;
    for (const jinja::string_part &part : parts->val_str.parts) {
        if (part.is_input && !part.val.empty()) {
            out.first = out.found ? out.first : out.text.size();
            out.end = out.text.size() + part.val.size();
            out.found = true;
        }
        out.text += part.val;
    }
    return out;
}

/* Runs the template with contents as text first; parts are used where only they make the content appear. */
result run_either(const jinja::program &program, const wnw__jinja_input &in)
{
    result plain;
    std::exception_ptr failed;
    try {
        plain = run(program, in, false);
        if (plain.found || in.marked < 0 || !*in.messages[in.marked].content ||
            plain.text.find(in.messages[in.marked].content) != std::string::npos)
            return plain;
    } catch (const std::bad_alloc &) {
        throw;
    } catch (const std::exception &) {
        failed = std::current_exception();
    }
    try {
        const result parts = run(program, in, true);
        if (parts.found)
            return parts;
    } catch (const std::bad_alloc &) {
        throw;
    } catch (...) { /* the first attempt's words are the ones to report */
    }
    if (failed)
        std::rethrow_exception(failed);
    return plain;
}

jinja::program parse(const char *source)
{
    const jinja::lexer_result tokens = jinja::lexer().tokenize(source);
    check_size(tokens.tokens);
    return jinja::parse_from_tokens(tokens);
}

/* The engine's message without the excerpt of the template that it draws: one line. */
std::string first_line(const char *what)
{
    std::string text(what);
    const size_t error = text.rfind("Error: ");
    text = text.substr(error == std::string::npos ? 0 : error + 7);
    return text.substr(0, text.find('\n'));
}

int deliver(wnw__rendered *out, const result &r)
{
    out->text = static_cast<char *>(std::malloc(r.text.size() + 1));
    if (!out->text)
        throw std::bad_alloc();
    std::memcpy(out->text, r.text.c_str(), r.text.size() + 1);
    out->n = r.text.size();
    out->first = r.first;
    out->end = r.end;
    out->found = r.found;
    return WNW_OK;
}

} // namespace

extern "C" bool wnw__jinja_available(void)
{
    return true;
}

extern "C" int wnw__jinja_render(struct wnw__rendered *out, const struct wnw__jinja_input *in)
{
    *out = wnw__rendered{};
    try {
        const jinja::program program = parse(in->source);
        return deliver(out, run_either(program, *in));
    } catch (const refusal &r) {
        return wnw__fail(WNW_E_UNSUPPORTED, "the model's chat template refuses the messages: %.200s",
                         r.message.c_str());
    } catch (const std::bad_alloc &) {
        return wnw__fail(WNW_E_NOMEM, "no memory for the chat template's text");
    } catch (const std::exception &e) {
        return wnw__fail(
            WNW_E_UNSUPPORTED,
            "the model's chat template cannot be run: %.200s; choose one of libllama's with --chat "
            "NAME, or --raw",
            first_line(e.what()).c_str());
    } catch (...) {
        return wnw__fail(WNW_E_UNSUPPORTED, "the model's chat template cannot be run");
    }
}
