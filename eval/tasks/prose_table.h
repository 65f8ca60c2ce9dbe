/* SPDX-License-Identifier: MIT */
/*
 * What generated prose is made of. Slots of a sentence: {N} {N2} people, {T} a town, {a} {a2} adjectives, {n}
 * {n2} nouns, {v} a verb, {d} a manner, {c} a clause, {K} an opener. Lists are extended at their ends only,
 * with a new EVAL_PROSE_VERSION, because a change of their order changes every sample.
 */
/* clang-format off */
#ifndef WNW_EVAL_PROSE_TABLE_H
#define WNW_EVAL_PROSE_TABLE_H

static const char *const patterns[] = {
    "{N} walked past the {a} {n} near {T} and {c}.",
    "The {a} {n} beside the {n2} belonged to {N}, and {c}.",
    "In {T} people still talk about the {n} that {N} {v} one {a} evening.",
    "{K}, {N} {v} the {n} and put it next to a {a} {n2}.",
    "Nobody in {T} expected the {n} to look so {a}, least of all {N}.",
    "When the {n} was ready, {N} {v} it {d} and went home to {T}.",
    "A {a} {n} is worth more than a {a2} {n2}, at least according to {N}.",
    "{N} and {N2} {v} the same {n}, but {c}.",
    "There was a {n} in every window of {T}, and each one seemed {a}.",
    "{K}, the road to {T} led past a {a} {n} and an empty {n2}.",
    "Was the {n} really as {a} as {N} had claimed?",
    "{N} kept a {a} {n} on the shelf because {c}.",
    "The {n} stood {d} between the {n2} and the gate, {a} in the light.",
    "Before breakfast {N2} {v} the {n} that {N} had left in {T}.",
    "It takes a {a} mind to see why a {n} needs a {n2}, wrote {N}.",
    "{K}, everyone agreed that the {n} should stay in {T}.",
    "The letter from {T} described a {n}, a {n2} and a very {a} morning.",
    "{N} {v} the {n} {d}, then waited for {N2} to answer.",
    "Some say the {a} {n} came from {T}; others think {N} made it.",
    "If the {n} had been less {a}, {N} would never have {v} it.",
    "{N2} laughed at the {n}, yet {c}.",
    "Under the {n2} lay a {a} {n} that had once been used in {T}.",
    "{K}, {c}, and the {n} grew {a}.",
    "The {a} {n} and the {a2} {n2} were sold together in {T}.",
};

static const char *const clauses[] = {
    "the rain had not stopped since noon",
    "no one asked about the price",
    "the neighbours had seen it all before",
    "that was reason enough to stay",
    "the old plan no longer worked",
    "the children wanted to hear the story again",
    "a quiet answer seemed better than a loud one",
    "the {n} was already gone",
    "the {a} part came later",
    "{N} never mentioned {T} again",
    "it took most of the summer to finish",
    "the {n2} had to be moved first",
};

static const char *const openers[] = {
    "After a while",
    "Later that week",
    "As a rule",
    "To be fair",
    "Strangely enough",
    "By the end of spring",
    "Without much noise",
    "For once",
    "On most days",
    "At the edge of town",
};

static const char *const manners[] = {
    "slowly", "carefully", "at once", "without a word", "by chance", "with both hands",
    "for the second time", "in silence", "too early", "almost proudly",
};

static const char *const adjectives[] = {
    "amber", "brave", "calm", "dusty", "eager", "faint", "gentle", "hollow", "idle", "jagged", "keen",
    "lively", "mellow", "narrow", "odd", "plain", "quiet", "rough", "silent", "tidy", "upright",
    "vivid", "warm", "young", "bitter", "clumsy", "dull", "early", "fragile", "golden", "humble",
    "ivory", "jolly", "kind", "light", "modest", "noble", "open", "patient", "rare", "simple", "tall",
    "uneven", "vague", "wide", "broken", "careful", "distant", "elegant", "frozen", "grey", "heavy",
    "innocent", "loyal", "muddy", "nervous", "ordinary", "pale", "rusty", "steady",
};

static const char *const nouns[] = {
    "barrel", "basket", "bench", "blanket", "bottle", "bridge", "bucket", "cabin", "candle", "canvas",
    "carpet", "chair", "chimney", "clock", "compass", "cradle", "curtain", "drawer", "engine", "fence",
    "field", "flute", "garden", "hammer", "harbour", "helmet", "kettle", "ladder", "lantern", "ledger",
    "lever", "mirror", "napkin", "notebook", "oven", "paddle", "parcel", "pencil", "pillow", "pitcher",
    "pocket", "porch", "puzzle", "quilt", "ribbon", "river", "rope", "saddle", "sail", "sandal",
    "scarf", "shelter", "shovel", "sleeve", "spoon", "staircase", "statue", "stove", "table", "teapot",
    "ticket", "tower", "trunk", "tunnel", "umbrella", "valley", "vase", "village", "violin", "wagon",
    "wallet", "well", "wheel", "whistle", "window", "workshop", "yard",
};

static const char *const verbs[] = {
    "admired", "borrowed", "carried", "cleaned", "counted", "described", "dropped", "examined",
    "finished", "followed", "found", "guarded", "kept", "ignored", "inspected", "lifted", "moved",
    "named", "offered", "opened", "painted", "praised", "pushed", "repaired", "returned", "sold",
    "studied", "touched", "traded", "watched",
};

#endif
