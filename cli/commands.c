/* SPDX-License-Identifier: MIT */
/* The table of the command's own sub-commands. */
#include "cli/commands.h"

static const struct app_group *const run_groups[] = {
    &app_group_model, &app_group_input,   &app_group_policy,   &app_group_expect,
    &app_group_long,  &app_group_plugin,  &cli_group_generate, &cli_group_store,
    &app_group_mask,  &app_group_devices, &app_group_common,   NULL};
static const struct app_group *const plan_groups[] = {
    &app_group_model,   &app_group_input,  &app_group_policy,
    &app_group_expect,  &app_group_plugin, &cli_group_plan,
    &app_group_devices, &app_group_common, NULL};
static const struct app_group *const tokens_groups[] = {&app_group_model, &app_group_input, &cli_group_tokens,
                                                        &app_group_common, NULL};
static const struct app_group *const ppl_groups[] = {&app_group_model,   &cli_group_ppl,    &app_group_policy,
                                                     &app_group_long,    &app_group_plugin, &app_group_mask,
                                                     &app_group_devices, &app_group_common, NULL};
static const struct app_group *const methods_groups[] = {&cli_group_methods, &app_group_common, NULL};
static const struct app_group *const profile_show_groups[] = {&cli_group_profile_show, &app_group_common,
                                                              NULL};
static const struct app_group *const profile_import_groups[] = {&cli_group_profile_import, &app_group_common,
                                                                NULL};
static const struct app_group *const backend_groups[] = {&cli_group_backend, &app_group_common, NULL};
static const struct app_group *const worker_groups[] = {&cli_group_worker, &app_group_common, NULL};
static const struct app_group *const doctor_groups[] = {&cli_group_doctor, &app_group_common, NULL};
static const struct app_group *const man_groups[] = {&cli_group_man, &app_group_common, NULL};
static const struct app_group *const serve_groups[] = {&cli_group_serve, &app_group_common, NULL};
static const struct app_group *const compress_groups[] = {
    &app_group_model,  &cli_group_document, &app_group_policy, &app_group_expect,
    &cli_group_stored, &app_group_devices,  &app_group_common, NULL};
static const struct app_group *const ask_groups[] = {
    &app_group_model,    &cli_group_ask,    &cli_group_store,
    &cli_group_document, &app_group_policy, &cli_group_generate,
    &app_group_devices,  &app_group_common, NULL};
static const struct app_group *const chat_groups[] = {
    &app_group_model, &cli_group_chat,    &app_group_policy, &cli_group_chat_answer,
    &cli_group_store, &app_group_devices, &app_group_common, NULL};
static const struct app_group *const inspect_groups[] = {&cli_group_inspect, &app_group_common, NULL};
static const struct app_group *const export_groups[] = {&cli_group_export, &app_group_common, NULL};
static const struct app_group *const ctl_page_groups[] = {&cli_group_ctl_page, &app_group_common, NULL};
static const struct app_group *const ctl_why_groups[] = {&cli_group_ctl_why, &app_group_common, NULL};
static const struct app_group *const store_list_groups[] = {&cli_group_store_list, &app_group_common, NULL};
static const struct app_group *const plain_groups[] = {&app_group_common, NULL};

