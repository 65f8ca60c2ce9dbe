/* SPDX-License-Identifier: MIT */
/* Pages that come with the program, with the data that their scripts draw (decision 051). */
#ifndef WNW_APP_PAGE_H
#define WNW_APP_PAGE_H

#include "app/text.h"

#include <jansson.h>
#include <stdbool.h>

/* Adds the shipped page share/TAIL to a text, with `data` in its element "data". Returns an exit code: bad input where the
 * page is not where it was installed, or is another file. */
int app_page_make(struct app_text *t, const char *tail, const json_t *data);

/* Adds a page of n bytes to a text, with `data` in its element "data". *placed: it has such an element. False: it has not, or memory runs
 * out. */
bool app_page_fill(struct app_text *t, const char *page, size_t n, const json_t *data, bool *placed);

/* A copy in which every path in a text, from the root or from a folder such as ~ or .., is its last name alone: a page is given to
 * others, who need not know how its author's folders are called. NULL if memory runs out. */
json_t *app_page_without_paths(const json_t *o);
/* The last name of a path, in which bytes that are not UTF-8 become U+FFFD. NULL if memory runs out. */
json_t *app_page_name_of_path(const char *path);

/* Adds JSON as the text of an element <script type="application/json">: no byte of it can end the element, or mean anything
 * but JSON to any reader. False if memory runs out. */
bool app_page_data(struct app_text *t, const char *json);

#endif
