/* SPDX-License-Identifier: MIT */
/* The forms of the perturbation study: summary.txt, perturbation.csv and report.html. */
#ifndef WNW_EVAL_PERTURB_FORMS_H
#define WNW_EVAL_PERTURB_FORMS_H

#include "eval/perturb/perturb.h"
#include "eval/report/doc.h"

/* The numbers of a study with the names of what they are of. All pointers are borrowed. */
struct eval_perturb_study {
    const struct eval_perturb *numbers;
    const char *model;           /* its name */
    const char *const *policies; /* [numbers->n_policies] recipes, as people read them */
    const char *const *sizes;    /* [numbers->n_sizes] such as "ratio=0.8" */
    int32_t n_tokens, n_of_file; /* tokens of a text; texts that are pieces of a file */
    uint64_t seed;
    json_t *command; /* the arguments of the program; NULL = not known */
};

/* Each adds its form; a document that lacks memory says so. */
void eval_perturb_text(struct eval_doc *d, const struct eval_perturb_study *s);
void eval_perturb_csv(struct eval_doc *d, const struct eval_perturb_study *s);
/* NULL: out of memory. */
json_t *eval_perturb_json(const struct eval_perturb_study *s);
/* The page; returns an exit code. */
int eval_perturb_page(struct eval_doc *d, const struct eval_perturb_study *s);

#endif
