/* SPDX-License-Identifier: MIT */
/* Options of the command's own sub-commands. */
#include "cli/args.h"

#define AT(field) offsetof(struct cli_args, field)

/* How tokens are picked. */
#define PICK_OPTIONS                                                                                \
    {"temp", 0, APP_REAL, "T", "0", NULL, "temperature, 0 = greedy", AT(temp), 0, 100, "0 to 100"}, \
        {"top-k",                                                                                   \
         0,                                                                                         \
         APP_INT,                                                                                   \
         "K",                                                                                       \
         "40",                                                                                      \
         NULL,                                                                                      \
         "sample from the K best tokens, 0 = all",                                                  \
         AT(top_k),                                                                                 \
         0,                                                                                         \
         2147483647,                                                                                \
         "0 to 2147483647"},                                                                        \
        {"top-p",                                                                                   \
         0,                                                                                         \
         APP_REAL,                                                                                  \
         "P",                                                                                       \
         "0.95",                                                                                    \
         NULL,                                                                                      \
         "sample from the best tokens with this probability, 1 = all",                              \
         AT(top_p),                                                                                 \
         0,                                                                                         \
         1,                                                                                         \
         "0 to 1"},                                                                                 \
        {"repeat-penalty",                                                                          \
         0,                                                                                         \
         APP_REAL,                                                                                  \
         "P",                                                                                       \
         "1",                                                                                       \
         NULL,                                                                                      \
         "divide the logits of the last 64 generated tokens, 1 = off; 1.1 avoids loops",            \
         AT(repeat_penalty),                                                                        \
         1,                                                                                         \
         100,                                                                                       \
         "1 to 100"},                                                                               \
    {                                                                                               \
        "seed", 0, APP_INT, "S", "42", NULL, "seed of the sampler", AT(app.seed), 0, 4294967295.0,  \
            "0 to 4294967295"                                                                       \
    }

static const struct app_option generate_options[] = {
    {NULL, 'n', APP_INT, "N", "256", NULL, "most tokens to generate", AT(app.n), 0, 2147483647,
     "0 to 2147483647"},
    PICK_OPTIONS,
    {"json", 0, APP_FLAG, NULL, NULL, NULL, "print one JSON object instead of the answer", AT(app.json), 0, 0,
     NULL},
};
APP_GROUP(cli_group_generate, "Answer", generate_options);

static const struct app_option chat_answer_options[] = {
    {NULL, 'n', APP_INT, "N", "1024", NULL, "most tokens of an answer", AT(app.n), 1, 2147483647,
     "1 to 2147483647"},
    PICK_OPTIONS,
};
APP_GROUP(cli_group_chat_answer, "Answers", chat_answer_options);

static const struct app_option chat_options[] = {
    {"file", 'f', APP_TEXTS, "DOC", NULL, NULL,
     "document, UTF-8 text; several -f are joined in this order, with blank lines between", AT(app.documents),
     0, 0, NULL},
    {"cache", 'c', APP_TEXT, "DOC.wkv", NULL, NULL,
     "continue from a document that `compress` stored or a conversation that /save stored", AT(cache), 0, 0,
     NULL},
    {"resume", 0, APP_TEXT, "FILE.wkv", NULL, NULL,
     "continue from the conversation of this file, if it is there, and save it there at the end; with "
     "--state: a number, last, or list, which prints the parked conversations",
     AT(resume), 0, 0, NULL},
    {"state", 0, APP_TEXT, "DIR", NULL, NULL,
     "folder of `winnow serve --state`, where the conversation is parked at the end", AT(state), 0, 0, NULL},
    {"context", 0, APP_TEXT, "N", NULL, "what the model was trained for",
     "maximum conversation length in tokens; endless renumbers kept tokens, so that it never fills up",
     AT(chat_context), 0, 0, NULL},
    {"system", 0, APP_TEXT, "TEXT", NULL, "the template's own", "system message", AT(app.system), 0, 0, NULL},
    {"raw", 0, APP_FLAG, NULL, NULL, NULL,
     "no chat template: BOS where the vocabulary adds one, then the text", AT(app.raw), 0, 0, NULL},
    {"special", 0, APP_FLAG, NULL, NULL, NULL,
     "parse control tokens in what is typed and read (default: they are plain text there)", AT(app.special),
     0, 0, NULL},
    {"chat", 0, APP_TEXT, "NAME", NULL, "the model's", "one of libllama's chat templates, e.g. chatml",
     AT(app.chat), 0, 0, NULL},
    {"no-history", 0, APP_FLAG, NULL, NULL, NULL, "neither read nor write the history of typed lines",
     AT(no_history), 0, 0, NULL},
};
APP_GROUP(cli_group_chat, "Conversation", chat_options);

