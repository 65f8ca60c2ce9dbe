/* SPDX-License-Identifier: MIT */
#include "text/jinja_calls.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ctime>
#include <stdexcept>

namespace wnw
{

using jinja::func_args;
using jinja::is_val;
using jinja::mk_val;
using jinja::value;
using jinja::value_array;
using jinja::value_float;
using jinja::value_func;
using jinja::value_int;
using jinja::value_kwarg;
using jinja::value_object;
using jinja::value_string;

namespace
{

constexpr int MAX_NESTED = 100;     /* lists in lists; messages with parts nest three deep */
constexpr int64_t MAX_INDENT = 100; /* columns; templates indent by 2 or 4 */
constexpr uint64_t MAX_PAIRS =
    1000;                      /* of dict() and namespace() from a list, which are compared with each other */
constexpr uint64_t NODE = 512; /* bytes that a value takes, about */
constexpr uint64_t WALK = 128; /* bytes that could be read in the time in which a value is visited */

/* Bytes of work to find a text of m bytes in one of n. */
uint64_t search_work(uint64_t n, uint64_t m)
{
    return n >= m ? (n - m + 1) * (1 + m / 8) : 0;
}

class walk
{
  public:
    walk(weight &total, meter &m) : total_(total), m_(m)
    {
    }

    void operator()(const value &v, int depth)
    {
        if (!v)
            return;
        if (depth > MAX_NESTED)
            throw bound_exceeded{"makes lists that nest deeper than " + std::to_string(MAX_NESTED) +
                                 ", or that hold themselves"};
        m_.work(WALK);
        total_.nodes++;
        for (const jinja::string_part &part : v->val_str.parts) {
            total_.bytes += part.val.size();
            total_.input = total_.input || (part.is_input && !part.val.empty());
        }
        m_.work(v->val_str.parts.size());
        for (const value &item : v->val_arr)
            (*this)(item, depth + 1);
        for (const auto &pair : v->val_obj) {
            (*this)(pair.first, depth + 1);
            (*this)(pair.second, depth + 1);
        }
        if (v->val_func)
            (*this)(jinja::cast_val<value_func>(v)->arg0, depth + 1);
        else if (depth == 0 && is_val<value_kwarg>(v)) /* these occur in calls only */
            (*this)(jinja::cast_val<value_kwarg>(v)->val, depth + 1);
    }

  private:
    weight &total_;
    meter &m_;
};

/* ---- Texts with marks ---- */

/* A text whose parts have marks, as one text. */
class flat
{
  public:
    explicit flat(const jinja::string &s)
    {
        for (const jinja::string_part &part : s.parts) {
            text += part.val;
            if (!part.val.empty())
                runs_.push_back({text.size(), part.is_input});
        }
    }

    /* Appends bytes [from, to) to a text. Calls come in ascending order. */
    void copy(jinja::string &to_text, size_t from, size_t to)
    {
        while (from < to) {
            while (runs_[run_].end <= from)
                run_++;
            const size_t n = std::min(to, runs_[run_].end) - from;
            put(to_text, runs_[run_].input, text.substr(from, n));
            from += n;
        }
    }

    static void put(jinja::string &to, bool input, const std::string &bytes)
    {
        if (bytes.empty())
            return;
        if (!to.parts.empty() && to.parts.back().is_input == input)
            to.parts.back().val += bytes;
        else
            to.parts.push_back({input, bytes});
    }

    static void put(jinja::string &to, const jinja::string &s)
    {
        for (const jinja::string_part &part : s.parts)
            put(to, part.is_input, part.val);
    }

    std::string text;