const struct app_command cli_commands[] = {
    {.name = "run",
     .first = "model file prompt budget ratio kv-bytes context-only n json help",
     .about = "Reads a prompt, compresses its KV cache and generates an answer.",
     .usage = "[-m MODEL] [-f DOC | --tokens FILE] [-p QUESTION] [--policy RECIPE] [SIZE] [options]",
     .notes = "At least one of -f, --tokens and -p must be given. The answer goes to standard output,\n"
              "everything else to standard error.",
     .groups = run_groups,
     .args_size = sizeof(struct cli_args),
     .run = cli_run},
    {.name = "chat",
     .first = "model file cache budget ratio context system n help",
     .about = "Chats with a model, with or without a document; the cache is compressed after every turn.",
     .usage = "[-m MODEL] [-f DOC | -c DOC.wkv | --resume FILE.wkv | --state DIR] [--policy RECIPE] [SIZE] "
              "[--context "
              "N|endless]\n"
              "                   [options]",
     .notes =
         "A line is a turn; a backslash at its end continues it on the next line. /help lists commands such "
         "as\n/undo, /save and /stats. Ctrl-C stops an answer, Ctrl-D quits. Without a terminal, turns are "
         "lines of\nstandard input, answers go to standard output and everything else to standard error.\n"
         "See docs/use/chat.md.",
     .groups = chat_groups,
     .args_size = sizeof(struct cli_args),
     .run = cli_chat},
    {.name = "compress",
     .first = "model file output budget ratio kv-bytes kv-type help",
     .about = "Reads a document, compresses its KV cache and stores it for any number of questions.",
     .usage = "[-m MODEL] -f DOC [-f DOC2 ..] [-c DOC.wkv] [--policy RECIPE] [SIZE] -o DOC.wkv",
     .notes =
         "The file appears only when it is complete. With -c, the documents are added to a stored one, and "
         "all of it is\nstored under the new name. docs/reference/wkv.md describes the file.",
     .groups = compress_groups,
     .args_size = sizeof(struct cli_args),
     .run = cli_compress},
    {.name = "ask",
     .first = "model cache prompt questions file store budget ratio n json help",
     .about = "Answers questions about documents that `compress` has stored, or that a folder keeps.",
     .usage = "[-m MODEL] -c DOC.wkv... | --store DIR -f DOC [--policy RECIPE] [SIZE]  -p QUESTION | "
              "--questions FILE",
     .notes =
         "The answer is the same as that of `winnow run --context-only` with the same options, but the "
         "document is\nnot read again. The file is never changed, and several processes share its pages. "
         "With --store, a\ndocument that the folder does not have under this recipe and size is read and "
         "added. Several -c\nare taken as they were stored, one after the other; a document that was read "
         "alone "
         "has not seen the\nothers.",
     .groups = ask_groups,
     .args_size = sizeof(struct cli_args),
     .run = cli_ask},
    {.name = "inspect",
     .about = "Shows what is in a stored document or a keep-plan.",
     .usage = "DOC.wkv | plan.json [--json | -o PAGE.html [-m MODEL] [--compare OTHER | --answer QUESTION]]",
     .notes = "The page is one file that needs nothing else. It opens on a map of what each layer keeps; "
              "below it the text is\nshaded by how many layers and heads keep each token. --compare shows "
              "two files or their difference,\n--answer the parts of the text that an answer attended to.",
     .groups = inspect_groups,
     .max_rest = 1,
     .args_size = sizeof(struct cli_args),
     .run = cli_inspect},
    {.name = "export",
     .about = "Writes a stored document as a slot that `winnow serve` restores, or parks it for chats.",
     .usage = "DOC.wkv (--slot FILE | --state DIR) [-m MODEL]",
     .notes = "Put the file into the folder of `winnow serve --save`. POST /winnow/slots/0?action=restore "
              "with\n{\"filename\": FILE} restores it into a slot. With --state, a chat whose first message "
              "begins with the\ndocument begins with it by itself, if it brings no API key and asks for the "
              "document's policy and size.\nSee docs/use/server.md.",
     .groups = export_groups,
     .max_rest = 1,
     .args_size = sizeof(struct cli_args),
     .run = cli_export},
    {.name = "store list",
     .about = "Lists the documents of a folder that `run --store` keeps, the last used first.",
     .usage = "DIR [--json]",
     .notes = "",
     .groups = store_list_groups,
     .max_rest = 1,
     .args_size = sizeof(struct cli_args),
     .run = cli_store_list},
    {.name = "store rm",
     .about = "Removes documents of such a folder.",
     .usage = "DIR NAME...",
     .notes = "Names are those of `winnow store list`.",
     .groups = plain_groups,
     .max_rest = 256,
     .args_size = sizeof(struct cli_args),
     .run = cli_store_rm},
    {.name = "store check",
     .about = "Checks every document of such a folder and moves damaged ones aside.",
     .usage = "DIR",
     .notes = "The exit code is 1 if something was damaged.",
     .groups = plain_groups,
     .max_rest = 1,
     .args_size = sizeof(struct cli_args),
     .run = cli_store_check},
    {.name = "store du",
     .about = "Prints how many documents such a folder has, and how many bytes they take.",
     .usage = "DIR",
     .notes = "",
     .groups = plain_groups,
     .max_rest = 1,
     .args_size = sizeof(struct cli_args),
     .run = cli_store_du},
    {.name = "plan",
     .first = "model file prompt policy budget ratio context-only output help",
     .about = "Reads a prompt and writes which cache entries would be kept; generates nothing.",
     .usage = "[-m MODEL] [-f DOC | --tokens FILE] [-p QUESTION] [--policy RECIPE] [SIZE] -o FILE",
     .notes = "The file appears only when it is complete.",
     .groups = plan_groups,
     .args_size = sizeof(struct cli_args),
     .run = cli_plan},
    {.name = "tokens",
     .first = "model file prompt tokens system raw chat context-only pieces help",
     .about = "Prints the token ids of a prompt as `run` reads them.",
     .usage =
         "[-m MODEL] [-f DOC | --tokens FILE] [-p QUESTION] [--system TEXT] [--raw | --chat NAME] [--pieces]",
     .notes = "",
     .groups = tokens_groups,
     .args_size = sizeof(struct cli_args),
     .run = cli_tokens},
    {.name = "methods",
     .about = "Lists presets and parts of policies, or describes one of them.",
     .usage = "[NAME | RECIPE] [-m MODEL]",
     .notes =
         "For a method that reads calibration results, the files that it would read for MODEL are named.",
     .groups = methods_groups,
     .max_rest = 1,
     .args_size = sizeof(struct cli_args),
     .run = cli_methods},
    {.name = "models",
     .about = "Lists the models that have a name, and whether they are in the cache folder.",
     .usage = "",
     .notes = "The cache folder is $WINNOW_CACHE, or ~/.cache/winnow.",
     .groups = plain_groups,
     .args_size = sizeof(struct cli_args),
     .run = cli_models},
    {.name = "doctor",
     .about = "Checks this machine and the installation, and suggests fixes.",
     .usage = "[-m MODEL] [--json]",
     .notes = "The exit code is 1 if something keeps winnow from working.",
     .groups = doctor_groups,
     .args_size = sizeof(struct cli_args),
     .run = cli_doctor},
    {.name = "man",
     .about = "Prints the manual page of a command, or of winnow.",
     .usage = "[COMMAND] | -o DIR",
     .notes = "On a terminal, `man` shows the page; a pipe or file gets roff.",
     .groups = man_groups,
     .max_rest = 2,
     .args_size = sizeof(struct cli_args),
     .run = cli_man},
    {.name = "completion",
     .about = "Prints a script that completes commands and options in a shell.",
     .usage = "bash | zsh | fish",
     .notes = "Example: eval \"$(winnow completion bash)\"",
     .groups = plain_groups,
     .max_rest = 1,
     .args_size = sizeof(struct cli_args),
     .run = cli_completion},
    {.name = "backend",
     .about = "Prints the path of the llama.cpp backend, or checks it against a program's libllama.",
     .usage = "--path | --env [-m MODEL] | --check LLAMA_LIB",
     .notes = "Example: GGML_BACKEND_PATH=$(winnow backend --path) llama-server -m MODEL.gguf -dev WINNOW "
              "-ngl 99\n"
              "See docs/use/llama-cpp.md.",
     .groups = backend_groups,
     .args_size = sizeof(struct cli_args),
     .run = cli_backend},
    {.name = "serve",
     .first = "model budget ratio kv-bytes slots context document save park state port api-key help",
     .about = "Serves a model over HTTP with llama.cpp's server and compresses the cache of each slot.",
     .usage =
         "[-m MODEL] [--policy RECIPE] [SIZE] [--slots N] [--port P] [options] [-- OPTIONS OF LLAMA-SERVER]",
     .notes = "A request can set its own policy and size with \"winnow\": {\"policy\": RECIPE, \"budget\": "
              "N}. GET\n/winnow/kv shows the slots. The body of a request has at most 64 MiB. "
              "See\ndocs/use/server.md.",
     .groups = serve_groups,
     .max_rest = 256,
     .args_size = sizeof(struct cli_args),
     .run = cli_serve},
    {.name = "worker",
     .about = "Serves a device of this machine to programs on other machines, with ggml's RPC.",
     .usage = "[--listen HOST:PORT] [--device NAME] [-t THREADS] [--i-trust-this-network]",
     .notes = "The other machine uses it as device rpc:HOST:PORT. One program can use it at a time.\n"
              "See docs/use/several-machines.md.",
     .groups = worker_groups,
     .args_size = sizeof(struct cli_args),
     .run = cli_worker},
    {.name = "ctl page",
     .about = "Writes a page of what a slot or a document of a running server holds, token by token.",
     .usage = "[--url URL] [--slot N | --document NAME] -o PAGE.html",
     .notes = "It is the page of `winnow inspect` for the current cache. A slot that is answering is shown "
              "once it has finished.",
     .groups = ctl_page_groups,
     .args_size = sizeof(struct cli_args),
     .run = cli_ctl_page},
    {.name = "ctl why",
     .about = "Prints where the tokens of a running server's last ten requests came from, and why prompts "
              "were read again.",
     .usage = "[--url URL] [--api-key KEY]",
     .notes = "The newest request comes first. Texts are shown to the API key that sent them.",
     .groups = ctl_why_groups,
     .args_size = sizeof(struct cli_args),
     .run = cli_ctl_why},
    {.name = "ppl",
     .first = "model file policy budget ratio prefix json help",
     .about = "Perplexity of a text, with the full cache or after compressing its first part.",
     .usage = "[-m MODEL] -f TEXT [--policy RECIPE] [SIZE] [--prefix N] [options]",
     .notes = "With --policy full and the same --prefix, the same tokens are scored: use that to compare.",
     .groups = ppl_groups,
     .args_size = sizeof(struct cli_args),
     .run = cli_ppl},
    {.name = "profile show",
     .about = "Prints and draws the contents of a profile.",
     .usage = "FILE [--map FILE.svg]",
     .notes = "Tables of more than two dimensions are drawn as the lengths of their vectors. "
              "CompilerKV's thresholds are drawn by entropy and perplexity.",
     .groups = profile_show_groups,
     .max_rest = 1,
     .args_size = sizeof(struct cli_args),
     .run = cli_profile_show},
    {.name = "profile import",
     .about = "Converts a calibration file of another program to a profile.",
     .usage = "--kind KIND [-m MODEL] FILE -o PROFILE",
     .notes =
         "docs/reference/profiles.md shows the formats. The profile contains the model's fingerprint, so "
         "that no\nother model can use it.",
     .groups = profile_import_groups,
     .max_rest = 1,
     .args_size = sizeof(struct cli_args),
     .run = cli_profile_import},
    {.name = NULL},
};
