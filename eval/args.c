/* SPDX-License-Identifier: MIT */
/* Options of the evaluation's sub-commands. */
#include "eval/args.h"

#include "eval/results/map.h"

#define AT(field) offsetof(struct eval_args, field)
/* A text that may be missing, with what holds then; one that has a default; a flag. */
#define TEXT(name, meta, otherwise, field, about)                              \
    {                                                                          \
        name, 0, APP_TEXT, meta, NULL, otherwise, about, AT(field), 0, 0, NULL \
    }
#define WORD(name, meta, value, field, about)                              \
    {                                                                      \
        name, 0, APP_TEXT, meta, value, NULL, about, AT(field), 0, 0, NULL \
    }
#define FLAG(name, field, about)                                          \
    {                                                                     \
        name, 0, APP_FLAG, NULL, NULL, NULL, about, AT(field), 0, 0, NULL \
    }

static const struct app_option score_options[] = {
    TEXT("metric", "NAME", "must be given", metric, "metric; a wrong name lists them"),
    {"input", 'i', APP_TEXT, "FILE", NULL, "must be given",
     "JSONL with \"pred\", \"refs\" and, for classification, \"classes\"", AT(input), 0, 0, NULL},
    FLAG("json", app.json, "print one JSON object"),
};
APP_GROUP(eval_group_score, "Options", score_options);

static const struct app_option report_options[] = {
    {"out", 'o', APP_TEXT, "FILE", NULL, "report.html in DIR", "the HTML report", AT(app.out), 0, 0, NULL},
    TEXT("compare", "A,B", NULL, compare, "two policies against each other, on the same samples"),
    TEXT("fail-if", "EXPR", NULL, fail_if,
         "exit with code 4 if a whole interval is beyond this limit, e.g. 'macro_delta<-5@r=.5'; measures: "
         "macro_delta, macro, retention, fgt, agree, kl, dnll; after @: r, policy, mode, kv, N"),
    TEXT("niah-score", "NAME", "score; the usual ones in the HTML report", niah_score,
         "what maps by depth and length show: " EVAL_MAP_NAMES),
    FLAG("no-gate", no_gate, "count tasks that the full cache cannot solve as well"),
    FLAG("json", app.json, "print one JSON object instead of the summary"),
};
APP_GROUP(eval_group_report, "Options", report_options);

static const struct app_option action_options[] = {
    FLAG("list", list, "print the tasks and the metrics"),
    FLAG("dump-samples", dump, "print the samples as JSONL"),
    TEXT("out", "DIR", "eval-MODEL-TIME", app.out,
         "answer the samples and write the results to this folder; an interrupted run continues there"),
};
APP_GROUP(eval_group_action, "What to do", action_options);