  private:
    struct run {
        size_t end;
        bool input;
    };
    std::vector<run> runs_;
    size_t run_ = 0;
};

value text_of(const jinja::string &s)
{
    return mk_val<value_string>(s);
}

std::vector<size_t> find_all(const std::string &text, const std::string &what, meter &m)
{
    std::vector<size_t> found;
    m.work(search_work(text.size(), what.size()));
    for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size())
        found.push_back(at);
    return found;
}

/* text.replace(old, new). The engine's own moves the rest of the text for each occurrence. */
value replace(const func_args &args, meter &m)
{
    flat text(args.get_pos(0)->val_str);
    const std::string old = args.get_pos(1)->val_str.str();
    const jinja::string with = args.get_pos(2)->val_str;
    jinja::string out;
    size_t at = 0;
    if (old.empty()) {
        m.expect((text.text.size() + 1) * (64 + with.length()));
        flat::put(out, with);
        for (; at < text.text.size(); at++) {
            text.copy(out, at, at + 1);
            flat::put(out, with);
        }
        return text_of(out);
    }
    const std::vector<size_t> found = find_all(text.text, old, m);
    m.expect(text.text.size() + found.size() * (64 + with.length()));
    for (const size_t next : found) {
        text.copy(out, at, next);
        flat::put(out, with);
        at = next + old.size();
    }
    text.copy(out, at, text.text.size());
    return text_of(out);
}

/* text.split(by, most) and rsplit. */
value split(const func_args &args, bool from_end, meter &m)
{
    flat text(args.get_pos(0)->val_str);
    const std::string by = args.count() > 1 ? args.get_pos(1)->val_str.str() : " ";
    const int64_t most = args.count() > 2 ? args.get_pos(2)->as_int() : -1;
    std::vector<size_t> found = find_all(text.text, by, m);
    if (from_end && by.size() > 1) { /* occurrences that overlap are found from the end */
        found.clear();
        for (size_t end = text.text.size(); end >= by.size();) {
            const size_t at = text.text.rfind(by, end - by.size());
            if (at == std::string::npos)
                break;
            found.push_back(at);
            end = at;
        }
        std::reverse(found.begin(), found.end());
    }
    if (most >= 0 && (uint64_t)most < found.size()) {
        if (from_end)
            found.erase(found.begin(), found.end() - most);
        else
            found.resize((size_t)most);
    }
    m.expect(text.text.size() + (found.size() + 1) * NODE);
    value_array out = mk_val<value_array>();
    size_t at = 0;
    for (size_t i = 0; i <= found.size(); i++) {
        const size_t end = i < found.size() ? found[i] : text.text.size();
        jinja::string piece;
        text.copy(piece, at, end);
        out->push_back(text_of(piece));
        at = end + by.size();
    }
    return out;
}

value join(const func_args &args, const weight &all, meter &m)
{
    const value by = args.get_kwarg_or_pos("d", 1);
    const jinja::string between = by->is_undefined() ? jinja::string() : by->as_string();
    const auto &items = args.get_pos(0)->as_array();
    jinja::string out;
    m.expect(all.bytes + items.size() * (64 + between.length()));
    for (size_t i = 0; i < items.size(); i++) {
        if (!is_val<value_string>(items[i]) && !is_val<value_int>(items[i]) && !is_val<value_float>(items[i]))
            throw std::runtime_error("join of a list that has more than texts and numbers");
        flat::put(out, items[i]->as_string());
        if (i + 1 < items.size())
            flat::put(out, between);
    }
    return text_of(out);
}

/* ---- What is looked at before the engine's own ---- */

/* std::sort runs past its list where values have no order. */
void check_order(const std::vector<value> &values, meter &m)
{
    bool numbers = true, texts = true;
    uint64_t bytes = 0;
    for (const value &v : values) {
        const bool number = is_val<value_int>(v) || is_val<value_float>(v);
        numbers = numbers && number && !std::isnan(v->as_float());
        texts = texts && is_val<value_string>(v);
        bytes += 64 + 4 * v->val_str.length();
    }
    if (!numbers && !texts)
        throw std::runtime_error("sort of values that have no order");
    m.work(bytes * (1 + (uint64_t)std::log2((double)values.size() + 1)));
}

void check_sort(const func_args &args, meter &m)
{
    const value by = args.get_kwarg_or_pos("attribute", 3);
    std::vector<value> keys;
    value none = mk_val<jinja::value_undefined>();
    for (const value &item : args.get_pos(0)->as_array())
        if (by->is_undefined())
            keys.push_back(item);
        else
            keys.push_back(is_val<value_object>(item) ? item->at(by, none) : none);
    check_order(keys, m);
}

void check_dictsort(const func_args &args, meter &m)
{
    const value by = args.get_kwarg_or_pos("by", 2);
    const bool by_value = is_val<value_string>(by) && by->val_str.str() == "value";
    std::vector<value> keys;
    for (const auto &pair : args.get_pos(0)->val_obj)
        keys.push_back(by_value ? pair.second : pair.first);
    check_order(keys, m);
}

uint64_t checked_indent(const value &v)
{
    if (is_val<value_int>(v) && (v->as_int() > MAX_INDENT || v->as_int() < -MAX_INDENT))
        throw bound_exceeded{"indents by more than " + std::to_string(MAX_INDENT) + " columns"};
    if (is_val<value_int>(v))
        return MAX_INDENT;
    return is_val<value_string>(v) ? v->val_str.length() : 4;
}

/* A list or object as text or as JSON: escapes take up to six bytes for one. */
void check_text(const func_args &args, const weight &all, meter &m)
{
    const weight what = weigh(args.get_pos(0), m);
    uint64_t columns = 0;
    for (size_t i = 1; i < args.count(); i++) {
        const value &v = args.get_args()[i];
        columns += checked_indent(is_val<value_kwarg>(v) ? jinja::cast_val<value_kwarg>(v)->val : v);
    }
    m.work(4 * all.bytes + 64 * all.nodes);
    m.expect(6 * what.bytes + 64 + what.nodes * (32 + MAX_NESTED * columns + all.bytes - what.bytes));
}

void check_indent(const func_args &args, meter &m)
{
    const uint64_t width = checked_indent(args.get_kwarg_or_pos("width", 1));
    uint64_t lines = 2, bytes = 0;
    for (const jinja::string_part &part : args.get_pos(0)->val_str.parts) {
        for (const char c : part.val)
            lines += c == '\n' ? 1 : 0;
        bytes += part.val.size();
    }
    m.expect(bytes + lines * width);
}

/* Integers by which the processor cannot divide end the process. */
void check_divisor(const value &v)
{
    if (is_val<value_int>(v) && (v->as_int() == 0 || v->as_int() == -1))
        throw std::runtime_error("division by " + std::to_string(v->as_int()));
}

/* range() with as many numbers as it will give. */
void check_range(const func_args &args, meter &m)
{
    int64_t n[3] = {0, 0, 1};
    size_t given = 0;
    for (; given < args.count() && given < 3; given++) {
        if (!is_val<value_int>(args.get_pos(given)))
            return; /* the engine refuses it */
        n[given] = args.get_pos(given)->as_int();
    }
    if (given == 1) {
        n[1] = n[0];
        n[0] = 0;
    }
    const double count = n[2] != 0 ? ((double)n[1] - (double)n[0]) / (double)n[2] : 0;
    if (count > 1e6 || std::fabs((double)n[0]) > 1e15 || std::fabs((double)n[1]) > 1e15 ||
        std::fabs((double)n[2]) > 1e15)
        throw bound_exceeded{"asks for a range of more than a million numbers"};
    if (count > 0) {
        m.expect((uint64_t)count * NODE);
        m.work((uint64_t)count * 256);
    }
}

void check_pairs(const func_args &args)
{
    if (args.count() > 0 &&
        (args.get_pos(0)->val_arr.size() > MAX_PAIRS || args.get_pos(0)->val_obj.size() > MAX_PAIRS))
        throw bound_exceeded{"makes an object of more than " + std::to_string(MAX_PAIRS) + " pairs"};
}

/* A test of values, which have n_bytes of text together, by one value. */
void check_test(const std::string &test, const value &by, uint64_t n_values, uint64_t n_bytes, meter &m)
{
    const weight w = weigh(by, m);
    if (test == "divisibleby")
        check_divisor(by);
    m.work(n_values * (64 + w.bytes + 16 * w.nodes) + 4 * n_bytes);
    if (test == "in")
        m.work(is_val<value_string>(by) ? w.bytes * (n_bytes / 8) : n_bytes * w.nodes);
}

void check_select(const func_args &args, const weight &all, meter &m)
{
    const auto &list = args.get_args();
    const size_t at = list.size() > 3 ? 2 : 1; /* of the test's name */
    if (list.size() > 2 && is_val<value_string>(list[at]))
        check_test(list[at]->val_str.str(), list.back(), list[0]->val_arr.size(), all.bytes, m);
}

bool is_text(const func_args &args, size_t i)
{
    return i < args.count() && is_val<value_string>(args.get_args()[i]);
}

/* Whether the arguments of split are those that it documents; the engine refuses others. */
bool splits(const func_args &args)
{
    return is_text(args, 0) && args.count() <= 3 &&
           (args.count() < 2 || (is_text(args, 1) && args.get_args()[1]->val_str.length() > 0)) &&
           (args.count() < 3 || is_val<value_int>(args.get_args()[2]));
}

bool replaces(const func_args &args)
{
    return is_text(args, 0) && is_text(args, 1) && is_text(args, 2) &&
           (args.count() == 3 || (args.count() == 4 && is_val<value_int>(args.get_args()[3]) &&
                                  args.get_args()[3]->as_int() <= 0));
}

bool joins(const func_args &args)
{
    return is_val<value_array>(args.get_args()[0]) && args.count() <= 2 &&
           args.get_kwarg("attribute", mk_val<jinja::value_undefined>())->is_undefined() &&
           !is_container(args.get_kwarg_or_pos("d", 1));
}

bool one_of(const std::string &name, std::initializer_list<const char *> names)
{
    for (const char *n : names)
        if (name == n)
            return true;
    return false;
}

/* Methods that do not look into what a list, an object or a text holds. */
bool walks(const std::string &method)
{
    return one_of(method, {"length", "append", "pop", "first", "last", "get", "keys", "values", "items",
                           "list", "reverse", "map"});
}

/* The result of a method that we run in place of the engine; else nullptr. */
value make_method(const std::string &name, const func_args &args, const weight &all, meter &m)
{
    if (name == "replace" && replaces(args))
        return replace(args, m);
    if ((name == "split" || name == "rsplit") && splits(args))
        return split(args, name == "rsplit", m);
    if (name == "join" && joins(args))
        return join(args, all, m);
    return nullptr;
}

/* Methods whose work depends on more than the size of what they are given. */
void check_method(const std::string &name, const func_args &args, const weight &all, meter &m)
{
    const value &on = args.get_args()[0];
    if (is_val<value_array>(on) && name == "sort")
        check_sort(args, m);
    else if (is_val<value_object>(on) && name == "dictsort")
        check_dictsort(args, m);
    else if (is_val<value_string>(on) && name == "indent")
        check_indent(args, m);
    else if (is_val<value_array>(on) && one_of(name, {"select", "selectattr", "reject", "rejectattr"}))
        check_select(args, all, m);
    else if (one_of(name, {"strip", "lstrip", "rstrip"}) && args.count() > 1)
        m.work(all.bytes *
               ((all.bytes - on->val_str.length()) / 8)); /* each byte is sought among the others */
}

void check_function(const std::string &name, const func_args &args, const weight &all, meter &m)
{
    if (name == "range")
        check_range(args, m);
    else if (one_of(name, {"dict", "namespace"}))
        check_pairs(args);
    else if (name.compare(0, 8, "test_is_") == 0 && args.count() > 0)
        check_test(name.substr(8), args.get_args().back(), 1, all.bytes, m);
}

} // namespace

