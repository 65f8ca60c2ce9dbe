/* SPDX-License-Identifier: MIT */
#include "text/jinja_bounds.h"
#include "text/jinja_calls.h"

#include <algorithm>
#include <memory>
#include <new>
#include <type_traits>

namespace wnw
{

using jinja::context;
using jinja::func_args;
using jinja::is_stmt;
using jinja::is_val;
using jinja::mk_val;
using jinja::statement_ptr;
using jinja::statements;
using jinja::value;
using jinja::value_func;
using jinja::value_string;

namespace
{

class level
{
  public:
    explicit level(meter &m) : m_(m)
    {
        m.step();
        m.enter(__builtin_frame_address(0));
    }
    ~level()
    {
        m_.leave();
    }
    level(const level &) = delete;
    level &operator=(const level &) = delete;

  private:
    meter &m_;
};

/* A node of winnow's that holds and replaces one of the engine's. */
class watched : public jinja::expression
{
  public:
    watched(statement_ptr &&node, meter &meter_of) : inner(std::move(node)), m(meter_of)
    {
        pos = inner->pos;
    }
    std::string type() const override
    {
        return inner->type();
    }
    value execute_impl(context &ctx) const override
    {
        try {
            const level here(m);
            value v = evaluate(ctx);
            m.made(v);
            return v;
        } catch (const std::bad_alloc &) {
            throw no_memory{};
        }
    }

  protected:
    virtual value evaluate(context &ctx) const
    {
        return inner->execute_impl(ctx);
    }
    statement_ptr inner;
    meter &m;
};

/* A part of a block: what it gives is written, lists item by item. That happens at once, because a list can change later. */
class written : public watched
{
    using watched::watched;
    value evaluate(context &ctx) const override
    {
        value v = watched::evaluate(ctx);
        if (!is_container(v))
            return v;
        const weight all = weigh(v, m);
        m.expect(all.bytes + PART_BYTES * all.nodes);
        return jinja::runtime::gather_string_parts(v);
    }
};

/* A key of an object, which the engine hashes with all that it holds. */
class key : public watched
{
    using watched::watched;
    value evaluate(context &ctx) const override
    {
        value v = watched::evaluate(ctx);
        m.work(weigh(v, m).bytes);
        return v;
    }
};

/* What a loop goes through. Each round makes scopes, and a scope is a copy of all names. */
class looped : public watched
{
    using watched::watched;
    value evaluate(context &ctx) const override
    {
        value v = watched::evaluate(ctx);
        const uint64_t n = v->val_arr.size() + v->val_obj.size(), round = 3 + m.names / 8;
        m.step((n + 1) * round);
        m.expect(n * VALUE_BYTES);
        return v;
    }
};

/* A statement that copies a scope or looks through all names of one. */
class scoped : public watched
{
    using watched::watched;
    value evaluate(context &ctx) const override
    {
        m.step(1 + m.names / 8);
        return watched::evaluate(ctx);
    }
};

/* A call of a function that the engine has bound or that a macro is. */
value call(const value &function, const func_args &args, meter &m)
{
    const auto *f = jinja::cast_val<value_func>(function);
    const bool method = f->arg0 != nullptr;
    const size_t n_args = args.count() + (method ? 1 : 0);
    func_args all_args(args);
    weight all;
    if (method)
        all_args.push_front(f->arg0);
    m.step(2 + m.names / 8);
    value v = before_call(f->name, method, all_args, all, m);
    if (v)
        return v;
    v = function->invoke(args);
    if (method || f->name == "strftime_now" || f->name == "tojson")
        after_call(f->name, n_args, all, v);
    return v;
}

/* What is called. It gives a function that is watched in the place of the engine's. */
class called : public watched
{
    using watched::watched;
    value evaluate(context &ctx) const override
    {
        const value function = watched::evaluate(ctx);
        if (!is_val<value_func>(function))
            return function;
        m.made(function);
        meter &of = m;
        return mk_val<value_func>(
            jinja::cast_val<value_func>(function)->name,
            [function, &of](const func_args &args) -> value { return call(function, args, of); });
    }
};

/* Hands a value that was computed before to a node of the engine's. */
class slot : public jinja::expression
{
  public:
    std::string type() const override
    {
        return "Value";
    }
    value execute_impl(context &) const override
    {
        return held;
    }
    mutable value held;
};

/* A child of a node, evaluated by us so that the value can be looked at before the engine uses it. */
class operand
{
  public:
    /* Takes the child out of its place and leaves a slot there. */
    void take(statement_ptr &place)
    {
        if (!place)
            return;
        child_ = std::move(place);
        auto hold = std::make_unique<slot>();
        hold->pos = child_->pos;
        slot_ = hold.get();
        place = std::move(hold);
    }
    explicit operator bool() const
    {
        return child_ != nullptr;
    }
    value get(context &ctx) const
    {
        return child_->execute(ctx);
    }
    void give(const value &v) const
    {
        if (slot_)
            slot_->held = v;
    }

