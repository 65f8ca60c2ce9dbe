/* SPDX-License-Identifier: MIT */
/* Options of the evaluation's sub-commands. */
#include "eval/args.h"

#include "eval/results/map.h"

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
     "macro, retention, fgt, agree, kl, dnll; after @: r, policy, mode, kv, N",
     AT(fail_if), 0, 0, NULL},
    {"niah-score", 0, APP_TEXT, "NAME", NULL, "score; the usual ones in the HTML report",
     "what maps by depth and length show: " EVAL_MAP_NAMES, AT(niah_score), 0, 0, NULL},
    {"no-gate", 0, APP_FLAG, NULL, NULL, "off", "count tasks that the full cache cannot solve as well",
     AT(no_gate), 0, 0, NULL},
    {"json", 0, APP_FLAG, NULL, NULL, "off", "print one JSON object in place of the summary", AT(app.json), 0,
     0, NULL},
};
APP_GROUP(eval_group_report, "Options", report_options);

static const struct app_option action_options[] = {
    {"list", 0, APP_FLAG, NULL, NULL, "off", "print the tasks and the metrics", AT(list), 0, 0, NULL},
    {"dump-samples", 0, APP_FLAG, NULL, NULL, "off", "print the samples as JSONL", AT(dump), 0, 0, NULL},
    {"out", 0, APP_TEXT, "DIR", NULL, "eval-MODEL-TIME",
     "answer the samples and write the results to this folder; a run that was interrupted goes on there",
     AT(app.out), 0, 0, NULL},
};
APP_GROUP(eval_group_action, "What to do", action_options);

static const struct app_option tasks_options[] = {
    {"model", 'm', APP_TEXT, "MODEL", "smollm2-135m", NULL,
     "GGUF file, or a name from `winnow models`: its tokenizer", AT(app.model), 0, 0, NULL},
    {"suite", 0, APP_TEXT, "NAME", NULL, "none",
     "tasks, lengths and samples that belong together: tiny-ci, smoke, small or full", AT(suite), 0, 0, NULL},
    {"study", 0, APP_TEXT, "NAME", NULL, "none",
     "the experiment of one paper: compresskv, kvcompose and others, see --list; other options replace its "
     "lists",
     AT(study), 0, 0, NULL},
    {"tasks", 0, APP_TEXT, "LIST", NULL, "none", "names or groups of tasks", AT(tasks), 0, 0, NULL},
    {"lengths", 0, APP_TEXT, "LIST", NULL, "2048; of texts the context, where it is shorter",
     "lengths in tokens, prompt and answer together; s = 512,1024,2048, c32 = 2000 to 32000, c128 = 8000 to "
     "128000",
     AT(lengths), 0, 0, NULL},
    {"samples", 0, APP_INT, "K", NULL, "20, or the suite's; of texts all pieces",
     "samples of each task and length", AT(samples), 1, 899999, "1 to 899999"},
    {"depths", 0, APP_TEXT, "LIST", NULL, "lin10, or the suite's",
     "depths of tasks on a grid in per cent, or lin5, lin10, sigmoid; these tasks have a sample for each and "
     "each trial",
     AT(depths), 0, 0, NULL},
    {"trials", 0, APP_INT, "T", NULL, "1, or the suite's", "samples of each depth", AT(trials), 1, 1000,
     "1 to 1000"},
    {"needle", 0, APP_TEXT, "KIND", "rand", NULL,
     "sentence of niah_grid: rand (made up), num (a number), words (two words) or sf (the famous one)",
     AT(needle), 0, 0, NULL},
    {"niah-compat", 0, APP_TEXT, "SOURCE", "none", NULL,
     "compresskv: niah_grid's prompts begin with the text '<|im_start|> ', as in that paper's code",
     AT(niah_compat), 0, 0, NULL},
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
    {"jsonl", 0, APP_TEXT, "FILE", NULL, "none",
     "your own questions (task user), JSONL: \"context\", \"question\", \"answers\"; the whole file "
     "without --samples",
     AT(jsonl), 0, 0, NULL},
    {"text", 0, APP_TEXT, "FILE", NULL, "none",
     "text of task ppl: the second half of each piece is compared after the compressed first half", AT(text),
     0, 0, NULL},
    {"lb-max-prompt", 0, APP_INT, "N", NULL,
     "31500 or 127500 for 32K or 128K models, else what the context leaves; none for --jsonl",
     "tokens of a prompt from a file; longer ones lose their middle", AT(max_prompt), 16, 16777216,
     "16 to 16777216"},
    {"chat", 0, APP_TEXT, "NAME", "auto", NULL,
     "chat template: auto (the model's own), none (plain text), or one of libllama's, e.g. chatml",
     AT(app.chat), 0, 0, NULL},
    {"seed", 0, APP_INT, "S", "42", NULL, "seed of the samples", AT(app.seed), 0, 4294967295.0,
     "0 to 4294967295"},
};
APP_GROUP(eval_group_tasks, "Samples", tasks_options);

