/* SPDX-License-Identifier: MIT */
/* Lists of words and texts that samples are made of. They are files of eval/data/, from which cmake/lists.cmake makes code. */
#ifndef WNW_EVAL_LISTS_H
#define WNW_EVAL_LISTS_H

#include <stddef.h>

/* The versions change with the lists and are part of every run's description. */
#define EVAL_WORDS_VERSION "1"
#define EVAL_PROSE_VERSION "2" /* and with the grammar */

struct eval_list {
    const char *const *at; /* [n] */
    size_t n;
};

/* words.txt */
extern const struct eval_list eval_adjectives, eval_nouns, eval_verbs, eval_name_onsets, eval_word_onsets,
    eval_products;
/* prose.txt */
extern const struct eval_list eval_prose_patterns, eval_prose_clauses, eval_prose_openers, eval_prose_manners,
    eval_prose_adjectives, eval_prose_nouns, eval_prose_verbs;
/* suites.txt: the lines of suites and studies; the most tokens of short answers, "TASK N" */
extern const struct eval_list eval_suites, eval_short_answers;
/* grids.txt: lists of numbers that options name, "OPTION NAME NUMBER ..." */
extern const struct eval_list eval_grids;

/* forms.txt: how prompts are worded. Of the three texts of a form, some have a fourth, the needle. */
enum eval_form_text { EVAL_CONTEXT, EVAL_QUESTION, EVAL_PREFIX, EVAL_NEEDLE };
extern const struct eval_list eval_form_narrativeqa, eval_form_qasper, eval_form_multifieldqa_en,
    eval_form_multi_doc, eval_form_gov_report, eval_form_qmsum, eval_form_multi_news, eval_form_trec,
    eval_form_triviaqa, eval_form_samsum, eval_form_passage_count, eval_form_passage_retrieval_en,
    eval_form_lcc, eval_form_repobench_p, eval_form_scb_kv, eval_form_scb_mf, eval_form_scb_qa,
    eval_form_niah_one, eval_form_niah_several, eval_form_vt, eval_form_cwe, eval_form_fwe, eval_form_qa,
    eval_form_grid, eval_form_grid_famous, eval_form_grid_random, eval_form_passkey, eval_form_repeat,
    eval_form_steps, eval_form_call, eval_form_babi_person, eval_form_babi_thing, eval_form_babi_before,
    eval_form_scb_kv_syn, eval_form_scb_prefix_suffix_syn, eval_form_scb_mf_syn;

#endif