  private:
    statement_ptr child_;
    const slot *slot_ = nullptr;
};

/* An operator that needs both values. */
class binary : public watched
{
  public:
    binary(statement_ptr &&node, meter &meter_of) : watched(std::move(node), meter_of)
    {
        auto *b = static_cast<jinja::binary_expression *>(inner.get());
        op_ = b->op.value;
        left_.take(b->left);
        right_.take(b->right);
    }

  private:
    value evaluate(context &ctx) const override
    {
        weight all;
        const value a = left_.get(ctx), b = right_.get(ctx);
        before_operator(op_, a, b, all, m);
        left_.give(a);
        right_.give(b);
        const value v = inner->execute_impl(ctx);
        left_.give(nullptr);
        right_.give(nullptr);
        after_operator(a, b, all, v);
        return v;
    }

    std::string op_;
    operand left_, right_;
};

/* Something applied to a value: a filter or a test, with or without arguments. */
class applied : public watched
{
  public:
    applied(statement_ptr &&node, statement_ptr &on, statement_ptr &what, const char *prefix, meter &meter_of)
        : watched(std::move(node), meter_of)
    {
        on_.take(on);
        const jinja::identifier *id = jinja::cast_stmt<jinja::identifier>(what);
        if (auto *c = jinja::cast_stmt<jinja::call_expression>(what)) {
            id = jinja::cast_stmt<jinja::identifier>(c->callee);
            args_.resize(c->args.size());
            for (size_t i = 0; i < args_.size(); i++)
                args_[i].take(c->args[i]);
        }
        method_ = !*prefix;
        name_ = id ? std::string(prefix) + id->val : "";
        if (name_ == "trim") /* names that the engine knows under others */
            name_ = "strip";
    }

  private:
    value evaluate(context &ctx) const override
    {
        func_args args(ctx);
        args.push_back(on_.get(ctx));
        for (const operand &arg : args_)
            args.push_back(arg.get(ctx));
        weight all;
        value v = before_call(name_, method_, args, all, m);
        if (v)
            return v;
        give(args.get_args().data());
        v = inner->execute_impl(ctx);
        give(nullptr);
        after_call(name_, args.count(), all, v);
        return v;
    }

    void give(const value *values) const
    {
        on_.give(values ? values[0] : nullptr);
        for (size_t i = 0; i < args_.size(); i++)
            args_[i].give(values ? values[i + 1] : nullptr);
    }

    operand on_;
    std::vector<operand> args_;
    std::string name_;
    bool method_ = true;
};

/* value[key], value[from:to:step] and value.name. */
class member : public watched
{
  public:
    member(statement_ptr &&node, meter &meter_of) : watched(std::move(node), meter_of)
    {
        auto *e = static_cast<jinja::member_expression *>(inner.get());
        object_.take(e->object);
    }

