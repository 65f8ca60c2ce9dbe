/* SPDX-License-Identifier: MIT */
/* Slots of recipes, and the shortest recipe of a policy. */
#include "asserts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peek_plan.h"
#include "plans.h"
#include "winnow_method.h"

/* ---- Slots ---- */

static char *canonical(const char *recipe)
{
    wnw_policy *p = test_policy(recipe);
    char *text = strdup(wnw_policy_string(p));
    assert_non_null(text);
    wnw_policy_free(p);
    return text;
}

static void assert_equal_recipes(const char *a, const char *b)
{
    char *x = canonical(a), *y = canonical(b);
    assert_string_equal(x, y);
    free(x);
    free(y);
}

static void a_part_may_name_its_slot(void **state)
{
    (void)state;
    assert_equal_recipes("snapkv:window=32+head=adakv+select=topk", "snapkv:window=32+adakv+topk");
    assert_equal_recipes("knorm+layer=pyramid:beta=10", "knorm+pyramid:beta=10");
    assert_equal_recipes("tova+aggregate=layer_mean+positions=original", "tova+layer_mean+original");
    assert_equal_recipes("snapkv+contents=merge", "snapkv+merge");
    /* The scorer by itself, without what the preset of its name says. */
    assert_equal_recipes("score=knorm", "knorm");
    assert_equal_recipes("score=lagkv+topk", "lagkv+topk");
}

static void wrong_slots_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *recipe, *says;
    } rows[] = {
        {"snapkv+layer=adakv", "adakv is a head budget and no part for the slot layer; write head=adakv"},
        {"snapkv+score=adakv", "write head=adakv"},
        {"snapkv+haed=adakv", "a policy has no slot \"haed\"; did you mean \"head\"?"},
        {"snapkv+window=8", "a policy has no slot \"window\""},
        {"snapkv+=adakv", "a policy has no slot \"\""},
        {"snapkv+head=", "unknown policy part \"\""},
        {"head=snapkv", "snapkv is a scorer and no part for the slot head; write score=snapkv"},
        {"head=adakv", "a recipe starts with a preset or a scorer"},
        {"wrong=snapkv", "a policy has no slot \"wrong\""},
        {"score=kvpress-snapkv", "is a preset and fills several slots; write it without score="},
        {"snapkv+head=adakv+adakv", "two parts of one kind"},
        {"snapkv+head=head=adakv", "unknown policy part \"head=adakv\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wnw_policy *p = (wnw_policy *)(void *)&p;
        assert_error(wnw_policy_parse(&p, rows[i].recipe, NULL), WNW_E_ARG);
        assert_null(p);
        if (!strstr(wnw_last_error(), rows[i].says))
            fail_msg("%s: \"%s\" does not say \"%s\"", rows[i].recipe, wnw_last_error(), rows[i].says);
    }
}

/* Otherwise "head=x" could be an option of a part, or "head" a part, in some reader's eyes. */
static void slots_are_no_other_names(void **state)
{
    (void)state;
    wnw_method_info info = {WNW_INIT(wnw_method_info)};
    int32_t n_slot = 0;
    while (wnw__slot_name(n_slot))
        n_slot++;
    assert_int_equal(n_slot, WNW_N_PART_KINDS);
    for (int32_t i = 0; wnw_method_get(i, &info); i++)
        for (int32_t k = 0; k < n_slot; k++) {
            assert_string_not_equal(info.name, wnw__slot_name(k));
            for (const wnw_option *o = info.options; o && o->name; o++)
                assert_string_not_equal(o->name, wnw__slot_name(k));
        }
}

/* ---- The shortest form ---- */

static char *shortest(const char *recipe)
{
    wnw_policy *p = NULL;
    char *text = NULL;
    p = test_policy(recipe);
    assert_ok(wnw_policy_short(p, &text));
    wnw_policy_free(p);
    return text;
}

static bool is_same(const char *recipe, const char *canon)
{
    wnw_policy *p = NULL;
    const bool same =
        wnw_policy_parse(&p, recipe, NULL) == WNW_OK && strcmp(wnw_policy_string(p), canon) == 0;
    wnw_policy_free(p);
    return same;
}

/* Without text[from .. to - 1], and without a ":" that would have nothing after it. */
static void without(const char *text, size_t from, size_t to, char *out)
{
    memcpy(out, text, from);
    strcpy(out + from, text + to);
    for (char *c = out; *c; c++)
        if (*c == ':' && (c[1] == '\0' || c[1] == '+'))
            memmove(c, c + 1, strlen(c));
        else if (*c == ':' && c[1] == ',')
            memmove(c + 1, c + 2, strlen(c + 1));
}

