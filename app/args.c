/* SPDX-License-Identifier: MIT */
/* The options that sub-commands share. */
#include "app/args.h"

#define AT(field) offsetof(struct app_args, field)

static const struct app_option model_options[] = {
    {"model", 'm', APP_TEXT, "MODEL", "smollm2-135m", NULL, "GGUF file, or a name from `winnow models`",
     AT(model), 0, 0, NULL},
    {"threads", 't', APP_INT, "THREADS", NULL, "usable cores", "threads to compute with", AT(threads), 1, 512,
     "1 to 512"},
    {"kv-type", 0, APP_TEXT, "TYPE", "f16", NULL,
     "cache type: f16, q8_0, q4_0 or f32; or auto: with --kv-bytes f16 where "
     "everything fits, else q8_0",
     AT(kv_type), 0, 0, NULL},
    {"kv-tail", 0, APP_INT, "N", "0", NULL,
     "with q8_0 or q4_0: keep the last N entries of each head, and the first 64, in f16; 128 is a good "
     "choice",
     AT(kv_tail), 0, 1048576, "0, or 32 to 1048576"},
    {"kv-rotate", 0, APP_TEXT, "WHETHER", "on", NULL,
     "with q8_0 or q4_0: on rotates keys and values before rounding, which spreads outliers and loses less; "
     "off stores them unrotated",
     AT(kv_rotate), 0, 0, NULL},
    {"attn", 0, APP_TEXT, "KIND", "own", NULL,
     "attention code: own (fastest), f32 (own, full precision) or ggml (reference)", AT(attn), 0, 0, NULL},
};
APP_GROUP(app_group_model, "Model", model_options);

static const struct app_option input_options[] = {
    {"file", 'f', APP_TEXTS, "DOC", NULL, NULL,
     "document, UTF-8 text; - is standard input; several -f are joined in this order, with blank lines "
     "between",
     AT(documents), 0, 0, NULL},
    {"tokens", 0, APP_TEXT, "FILE", NULL, NULL,
     "token ids, whitespace separated, fed exactly as given (instead of -f and -p)", AT(tokens), 0, 0, NULL},
    {"prompt", 'p', APP_TEXT, "QUESTION", NULL, NULL, "question, put after the document", AT(question), 0, 0,
     NULL},
    {"system", 0, APP_TEXT, "TEXT", NULL, "the template's own", "system message", AT(system), 0, 0, NULL},
    {"raw", 0, APP_FLAG, NULL, NULL, NULL,
     "no chat template: BOS where the vocabulary adds one, then the text", AT(raw), 0, 0, NULL},
    {"special", 0, APP_FLAG, NULL, NULL, NULL,
     "parse control tokens such as <|im_end|> in documents, question and system message (default: they are "
     "plain text there)",
     AT(special), 0, 0, NULL},
    {"chat", 0, APP_TEXT, "NAME", NULL, "the model's", "one of libllama's chat templates, e.g. chatml",
     AT(chat), 0, 0, NULL},
    {"context-only", 0, APP_FLAG, NULL, NULL, NULL,
     "compress the document before the question is read (default: compress both)", AT(context_only), 0, 0,
     NULL},
};
APP_GROUP(app_group_input, "Input", input_options);