static const struct app_option tasks_options[] = {
    {"model", 'm', APP_TEXT, "MODEL", "smollm2-135m", NULL,
     "GGUF file, or a name from `winnow models`; its tokenizer counts the lengths", AT(app.model), 0, 0,
     NULL},
    TEXT("suite", "NAME", NULL, suite,
         "a set of tasks, lengths and samples: tiny-ci, smoke, small, full or equal_bytes"),
    TEXT("study", "NAME", NULL, study,
         "the experiment of one paper: compresskv, kvcompose and others, see --list; other options replace "
         "its lists"),
    TEXT("tasks", "LIST", NULL, tasks, "names or groups of tasks"),
    TEXT("lengths", "LIST", "2048; of texts the context, where it is shorter", lengths,
         "lengths in tokens, prompt and answer together; s = 512,1024,2048, c32 = 2000 to 32000, c128 = 8000 "
         "to 128000"),
    {"samples", 0, APP_INT, "K", NULL, "20, or the suite's; of texts all pieces",
     "samples of each task and length", AT(samples), 1, 899999, "1 to 899999"},
    TEXT("depths", "LIST", "lin10, or the suite's", depths,
         "depths of tasks on a grid in per cent, or lin5, lin10, sigmoid; such a task has one sample per "
         "depth and trial"),
    {"trials", 0, APP_INT, "T", NULL, "1, or the suite's", "samples of each depth", AT(trials), 1, 1000,
     "1 to 1000"},
    WORD("needle", "KIND", "rand", needle,
         "sentence of niah_grid: rand (made up), num (a number), words (two words) or sf (the famous one)"),
    WORD("niah-compat", "SOURCE", "none", niah_compat,
         "compresskv: niah_grid's prompts begin with the text '<|im_start|> ', as in that paper's code"),
    WORD("haystack", "TEXT", "prose", haystack,
         "text that needles are hidden in: prose (generated), noise, a text file or a folder of *.txt"),
    TEXT("squad", "FILE", NULL, squad, "documents and questions of qa_1, JSONL"),
    TEXT("hotpot", "FILE", NULL, hotpot, "documents and questions of qa_2, JSONL"),
    TEXT("documents", "DIR", NULL, documents,
         "folder of task doc_qa: documents *.txt, and questions.jsonl with \"document\", \"question\", "
         "\"answers\"; all questions without --samples"),
    TEXT("longbench", "DIR", NULL, longbench, "folder with NAME.jsonl of LongBench's sets"),
    TEXT("scbench", "DIR", NULL, scbench,
         "folder with scbench_kv.jsonl, scbench_mf.jsonl, scbench_qa_eng.jsonl"),
    TEXT("jsonl", "FILE", NULL, jsonl,
         "your own questions (task user), JSONL: \"context\", \"question\", \"answers\"; the whole file "
         "without --samples"),
    TEXT("text", "FILE", NULL, text,
         "text of task ppl: the second half of each piece is compared after the compressed first half"),
    {"lb-max-prompt", 0, APP_INT, "N", NULL,
     "31500 or 127500 for 32K or 128K models, else what the context leaves; none for --jsonl",
     "tokens of a prompt from a file; longer ones lose their middle", AT(max_prompt), 16, 16777216,
     "16 to 16777216"},
    WORD("chat", "NAME", "auto", app.chat,
         "chat template: auto (the model's own, or plain text where a study has that), none (plain text), or "
         "one of libllama's, e.g. chatml"),
    {"seed", 0, APP_INT, "S", "42", NULL, "seed of the samples", AT(app.seed), 0, 4294967295.0,
     "0 to 4294967295"},
    WORD("split", "WHICH", "test", split,
         "dev: samples for choosing between methods; test: samples for judging the choice. They share none"),
};
APP_GROUP(eval_group_tasks, "Samples", tasks_options);

static const struct app_option config_options[] = {
    TEXT("policies", "LIST", "full,snapkv,lagkv, or the suite's", policies,
         "recipes; key=value continues the recipe before it. plan:DIR applies the keep-plans of a folder, "
         "one file per sample. "
         "The full cache is always included"),
    APP_PLUGIN_OPTION(AT(app.plugins)),
    TEXT("ratios", "LIST", "0.5, or the suite's", ratios,
         "sizes: fractions removed, 0 <= R < 1; auc9 = 0 to 0.9, lag = 0.25 to 0.875, crit = 0.2 to 0.8; own "
         "= what the policy says"),
    TEXT("budgets", "LIST", NULL, budgets,
         "sizes: average entries kept per layer and KV head; abs = 2048 to 128"),
    TEXT("kv-bytes", "LIST", NULL, kv_bytes,
         "sizes: bytes of kept keys and values, suffix K, M or G; with --kv-types eviction and quantisation "
         "on one scale"),
    TEXT("kv-types", "LIST", "f16, or the study's", kv_types,
         "cache types: f16, q8_0, q4_0, f32, with a tail in f16 as q4_0:128, not rotated as q4_0:unrotated; "
         "all are compared with f16 or "
         "else the first"),
    TEXT("modes", "LIST", "agnostic, or the suite's", modes,
         "what is compressed: agnostic (the context), task (the context, and the policy knows the question), "
         "aware (context and question), aware_full (the whole prompt)"),
    TEXT("evict", "LIST", "end, or the study's", app.evict,
         "when to compress: end (of what is compressed), layer, or chunk[:C]; of several each is tried"),
    {"chunk-slack", 0, APP_REAL, "X", NULL, "1",
     "with --evict chunk: X times the size stays until the last chunk is read, then the size",
     AT(app.chunk_slack), 1, 1024, "1 to 1024"},
    TEXT("evict-every", "RULES", NULL, app.evict_every,
         "while answering, I[:T|:R[:all]]: compress after every I tokens to T entries per layer and head, or "
         "by a share R, of the entries there or (R:all) of all tokens read; several rules separated by / are "
         "compared"),
    TEXT("mask-heads", "LISTS", "none, or the study's", app.mask_heads,
         "lists of heads to switch off, separated by /, each tried by itself: none, LAYER-HEAD,..., "
         "srh:topN, trad:topN (of a profile), random:N:SEED, random:N:SEED:M (without the M best by srh). "
         "The full cache without masks is always included"),
    TEXT("mask-phase", "WHEN", "all, or the study's", app.mask_phase,
         "all, or decode: only while answers are generated"),
    TEXT("mask-form", "FORM", "zero, or the study's", app.mask_form,
         "output of masked heads: zero, or mean (of all values, as for a query of 0)"),
    TEXT("profile", "PATH", "the cache folder's, then shipped ones", app.profile,
         "calibration results that policies need: a file, or a folder of them"),
};
APP_GROUP(eval_group_config, "What is compared", config_options);