weight weigh(const value &v, meter &m)
{
    weight total;
    walk(total, m)(v, 0);
    return total;
}

void mark(const value &v)
{
    if (is_val<value_string>(v))
        v->val_str.mark_input();
    for (const value &item : v->val_arr)
        if (is_val<value_string>(item))
            item->val_str.mark_input();
}

value before_call(const std::string &name, bool method, const func_args &args, weight &all, meter &m)
{
    if (method && walks(name)) {
        const value &on = args.get_args()[0];
        const uint64_t n = on->val_arr.size() + on->val_obj.size();
        m.work(WALK * (n + 1) + 4 * on->val_str.length());
        m.expect(n * NODE);
        return nullptr;
    }
    walk add(all, m);
    for (const value &v : args.get_args()) {
        add(v, 0);
        m.work(4 * v->val_str.length());
    }
    if (method && args.count() > 0) {
        if (value made = make_method(name, args, all, m))
            return made;
        check_method(name, args, all, m);
    }
    if (one_of(name, {"tojson", "string", "safe"}))
        check_text(args, all, m);
    else if (!method)
        check_function(name, args, all, m);
    m.expect(2 * all.bytes + all.nodes * NODE);
    return nullptr;
}

void after_call(const std::string &name, size_t n_args, const weight &all, const value &result)
{
    if (!all.input)
        return;
    /* These hand on values that they were given, each with its marks. */
    if (one_of(name,
               {"default", "first",  "last",  "list",     "select",  "selectattr", "reject", "rejectattr",
                "map",     "append", "pop",   "sort",     "reverse", "min",        "max",    "get",
                "keys",    "values", "items", "dictsort", "dict",    "namespace"}) ||
        (name == "slice" && !is_val<value_string>(result)))
        return;
    /* These keep the marks of the parts of a text, but not those of a list that is made a text. */
    if (one_of(name, {"upper", "lower", "strip", "lstrip", "rstrip", "title", "capitalize", "string", "safe",
                      "format"}) &&
        all.nodes == n_args)
        return;
    mark(result);
}

