/* SPDX-License-Identifier: MIT */
/* The forms of the perturbation study: summary.txt, perturbation.csv and report.html. */
#ifndef WNW_PERTURB_FORMS_H
#define WNW_PERTURB_FORMS_H

#include "eval/report/doc.h"
#include "perturb/numbers.h"

/* The numbers of a study with the names of what they are of. All pointers are borrowed. */
struct perturb_study {
    const struct perturb_numbers *numbers;
    const char *model;           /* its name */
    const char *const *policies; /* [numbers->n_policies] recipes, as people read them */
    const char *const *sizes;    /* [numbers->n_sizes] such as "ratio=0.8" */
    int32_t n_tokens, n_of_file; /* tokens of a text; texts that are pieces of a file */
    uint64_t seed;
    json_t *command; /* the arguments of the program; NULL = not known */
};

/* Each adds its form; a document that lacks memory says so. */
void perturb_text(struct eval_doc *d, const struct perturb_study *s);
void perturb_csv(struct eval_doc *d, const struct perturb_study *s);
/* NULL: out of memory. */
json_t *perturb_json(const struct perturb_study *s);
/* The page, which shows the numbers and the text; returns an exit code. */
int perturb_page(struct eval_doc *d, const struct perturb_study *s, json_t *numbers,
                 const struct eval_doc *text);

#endif