/* Parses to the same, and nothing of it can be left out. */
static void check_shortest(const char *recipe)
{
    char *canon = canonical(recipe), *text = shortest(recipe), less[1024];
    assert_in_range(strlen(text), 1, strlen(canon));
    if (!is_same(text, canon))
        fail_msg("%s: %s is another policy", recipe, text);
    for (size_t at = 0; text[at]; at++) {
        const size_t part = strcspn(text + at + 1, "+"), option = strcspn(text + at + 1, ",+");
        if (text[at] == '+')
            without(text, at, at + 1 + part, less);
        else if (text[at] == ':' || text[at] == ',')
            without(text, at + (text[at] == ':'), at + 1 + option, less);
        else
            continue;
        if (is_same(less, canon))
            fail_msg("%s: %s is the same as %s", recipe, less, text);
    }
    free(canon);
    free(text);
}

static void of_every_preset(void **state)
{
    (void)state;
    wnw_method_info info = {WNW_INIT(wnw_method_info)};
    int n = 0;
    for (int32_t i = 0; wnw_method_get(i, &info); i++) {
        if (!strstr(info.kind, "preset") && strcmp(info.kind, "scorer") != 0)
            continue;
        check_shortest(info.name);
        n++;
    }
    assert_in_range(n, 60, 500);
}

/* Of the parts of each kind, every combination in turn, some of them at a time. */
static void of_combined_parts(void **state)
{
    (void)state;
    int tried = 0, parsed = 0;
    const wnw_part *a, *b, *c, *d;
    for (int32_t i = 0; (a = wnw__part_get(i)); i++)
        for (int32_t j = 0; a->kind == WNW_PART_SCORER && (b = wnw__part_get(j)); j++)
            for (int32_t k = 0; b->kind == WNW_PART_LAYER_BUDGET && (c = wnw__part_get(k)); k++)
                for (int32_t l = 0; c->kind == WNW_PART_HEAD_BUDGET && (d = wnw__part_get(l)); l++) {
                    char recipe[256];
                    wnw_policy *p = NULL;
                    if (d->kind != WNW_PART_SELECTOR || ++tried % 7 != 0)
                        continue;
                    snprintf(recipe, sizeof recipe, "score=%s+%s+%s+%s", a->name, b->name, c->name, d->name);
                    if (wnw_policy_parse(&p, recipe, NULL) != WNW_OK)
                        continue;
                    wnw_policy_free(p);
                    check_shortest(recipe);
                    parsed++;
                }
    print_message("%d of %d combinations tried\n", parsed, tried);
    assert_in_range(parsed, 20, tried);
}

static void texts_that_people_read(void **state)
{
    (void)state;
    static const struct {
        const char *recipe, *want;
    } rows[] = {
        {"snapkv", "snapkv"},
        {"snapkv:window=32+head=adakv+select=topk", "adakv"},
        {"snapkv:window=16+uniform+equal", "snapkv:window=16"},
        {"knorm+pyramid:beta=20", "knorm+pyramid"},
        {"knorm+pyramid:beta=10", "knorm+pyramid:beta=10"},
        {"keydiff+shares", "keydiff-shares"},
        {"keydiff+shares:last=32,room=0.3", "keydiff-shares:last=32,room=0.3"},
        {"kvgate+shares:last=32", "kvgate+shares:last=32"},
        {"compresskv+retrieval_heads:k=4,heads=all", "compresskv:k=4,heads=all"},
        {"snapkv:pool=avg", "snapkv:pool=avg"},
        {"full", "full"},
        /* Not as dms+random_shares and lukv:epsilon=0+shares, which name other methods. */
        {"keydiff+random_shares", "keydiff+random_shares"},
        {"expected_attention+shares", "expected_attention+shares"},
        /* The scorer inputgate is no method by its own name. */
        {"kvzap:recent=32,room=0.3+shares", "kvzap:recent=32,room=0.3+shares"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wnw_policy *p = NULL;
        if (wnw_policy_parse(&p, rows[i].recipe, NULL) != WNW_OK)
            continue;
        wnw_policy_free(p);
        char *text = shortest(rows[i].recipe);
        assert_string_equal(text, rows[i].want);
        free(text);
    }
    char *none = (char *)(void *)&none;
    assert_error(wnw_policy_short(NULL, &none), WNW_E_ARG);
    assert_null(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_part_may_name_its_slot), cmocka_unit_test(wrong_slots_are_refused),
        cmocka_unit_test(slots_are_no_other_names), cmocka_unit_test(of_every_preset),
        cmocka_unit_test(of_combined_parts),        cmocka_unit_test(texts_that_people_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