  private:
    value evaluate(context &ctx) const override
    {
        const value object = object_.get(ctx);
        const bool text = is_val<value_string>(object);
        m.work(text ? 4 * object->val_str.length() + object->val_str.parts.size()
                    : 16 * object->val_arr.size());
        object_.give(object);
        const value v = inner->execute_impl(ctx);
        object_.give(nullptr);
        if (text && is_val<value_string>(v) && v != object && weigh(object, m).input)
            mark(v); /* a character, or a slice of a text that only in part is input */
        return v;
    }

    operand object_;
};

/* ---- Putting them in ---- */

class instrument
{
  public:
    explicit instrument(meter &m) : m_(m)
    {
    }

    void block(statements &body)
    {
        for (statement_ptr &s : body)
            put<written>(s);
    }

  private:
    template <typename T> void put(statement_ptr &p)
    {
        if (!p)
            return;
        children(*p);
        const jinja::statement *before = p.get();
        p = specific(std::move(p));
        if (p.get() == before || !std::is_same<T, watched>::value) /* a specific node counts by itself */
            p = std::make_unique<T>(std::move(p), m_);
    }

    void each(statements &list)
    {
        for (statement_ptr &s : list)
            put<watched>(s);
    }

    /* Parameters of a macro: names, some with a default. The engine knows the latter by their type. */
    void parameters(statements &list)
    {
        for (statement_ptr &s : list) {
            m_.names++;
            if (auto *kw = jinja::cast_stmt<jinja::keyword_argument_expression>(s))
                put<watched>(kw->val);
        }
    }

    /* A filter's or test's name with arguments, which stays what the engine expects. */
    void arguments(statement_ptr &p)
    {
        if (auto *c = jinja::cast_stmt<jinja::call_expression>(p))
            each(c->args);
    }

    /* Nodes whose operands we evaluate ourselves. Their children are put in already. */
    statement_ptr specific(statement_ptr &&p)
    {
        if (auto *b = jinja::cast_stmt<jinja::binary_expression>(p)) {
            if (b->op.value != "and" && b->op.value != "or") /* these may leave the right side out */
                return std::make_unique<binary>(std::move(p), m_);
        } else if (auto *f = jinja::cast_stmt<jinja::filter_expression>(p)) {
            return std::make_unique<applied>(std::move(p), f->operand, f->filter, "", m_);
        } else if (auto *t = jinja::cast_stmt<jinja::test_expression>(p)) {
            return std::make_unique<applied>(std::move(p), t->operand, t->test, "test_is_", m_);
        } else if (is_stmt<jinja::member_expression>(p)) {
            return std::make_unique<member>(std::move(p), m_);
        } else if (is_stmt<jinja::set_statement>(p) || is_stmt<jinja::macro_statement>(p) ||
                   is_stmt<jinja::call_statement>(p) || is_stmt<jinja::for_statement>(p)) {
            return std::make_unique<scoped>(std::move(p), m_);
        } else if (auto *s = jinja::cast_stmt<jinja::filter_statement>(p)) {
            return filtered_block(*s);
        }
        return std::move(p);
    }

    /* {% filter f %}body{% endfilter %} as the filter of a block that is always taken: one path for all filters. */
    statement_ptr filtered_block(jinja::filter_statement &s)
    {
        auto body = std::make_unique<jinja::if_statement>(std::make_unique<jinja::integer_literal>(1),
                                                          std::move(s.body), statements());
        body->pos = body->test->pos = s.pos;
        statement_ptr on = std::make_unique<watched>(std::move(body), m_);
        auto filter = std::make_unique<jinja::filter_expression>(std::move(on), std::move(s.filter));
        filter->pos = s.pos;
        jinja::filter_expression *f = filter.get();
        return std::make_unique<applied>(std::move(filter), f->operand, f->filter, "", m_);
    }