static const struct app_option config_options[] = {
    {"policies", 0, APP_TEXT, "LIST", NULL, "full,snapkv,lagkv, or the suite's",
     "recipes; key=value goes on with the recipe before it. The full cache always takes part", AT(policies),
     0, 0, NULL},
    {"ratios", 0, APP_TEXT, "LIST", NULL, "0.5, or the suite's",
     "sizes: fractions removed, 0 <= R < 1; auc9 = 0 to 0.9, lag = 0.25 to 0.875, crit = 0.2 to 0.8; own = "
     "what "
     "the policy says",
     AT(ratios), 0, 0, NULL},
    {"budgets", 0, APP_TEXT, "LIST", NULL, "none",
     "sizes: average entries kept per layer and KV head; abs = 2048 to 128", AT(budgets), 0, 0, NULL},
    {"kv-bytes", 0, APP_TEXT, "LIST", NULL, "none",
     "sizes: bytes of kept keys and values, suffix K, M or G; with --kv-types eviction and quantisation on "
     "one "
     "scale",
     AT(kv_bytes), 0, 0, NULL},
    {"kv-types", 0, APP_TEXT, "LIST", NULL, "f16, or the study's",
     "cache types: f16, q8_0, q4_0, f32, with a tail in f16 as q4_0:128, not rotated as q4_0:unrotated; all "
     "are "
     "compared with f16 or else the first",
     AT(kv_types), 0, 0, NULL},
    {"modes", 0, APP_TEXT, "LIST", NULL, "agnostic, or the suite's",
     "what is compressed: agnostic (the context), task (the same, the policy is told the question), aware "
     "(context and question), aware_full (the whole prompt)",
     AT(modes), 0, 0, NULL},
    {"evict", 0, APP_TEXT, "WHEN", NULL, "end, or the study's",
     "when to compress: end (of what is compressed), layer, or chunk[:C]", AT(app.evict), 0, 0, NULL},
    {"evict-every", 0, APP_TEXT, "I[:T]", NULL, "off",
     "while answering: after every I tokens shrink to T entries per layer and head", AT(app.evict_every), 0,
     0, NULL},
    {"mask-heads", 0, APP_TEXT, "LISTS", NULL, "none, or the study's",
     "heads whose output is 0, lists separated by /, each tried by itself: none, LAYER-HEAD,..., srh:topN, "
     "trad:topN (of a profile), random:N:SEED, random:N:SEED:M (without the M best by srh). The full cache "
     "without masks always takes part",
     AT(app.mask_heads), 0, 0, NULL},
    {"mask-phase", 0, APP_TEXT, "WHEN", NULL, "all, or the study's",
     "all, or decode: only while answers are generated", AT(app.mask_phase), 0, 0, NULL},
    {"profile", 0, APP_TEXT, "PATH", NULL, "the cache folder's, then shipped ones",
     "calibration results that policies need: a file, or a folder of them", AT(app.profile), 0, 0, NULL},
};
APP_GROUP(eval_group_config, "What is compared", config_options);

