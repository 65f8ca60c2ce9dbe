/* SPDX-License-Identifier: MIT */
/* What the papers measured. Numbers are facts from the papers named; they were printed for models of 7 to 32 billion
 * parameters. */
#include "eval/papers.h"

#include <stddef.h>

#define BUDGETS "128@budget=128|256@budget=256|512@budget=512|1024@budget=1024|2048@budget=2048"
#define RULER_TASKS                                                                                      \
    "SK1@task=niah_single_1|SK2@task=niah_single_2|SK3@task=niah_single_3|MK1@task=niah_multikey_1|"     \
    "MK2@task=niah_multikey_2|MK3@task=niah_multikey_3|MV@task=niah_multivalue|MQ@task=niah_multiquery|" \
    "VT@task=vt|CWE@task=cwe|FWE@task=fwe|QA1@task=qa_1|QA2@task=qa_2"
#define SIX_RUNS                                                                                         \
    "Qwen2.5-7B|Qwen3-14B|Llama-3.1-8B|Qwen2.5-7B question known|Qwen3-14B question known|Llama-3.1-8B " \
    "question known|mean of six"

const struct eval_paper eval_papers[] = {
    {"CompressKV", "LongBench, mean of 16 tasks by entries per layer and KV head, Llama-3.1-8B-Instruct",
     "aware_full", BUDGETS,
     "full cache@full|49.08|49.08|49.08|49.08|49.08\n"
     "StreamingLLM@streaming_llm|32.28|33.92|35.59|36.96|38.99\n"
     "SnapKV@snapkv paper-compresskv-snapkv|42.58|45.21|46.71|47.82|48.47\n"
     "PyramidKV@pyramidkv paper-compresskv-pyramidkv|42.02|44.36|46.49|47.65|48.34\n"
     "CAKE@cake paper-compresskv-cake|44.84|46.30|47.25|47.97|48.26\n"
     "CompressKV@compresskv paper-compresskv|45.10|46.71|47.78|48.24|48.71",
     ""},
    {"CompressKV", "LongBench, mean of 16 tasks by entries per layer and KV head, Mistral-7B-Instruct-v0.3",
     "aware_full", BUDGETS,
     "full cache@full|47.82|47.82|47.82|47.82|47.82\n"
     "StreamingLLM@streaming_llm|29.85|31.22|32.65|34.73|36.51\n"
     "SnapKV@snapkv paper-compresskv-snapkv|40.79|43.76|45.38|46.49|47.05\n"
     "PyramidKV@pyramidkv paper-compresskv-pyramidkv|40.29|43.06|44.82|45.96|46.85\n"
     "CAKE@cake paper-compresskv-cake|43.04|44.73|46.06|46.66|47.22\n"
     "CompressKV@compresskv paper-compresskv|43.56|45.43|46.39|46.96|47.55",
     ""},
    {"CompressKV", "LongBench at 256 entries, Mistral-7B-Instruct-v0.3: what each part adds", NULL,
     "SnapKV|+ retrieval heads choose|+ error-aware layer budgets", "CompressKV|43.76|44.96|45.43", ""},
    {"KVCompose", "RULER-4096, area under the score over the share removed, with a point (1, 0)", "agnostic",
     SIX_RUNS "|ours@auc_one|ours, question known@known:auc_one",
     "KVCompose@kvcompose kvcompose-aware|81.1|83.6|79.7|79.8|85.7|84.1|82.3\n"
     "TOVA@tova|65.7|68.9|70.8|82.4|70.2|82.2|73.4\n"
     "DuoAttention@duoattention duoattention-prompt|77.3|46.9|72.3|80.2|49.2|74.8|66.8\n"
     "SnapKV@snapkv kvpress-snapkv|42.8|60.4|61.4|66.5|82.2|81.8|65.8\n"
     "PyramidKV@pyramidkv kvpress-pyramidkv|37.2|54.2|59.8|58.4|78.8|80.9|61.5\n"
     "StreamingLLM@streaming_llm|58.5|59.4|57.4|58.4|59.1|59.0|58.6\n"
     "Expected attention@expected_attention|42.1|52.9|68.6|48.3|54.2|71.5|56.3",
     "The paper gives no formula for the area; the one here reproduces a sum that was published for KVzip."},
    {"KVCompose", "RULER-4096, per cent of entries that can go at a mean relative loss of 20 %", "agnostic",
     SIX_RUNS "|ours@loss=0.2|ours, question known@known:loss=0.2",
     "KVCompose@kvcompose kvcompose-aware|80.9|81.8|75.7|71.4|86.0|83.0|79.8\n"
     "TOVA@tova|46.9|57.7|49.0|80.8|50.9|81.4|61.1\n"
     "DuoAttention@duoattention duoattention-prompt|74.5|27.8|65.8|78.3|27.6|69.6|57.3\n"
     "SnapKV@snapkv kvpress-snapkv|6.9|35.3|36.6|43.1|80.4|78.2|46.8\n"
     "PyramidKV@pyramidkv kvpress-pyramidkv|6.0|26.9|31.6|26.7|80.4|78.2|41.7\n"
     "Expected attention@expected_attention|16.3|31.5|49.9|20.1|33.6|55.6|34.5\n"
     "StreamingLLM@streaming_llm|27.5|28.9|28.7|27.8|29.0|29.8|28.6",
     ""},
    {"KVCompose", "RULER-4096, per cent of entries that can go at a mean relative loss of 10 %", "agnostic",
     SIX_RUNS "|ours@loss=0.1|ours, question known@known:loss=0.1",
     "KVCompose@kvcompose kvcompose-aware|75.5|78.1|67.7|57.8|73.8|67.5|70.1\n"
     "TOVA@tova|12.6|19.0|27.8|65.8|32.2|52.7|35.0\n"
     "DuoAttention@duoattention duoattention-prompt|72.7|23.7|63.6|74.9|23.6|65.5|54.0\n"
     "SnapKV@snapkv kvpress-snapkv|3.5|25.4|14.1|14.1|70.5|57.3|30.8\n"
     "PyramidKV@pyramidkv kvpress-pyramidkv|3.0|17.7|8.5|9.7|46.2|47.6|22.1\n"
     "Expected attention@expected_attention|8.5|15.0|30.7|9.5|15.7|31.8|18.5\n"
     "StreamingLLM@streaming_llm|14.3|15.3|15.4|14.7|15.2|16.0|15.2",
     ""},
    {"KVCompose", "RULER-4096, heads of different lengths, area as above", "agnostic",
     "Qwen2.5-7B|Qwen3-14B|Llama-3.1-8B|mean of three|ours@auc_one",
     "KVzip@kvzip|88.4|89.9|90.2|89.5\n"
     "KVCompose, unstructured@kvcompose-unstructured|87.3|89.1|88.9|88.4\n"
     "AdaKV on expected attention@adakv-expected_attention|74.4|84.4|78.8|79.2\n"
     "AdaKV on SnapKV@adakv kvpress-adakv_snapkv|49.5|64.5|67.2|60.4",
     ""},
    {"CompilerKV", "LongBench, mean of 16 tasks at 512 entries per layer", "aware_full",
     "InternLM-2.5-7B-1M|Llama-3-8B-Instruct|Qwen2-7B-Instruct|Mistral-7B-Instruct-v0.2|ours@budget=512",
     "full cache@full|43.21|41.95|40.71|42.71\n"
     "StreamingLLM@streaming_llm paper-compilerkv-streaming_llm|32.25|34.70|29.65|30.06\n"
     "H2O@h2o paper-compilerkv-h2o|34.73|37.21|35.76|37.36\n"
     "SnapKV@snapkv paper-compilerkv-snapkv|37.85|40.28|38.47|40.71\n"
     "PyramidKV@pyramidkv paper-compilerkv-pyramidkv|37.86|40.19|38.19|40.47\n"
     "ZigZagKV@zigzagkv|37.93|40.66|38.80|40.83\n"
     "DynamicKV@dynamickv paper-compilerkv-dynamickv|38.54|40.69|39.16|40.88\n"
     "CompilerKV@compilerkv compilerkv-strict compilerkv-pooled|39.18|40.98|39.50|41.21",
     "The means recomputed from the paper's own cells are up to 0.5 lower for ZigZagKV."},
    {"CompilerKV", "The same without parts of the method", NULL,
     "Mistral-7B-Instruct-v0.2|Llama-3-8B-Instruct|Qwen2-7B-Instruct|InternLM-2.5-7B-1M",
     "whole method|41.21|40.98|39.50|39.18\n"
     "without the head table|40.26|40.13|38.60|38.38\n"
     "without risk gating|38.16|38.13|36.30|36.23\n"
     "raw attention in place of stabilised utility|39.36|39.28|37.55|37.43",
     ""},
    {"CompilerKV", "Needle in a haystack up to 32K, 64 entries per layer, Mistral-7B, 0 to 1", NULL,
     "full cache|StreamingLLM|SnapKV|PyramidKV|DynamicKV|CompilerKV",
     "mean of the map|0.92|0.26|0.42|0.72|0.83|0.86", ""},
    {"CompilerKV", "Time to the first token, generation and peak memory (GPU not named)", NULL,
     "first token s, full|first token s|tokens/s, full|tokens/s|peak MB, full|peak MB",
     "8K in, 2K out|0.66|0.72|27.63|36.20|20055|19050\n"
     "16K in, 4K out|1.45|1.52|19.55|34.80|23859|21420\n"
     "32K in, 8K out|3.52|3.65|11.65|28.50|31213|26880",
     ""},
    {"LagKV", "RULER-16K, mean of 13 tasks by share removed, Llama-3.1-8B-Instruct", "agnostic",
     "0@ratio=0|0.25@ratio=0.25|0.5@ratio=0.5|0.75@ratio=0.75|0.875@ratio=0.875",
     "full cache@full|92.6|92.6|92.6|92.6|92.6\n"
     "SnapKV@snapkv kvpress-snapkv|92.6|81.3|66.8|43.0|29.4\n"
     "StreamingLLM@streaming_llm|92.6|69.0|50.3|30.3|21.3\n"
     "LagKV@lagkv paper-lagkv kvpress-lagkv|92.6|88.2|80.0|62.9|48.9",
     ""},
    {"LagKV", "RULER-16K, mean of 13 tasks by share removed, Qwen2.5-7B-Instruct", "agnostic",
     "0@ratio=0|0.25@ratio=0.25|0.5@ratio=0.5|0.75@ratio=0.75|0.875@ratio=0.875",
     "full cache@full|90.8|90.8|90.8|90.8|90.8\n"
     "SnapKV@snapkv kvpress-snapkv|90.8|60.7|46.1|34.4|26.9\n"
     "StreamingLLM@streaming_llm|90.8|72.5|55.2|33.4|23.7\n"
     "LagKV@lagkv paper-lagkv kvpress-lagkv|90.8|82.5|73.5|56.6|42.4",
     ""},
    {"LagKV", "RULER-16K by task, LagKV by share removed, Llama-3.1-8B-Instruct", "agnostic", RULER_TASKS,
     "full cache@full|100|100|100|97.4|100|100|100|98.2|100|90.2|87.5|75.7|54.7\n"
     "0.25@lagkv paper-lagkv kvpress-lagkv "
     "ratio=0.25|100|100|95.7|97.4|96.7|56.9|99.4|98.5|100|88.4|89.0|74.3|50.0\n"
     "0.5@lagkv paper-lagkv kvpress-lagkv "
     "ratio=0.5|100|98.8|88.4|98.7|81.7|13.9|97.9|98.5|98.7|65.7|86.3|66.2|45.3\n"
     "0.75@lagkv paper-lagkv kvpress-lagkv "
     "ratio=0.75|100|98.8|46.4|90.9|33.3|1.4|86.2|92.4|96.1|10.9|73.3|46.0|42.2\n"
     "0.875@lagkv paper-lagkv kvpress-lagkv "
     "ratio=0.875|95.6|77.0|5.8|75.3|8.3|1.4|70.6|80.8|89.8|1.5|62.0|29.7|37.5",
     ""},
    {"LagKV", "RULER-16K by task, LagKV by share removed, Qwen2.5-7B-Instruct", "agnostic", RULER_TASKS,
     "0.25@lagkv paper-lagkv kvpress-lagkv "
     "ratio=0.25|100|99.3|86.6|98.4|88.4|24.2|93.9|99.4|99.0|79.3|92.1|66.1|45.5\n"
     "0.5@lagkv paper-lagkv kvpress-lagkv "
     "ratio=0.5|100|97.8|48.2|98.4|54.5|3.3|93.9|95.3|98.6|74.4|89.5|58.1|42.9\n"
     "0.75@lagkv paper-lagkv kvpress-lagkv "
     "ratio=0.75|99.3|87.7|8.9|85.2|6.2|0.8|86.2|83.5|95.6|43.8|69.5|39.5|29.5\n"
     "0.875@lagkv paper-lagkv kvpress-lagkv "
     "ratio=0.875|99.3|62.3|3.6|56.2|0|0.8|60.2|50.6|93.0|18.8|55.2|29.0|22.3",
     ""},
    {"LagKV", "64-digit passkey, partial match by factor of compression, sink 16", NULL,
     "Llama 2x|Llama 4x|Llama 6x|Llama 8x|Qwen 2x|Qwen 4x|Qwen 6x|Qwen 8x",
     "full cache|99.44|99.44|99.44|99.44|100.00|100.00|100.00|100.00\n"
     "LagKV, L = 1024|99.27|96.57|91.77|86.26|99.75|96.98|77.47|66.88\n"
     "LagKV, L = 512|97.02|85.73|75.67|68.25|97.07|75.89|42.70|30.00\n"
     "LagKV, L = 128|92.76|73.41|38.48|25.01|65.93|20.83|16.18|15.07",
     "About 27 % of exact matches come from keys in the part that the method never compresses."},
    {"CriticalKV", "RULER-32K at 40 % of the cache, context only: mean and loss against the full cache",
     "agnostic", "Llama-3.1-8B|Mistral-7B-v0.3|Qwen2.5-32B|ours@ratio=0.6",
     "full cache@full|91.05|78.27|93.91\n"
     "SnapKV@snapkv kvpress-snapkv|67.93 (25.4 %)|32.15 (58.9 %)|63.86 (32.0 %)\n"
     "CriticalKV on SnapKV@criticalkv paper-criticalkv|76.89 (15.6 %)|41.56 (46.9 %)|81.09 (13.7 %)\n"
     "AdaKV@adakv paper-adakv kvpress-adakv_snapkv|78.38 (13.9 %)|34.88 (55.4 %)|71.09 (24.3 %)\n"
     "CriticalKV on AdaKV@criticalkv-adakv paper-criticalkv-adakv|86.28 (5.2 %)|69.17 (11.6 %)|83.87 (10.7 "
     "%)\n"
     "HeadKV@headkv|79.98 (12.2 %)|39.59 (49.4 %)|81.04 (13.7 %)\n"
     "CriticalKV on HeadKV@criticalkv-headkv paper-criticalkv-headkv|89.29 (1.9 %)|57.59 (26.4 %)|90.69 (3.4 "
     "%)",
     ""},
    {"CriticalKV", "RULER-32K at 40 % of the cache by task, context only, Llama-3.1-8B-Instruct", "agnostic",
     RULER_TASKS,
     "full cache@full|100|100|100|100|100|100|99.8|98.3|99.4|44.9|95.3|84|62\n"
     "AdaKV@adakv paper-adakv kvpress-adakv_snapkv "
     "ratio=0.6|99|100|75|98|66|71|98.3|97.5|98.6|26.6|92|43|54\n"
     "CriticalKV on AdaKV@criticalkv-adakv paper-criticalkv-adakv "
     "ratio=0.6|100|100|97|100|93|65|98.8|99.3|99.6|52.4|94.7|64|58\n"
     "CriticalKV on HeadKV@criticalkv-headkv paper-criticalkv-headkv "
     "ratio=0.6|100|100|99|100|93|90|99|99.5|99.4|56.5|93.3|72|59",
     ""},
    {"CriticalKV", "LongBench, mean of 16 tasks, context only, at 20 and 40 % of the cache", "agnostic",
     "Llama-3.1-8B 20 %|Llama-3.1-8B 40 %|Mistral-7B 20 %|Mistral-7B 40 %|Qwen2.5-32B 20 %|Qwen2.5-32B 40 "
     "%|ours 20 "
     "%@ratio=0.8|ours 40 %@ratio=0.6",
     "full cache@full|49.20|49.20|47.38|47.38|48.58|48.58\n"
     "SnapKV@snapkv kvpress-snapkv|41.29|45.52|40.11|44.03|40.65|45.47\n"
     "CriticalKV on SnapKV@criticalkv paper-criticalkv|42.99|47.29|41.77|45.35|43.36|47.23\n"
     "AdaKV@adakv paper-adakv kvpress-adakv_snapkv|42.87|46.24|41.78|45.07|41.38|46.03\n"
     "CriticalKV on AdaKV@criticalkv-adakv paper-criticalkv-adakv|43.77|48.00|42.85|46.23|43.75|47.03\n"
     "HeadKV@headkv|42.64|47.23|41.61|44.84|43.11|47.81\n"
     "CriticalKV on HeadKV@criticalkv-headkv paper-criticalkv-headkv|43.99|47.79|43.46|46.10|45.43|48.59",
     "Code tasks hardly react to eviction."},
    {"CriticalKV", "LongBench, mean by the share alpha of the first stage, on AdaKV", NULL,
     "AdaKV|0|0.3|0.4|0.5|0.6|0.7",
     "Llama-3.1-8B 20 %|42.87|44.35|43.67|43.86|43.77|43.31|43.29\n"
     "Mistral-7B 20 %|41.78|31.94|42.54|42.76|42.85|42.98|42.80\n"
     "Llama-3.1-8B 10 %|36.14|38.57|38.43|–|38.50|–|37.75\n"
     "Mistral-7B 10 %|37.23|35.94|37.24|–|37.94|–|37.62",
     ""},
    {"CriticalKV", "SCBench, Llama-3.1-8B, AdaKV and with CriticalKV on it", NULL,
     "full|80 %|80 % + CriticalKV|60 %|60 % + CriticalKV|40 %|40 % + CriticalKV",
     "Retr.KV|52.20|52.00|52.60|41.20|42.00|19.40|19.80\n"
     "Math.Find|11.67|11.33|13.67|11.67|14.17|11.50|16.83\n"
     "EN.QA|22.86|22.14|24.29|17.86|21.43|15.71|22.14",
     ""},
    {.paper = NULL},
};
