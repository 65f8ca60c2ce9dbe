/* SPDX-License-Identifier: MIT */
/* The model's own chat template, run by llama.cpp's Jinja engine. C++ and its exceptions end in this file. */
#include "text/jinja.h"

#include "base/system.h"
#include "text/jinja_bounds.h"
#include "text/jinja_calls.h"

#include <jinja/lexer.h>
#include <jinja/parser.h>
#include <jinja/runtime.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

namespace
{

/* The engine recurses over expressions and blocks, so sizes above these could exhaust the stack. Templates of
 * published models stay below a tenth of them. */
constexpr int MAX_BLOCKS = 100;                  /* nested if, for, macro ... */
constexpr int MAX_ELIFS = 500;                   /* in the whole template: each one nests in the one before */
constexpr int MAX_NESTING = 200;                 /* brackets, `not`, signs and conditions in one expression */
constexpr int MAX_EXPRESSION = 2000;             /* tokens of one expression */
constexpr size_t MAX_SOURCE = (size_t)256 << 10; /* bytes */

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

/* How far a template nests, counted as its tokens come. */
struct depth {
    using token = jinja::token;
    int blocks = 0, elifs = 0, nesting = 0, length = 0;
    bool first = false;                /* the next token is a statement's first */
    bool set = false, assigns = false; /* of the current statement: "set", with "=" */

    void begin(bool statement)
    {
        nesting = length = 0;
        assigns = set = false;
        first = statement;
    }

    void add_word(const std::string &word)
    {
        first = false;
        set = word == "set";
        blocks += block_step(word);
        elifs += word == "elif" ? 1 : 0;
    }

    void add(const token &t)
    {
        if (first)
            add_word(t.value);
        if (set && t.t == token::equals)
            assigns = true;
        if (t.t == token::close_statement && set && assigns)
            blocks--;
        nesting += recurses(t) ? 1 : 0;
        length = t.t == token::text ? 0 : length + 1;
    }