static const struct app_option plan_options[] = {
    {"output", 'o', APP_TEXT, "FILE", NULL, "must be given", "where to write the keep-plan", AT(app.out), 0,
     0, NULL},
};
APP_GROUP(cli_group_plan, "Output", plan_options);

static const struct app_option tokens_options[] = {
    {"pieces", 0, APP_FLAG, NULL, NULL, NULL,
     "one token a line with its text; line breaks, tabs, backslashes and stray bytes as in C", AT(pieces), 0,
     0, NULL},
};
APP_GROUP(cli_group_tokens, "Output", tokens_options);

static const struct app_option ppl_options[] = {
    {"file", 'f', APP_TEXTS, "TEXT", NULL, NULL,
     "text to score; - is standard input; several -f are joined with blank lines between; BOS is added if "
     "the vocabulary asks for it",
     AT(app.documents), 0, 0, NULL},
    {"special", 0, APP_FLAG, NULL, NULL, NULL,
     "parse control tokens in the text (default: they are plain text)", AT(app.special), 0, 0, NULL},
    {"tokens", 0, APP_TEXT, "FILE", NULL, NULL, "token ids to score (instead of -f)", AT(app.tokens), 0, 0,
     NULL},
    {NULL, 'n', APP_INT, "N", NULL, "all that fit", "most tokens of the text to read", AT(app.n), 2,
     2147483647, "2 to 2147483647"},
    {"prefix", 0, APP_INT, "N", NULL, "0, or half where a policy compresses",
     "tokens that are read (and compressed) first and not scored", AT(prefix), 0, 2147483647,
     "0 to 2147483647"},
    {"json", 0, APP_FLAG, NULL, NULL, NULL, "print one JSON object", AT(app.json), 0, 0, NULL},
};
APP_GROUP(cli_group_ppl, "Text", ppl_options);

static const struct app_option methods_options[] = {
    {"model", 'm', APP_TEXT, "MODEL", "smollm2-135m", NULL, "model whose profiles are looked for",
     AT(app.model), 0, 0, NULL},
    {"markdown", 0, APP_FLAG, NULL, NULL, NULL, "print docs/reference/methods.md", AT(markdown), 0, 0, NULL},
    {"costs", 0, APP_TEXT, "FILE", NULL, NULL, "with --markdown: what `winnow bench methods --csv` measured",
     AT(costs), 0, 0, NULL},
};
APP_GROUP(cli_group_methods, "Options", methods_options);

static const struct app_option profile_show_options[] = {
    {"map", 0, APP_TEXT, "FILE", NULL, NULL, "draw the tables, layers x heads, SVG", AT(map), 0, 0, NULL},
};
APP_GROUP(cli_group_profile_show, "Picture", profile_show_options);

static const struct app_option profile_import_options[] = {
    {"kind", 0, APP_TEXT, "KIND", NULL, "must be given",
     "what the file is: srh, trad (CompressKV's heads), heads (HeadKV's), duo, layers, kvzap, fastkvzip",
     AT(kind), 0, 0, NULL},
    {"model", 'm', APP_TEXT, "MODEL", "smollm2-135m", NULL, "the model it belongs to: GGUF file, or a name",
     AT(app.model), 0, 0, NULL},
    {"output", 'o', APP_TEXT, "PROFILE", NULL, "must be given", "where to write the profile", AT(app.out), 0,
     0, NULL},
    {"sink", 0, APP_INT, "N", NULL, "not stated", "duo: first entries that streaming heads keep", AT(sink), 1,
     16777216, "1 to 16777216"},
    {"recent", 0, APP_INT, "N", NULL, "not stated", "duo: recent entries that streaming heads keep",
     AT(recent), 1, 16777216, "1 to 16777216"},
};
APP_GROUP(cli_group_profile_import, "Import", profile_import_options);

static const struct app_option backend_options[] = {
    {"path", 0, APP_FLAG, NULL, NULL, NULL, "print the library's path", AT(path), 0, 0, NULL},
    {"env", 0, APP_FLAG, NULL, NULL, NULL, "print environment variables for a shell's eval", AT(env), 0, 0,
     NULL},
    {"check", 0, APP_TEXT, "LLAMA_LIB", NULL, NULL, "say whether the library fits a program's libllama.so",
     AT(check), 0, 0, NULL},
    {"model", 'm', APP_TEXT, "MODEL", NULL, NULL,
     "with --env: also name the model's profiles, which WINNOW_POLICY=auto uses to choose", AT(app.model), 0,
     0, NULL},
};
APP_GROUP(cli_group_backend, "Options", backend_options);