static const struct app_option policy_options[] = {
    {"policy", 0, APP_TEXT, "RECIPE", NULL, "full, or auto where a size is given",
     "compression method, e.g. snapkv:window=32+adakv; auto: the best one known for this model; "
     "`winnow methods` lists them",
     AT(policy), 0, 0, NULL},
    {"budget", 0, APP_INT, "N", NULL, NULL, "size: average entries kept per layer and KV head", AT(budget), 1,
     2147483647, "1 to 2147483647"},
    {"ratio", 0, APP_REAL, "R", NULL, "0.5 if the policy needs a size", "size: fraction removed, 0 <= R < 1",
     AT(ratio), 0, 0.9999999999999999, "at least 0 and less than 1"},
    {"kv-bytes", 0, APP_BYTES, "SIZE", NULL, NULL, "size: bytes of kept keys and values, suffix K, M or G",
     AT(kv_bytes), 1, 4611686018427387904.0, "1 byte to 4294967296G"},
    {"keep-quality", 0, APP_REAL, "Q", NULL, NULL,
     "instead of a size: keep as few entries as possible while predictions stay at least Q as good (0 to 1)",
     AT(keep_quality), 1e-6, 1 - 1e-6, "above 0 and below 1"},
    {"evict", 0, APP_TEXT, "WHEN", NULL, "end",
     "when to compress: end (of the prompt), layer (one layer after the other), chunk[:C] (every C tokens, "
     "512 "
     "or the method's own)",
     AT(evict), 0, 0, NULL},
    {"evict-every", 0, APP_TEXT, "I[:T|:R[:all]]", NULL,
     "off, but for methods with a rule of their own (lagkv)",
     "while generating: compress after every I tokens to T entries per layer and head (default: the prompt's "
     "size), or remove a share R of what is there, or of all tokens read (R:all)",
     AT(evict_every), 0, 0, NULL},
    {"profile", 0, APP_TEXT, "PATH", NULL, "the cache folder's, then shipped ones",
     "calibration results that the policy needs: a file, or a folder of them", AT(profile), 0, 0, NULL},
};
APP_GROUP(app_group_policy, "What to keep (at most one size)", policy_options);

static const struct app_option expect_options[] = {
    {"expect", 0, APP_TEXTS, "QUESTION", NULL, NULL,
     "a question that the document is judged by, for policies that do that, such as kvcompose-aware; may be "
     "repeated, and then all of them count",
     AT(expected), 0, 0, NULL},
};
APP_GROUP(app_group_expect, "Expected questions", expect_options);

static const struct app_option long_options[] = {
    {"kv-peak", 0, APP_BYTES, "SIZE", NULL, NULL,
     "most bytes of keys and values while the prompt is read, suffix K, M or G: a prompt that does not fit "
     "whole "
     "is read in chunks",
     AT(kv_peak), 1, 4611686018427387904.0, "1 byte to 4294967296G"},
    {"chunk-slack", 0, APP_REAL, "X", NULL, "1",
     "with chunks: X times the size stays until the last chunk is read, then the size", AT(chunk_slack), 1,
     1024, "1 to 1024"},
};
APP_GROUP(app_group_long, "Long prompts", long_options);

static const struct app_option plugin_options[] = {
    APP_PLUGIN_OPTION(AT(plugins)),
};
APP_GROUP(app_group_plugin, "Parts of your own", plugin_options);

static const struct app_option mask_options[] = {
    {"mask-heads", 0, APP_TEXT, "LIST", NULL, NULL,
     "query heads to switch off: LAYER-HEAD,... or srh:topN, trad:topN (of a profile), "
     "random:N:SEED, random:N:SEED:M (without the M best by srh)",
     AT(mask_heads), 0, 0, NULL},
    {"mask-phase", 0, APP_TEXT, "WHEN", NULL, "all", "all, or decode: only while tokens are generated",
     AT(mask_phase), 0, 0, NULL},
    {"mask-form", 0, APP_TEXT, "FORM", NULL, "zero",
     "output of masked heads: zero, or mean (of all values, as for a query of 0)", AT(mask_form), 0, 0, NULL},
};
APP_GROUP(app_group_mask, "Heads that are switched off", mask_options);

static const struct app_option device_options[] = {APP_DEVICE_OPTIONS(AT(devices), AT(layers))};
APP_GROUP(app_group_devices, "Devices", device_options);

static const struct app_option common_options[] = {
    {"help", 'h', APP_FLAG, NULL, NULL, NULL, "print the help", AT(help), 0, 0, NULL},
    {"help-all", 0, APP_FLAG, NULL, NULL, NULL, "print the help with every option", AT(help_all), 0, 0, NULL},
};
APP_GROUP(app_group_common, "Other", common_options);