static const struct app_option run_options[] = {
    {"threads", 't', APP_INT, "THREADS", NULL, "usable cores", "threads to compute with", AT(app.threads), 1,
     512, "1 to 512"},
    {"batch", 0, APP_INT, "B", "8", NULL,
     "answers of one sample that are generated together; 1 = each alone, as `winnow run` does", AT(batch), 1,
     64, "1 to 64"},
    {"alone", 0, APP_FLAG, NULL, NULL, "off, or the study's",
     "each policy reads every sample for itself and answers alone, so that times and peaks are its own",
     AT(alone), 0, 0, NULL},
    {"answer-tokens", 0, APP_INT, "N", NULL, "until it ends, or the study's",
     "answers have just as many tokens, whatever would end them", AT(answer_tokens), 1, 65536, "1 to 65536"},
    {"turns", 0, APP_TEXT, "KIND", "multi_turn", NULL,
     "samples with several questions: multi_turn (earlier ones with their references stay) or multi_request "
     "(each alone on the same compressed context)",
     AT(turns), 0, 0, NULL},
    {"own-history", 0, APP_FLAG, NULL, NULL, "off",
     "earlier turns show the model's answers, not the references", AT(own_history), 0, 0, NULL},
    {"recompress", 0, APP_TEXT, "WHEN", "never", NULL,
     "with several questions: never, or each-turn (before each further one, what was asked and answered is "
     "compressed with the rest)",
     AT(recompress), 0, 0, NULL},
    {"no-early-stop", 0, APP_FLAG, NULL, NULL, "off", "answers go on when their score cannot change any more",
     AT(no_early_stop), 0, 0, NULL},
    {"lb-prefix", 0, APP_TEXT, "PLACE", "auto", NULL,
     "where the beginning of an answer to LongBench stands: assistant (after the template's tail), user "
     "(before it), or auto (user in mode aware_full, assistant in the others)",
     AT(lb_prefix), 0, 0, NULL},
    {"lb-chat", 0, APP_TEXT, "SETS", "official", NULL,
     "which of LongBench's sets stand in the chat template: official (not those with examples, nor code) or "
     "all, as in "
     "kvpress",
     AT(lb_chat), 0, 0, NULL},
    {"lb-extra-tokens", 0, APP_INT, "N", "0", NULL,
     "tokens that answers to LongBench may have beyond the benchmark's number; kvpress adds 20", AT(lb_extra),
     0, 4096, "0 to 4096"},
    {"closed-book", 0, APP_FLAG, NULL, NULL, "off",
     "ask the full cache without the context: what can be known or guessed", AT(closed_book), 0, 0, NULL},
    {"time-budget", 0, APP_TEXT, "TIME", NULL, "none",
     "lower the numbers of samples until the run, or this shard, is expected to take this long: 90s, 10m or "
     "2h; says what it "
     "leaves "
     "out",
     AT(time_budget), 0, 0, NULL},
    {"shard", 0, APP_TEXT, "I/N", NULL, "1/1", "every N-th sample, from the I-th on", AT(shard), 0, 0, NULL},
    {"quiet", 0, APP_FLAG, NULL, NULL, "off", "no progress", AT(quiet), 0, 0, NULL},
    {"compare", 0, APP_TEXT, "A,B", NULL, "none", "two policies against each other, in the summary",
     AT(compare), 0, 0, NULL},
    {"fail-if", 0, APP_TEXT, "EXPR", NULL, "none",
     "exit code 4 if a whole interval is beyond the limit, e.g. macro_delta<-5@r=.5; see winnow report "
     "--help",
     AT(fail_if), 0, 0, NULL},
    {"niah-score", 0, APP_TEXT, "NAME", NULL, "score; the usual ones in the HTML report",
     "what maps by depth and length show: " EVAL_MAP_NAMES, AT(niah_score), 0, 0, NULL},
    {"no-gate", 0, APP_FLAG, NULL, NULL, "off",
     "ask no probes, and count tasks that the full cache cannot solve as well", AT(no_gate), 0, 0, NULL},
    {"json", 0, APP_FLAG, NULL, NULL, "off", "print one JSON object in place of the summary", AT(app.json), 0,
     0, NULL},
};
APP_GROUP(eval_group_run, "Running", run_options);