    bool is_too_deep() const
    {
        return blocks > MAX_BLOCKS || elifs > MAX_ELIFS || nesting > MAX_NESTING || length > MAX_EXPRESSION;
    }
};

void check_size(const std::vector<jinja::token> &tokens)
{
    using token = jinja::token;
    depth d;
    for (const token &t : tokens) {
        if (t.t == token::open_statement || t.t == token::open_expression)
            d.begin(t.t == token::open_statement);
        else
            d.add(t);
        if (d.is_too_deep())
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

/* Which messages are marked. */
enum class marks { one, all };

/* Sets the variables that the transformers library gives a template. */
void set_variables(jinja::context &ctx, wnw::meter &m, const wnw__jinja_input &in, marks which, bool as_parts)
{
    jinja::value_array messages = jinja::mk_val<jinja::value_array>();
    for (int32_t i = 0; i < in.n_messages; i++) {
        jinja::value_object message = jinja::mk_val<jinja::value_object>();
        message->insert("role", text_value(in.messages[i].role));
        message->insert("content",
                        content_value(in.messages[i], which == marks::all || i == in.marked, as_parts));
        messages->push_back(message);
    }
    ctx.set_val("messages", messages);
    ctx.set_val("tools", jinja::mk_val<jinja::value_none>());
    ctx.set_val("documents", jinja::mk_val<jinja::value_none>());
    ctx.set_val("add_generation_prompt", jinja::mk_val<jinja::value_bool>(true));
    ctx.set_val("bos_token", text_value(in.bos));
    ctx.set_val("eos_token", text_value(in.eos));
    ctx.set_val("raise_exception", jinja::mk_val<jinja::value_func>("raise_exception", raise_exception));
    ctx.set_val("strftime_now", wnw::time_function(in.now, m));
}

struct result {
    std::string text;
    std::vector<wnw_bytes> input;
    bool as_parts = false; /* how the contents were given */
};

/* A template that was parsed, and what it works on. */
struct prepared {
    const wnw__jinja_input &in;
    const std::string &source;
    wnw::meter &m;
    const jinja::program &program;
};

result run(const prepared &j, marks which, bool as_parts)
{
    result out;
    out.as_parts = as_parts;
    j.m.reset();
    j.m.base = static_cast<const char *>(__builtin_frame_address(0));
    jinja::context ctx{j.source};
    set_variables(ctx, j.m, j.in, which, as_parts);
    jinja::runtime runtime(ctx);
    const jinja::value_string parts = jinja::runtime::gather_string_parts(runtime.execute(j.program));
    for (const jinja::string_part &part : parts->val_str.parts) {
        if (part.is_input && !part.val.empty())
            out.input.push_back({out.text.size(), out.text.size() + part.val.size()});
        out.text += part.val;
    }
    return out;
}

/* Runs the template with contents as text first; parts are used where only they make the content appear. */
result run_either(const prepared &j)
{
    const bool sought = *j.in.messages[j.in.marked].content;
    result plain;
    std::exception_ptr failed;
    try {
        plain = run(j, marks::one, false);
        if (!plain.input.empty() || !sought)
            return plain;
    } catch (const std::bad_alloc &) {
        throw;
    } catch (const std::exception &) {
        failed = std::current_exception();
    }
    try {
        const result parts = run(j, marks::one, true);
        if (!parts.input.empty() || (failed && !sought))
            return parts;
    } catch (const std::exception &) { /* the first attempt's words are the ones to report */
    } catch (const refusal &) {
    }
    if (failed)
        std::rethrow_exception(failed);
    return plain;
}

/* Lines end in a line feed, because the engine takes long to make it so itself. */
std::string with_line_feeds(const char *source)
{
    std::string text(source);
    size_t to = 0;
    for (size_t from = 0; from < text.size(); from++) {
        if (text[from] == '\r' && text[from + 1] == '\n')
            continue;
        text[to++] = text[from] == '\r' ? '\n' : text[from];
    }
    text.resize(to);
    return text;
}

jinja::program parse(const std::string &source, wnw::meter &m)
{
    if (source.size() > MAX_SOURCE)
        throw std::runtime_error("it has more than " + std::to_string(MAX_SOURCE) + " bytes");
    const jinja::lexer_result tokens = jinja::lexer().tokenize(source);
    check_size(tokens.tokens);
    jinja::program program = jinja::parse_from_tokens(tokens);
    wnw::bound(program, m);
    return program;
}

/* The engine's message without the excerpt of the template that it draws: one line. */
std::string first_line(const char *what)
{
    std::string text(what);
    const size_t error = text.rfind("Error: ");
    text = text.substr(error == std::string::npos ? 0 : error + 7);
    return text.substr(0, text.find('\n'));
}

void deliver(wnw__rendered *out, const result &one, const result &all)
{
    out->text = static_cast<char *>(std::malloc(all.text.size() + 1));
    out->input = static_cast<wnw_bytes *>(std::malloc(all.input.size() * sizeof *out->input + 1));
    if (!out->text || !out->input)
        throw std::bad_alloc();
    std::memcpy(out->text, all.text.c_str(), all.text.size() + 1);
    out->n = all.text.size();
    std::copy(all.input.begin(), all.input.end(), out->input);
    out->n_input = static_cast<int32_t>(all.input.size());
    out->found = !one.input.empty();
    if (out->found) {
        out->first = one.input.front().from;
        out->end = one.input.back().to;
    }
}

void render(wnw__rendered *out, const wnw__jinja_input &in)
{
    uint64_t n_input = 0;
    for (int32_t i = 0; i < in.n_messages; i++)
        n_input += std::strlen(in.messages[i].content);
    wnw::meter m(n_input, (uint64_t)in.n_messages);
    const std::string source = with_line_feeds(in.source);
    const jinja::program program = parse(source, m);
    const prepared j{in, source, m, program};
    const result one = run_either(j);
    if (in.n_messages == 1) {
        deliver(out, one, one);
        return;
    }
    /* The marks do not say which message a byte is of, so that the one and all of them are marked in turn. */
    const result all = run(j, marks::all, one.as_parts);
    if (all.text != one.text)
        throw std::runtime_error("it writes another text each time");
    deliver(out, one, all);
}

struct visit {
    wnw__rendered *out;
    const wnw__jinja_input *in;
};

int fail(const std::string &what, const char *advice)
{
    return wnw__fail(WNW_E_UNSUPPORTED, "the model's chat template %.200s%s", what.c_str(), advice);
}

/* Renders on the other stack; no exception leaves it. */
int guarded_render(void *p)
{
    static const char advice[] = "; choose one of libllama's with --chat NAME, or --raw";
    const visit *v = static_cast<visit *>(p);
    try {
        render(v->out, *v->in);
        return WNW_OK;
    } catch (const refusal &r) {
        return fail("refuses the messages: " + r.message, "");
    } catch (const wnw::bound_exceeded &b) {
        return fail(b.what + ", which no honest template does", advice);
    } catch (const wnw::no_memory &) {
        return wnw__fail(WNW_E_NOMEM, "no memory for the chat template's text");
    } catch (const std::bad_alloc &) {
        return wnw__fail(WNW_E_NOMEM, "no memory for the chat template's text");
    } catch (const std::exception &e) {
        return fail("cannot be run: " + first_line(e.what()), advice);
    } catch (...) {
        return fail("cannot be run", advice);
    }
}

} // namespace

extern "C" bool wnw__jinja_available(void)
{
    return true;
}

extern "C" int wnw__jinja_render(struct wnw__rendered *out, const struct wnw__jinja_input *in)
{
    visit v = {out, in};
    *out = wnw__rendered{};
    const int rc = wnw__on_stack(wnw::STACK, guarded_render, &v);
    if (rc != WNW_OK) {
        std::free(out->text);
        std::free(out->input);
        *out = wnw__rendered{};
    }
    return rc;
}