static const struct app_option run_options[] = {
    {"threads", 't', APP_INT, "THREADS", NULL, "usable cores", "threads to compute with", AT(app.threads), 1,
     512, "1 to 512"},
    {"batch", 0, APP_INT, "B", "8", NULL,
     "answers of one sample that are generated in one batch; 1 = one by one, as `winnow run` does", AT(batch),
     1, 64, "1 to 64"},
    {"alone", 0, APP_FLAG, NULL, NULL, "off, or the study's",
     "each policy reads every sample again and answers alone, so that times and memory peaks are its own",
     AT(separate_readings), 0, 0, NULL},
    {"answer-tokens", 0, APP_INT, "N", NULL, "until it ends, or the study's",
     "generate exactly N tokens for every answer, also after an end token", AT(answer_tokens), 1, 65536,
     "1 to 65536"},
    WORD("turns", "KIND", "multi_turn", turns,
         "samples with several questions: multi_turn (earlier ones stay, with their references) or "
         "multi_request (each alone after the same compressed context)"),
    FLAG("own-history", own_history, "earlier turns show the model's answers, not the references"),
    WORD("recompress", "WHEN", "never", recompress,
         "with several questions: never, or each-turn (before each further one, what was asked and answered "
         "is compressed with the rest)"),
    FLAG("no-early-stop", no_early_stop, "continue an answer even if its score cannot change any more"),
    WORD("lb-prefix", "PLACE", "auto", lb_prefix,
         "where LongBench's beginning of an answer is put: assistant (after the template's tail), user "
         "(before it), or auto (user in mode aware_full, assistant in the others)"),
    WORD("lb-chat", "SETS", "official", lb_chat,
         "LongBench's sets that use the chat template: official (not those with examples, nor code) or all, "
         "as in kvpress"),
    {"lb-extra-tokens", 0, APP_INT, "N", "0", NULL,
     "tokens that answers to LongBench may have beyond the benchmark's number; kvpress adds 20", AT(lb_extra),
     0, 4096, "0 to 4096"},
    FLAG("closed-book", closed_book,
         "ask without the context, full cache only: shows what the model knows or guesses"),
    TEXT("time-budget", "TIME", NULL, time_budget,
         "use fewer samples, so that the run (or this shard) takes about this long: 90s, 10m or 2h; prints "
         "what it leaves out"),
    TEXT("store", "DIR", NULL, store,
         "folder that keeps the full cache of each sample for further runs; only for policies that observe "
         "nothing while they read"),
    {"store-limit", 0, APP_BYTES, "SIZE", NULL, NULL,
     "most bytes of that folder, suffix K, M or G; the least recently used caches are removed",
     AT(store_limit), 1, 4611686018427387904.0, "1 byte to 4294967296G"},
    TEXT("shard", "I/N", "1/1", shard, "every N-th sample, from the I-th on"),
    FLAG("quiet", quiet, "no progress"),
    TEXT("compare", "A,B", NULL, compare, "two policies against each other, in the summary"),
    TEXT("contrasts", "FILE", "none, or the study's", contrasts,
         "planned comparisons, one a line: A vs B mode=MODE size=ratio=R, with kv=TYPE and N=LENGTH if "
         "needed. Reports correct for their number"),
    TEXT("fail-if", "EXPR", NULL, fail_if,
         "exit code 4 if a whole interval is beyond the limit, e.g. macro_delta<-5@r=.5; see winnow report "
         "--help"),
    TEXT("niah-score", "NAME", "score; the usual ones in the HTML report", niah_score,
         "what maps by depth and length show: " EVAL_MAP_NAMES),
    FLAG("no-gate", no_gate, "ask no probes, and count tasks that the full cache cannot solve as well"),
    FLAG("json", app.json, "print one JSON object instead of the summary"),
};
APP_GROUP(eval_group_run, "Running", run_options);