static const struct app_option worker_options[] = {
    {"listen", 0, APP_TEXT, "HOST:PORT", NULL, "127.0.0.1:50052", "where to listen", AT(listen), 0, 0, NULL},
    {"device", 0, APP_TEXT, "NAME", NULL, "a GPU, else WINNOW", "the device to serve, by ggml's name",
     AT(device), 0, 0, NULL},
    {"threads", 't', APP_INT, "THREADS", NULL, "usable cores", "threads to compute with", AT(app.threads), 1,
     512, "1 to 512"},
    {"i-trust-this-network", 0, APP_FLAG, NULL, NULL, NULL,
     "listen where other machines can connect: each of them can run code here", AT(trusts_network), 0, 0,
     NULL},
};
APP_GROUP(cli_group_worker, "Options", worker_options);

static const struct app_option doctor_options[] = {
    {"model", 'm', APP_TEXT, "MODEL", NULL, "those of `winnow models`",
     "a model to check in addition to the named ones", AT(app.model), 0, 0, NULL},
    {"json", 0, APP_FLAG, NULL, NULL, NULL, "print one JSON object", AT(app.json), 0, 0, NULL},
};
APP_GROUP(cli_group_doctor, "Options", doctor_options);

static const struct app_option man_options[] = {
    {"output", 'o', APP_TEXT, "DIR", NULL, "standard output",
     "write the pages of all commands to this folder", AT(app.out), 0, 0, NULL},
};
APP_GROUP(cli_group_man, "Output", man_options);

static const struct app_option serve_options[] = {
    {"model", 'm', APP_TEXT, "MODEL", "smollm2-135m", NULL, "GGUF file, or a name from `winnow models`",
     AT(app.model), 0, 0, NULL},
    {"policy", 0, APP_TEXT, "RECIPE", "auto", NULL,
     "compression method for prompts; auto: the best one known for this model; full: keep everything",
     AT(app.policy), 0, 0, NULL},
    {"budget", 0, APP_INT, "N", NULL, NULL, "size: average entries kept per layer and KV head",
     AT(app.budget), 1, 2147483647, "1 to 2147483647"},
    {"ratio", 0, APP_REAL, "R", NULL, "0.5", "size: fraction removed, 0 <= R < 1", AT(app.ratio), 0,
     0.9999999999999999, "at least 0 and less than 1"},
    {"keep-quality", 0, APP_REAL, "Q", NULL, NULL,
     "keep as few entries as possible while predictions stay at least Q as good (0 to 1); --budget or "
     "--ratio is then an upper limit",
     AT(app.keep_quality), 1e-6, 1 - 1e-6, "above 0 and below 1"},
    {"kv-bytes", 0, APP_BYTES, "SIZE", NULL, "no cap",
     "most bytes of keys and values of all slots, suffix K, M or G; requests that do not fit are refused",
     AT(app.kv_bytes), 1, 4611686018427387904.0, "1 byte to 4294967296G"},
    {"evict", 0, APP_TEXT, "WHEN", NULL, "end; chunk for long prompts",
     "when a prompt is compressed: end (once it was read), chunk[:C] (after C tokens, 512 unless given)",
     AT(app.evict), 0, 0, NULL},
    APP_DEVICE_OPTIONS(AT(app.devices), AT(app.layers)),
    {"slots", 0, APP_INT, "N", "4", NULL, "requests answered at the same time", AT(slots), 1, 64, "1 to 64"},
    {"context", 0, APP_INT, "N", "8192", NULL,
     "tokens of context for each slot; memory is taken only when they are used", AT(context), 16, 16777216,
     "16 to 16777216"},
    {"document", 0, APP_TEXTS, "NAME=FILE", NULL, NULL,
     "a document that requests can name: a text, read and compressed at start, or a file of `winnow "
     "compress`; may be repeated",
     AT(app.documents), 0, 0, NULL},
    {"save", 0, APP_TEXT, "DIR", NULL, NULL, "folder where requests may save compressed slots", AT(save), 0,
     0, NULL},
    {"park", 0, APP_BYTES, "SIZE", NULL, "an eighth of the machine's memory, at most 4G",
     "memory for conversations that have no slot now, suffix K, M or G; 0: none", AT(park), 0,
     4611686018427387904.0, "0 to 4294967296G"},
    {"state", 0, APP_TEXT, "DIR", NULL, NULL,
     "folder where such conversations are also kept, and found again after a restart", AT(state), 0, 0, NULL},
    {"park-disk", 0, APP_BYTES, "SIZE", NULL, "8G", "most bytes of that folder", AT(park_disk), 0,
     4611686018427387904.0, "0 to 4294967296G"},
    {"park-ratio", 0, APP_REAL, "R", NULL, "0", "fraction removed of a whole conversation that is parked",
     AT(park_ratio), 0, 0.9999999999999999, "at least 0 and less than 1"},
    {"when-full", 0, APP_TEXT, "compress|refuse", NULL, "compress, unless the policy is full",
     "for a conversation longer than the context: remove tokens from its middle, or refuse it", AT(when_full),
     0, 0, NULL},
    {"host", 0, APP_TEXT, "ADDRESS", "127.0.0.1", NULL, "address to listen on", AT(host), 0, 0, NULL},
    {"port", 0, APP_INT, "PORT", "9931", NULL, "port to listen on, 0 = any", AT(port), 0, 65535,
     "0 to 65535"},
    {"host-name", 0, APP_TEXTS, "NAME", NULL, "none",
     "a name of this host that requests may use; addresses and localhost need none; may be repeated",
     AT(host_names), 0, 0, NULL},
    {"timeout", 0, APP_INT, "SECONDS", "30", NULL,
     "how long a client may pause within a request or an answer", AT(timeout), 1, 86400, "1 to 86400"},
    {"api-key", 0, APP_TEXT, "KEY", NULL, "$LLAMA_API_KEY", "key that requests must send", AT(api_key), 0, 0,
     NULL},
    {"no-auth", 0, APP_FLAG, NULL, NULL, NULL, "listen on a public address without a key", AT(no_auth), 0, 0,
     NULL},
};
APP_GROUP(cli_group_serve, "Server", serve_options);