    void children(jinja::statement &node)
    {
        if (auto *i = dynamic_cast<jinja::if_statement *>(&node)) {
            put<watched>(i->test);
            block(i->body);
            block(i->alternate);
        } else if (auto *f = dynamic_cast<jinja::for_statement *>(&node)) {
            loop(*f);
        } else if (auto *s = dynamic_cast<jinja::set_statement *>(&node)) {
            m_.names++;
            if (auto *of = jinja::cast_stmt<jinja::member_expression>(s->assignee))
                put<watched>(of->object);
            else if (auto *tuple = jinja::cast_stmt<jinja::tuple_literal>(s->assignee))
                m_.names += tuple->val.size();
            put<watched>(s->val);
            block(s->body);
        } else if (auto *mac = dynamic_cast<jinja::macro_statement *>(&node)) {
            m_.names++;
            parameters(mac->args);
            block(mac->body);
        } else if (auto *c = dynamic_cast<jinja::call_statement *>(&node)) {
            children(*c->call);
            parameters(c->caller_args);
            block(c->body);
        } else if (auto *fs = dynamic_cast<jinja::filter_statement *>(&node)) {
            arguments(fs->filter);
            block(fs->body);
        } else {
            children_of_expression(node);
        }
    }

    void loop(jinja::for_statement &f)
    {
        auto *tuple = jinja::cast_stmt<jinja::tuple_literal>(f.loopvar);
        m_.names += tuple ? tuple->val.size() : 1;
        if (auto *chosen = jinja::cast_stmt<jinja::select_expression>(f.iterable)) {
            put<looped>(chosen->lhs);
            put<watched>(chosen->test);
        } else {
            put<looped>(f.iterable);
        }
        block(f.body);
        block(f.default_block);
    }

    void children_of_expression(jinja::statement &node)
    {
        if (auto *b = dynamic_cast<jinja::binary_expression *>(&node)) {
            put<watched>(b->left);
            put<watched>(b->right);
        } else if (auto *f = dynamic_cast<jinja::filter_expression *>(&node)) {
            put<watched>(f->operand);
            arguments(f->filter);
        } else if (auto *t = dynamic_cast<jinja::test_expression *>(&node)) {
            put<watched>(t->operand);
            arguments(t->test);
        } else if (auto *s = dynamic_cast<jinja::select_expression *>(&node)) {
            put<watched>(s->lhs);
            put<watched>(s->test);
        } else if (auto *u = dynamic_cast<jinja::unary_expression *>(&node)) {
            put<watched>(u->argument);
        } else if (auto *c = dynamic_cast<jinja::call_expression *>(&node)) {
            put<called>(c->callee);
            each(c->args);
        } else if (auto *three = dynamic_cast<jinja::ternary_expression *>(&node)) {
            put<watched>(three->condition);
            put<watched>(three->true_expr);
            put<watched>(three->false_expr);
        } else if (auto *e = dynamic_cast<jinja::member_expression *>(&node)) {
            put<watched>(e->object);
            property(*e);
        } else if (auto *kw = dynamic_cast<jinja::keyword_argument_expression *>(&node)) {
            put<watched>(kw->val);
        } else if (auto *a = dynamic_cast<jinja::array_literal *>(&node)) {
            each(a->val);
        } else if (auto *tuple = dynamic_cast<jinja::tuple_literal *>(&node)) {
            each(tuple->val);
        } else if (auto *o = dynamic_cast<jinja::object_literal *>(&node)) {
            m_.names += o->val.size();
            for (auto &pair : o->val) {
                put<key>(pair.first);
                put<watched>(pair.second);
            }
        }
        /* All others are leaves. */
    }

    void property(jinja::member_expression &e)
    {
        if (auto *s = jinja::cast_stmt<jinja::slice_expression>(e.property)) {
            put<watched>(s->start_expr);
            put<watched>(s->stop_expr);
            put<watched>(s->step_expr);
        } else if (e.computed) {
            put<key>(e.property);
        }
    }

    meter &m_;
};

} // namespace

void bound(jinja::program &program, meter &m)
{
    instrument(m).block(program.body);
}

} // namespace wnw