void before_operator(const std::string &op, const value &a, const value &b, weight &all, meter &m)
{
    const weight left = weigh(a, m), right = weigh(b, m);
    all = {left.bytes + right.bytes, left.nodes + right.nodes, left.input || right.input};
    m.work(2 * all.bytes + 32 * all.nodes);
    if (op == "*" && (is_val<value_string>(a) || is_val<value_string>(b))) {
        const value &times = is_val<value_string>(a) ? b : a; /* the number */
        const uint64_t each = all.bytes + 64 * (a->val_str.parts.size() + b->val_str.parts.size());
        if (is_val<value_int>(times) && times->as_int() > 0) {
            const double total = (double)times->as_int() * (double)(each + 64);
            m.expect(total > 1e18 ? UINT64_MAX / 2 : (uint64_t)total);
        }
    } else if (op == "in" || op == "not in") {
        m.work(search_work(right.bytes, left.bytes) + right.nodes * (left.bytes + 16 * left.nodes));
    } else if (op == "+" || op == "~") {
        m.expect(6 * all.bytes + 64 * (a->val_str.parts.size() + b->val_str.parts.size()) +
                 (all.nodes > 2 ? 32 * all.nodes : 0) + 16 * (a->val_arr.size() + b->val_arr.size()));
    }
}

void after_operator(const value &a, const value &b, const weight &all, const value &result)
{
    if (all.input && (is_container(a) || is_container(b)) && is_val<value_string>(result))
        mark(result);
}

value time_function(int64_t now, meter &m)
{
    return mk_val<value_func>("strftime_now", [now, &m](const func_args &args) -> value {
        args.ensure_vals<value_string>();
        const std::string format = args.get_pos(0)->val_str.str();
        const std::time_t at = now != 0 ? (std::time_t)now : std::time(nullptr);
        struct tm parts;
        char text[256];
        m.work(format.size());
        if (!(now != 0 ? gmtime_r(&at, &parts) : localtime_r(&at, &parts)))
            throw std::runtime_error("a date that no calendar has");
        text[std::strftime(text, sizeof text, format.c_str(), &parts)] = '\0';
        return mk_val<value_string>(std::string(text));
    });
}

} // namespace wnw