static const struct app_option document_options[] = {
    {"file", 'f', APP_TEXTS, "DOC", NULL, NULL,
     "document, UTF-8 text; - is standard input; several -f are joined in this order, with blank lines "
     "between",
     AT(app.documents), 0, 0, NULL},
    {"system", 0, APP_TEXT, "TEXT", NULL, "the template's own", "system message", AT(app.system), 0, 0, NULL},
    {"raw", 0, APP_FLAG, NULL, NULL, NULL,
     "no chat template: BOS where the vocabulary adds one, then the text", AT(app.raw), 0, 0, NULL},
    {"special", 0, APP_FLAG, NULL, NULL, NULL,
     "parse control tokens in document, question and system message (default: they are plain text there)",
     AT(app.special), 0, 0, NULL},
    {"chat", 0, APP_TEXT, "NAME", NULL, "the model's", "one of libllama's chat templates, e.g. chatml",
     AT(app.chat), 0, 0, NULL},
};
APP_GROUP(cli_group_document, "Document", document_options);

static const struct app_option stored_options[] = {
    {"cache", 'c', APP_TEXT, "DOC.wkv", NULL, NULL,
     "a stored document to which -f is added, under its own recipe and size", AT(cache), 0, 0, NULL},
    {"output", 'o', APP_TEXT, "DOC.wkv", NULL, "must be given", "where to store it", AT(app.out), 0, 0, NULL},
    {"json", 0, APP_FLAG, NULL, NULL, NULL, "print one JSON object about what was stored", AT(app.json), 0, 0,
     NULL},
};
APP_GROUP(cli_group_stored, "What is stored", stored_options);

static const struct app_option ask_options[] = {
    {"cache", 'c', APP_TEXTS, "DOC.wkv", NULL, NULL,
     "the stored document; or name a folder with --store; several -c follow each other in this order",
     AT(caches), 0, 0, NULL},
    {"reread", 0, APP_REAL, "SHARE", NULL, "0.05",
     "with several -c: the part of each later document that is read again, 32 tokens at least; 0: none",
     AT(reread), 0, 1, "0 to 1"},
    {"prompt", 'p', APP_TEXT, "QUESTION", NULL, NULL, "question", AT(app.question), 0, 0, NULL},
    {"questions", 0, APP_TEXT, "FILE", NULL, NULL,
     "questions, one a line; - is standard input. Each answer is a line of JSON", AT(questions), 0, 0, NULL},
    {"batch", 0, APP_INT, "N", "8", NULL,
     "questions answered in one batch, which is faster; 1: one by one, with exactly the results of `run`",
     AT(batch), 1, 64, "1 to 64"},
};
APP_GROUP(cli_group_ask, "Question", ask_options);

