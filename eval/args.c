/* SPDX-License-Identifier: MIT */
/* Options of the evaluation's sub-commands. */
#include "eval/args.h"

#define AT(field) offsetof(struct eval_args, field)

static const struct app_option score_options[] = {
    {"metric", 0, APP_TEXT, "NAME", NULL, "none, must be given", "metric; a wrong name lists them",
     AT(metric), 0, 0, NULL},
    {"input", 'i', APP_TEXT, "FILE", NULL, "none, must be given",
     "JSONL with \"pred\", \"refs\" and, for classification, \"classes\"", AT(input), 0, 0, NULL},
    {"json", 0, APP_FLAG, NULL, NULL, "off", "print one JSON object", AT(app.json), 0, 0, NULL},
};
APP_GROUP(eval_group_score, "Options", score_options);

static const struct app_option report_options[] = {
    {"out", 'o', APP_TEXT, "FILE", NULL, "report.html in DIR", "the HTML report", AT(app.out), 0, 0, NULL},
    {"compare", 0, APP_TEXT, "A,B", NULL, "none", "two policies against each other, on the same samples",
     AT(compare), 0, 0, NULL},
    {"fail-if", 0, APP_TEXT, "EXPR", NULL, "none",
     "a limit, e.g. 'macro_delta<-5@r=.5': exit code 4 if the whole interval lies beyond it; measures: "
     "macro_delta, "
     "macro, retention, fgt, agree, kl, dnll; behind @: r, policy, mode, kv, N",
     AT(fail_if), 0, 0, NULL},
    {"no-gate", 0, APP_FLAG, NULL, NULL, "off", "count tasks that the full cache cannot solve as well",
     AT(no_gate), 0, 0, NULL},
    {"json", 0, APP_FLAG, NULL, NULL, "off", "print one JSON object in place of the summary", AT(app.json), 0,
     0, NULL},
};
APP_GROUP(eval_group_report, "Options", report_options);

static const struct app_option action_options[] = {
    {"list", 0, APP_FLAG, NULL, NULL, "off", "print the tasks and the metrics", AT(list), 0, 0, NULL},
    {"dump-samples", 0, APP_FLAG, NULL, NULL, "off", "print the samples as JSONL", AT(dump), 0, 0, NULL},
};
APP_GROUP(eval_group_action, "What to do", action_options);

static const struct app_option tasks_options[] = {
    {"model", 'm', APP_TEXT, "MODEL", "smollm2-135m", NULL,
     "GGUF file, or a name from `winnow models`: its tokenizer", AT(app.model), 0, 0, NULL},
    {"tasks", 0, APP_TEXT, "LIST", NULL, "none", "names or groups of tasks", AT(tasks), 0, 0, NULL},
    {"lengths", 0, APP_TEXT, "LIST", "2048", NULL,
     "lengths in tokens, prompt and answer together; s = 512,1024,2048, c32 = 2000 to 32000, c128 = 8000 to "
     "128000",
     AT(lengths), 0, 0, NULL},
    {"samples", 0, APP_INT, "K", "20", NULL, "samples of each task and length", AT(samples), 1, 899999,
     "1 to 899999"},
    {"depths", 0, APP_TEXT, "LIST", "lin10", NULL,
     "depths of tasks on a grid in per cent, or lin5, lin10, sigmoid; these tasks have a sample for each and "
     "each trial",
     AT(depths), 0, 0, NULL},
    {"trials", 0, APP_INT, "T", "1", NULL, "samples of each depth", AT(trials), 1, 1000, "1 to 1000"},
    {"needle", 0, APP_TEXT, "KIND", "rand", NULL,
     "sentence of niah_grid: rand (made up), num (a number) or sf (the famous one)", AT(needle), 0, 0, NULL},
    {"haystack", 0, APP_TEXT, "TEXT", "prose", NULL,
     "what needles are hidden in: prose (generated), noise, a text or a folder of *.txt", AT(haystack), 0, 0,
     NULL},
    {"squad", 0, APP_TEXT, "FILE", NULL, "none", "documents and questions of qa_1, JSONL", AT(squad), 0, 0,
     NULL},
    {"hotpot", 0, APP_TEXT, "FILE", NULL, "none", "documents and questions of qa_2, JSONL", AT(hotpot), 0, 0,
     NULL},
    {"longbench", 0, APP_TEXT, "DIR", NULL, "none", "folder with NAME.jsonl of LongBench's sets",
     AT(longbench), 0, 0, NULL},
    {"scbench", 0, APP_TEXT, "DIR", NULL, "none",
     "folder with scbench_kv.jsonl, scbench_mf.jsonl, scbench_qa_eng.jsonl", AT(scbench), 0, 0, NULL},
    {"lb-max-prompt", 0, APP_INT, "N", NULL,
     "31500 or 127500 for 32K or 128K models, else what the context leaves",
     "tokens of a prompt from a file; longer ones lose their middle", AT(max_prompt), 16, 16777216,
     "16 to 16777216"},
    {"chat", 0, APP_TEXT, "NAME", "auto", NULL,
     "chat template: auto (the model's own), none (plain text), or one of libllama's, e.g. chatml",
     AT(app.chat), 0, 0, NULL},
    {"seed", 0, APP_INT, "S", "42", NULL, "seed of the samples", AT(app.seed), 0, 4294967295.0,
     "0 to 4294967295"},
};
APP_GROUP(eval_group_tasks, "Samples", tasks_options);