static const struct app_option inspect_options[] = {
    {"json", 0, APP_FLAG, NULL, NULL, NULL, "print one JSON object, with positions and tokens", AT(app.json),
     0, 0, NULL},
    {"output", 'o', APP_TEXT, "PAGE", NULL, NULL, "write an HTML page that shows which tokens were kept",
     AT(app.out), 0, 0, NULL},
    {"compare", 0, APP_TEXT, "OTHER", NULL, NULL,
     "with -o: compare with another stored document or keep-plan of the same text", AT(compare), 0, 0, NULL},
    {"model", 'm', APP_TEXT, "MODEL", NULL, "none: positions without texts",
     "with -o: GGUF file or name of the model, for the texts of tokens", AT(app.model), 0, 0, NULL},
    {"answer", 0, APP_TEXT, "QUESTION", NULL, NULL,
     "with -o and -m: also answer this question and show what each token of the answer attended to",
     AT(answer), 0, 0, NULL},
    {NULL, 'n', APP_INT, "N", "64", NULL, "with --answer: most tokens of the answer", AT(app.n), 1, 4096,
     "1 to 4096"},
};
APP_GROUP(cli_group_inspect, "Output", inspect_options);

static const struct app_option export_options[] = {
    {"slot", 0, APP_TEXT, "FILE", NULL, NULL, "where to write the slot", AT(slot), 0, 0, NULL},
    {"state", 0, APP_TEXT, "DIR", NULL, NULL,
     "folder of `winnow serve --state`, where chats about the document find it", AT(state), 0, 0, NULL},
    {"model", 'm', APP_TEXT, "MODEL", "smollm2-135m", NULL, "the model that read the document", AT(app.model),
     0, 0, NULL},
};
APP_GROUP(cli_group_export, "Output", export_options);

static const struct app_option ctl_page_options[] = {
    {"url", 0, APP_TEXT, "URL", "http://127.0.0.1:9931", NULL, "where the server is", AT(url), 0, 0, NULL},
    {"slot", 0, APP_INT, "N", NULL, "0, unless a document is named", "slot of the server", AT(of_slot), 0, 63,
     "0 to 63"},
    {"document", 0, APP_TEXT, "NAME", NULL, NULL, "document of the server, instead of a slot", AT(document),
     0, 0, NULL},
    {"api-key", 0, APP_TEXT, "KEY", NULL, "$LLAMA_API_KEY", "key of the server", AT(api_key), 0, 0, NULL},
    {"output", 'o', APP_TEXT, "PAGE", NULL, "must be given", "where to write the page, HTML", AT(app.out), 0,
     0, NULL},
};
APP_GROUP(cli_group_ctl_page, "Page", ctl_page_options);

static const struct app_option ctl_why_options[] = {
    {"url", 0, APP_TEXT, "URL", "http://127.0.0.1:9931", NULL, "where the server is", AT(url), 0, 0, NULL},
    {"api-key", 0, APP_TEXT, "KEY", NULL, "$LLAMA_API_KEY", "key of the server", AT(api_key), 0, 0, NULL},
};
APP_GROUP(cli_group_ctl_why, "Server", ctl_why_options);

static const struct app_option store_options[] = {
    {"store", 0, APP_TEXT, "DIR", NULL, NULL,
     "cache folder, or that of `winnow serve --state`: reuse the document of -f if it was compressed before, "
     "else add it; `run` also needs --context-only",
     AT(store), 0, 0, NULL},
    {"store-exact", 0, APP_FLAG, NULL, NULL, "on where the policy drops entries",
     "reuse a stored document only if it is all of -f, so that answers do not depend on the folder's other "
     "documents",
     AT(store_exact), 0, 0, NULL},
    {"store-any", 0, APP_FLAG, NULL, NULL, "on where the policy keeps everything",
     "continue from the longest beginning of -f in the folder, so that less is read. A policy that drops "
     "entries judged that beginning without the rest, so answers depend on the folder's other documents",
     AT(store_any), 0, 0, NULL},
    {"store-limit", 0, APP_BYTES, "SIZE", NULL, NULL,
     "most bytes of the folder, suffix K, M or G; the least recently used documents are removed",
     AT(store_limit), 1, 4611686018427387904.0, "1 byte to 4294967296G"},
    {"api-key-file", 0, APP_TEXT, "FILE", NULL, NULL,
     "in a server's folder: the API key on the first line is that of the parked prompts; without it: those "
     "that came without a key",
     AT(api_key_file), 0, 0, NULL},
};
APP_GROUP(cli_group_store, "Documents that are kept", store_options);

static const struct app_option store_list_options[] = {
    {"json", 0, APP_FLAG, NULL, NULL, NULL, "print one JSON object a line", AT(app.json), 0, 0, NULL},
};
APP_GROUP(cli_group_store_list, "Output", store_list_options);
