/* SPDX-License-Identifier: MIT */
/*
 * Presets: named recipes, as rows of data. A recipe here is canonical (every option is written out; a test
 * checks this) and begins with a scorer. Methods come first, each with the setting of its own paper; then
 * parity presets, which reproduce a reference program (kvpress-) or the baselines inside one paper's
 * comparison (paper-).
 */
#include "base/strings.h"
#include "policy/part.h"
#include "policy/policy.h"

#include <string.h>

/* Each row, and each piece that rows share, stands on one line, so that a preset is added in one place. */
/* clang-format off */
#define MEAN          "+group_mean:cross_head=0,gqa_bug=0"
#define UNIFORM_EXACT "+uniform:rounding=exact"
#define UNIFORM_TRUNC "+uniform:rounding=trunc"
#define SNAPKV_32_MAX "snapkv:window=32,kernel=7,pool=max,agg=mean,pool_after=0" MEAN
/* Grouped heads as in the released code of AdaKV and CriticalKV: their mean is pooled. */
#define SNAPKV_32_GROUP "snapkv:window=32,kernel=7,pool=max,agg=mean,pool_after=1" MEAN
/* kvpress' own default, with which RULER was run. */
#define SNAPKV_64_AVG "snapkv:window=64,kernel=5,pool=avg,agg=mean,pool_after=0" MEAN
#define SNAPKV_32_AVG "snapkv:window=32,kernel=5,pool=avg,agg=mean,pool_after=0" MEAN
#define CRITICAL_L2   "+critical:alpha=0.5,eps=0.0001,eps_rel=0,norm=l2,sinks=4,gqa=mean"
#define CRITICAL_L1   "+critical:alpha=0.5,eps=0.0001,eps_rel=0,norm=l1,sinks=0,gqa=mean"
#define EXPECTED_STATS(vnorm, eps, stats)                                                                    \
    "expected_attention:n_sink=4,n_future=512,covariance=1,vnorm=" vnorm ",epsilon=" eps ",stats=" stats MEAN
#define EXPECTED(vnorm, eps) EXPECTED_STATS(vnorm, eps, "prompt")
#define KEYDIFF(values) "keydiff:values=" values "+direct"
#define SHARES          "+shares:header=1,sinks=4,last=1,room=1"
#define SAMPLED         "+sampled:sample=32,every=0,most=256,place=32,header=1,sinks=4,last=1,room=1"
#define MERGE "+merge:similarity=0,fraction=1,weight=norm,gate=fixed"
#define CAPKV "capkv:tau=5,align=cosine,n_sink=4,n_future=512,epsilon=1e-06" MEAN
#define ADAKV "+adakv:alpha_safeguard=0.2,mode=safeguard"
#define SNAPKV_8_AVG  "snapkv:window=8,kernel=5,pool=avg,agg=mean,pool_after=0" MEAN
#define COMPILERKV(utility, table, force)                                                                             \
    "compilerkv:window=64,alpha_scope=global,pool=none,kernel=7,n_sink=0,utility=" utility ",table=" table            \
    ",force=" force "+direct"
#define GATE(mode, norm, table, floor)                                                                                \
    "+gate:rounding=exact,mode=" mode ",score_norm=" norm ",tau=0,entropy_norm=0,risk_ppl=1,table=" table             \
    ",force=0,window=64,floor=" floor ",count=prompt+equal+topk:ties=late+original"
#define COMPRESSKV(k, heads, zero)                                                                                  \
    "compresskv:window=8,kernel=5,pool=avg+retrieval_heads:k=" k ",heads=" heads ",seed=42,zero=" zero               \
    "+error_aware:rounding=exact,min=32,max_factor=3+equal+topk:ties=early+original"
#define KVCOMPOSE_AGG ",agg_task=max,value_norm=0+group_mean:cross_head=1,gqa_bug=0"
#define SNAPKV_8_AVG7 "snapkv:window=8,kernel=7,pool=avg,agg=mean,pool_after=0" MEAN
#define SNAPKV_8_MAX7 "snapkv:window=8,kernel=7,pool=max,agg=mean,pool_after=0" MEAN

static const struct wnw__preset presets[] = {
    {.name = "full",
     .about = "Keeps everything: the uncompressed cache.",
     .paper = "",
     .recipe = "full+direct" UNIFORM_EXACT "+equal+topk:ties=early+original"},
    {.name = "streaming_llm",
     .about = "The first 4 tokens and the most recent ones, regardless of the text.",
     .paper = "StreamingLLM, arXiv 2309.17453",
     .recipe = "streaming_llm:sinks=4,recent=0+direct" UNIFORM_EXACT "+equal+topk:ties=early+original"},
    {.name = "streaming_llm-rerotated",
     .about =
         "StreamingLLM with its positions inside the cache: text and answer may be longer than the context.",
     .paper = "StreamingLLM, arXiv 2309.17453",
     .details =
         "The paper's form: distances are counted in the cache, so that the window slides for ever. Use it "
         "with `--evict chunk:C` and `--evict-every I`. The paper caches keys before RoPE and rotates them "
         "at every step, at no loss; here cached keys are turned, which rounds each time. `--evict-every 1` "
         "is the paper's step by step, and turns every kept key after the sinks by one position per token: "
         "use `--kv-type f32` for it, or a larger step with f16.",
     .recipe = "streaming_llm:sinks=4,recent=0+direct" UNIFORM_EXACT "+equal+topk:ties=early+rerotate"},
    {.name = "snapkv",
     .about = "What the last 32 prompt tokens attend to.",
     .paper = "SnapKV, arXiv 2404.14469",
     .recipe = SNAPKV_32_MAX UNIFORM_EXACT "+equal+topk:ties=early+original"},
    {.name = "rkv",
     .about = "What the newest 8 tokens attend to and no other key says again; for long answers.",
     .paper = "R-KV, arXiv 2505.24133",
     .recipe = "rkv:window=8,kernel=7,pool=max,lambda=0.1,threshold=0.5" MEAN UNIFORM_EXACT "+equal+topk:ties=early+original"},
    {.name = "laq",
     .about = "What the last 8 tokens attend to, and 8 that a compressed copy generates.",
     .paper = "LAQ++, arXiv 2505.20334",
     .recipe = "laq:window=8,kernel=7,pool=max,tokens=8" MEAN UNIFORM_EXACT "+equal+topk:ties=early+original"},
    {.name = "triattention",
     .about = "What queries to come will give a key by its distance, from calibrated queries; for long answers.",
     .paper = "TriAttention, arXiv 2604.04921",
     .recipe = "triattention:n_sink=4,recent=0,stats=profile+group_max:cross_head=0" UNIFORM_EXACT "+equal+topk:ties=early+original"},
    {.name = "tova",
     .about = "What the last prompt token attends to, one list per layer.",
     .paper = "TOVA, arXiv 2401.06104",
     .recipe = "tova:last=0+layer_mean" UNIFORM_EXACT "+equal+topk:ties=late+original"},
    {.name = "knorm",
     .about = "Keys of small norm; sees no attention.",
     .paper = "L2 norm-based strategy, arXiv 2406.11430",
     .recipe = "knorm+direct" UNIFORM_EXACT "+equal+topk:ties=early+original"},
    {.name = "lagkv",
     .about = "Keys and values that stand out against the next block of tokens; sees no attention.",
     .paper = "LagKV, arXiv 2504.04704",
     .recipe = "lagkv:sink=16,lag=128,skip=0,ref=next,use=both,wv=1,ranked=0+direct" UNIFORM_EXACT "+equal+partition:retain=0.5+original"},
    {.name = "adakv",
     .about = "SnapKV whose heads compete for the layer's budget.",
     .paper = "Ada-KV, arXiv 2407.11550",
     .recipe = SNAPKV_32_MAX UNIFORM_EXACT "+adakv:alpha_safeguard=0.2,mode=safeguard+topk:ties=early+original"},
    {.name = "pyramidkv",
     .about = "SnapKV with more entries in early layers than in late ones.",
     .paper = "PyramidKV, arXiv 2406.02069",
     .recipe = "snapkv:window=8,kernel=7,pool=max,agg=mean,pool_after=0" MEAN
               "+pyramid:rounding=exact,beta=20,form=exact+equal+topk:ties=early+original"},

    /* ---- CompressKV and its baselines ---- */
    {.name = "compresskv",
     .about = "What calibrated retrieval heads attend to, and more entries where eviction hurts more.",
     .paper = "CompressKV, arXiv 2508.02401",
     .recipe = COMPRESSKV("0", "srh", "all")},

    {.name = "compresskv-traditional",
     .about = "CompressKV that listens to heads which copy, in place of those that retrieve by meaning.",
     .paper = "Retrieval heads, arXiv 2404.15574",
     .recipe = COMPRESSKV("0", "traditional", "all")},

    /* ---- KVCompose and KVzip ---- */

    {.name = "kvcompose",
     .about = "What is attended to while the context is read again; layers share one budget, heads choose.",
     .paper = "KVCompose, arXiv 2509.05165",
     .recipe = "kvcompose:task=context" KVCOMPOSE_AGG
               "+composite:rounding=exact,agg_head=mean,layer0_max=0,min_tokens=1+equal+topk:ties=early+original"},
    {.name = "kvcompose-aware",
     .about = "KVCompose that knows the question: it is read after the context, which is read again.",
     .paper = "KVCompose, arXiv 2509.05165",
     .recipe = "kvcompose:task=both" KVCOMPOSE_AGG
               "+composite:rounding=exact,agg_head=mean,layer0_max=0,min_tokens=1+equal+topk:ties=early+original"},
    {.name = "kvcompose-unstructured",
     .about = "KVCompose whose heads share one budget too.",
     .paper = "KVCompose, arXiv 2509.05165",
     .recipe = "kvcompose:task=context" KVCOMPOSE_AGG UNIFORM_EXACT
               "+global:min_tokens=1,count=kept,pool=model+topk:ties=early+original"},
    {.name = "kvzip",
     .about = "What is attended to while the model repeats its context; all heads share one budget.",
     .paper = "KVzip, arXiv 2505.23416",
     .recipe = "kvzip:sinks=4,prefix=keep,norm=none+group_max:cross_head=0" UNIFORM_EXACT "+global:min_tokens=1,count=kept,pool=model+topk:ties=early+original"},
    {.name = "replay",
     .about = "What repeating the context would attend to, without repeating it; all heads share one budget.",
     .paper = "after KVzip, arXiv 2505.23416",
     .recipe = "replay:form=sparse,shift=-1,gap=13,band=2,m=64,m_keys=64,sinks=4+group_max:cross_head=0" UNIFORM_EXACT
               "+global:min_tokens=1,count=kept,pool=model+topk:ties=early+original"},
    {.name = "replay-sampled",
     .about = "Replay whose heads keep as many entries as KVzip would leave them, by 32 tokens that are repeated.",
     .paper = "after KVzip, arXiv 2505.23416",
     .recipe = "replay:form=sparse,shift=-1,gap=13,band=2,m=64,m_keys=64,sinks=4+group_max:cross_head=0" UNIFORM_EXACT
               SAMPLED "+topk:ties=early+original"},
    {.name = "kvgate",
     .about = "KVzip's scores, predicted from the cache by calibrated linear forms; all heads share one budget.",
     .paper = "after KVzap, arXiv 2601.07891, and KVzip, arXiv 2505.23416",
     .recipe = "kvgate+direct" UNIFORM_EXACT "+global:min_tokens=1,count=kept,pool=model+topk:ties=early+original"},
    {.name = "kvzap",
     .about = "KVzip+'s scores, predicted from hidden states by KVzap's gates; all heads share one budget.",
     .paper = "KVzap, arXiv 2601.07891",
     .recipe = "inputgate:sinks=4,recent=128,share=0.1,room=1+direct" UNIFORM_EXACT
               "+global:min_tokens=1,count=kept,pool=model+topk:ties=early+original"},
    {.name = "fastkvzip",
     .about = "KVzip's scores, predicted from hidden states by Fast KVzip's gates; all heads share one budget.",
     .paper = "Fast KVzip, arXiv 2601.17668",
     .recipe = "inputgate:sinks=4,recent=4096,share=0.02,room=1+direct" UNIFORM_EXACT
               "+global:min_tokens=1,count=kept,pool=model+topk:ties=early+original"},
    {.name = "kvzip_plus",
     .about = "KVzip by what an entry adds to the hidden states of repeated tokens; all heads share one budget.",
     .paper = "KVzip+ of KVzap, arXiv 2601.07891",
     .recipe = "kvzip:sinks=4,prefix=keep,norm=output+group_max:cross_head=0" UNIFORM_EXACT
               "+global:min_tokens=1,count=kept,pool=model+topk:ties=early+original"},
    {.name = "kvzip-uniform",
     .about = "KVzip with the same count for every head.",
     .paper = "KVzip, arXiv 2505.23416",
     .recipe = "kvzip:sinks=4,prefix=keep,norm=none+group_max:cross_head=0" UNIFORM_EXACT "+equal+topk:ties=early+original"},

    /* ---- CompilerKV and its baselines ---- */
    {.name = "compilerkv",
     .about = "Attention averaged over the model times value norms; keeps less where a calibrated threshold says so.",
     .paper = "CompilerKV, arXiv 2602.08686",
     .recipe = COMPILERKV("full", "profile", "0") GATE("elastic", "mean", "profile", "0.25")},
    {.name = "compilerkv-strict",
     .about = "CompilerKV that always keeps what the size allows: the form for comparisons at equal size.",
     .paper = "CompilerKV, arXiv 2602.08686",
     .recipe = COMPILERKV("full", "profile", "0") GATE("strict", "mean", "profile", "0.25")},
    {.name = "compilerkv-pooled",
     .about = "CompilerKV whose layers share one budget by how many entries clear the threshold.",
     .paper = "CompilerKV, arXiv 2602.08686",
     .recipe = COMPILERKV("full", "profile", "0") GATE("pooled", "mean", "profile", "0.25")},

    /* ---- LagKV's variants ---- */
    {.name = "localkv",
     .about = "LagKV whose blocks are normalised by themselves: the paper's ablation.",
     .paper = "LagKV, arXiv 2504.04704",
     .recipe = "lagkv:sink=16,lag=128,skip=0,ref=own,use=both,wv=1,ranked=0+direct" UNIFORM_EXACT
               "+equal+partition:retain=0.5+original"},
    {.name = "l2norm",
     .about = "The smallest key norms of every block of tokens; the first two layers stay whole.",
     .paper = "LagKV, arXiv 2504.04704",
     .recipe = "l2norm:sink=16,lag=128,skip=2,wv=0,low=1+direct" UNIFORM_EXACT "+equal+partition:retain=0.5+original"},

    /* ---- CriticalKV and its allocators ---- */

    {.name = "criticalkv",
     .about = "SnapKV, half of whose entries are chosen by attention times the norm of the projected value.",
     .paper = "CriticalKV, arXiv 2502.03805",
     .recipe = SNAPKV_32_MAX UNIFORM_EXACT "+equal" CRITICAL_L2 "+original"},
    {.name = "criticalkv-adakv",
     .about = "CriticalKV whose heads compete for the layer's budget with their attention.",
     .paper = "CriticalKV, arXiv 2502.03805",
     .recipe = SNAPKV_32_MAX UNIFORM_EXACT ADAKV CRITICAL_L2 "+original"},
    {.name = "headkv",
     .about = "SnapKV with more entries for heads that a profile finds important; needs one of kind heads.",
     .paper = "HeadKV, arXiv 2410.19258",
     .recipe = SNAPKV_32_MAX UNIFORM_EXACT "+headkv:beta=1.01,temp=1+topk:ties=early+original"},
    {.name = "criticalkv-headkv",
     .about = "CriticalKV with more entries for heads that a profile finds important.",
     .paper = "CriticalKV, arXiv 2502.03805",
     .recipe = SNAPKV_32_MAX UNIFORM_EXACT "+headkv:beta=1.01,temp=1" CRITICAL_L2 "+original"},
    {.name = "criticalkv-expected_attention",
     .about = "Expected attention without its value norm, half of it times the norm of the projected value.",
     .paper = "CriticalKV, arXiv 2502.03805",
     .recipe = EXPECTED("0", "0") UNIFORM_EXACT "+equal" CRITICAL_L2 "+original"},
    {.name = "obcache",
     .about = "First-order change of the last 32 queries' outputs when an entry goes.",
     .paper = "OBCache, arXiv 2510.07651",
     .recipe = "obcache:window=32,kernel=7,pool=max,prune=joint" MEAN UNIFORM_EXACT "+equal+topk:ties=early+original"},
    {.name = "defensivekv",
     .about = "SnapKV by the worst case over window and group, weighed by value norms across competing heads.",
     .paper = "DefensiveKV, arXiv 2510.13334",
     .recipe = "defensivekv:window=32,kernel=5,mass=0.9,norm=l2,as_code=0+direct" UNIFORM_EXACT
               "+adakv:alpha_safeguard=0,mode=safeguard+topk:ties=early+original"},
    {.name = "layer-defensivekv",
     .about = "DefensiveKV whose layers and heads compete for the whole model's budget.",
     .paper = "DefensiveKV, arXiv 2510.13334",
     .recipe = "defensivekv:window=32,kernel=5,mass=0.9,norm=l2,as_code=0+direct" UNIFORM_EXACT
               "+global:min_tokens=0,count=kept,pool=model+topk:ties=early+original"},

    /* ---- Expected attention ---- */

    {.name = "expected_attention",
     .about = "What queries of the next 512 positions are expected to attend to, from the prompt's queries.",
     .paper = "Expected Attention, arXiv 2510.00636",
     .recipe = EXPECTED("1", "0") UNIFORM_EXACT "+equal+topk:ties=early+original"},
    {.name = "expected_attention-stats",
     .about = "Expected attention with queries of a profile in place of the prompt's; needs one of kind stats.",
     .paper = "Expected Attention, arXiv 2510.00636",
     .recipe = EXPECTED_STATS("1", "0", "profile") UNIFORM_EXACT "+equal+topk:ties=early+original"},
    {.name = "adakv-expected_attention",
     .about = "Expected attention whose heads compete for the layer's budget; the paper's AdaExpectedAttention.",
     .paper = "Expected Attention, arXiv 2510.00636",
     .recipe = EXPECTED("1", "0.01") UNIFORM_EXACT ADAKV "+topk:ties=early+original"},
    {.name = "lukv",
     .about = "Expected attention whose heads keep what calibrated budget curves say; needs a profile of kind curves.",
     .paper = "LU-KV, arXiv 2602.08585",
     .recipe = EXPECTED("1", "0.02") UNIFORM_EXACT "+lukv:sinks=0,last=1,form=exact+topk:ties=early+original"},

    {.name = "qfilters",
     .about = "Keys that reach far along the direction which a head's queries favour; needs a profile of kind stats.",
     .paper = "Q-Filters, arXiv 2503.02812",
     .recipe = "qfilters:recent=64+direct" UNIFORM_EXACT "+equal+topk:ties=early+original"},

    /* ---- A threshold in place of a size ---- */
    {.name = "dms",
     .about = "Keys that point elsewhere than the average key, as many as clear a threshold; needs no size.",
     .paper = "DMS, arXiv 2506.05345",
     .details = "DMS' rule with KeyDiff's score in place of its trained predictor: `tau=-0.75` keeps keys whose "
                "cosine with the mean key is at most 0.75.",
     .recipe = KEYDIFF("0") UNIFORM_EXACT "+threshold:tau=-0.75,window=128+topk:ties=early+original"},
    {.name = "kvzip-threshold",
     .about = "KVzip that keeps what was ever given 2 % of a query's attention, however much that is.",
     .paper = "DMS, arXiv 2506.05345",
     .recipe = "kvzip:sinks=4,prefix=keep,norm=none+group_max:cross_head=0" UNIFORM_EXACT
               "+threshold:tau=0.02,window=128+topk:ties=early+original"},

    /* ---- Contents of entries ---- */
    {.name = "snapkv-merge",
     .about = "SnapKV, and values that go are averaged into the entry that stays with the most similar key.",
     .paper = "D2O, arXiv 2406.13035",
     .recipe = SNAPKV_32_MAX UNIFORM_EXACT "+equal+topk:ties=early+original" MERGE},
    {.name = "h2o-cam",
     .about = "H2O, and values that go are spread by chance over the next entries that stay.",
     .paper = "CaM, ICML 2024",
     .recipe = "h2o:recent=0,share=0.5,normalise=0" MEAN UNIFORM_EXACT "+equal+topk:ties=late+original"
               "+cam:targets=32,draw=sample,seed=0"},
    {.name = "snapkv-think",
     .about = "SnapKV, and the key channels that matter least to the last queries are 0; saves what SnapKV saves.",
     .paper = "ThinK, arXiv 2407.21018",
     .recipe = SNAPKV_32_MAX UNIFORM_EXACT "+equal+topk:ties=early+original+think:ratio=0.4,window=32,recent=32"},

    /* ---- Capacity ---- */
    {.name = "capkv",
     .about = "Values that the others cannot stand in for, weighed by what coming queries look for.",
     .paper = "CapKV, arXiv 2604.25975",
     .recipe = CAPKV UNIFORM_EXACT "+equal+topk:ties=early+original"},

    /* ---- Observed attention: H2O, VATP ---- */
    {.name = "h2o",
     .about = "What all queries so far attended to, and the most recent half of the budget.",
     .paper = "H2O, arXiv 2306.14048",
     .recipe = "h2o:recent=0,share=0.5,normalise=0" MEAN UNIFORM_EXACT "+equal+topk:ties=late+original"},
    {.name = "observed_attention",
     .about = "Mean attention from the queries that could see an entry; nothing is protected.",
     .paper = "H2O, arXiv 2306.14048",
     .recipe = "h2o:recent=0,share=0,normalise=1" MEAN UNIFORM_EXACT "+equal+topk:ties=early+original"},
    {.name = "vatp",
     .about = "H2O with attention weighted by the size of the values; 20 sinks stay.",
     .paper = "VATP, arXiv 2406.12335",
     .recipe = "vatp:sinks=20,host=sum,window=400,recent=0,share=0.5" MEAN UNIFORM_EXACT "+equal+topk:ties=early+original"},
    {.name = "vatp-window",
     .about = "What the last 400 queries attend to, weighted by the size of the values; 20 sinks stay.",
     .paper = "VATP, arXiv 2406.12335",
     .recipe =
         "vatp:sinks=20,host=window,window=400,recent=10,share=0" MEAN UNIFORM_EXACT "+equal+topk:ties=early+original"},

    /* ---- Other baselines ---- */
    {.name = "cake",
     .about =
         "Mean and variance of the window's attention; layers share by dispersion and change of attention.",
     .paper = "CAKE, arXiv 2503.12491",
     .recipe = "cake:window=32,gamma=200" MEAN "+cake_layers:rounding=exact,window=32,tau1=1,tau2=1,form=cascade+equal"
               "+topk:ties=early+original"},
    {.name = "cake-oneshot",
     .about = "CAKE with one allocation after the last layer and an exact total.",
     .paper = "CAKE, arXiv 2503.12491",
     .recipe = "cake:window=32,gamma=200" MEAN "+cake_layers:rounding=exact,window=32,tau1=1,tau2=1,form=oneshot+equal"
               "+topk:ties=early+original"},
    {.name = "zigzagkv",
     .about = "SnapKV whose layers get entries by how many they need to hold their attention.",
     .paper = "ZigZagKV, arXiv 2412.09036",
     .recipe = SNAPKV_8_MAX7 "+zigzagkv:rounding=exact,mass=0.9,min_share=0.2+equal+topk:ties=early+original"},
    {.name = "dynamickv",
     .about = "SnapKV whose layers compete for one budget.",
     .paper = "DynamicKV, arXiv 2412.14838",
     .recipe = SNAPKV_8_AVG7 "+dynamickv:rounding=exact,r_max=10,every=4,form=exact+equal+topk:ties=early+original"},
    {.name = "simlayerkv",
     .about =
         "The layers that look at first and recent tokens most keep only those, as many as the size needs.",
     .paper = "SimLayerKV, arXiv 2410.13846",
     .recipe = "streaming_llm:sinks=4,recent=0+direct"
               "+simlayerkv:rounding=exact,first=4,last=1024,threshold=0.9,form=size+equal+topk:ties=early+original"},
    {.name = "duoattention",
     .about = "Heads that a profile calls streaming keep first and recent tokens, as many as the size needs.",
     .paper = "DuoAttention, arXiv 2410.10819",
     .recipe = "streaming_llm:sinks=128,recent=0+direct" UNIFORM_EXACT "+duo:sinks=0,last=0,form=size,source=profile,slide=1"
               "+topk:ties=early+original"},
    {.name = "duoattention-prompt",
     .about = "DuoAttention without a profile: heads of which the prompt's mean query looks less far back stream.",
     .paper = "DuoAttention, arXiv 2410.10819",
     .recipe = "streaming_llm:sinks=128,recent=0+direct" UNIFORM_EXACT "+duo:sinks=0,last=0,form=size,source=prompt,slide=1"
               "+topk:ties=early+original"},

    {.name = "keydiff-shares",
     .about = "KeyDiff whose heads keep as many entries as KVzip would leave them; needs a profile of kind shares.",
     .paper = "KeyDiff, arXiv 2504.15364; heads after KVzip, arXiv 2505.23416",
     .recipe = KEYDIFF("0") UNIFORM_EXACT SHARES "+topk:ties=early+original"},
    {.name = "keydiff-sampled",
     .about = "KeyDiff whose heads keep as many entries as KVzip would leave them, by 32 tokens that are repeated.",
     .paper = "KeyDiff, arXiv 2504.15364",
     .recipe = KEYDIFF("0") UNIFORM_EXACT SAMPLED "+topk:ties=early+original"},
    {.name = "keydiff-values-shares",
     .about = "Keys that stand out and values of large norm, in heads that keep as much as KVzip would leave them; needs a profile of kind shares.",
     .paper = "after KeyDiff, arXiv 2504.15364; heads after KVzip, arXiv 2505.23416",
     .recipe = KEYDIFF("2") UNIFORM_EXACT SHARES "+topk:ties=early+original"},
    {.name = "keydiff-values-sampled",
     .about = "Keys that stand out and values of large norm, in heads that keep as much as 32 tokens say that are repeated.",
     .paper = "after KeyDiff, arXiv 2504.15364",
     .recipe = KEYDIFF("2") UNIFORM_EXACT SAMPLED "+topk:ties=early+original"},
    {.name = "keydiff",
     .about = "Keys that point elsewhere than the average key; sees no attention.",
     .paper = "KeyDiff, arXiv 2504.15364",
     .recipe = KEYDIFF("0") UNIFORM_EXACT "+equal+topk:ties=early+original"},
    {.name = "cur",
     .about = "Keys and values of large norm among their neighbours; sees no attention.",
     .paper = "CurDKV, arXiv 2509.15038",
     .recipe = "cur:sinks=4,block=16,leverage=product+direct" UNIFORM_EXACT "+equal+topk:ties=early+original"},
    {.name = "chunkkv",
     .about = "SnapKV that keeps whole chunks of 10 tokens, the same in all heads of a layer.",
     .paper = "ChunkKV, arXiv 2502.00299",
     .recipe = SNAPKV_32_MAX UNIFORM_EXACT "+equal+chunkkv:chunk=10,rest=fill+original"},
    {.name = "finch",
     .about = "What the question after the document attends to.",
     .paper = "FINCH, arXiv 2408.00167",
     .recipe = "finch:window=128,question=0" MEAN UNIFORM_EXACT "+equal+topk:ties=early+original"},
    {.name = "noncausal",
     .about = "Attention of every token to its chunk, later tokens included, times value norm.",
     .paper = "Compactor, arXiv 2507.08143",
     .recipe = "noncausal:chunk=256,pool=3,scaled=1,padded=0+direct" UNIFORM_EXACT "+equal+topk:ties=early+original"},
    {.name = "leverage",
     .about = "Keys that the other keys cannot be combined to; sees no attention.",
     .paper = "Compactor, arXiv 2507.08143",
     .recipe = "leverage:sketch=48,seed=0+direct" UNIFORM_EXACT "+equal+topk:ties=early+original"},
    {.name = "compactor",
     .about = "Leverage of the keys plus attention inside chunks.",
     .paper = "Compactor, arXiv 2507.08143",
     .recipe = "compactor:beta=-1,first=8,last=4,sketch=48,seed=0,chunk=256,pool=3,scaled=1,padded=0+direct"
               UNIFORM_EXACT "+equal+topk:ties=early+original"},
    {.name = "random",
     .about = "Chance: the floor any method has to beat.",
     .paper = "",
     .recipe = "random:seed=0+direct" UNIFORM_EXACT "+equal+topk:ties=early+original"},

    {.name = "kvpress-streaming_llm",
     .about = "kvpress StreamingLLMPress.",
     .paper = "StreamingLLM, arXiv 2309.17453",
     .recipe = "streaming_llm:sinks=4,recent=0+direct" UNIFORM_TRUNC "+equal+topk:ties=early+original",
     .parity = true},
    {.name = "kvpress-snapkv",
     .about = "kvpress SnapKVPress with window 32, kernel 5.",
     .paper = "SnapKV, arXiv 2404.14469",
     .recipe = SNAPKV_32_AVG UNIFORM_TRUNC "+equal+topk:ties=early+original",
     .parity = true},
    {.name = "kvpress-snapkv-ruler",
     .about = "kvpress SnapKVPress with its defaults, window 64 and kernel 5, as in RULER tables made with it.",
     .paper = "SnapKV, arXiv 2404.14469",
     .recipe = SNAPKV_64_AVG UNIFORM_TRUNC "+equal+topk:ties=early+original",
     .parity = true},
    {.name = "kvpress-tova",
     .about = "kvpress TOVAPress: the last token always stays.",
     .paper = "TOVA, arXiv 2401.06104",
     .recipe = "tova:last=1+layer_mean" UNIFORM_TRUNC "+equal+topk:ties=early+original",
     .parity = true},
    {.name = "kvpress-knorm",
     .about = "kvpress KnormPress.",
     .paper = "L2 norm-based strategy, arXiv 2406.11430",
     .recipe = "knorm+direct" UNIFORM_TRUNC "+equal+topk:ties=early+original",
     .parity = true},
    {.name = "kvpress-lagkv",
     .about = "kvpress LagKVPress with 4 sinks, lag 64: ranks inside blocks, one cut per head.",
     .paper = "LagKV, arXiv 2504.04704",
     .recipe = "lagkv:sink=4,lag=64,skip=0,ref=next,use=both,wv=1,ranked=1+direct" UNIFORM_TRUNC "+equal+topk:ties=early+original",
     .parity = true},
    {.name = "kvpress-lagkv-ruler",
     .about = "kvpress LagKVPress with its defaults, 4 sinks and lag 128: the setting of LagKV's RULER tables.",
     .paper = "LagKV, arXiv 2504.04704",
     .recipe = "lagkv:sink=4,lag=128,skip=0,ref=next,use=both,wv=1,ranked=1+direct" UNIFORM_TRUNC "+equal+topk:ties=early+original",
     .parity = true},
    {.name = "kvpress-pyramidkv",
     .about = "kvpress PyramidKVPress with window 32, kernel 5.",
     .paper = "PyramidKV, arXiv 2406.02069",
     .recipe = SNAPKV_32_AVG "+pyramid:rounding=trunc,beta=20,form=kvpress+equal+topk:ties=early+original",
     .parity = true},
    {.name = "kvpress-adakv_snapkv",
     .about = "kvpress AdaKVPress over SnapKVPress with window 32, kernel 5.",
     .paper = "Ada-KV, arXiv 2407.11550",
     .recipe = SNAPKV_32_AVG UNIFORM_TRUNC "+adakv:alpha_safeguard=0.2,mode=safeguard+topk:ties=early+original",
     .parity = true},
    {.name = "kvpress-adakv_snapkv-ruler",
     .about = "kvpress AdaKVPress over SnapKVPress with the latter's defaults, window 64 and kernel 5.",
     .paper = "Ada-KV, arXiv 2407.11550",
     .recipe = SNAPKV_64_AVG UNIFORM_TRUNC "+adakv:alpha_safeguard=0.2,mode=safeguard+topk:ties=early+original",
     .parity = true},
    {.name = "paper-compresskv-snapkv",
     .about = "SnapKV as CompressKV's paper sets it: window 8, average pooling 5.",
     .paper = "CompressKV, arXiv 2508.02401",
     .recipe = SNAPKV_8_AVG UNIFORM_EXACT "+equal+topk:ties=early+original",
     .parity = true},
    {.name = "paper-compresskv-pyramidkv",
     .about = "PyramidKV as CompressKV's paper sets it; its floored step keeps a little more than asked.",
     .paper = "CompressKV, arXiv 2508.02401",
     .recipe = SNAPKV_8_AVG "+pyramid:rounding=exact,beta=20,form=paper+equal+topk:ties=early+original",
     .parity = true},
    {.name = "paper-compresskv-streaming_llm",
     .about = "StreamingLLM as CompressKV's code runs it: the first tokens and the last 8.",
     .paper = "CompressKV, arXiv 2508.02401",
     .recipe = "streaming_llm:sinks=4,recent=8+direct" UNIFORM_EXACT "+equal+topk:ties=early+original",
     .parity = true},
    {.name = "paper-adakv",
     .about = "Ada-SnapKV as the authors' code shares out: a mix of equal and competed counts.",
     .paper = "Ada-KV, arXiv 2407.11550",
     .recipe = SNAPKV_32_GROUP UNIFORM_EXACT "+adakv:alpha_safeguard=0.2,mode=code+topk:ties=early+original",
     .parity = true},
    {.name = "paper-lagkv",
     .about = "LagKV with the defaults of the authors' code: lag 1024.",
     .paper = "LagKV, arXiv 2504.04704",
     .recipe = "lagkv:sink=16,lag=1024,skip=0,ref=next,use=both,wv=1,ranked=0+direct" UNIFORM_TRUNC "+equal+partition:retain=0.5+original",
     .parity = true},

    /* ---- parity: CompressKV and its baselines ---- */
    {.name = "paper-compresskv-cake",
     .about = "CAKE as CompressKV's paper sets it: window 8; its temperatures per model are options.",
     .paper = "CompressKV, arXiv 2508.02401",
     .recipe = "cake:window=8,gamma=200" MEAN "+cake_layers:rounding=exact,window=8,tau1=1,tau2=1,form=paper+equal"
               "+topk:ties=early+original",
     .parity = true},
    {.name = "paper-compresskv",
     .about = "CompressKV as its paper runs it: 4 heads in every layer, regardless of what the profile says.",
     .paper = "CompressKV, arXiv 2508.02401",
     .recipe = COMPRESSKV("4", "srh", "all"),
     .parity = true},
    {.name = "paper-compresskv-traditional",
     .about = "CompressKV with traditional retrieval heads, in layers without one the first of the ranking.",
     .paper = "CompressKV, arXiv 2508.02401",
     .recipe = COMPRESSKV("4", "traditional", "rank"),
     .parity = true},

    /* ---- parity: KVCompose and KVzip ---- */

    {.name = "kvpress-kvcompose",
     .about = "kvpress KVComposePress, structured: the first layer is never shorter than another.",
     .paper = "KVCompose, arXiv 2509.05165",
     .recipe = "kvcompose:task=context" KVCOMPOSE_AGG
               "+composite:rounding=trunc,agg_head=mean,layer0_max=1,min_tokens=0+equal+topk:ties=early+original",
     .parity = true},
    {.name = "kvpress-kvzip",
     .about = "kvpress KVzipPress: of a chat header only the first 4 tokens are sure to stay.",
     .paper = "KVzip, arXiv 2505.23416",
     .recipe = "kvzip:sinks=4,prefix=evict,norm=none+group_max:cross_head=0" UNIFORM_TRUNC "+global:min_tokens=0,count=removed,pool=model+topk:ties=early+original",
     .parity = true},

    /* ---- parity: CompilerKV and its baselines ---- */
    {.name = "paper-compilerkv-max",
     .about = "CompilerKV with scores divided by the largest, as its code does, whose thresholds let little pass.",
     .paper = "CompilerKV, arXiv 2602.08686",
     .recipe = COMPILERKV("full", "profile", "0") GATE("elastic", "max", "profile", "0"),
     .parity = true},
    {.name = "paper-compilerkv",
     .about = "CompilerKV as its paper has it: no layer has a floor, so that thresholds alone say what stays.",
     .paper = "CompilerKV, arXiv 2602.08686",
     .recipe = COMPILERKV("full", "profile", "0") GATE("elastic", "mean", "profile", "0"),
     .parity = true},
    {.name = "paper-compilerkv-no_heads",
     .about = "CompilerKV's ablation without head weights.",
     .paper = "CompilerKV, arXiv 2602.08686",
     .recipe = COMPILERKV("full", "none", "0") GATE("elastic", "mean", "profile", "0"),
     .parity = true},
    {.name = "paper-compilerkv-no_risk",
     .about = "CompilerKV's ablation with one threshold regardless of the prompt, which keeps as much on average.",
     .paper = "CompilerKV, arXiv 2602.08686",
     .recipe = COMPILERKV("full", "profile", "0") GATE("elastic", "mean", "constant", "0"),
     .parity = true},
    {.name = "paper-compilerkv-raw",
     .about = "CompilerKV's ablation that scores by the attention of the last query alone, with the full form's tables.",
     .paper = "CompilerKV, arXiv 2602.08686",
     .recipe = COMPILERKV("raw", "profile", "1") GATE("elastic", "mean", "profile", "0"),
     .parity = true},
    {.name = "paper-compilerkv-strict",
     .about = "CompilerKV's scores where every layer keeps what the size allows: what its ablations at equal size change.",
     .paper = "CompilerKV, arXiv 2602.08686",
     .recipe = COMPILERKV("full", "profile", "0") GATE("strict", "mean", "profile", "0"),
     .parity = true},
    {.name = "paper-compilerkv-strict-no_heads",
     .about = "CompilerKV's ablation without head weights, at equal size.",
     .paper = "CompilerKV, arXiv 2602.08686",
     .recipe = COMPILERKV("full", "none", "0") GATE("strict", "mean", "profile", "0"),
     .parity = true},
    {.name = "paper-compilerkv-strict-raw",
     .about = "CompilerKV's ablation that scores by the attention of the last query alone, at equal size.",
     .paper = "CompilerKV, arXiv 2602.08686",
     .recipe = COMPILERKV("raw", "profile", "1") GATE("strict", "mean", "profile", "0"),
     .parity = true},
    {.name = "paper-compilerkv-strict-attention",
     .about = "CompilerKV without the norms of values, at equal size.",
     .paper = "CompilerKV, arXiv 2602.08686",
     .recipe = COMPILERKV("attention", "profile", "1") GATE("strict", "mean", "profile", "0"),
     .parity = true},
    {.name = "paper-compilerkv-streaming_llm",
     .about =
         "StreamingLLM as the driver of CompilerKV's baselines runs it: the first tokens and the last 32.",
     .paper = "CompilerKV, arXiv 2602.08686",
     .recipe = "streaming_llm:sinks=4,recent=32+direct" UNIFORM_EXACT "+equal+topk:ties=early+original",
     .parity = true},
    {.name = "paper-compilerkv-h2o",
     .about = "H2O as the driver of CompilerKV's baselines runs it: the last 32 tokens stay.",
     .paper = "CompilerKV, arXiv 2602.08686",
     .recipe = "h2o:recent=32,share=0,normalise=0" MEAN UNIFORM_EXACT "+equal+topk:ties=early+original",
     .parity = true},
    {.name = "paper-compilerkv-snapkv",
     .about = "SnapKV as the driver of CompilerKV's baselines runs it: window 32, average pooling 7.",
     .paper = "CompilerKV, arXiv 2602.08686",
     .recipe = "snapkv:window=32,kernel=7,pool=avg,agg=mean,pool_after=0" MEAN UNIFORM_EXACT "+equal+topk:ties=early+original",
     .parity = true},
    {.name = "paper-compilerkv-pyramidkv",
     .about = "PyramidKV as in CompilerKV's comparison: window 8, max pooling 7, uniform for short prompts.",
     .paper = "CompilerKV, arXiv 2602.08686",
     .recipe = SNAPKV_8_MAX7 "+pyramid:rounding=exact,beta=20,form=factory+equal+topk:ties=early+original",
     .parity = true},
    {.name = "paper-compilerkv-dynamickv",
     .about = "DynamicKV as its authors' code shares out, every 4 layers while the prompt is read.",
     .paper = "DynamicKV, arXiv 2412.14838",
     .recipe = SNAPKV_8_AVG7 "+dynamickv:rounding=exact,r_max=10,every=4,form=cascade+equal+topk:ties=early+original",
     .parity = true},

    /* ---- parity: LagKV's variants ---- */
    {.name = "paper-lagkv-localkv",
     .about = "LocalKV as LagKV's paper compares it: lag 1024.",
     .paper = "LagKV, arXiv 2504.04704",
     .recipe = "lagkv:sink=16,lag=1024,skip=0,ref=own,use=both,wv=1,ranked=0+direct" UNIFORM_TRUNC
               "+equal+partition:retain=0.5+original",
     .parity = true},
    {.name = "paper-lagkv-l2norm",
     .about = "The recursive L2 norm with the defaults of LagKV's code: lag 1024, two layers skipped.",
     .paper = "LagKV, arXiv 2504.04704",
     .recipe = "l2norm:sink=16,lag=1024,skip=2,wv=0,low=1+direct" UNIFORM_TRUNC "+equal+partition:retain=0.5+original",
     .parity = true},

    /* ---- parity: CriticalKV and its allocators ---- */

    {.name = "paper-criticalkv",
     .about = "CriticalKV on SnapKV with the paper's L1 norm and no guard for sinks.",
     .paper = "CriticalKV, arXiv 2502.03805",
     .recipe = SNAPKV_32_GROUP UNIFORM_TRUNC "+equal" CRITICAL_L1 "+original",
     .parity = true},
    {.name = "paper-criticalkv-adakv",
     .about = "CriticalKV on AdaKV with the paper's L1 norm and no guard for sinks.",
     .paper = "CriticalKV, arXiv 2502.03805",
     .recipe = SNAPKV_32_GROUP UNIFORM_TRUNC ADAKV CRITICAL_L1 "+original",
     .parity = true},
    {.name = "paper-criticalkv-headkv",
     .about = "CriticalKV on HeadKV with the paper's L1 norm and no guard for sinks.",
     .paper = "CriticalKV, arXiv 2502.03805",
     .recipe = SNAPKV_32_GROUP UNIFORM_TRUNC "+headkv:beta=1.01,temp=1" CRITICAL_L1 "+original",
     .parity = true},
    {.name = "kvpress-criticalkv_snapkv",
     .about = "kvpress CriticalKVPress over SnapKVPress with window 32, kernel 5.",
     .paper = "CriticalKV, arXiv 2502.03805",
     .recipe = SNAPKV_32_AVG UNIFORM_TRUNC "+equal" CRITICAL_L1 "+original",
     .parity = true},
    {.name = "kvpress-criticalkv_snapkv-ruler",
     .about = "kvpress CriticalKVPress over SnapKVPress with the latter's defaults, window 64 and kernel 5.",
     .paper = "CriticalKV, arXiv 2502.03805",
     .recipe = SNAPKV_64_AVG UNIFORM_TRUNC "+equal" CRITICAL_L1 "+original",
     .parity = true},
    {.name = "kvpress-critical_adakv_snapkv",
     .about = "kvpress CriticalAdaKVPress over SnapKVPress with window 32, kernel 5.",
     .paper = "CriticalKV, arXiv 2502.03805",
     .recipe = SNAPKV_32_AVG UNIFORM_TRUNC ADAKV CRITICAL_L1 "+original",
     .parity = true},
    {.name = "kvpress-critical_adakv_snapkv-ruler",
     .about = "kvpress CriticalAdaKVPress over SnapKVPress with the latter's defaults, window 64 and kernel 5.",
     .paper = "CriticalKV, arXiv 2502.03805",
     .recipe = SNAPKV_64_AVG UNIFORM_TRUNC ADAKV CRITICAL_L1 "+original",
     .parity = true},
    {.name = "paper-defensivekv",
     .about = "DefensiveKV as the authors' code computes it.",
     .paper = "DefensiveKV, arXiv 2510.13334",
     .recipe = "defensivekv:window=32,kernel=5,mass=0.9,norm=l1,as_code=1+direct" UNIFORM_TRUNC
               "+global:min_tokens=0,count=kept,pool=layer+topk:ties=early+original",
     .parity = true},

    /* ---- parity: Expected attention ---- */

    {.name = "kvpress-expected_attention",
     .about = "kvpress ExpectedAttentionPress.",
     .paper = "Expected Attention, arXiv 2510.00636",
     .recipe = EXPECTED("1", "0") UNIFORM_TRUNC "+equal+topk:ties=early+original",
     .parity = true},
    {.name = "kvpress-adakv_expected_attention",
     .about = "kvpress AdaKVPress over ExpectedAttentionPress.",
     .paper = "Ada-KV, arXiv 2407.11550",
     .recipe = EXPECTED("1", "0") UNIFORM_TRUNC ADAKV "+topk:ties=early+original",
     .parity = true},
    {.name = "kvpress-criticalkv_expected_attention",
     .about = "kvpress CriticalKVPress over ExpectedAttentionPress, whose own value norm stays on.",
     .paper = "CriticalKV, arXiv 2502.03805",
     .recipe = EXPECTED("1", "0") UNIFORM_TRUNC "+equal" CRITICAL_L1 "+original",
     .parity = true},

    {.name = "kvpress-qfilters",
     .about = "kvpress QFilterPress: no recent tokens are protected.",
     .paper = "Q-Filters, arXiv 2503.02812",
     .recipe = "qfilters:recent=0+direct" UNIFORM_TRUNC "+equal+topk:ties=early+original",
     .parity = true},
    {.name = "kvpress-dms_keydiff",
     .about = "kvpress DMSPress over KeyDiffPress with threshold -0.75: the size follows from the text.",
     .paper = "DMS, arXiv 2506.05345",
     .recipe = KEYDIFF("0") UNIFORM_TRUNC "+threshold:tau=-0.75,window=128+topk:ties=early+original",
     .parity = true},

    /* ---- parity: Contents of entries ---- */
    {.name = "kvpress-merging_snapkv",
     .about = "kvpress MergingPress over SnapKVPress with window 32, kernel 5.",
     .paper = "D2O, arXiv 2406.13035",
     .recipe = SNAPKV_32_AVG UNIFORM_TRUNC "+equal+topk:ties=early+original" MERGE,
     .parity = true},
    {.name = "kvpress-think",
     .about = "kvpress ThinKPress with ratio 0.5: nothing is evicted, half of the key channels are 0.",
     .paper = "ThinK, arXiv 2407.21018",
     .recipe = "full+direct" UNIFORM_TRUNC "+equal+topk:ties=early+original+think:ratio=0.5,window=32,recent=0",
     .parity = true},

    /* ---- parity: Capacity ---- */
    {.name = "kvpress-capkv",
     .about = "kvpress CapPress.",
     .paper = "CapKV, arXiv 2604.25975",
     .recipe = CAPKV UNIFORM_TRUNC "+equal+topk:ties=early+original",
     .parity = true},

    /* ---- parity: Observed attention: H2O, VATP ---- */
    {.name = "kvpress-observed_attention",
     .about = "kvpress ObservedAttentionPress.",
     .paper = "H2O, arXiv 2306.14048",
     .recipe = "h2o:recent=0,share=0,normalise=1" MEAN UNIFORM_TRUNC "+equal+topk:ties=early+original",
     .parity = true},
    {.name = "paper-pyramidkv-h2o",
     .about = "H2O as PyramidKV's code runs it: the last 8 tokens stay.",
     .paper = "PyramidKV, arXiv 2406.02069",
     .recipe = "h2o:recent=8,share=0,normalise=0" MEAN UNIFORM_EXACT "+equal+topk:ties=early+original",
     .parity = true},
    {.name = "paper-criticalkv-h2o",
     .about = "H2O as CriticalKV's paper stands in for it: the last 256 queries, no pooling.",
     .paper = "CriticalKV, arXiv 2502.03805",
     .recipe = "snapkv:window=256,kernel=1,pool=max,agg=mean,pool_after=0" MEAN UNIFORM_TRUNC "+equal+topk:ties=early+original",
     .parity = true},

    /* ---- parity: Other baselines ---- */

    {.name = "kvpress-keydiff",
     .about = "kvpress KeyDiffPress.",
     .paper = "KeyDiff, arXiv 2504.15364",
     .recipe = KEYDIFF("0") UNIFORM_TRUNC "+equal+topk:ties=early+original",
     .parity = true},
    {.name = "kvpress-cur",
     .about = "kvpress CURPress: products of norms inside blocks of 16.",
     .paper = "CurDKV, arXiv 2509.15038",
     .recipe = "cur:sinks=4,block=16,leverage=product+direct" UNIFORM_TRUNC "+equal+topk:ties=early+original",
     .parity = true},
    {.name = "kvpress-noncausal",
     .about = "kvpress NonCausalAttnPress: bare products, a last chunk filled up with zeros.",
     .paper = "Compactor, arXiv 2507.08143",
     .recipe = "noncausal:chunk=256,pool=3,scaled=0,padded=1+direct" UNIFORM_TRUNC "+equal+topk:ties=early+original",
     .parity = true},
    {.name = "kvpress-finch",
     .about = "kvpress FinchPress: the question's attention, kept keys turned to new positions.",
     .paper = "FINCH, arXiv 2408.00167",
     .recipe = "finch:window=512,question=0" MEAN UNIFORM_TRUNC "+equal+topk:ties=early+rerotate",
     .parity = true},

    {.name = "kvpress-chunkkv_snapkv",
     .about = "kvpress ChunkKVPress with chunks of 20 over SnapKVPress with window 32, kernel 5.",
     .paper = "ChunkKV, arXiv 2502.00299",
     .recipe = SNAPKV_32_AVG UNIFORM_TRUNC "+equal+chunkkv:chunk=20,rest=drop+original",
     .parity = true},
    {.name = "kvpress-simlayerkv",
     .about = "kvpress SimLayerKVPress with threshold 0.9: the size follows from the text.",
     .paper = "SimLayerKV, arXiv 2410.13846",
     .recipe =
         "streaming_llm:sinks=4,recent=0+direct"
         "+simlayerkv:rounding=trunc,first=4,last=1024,threshold=0.9,form=threshold+equal+topk:ties=early+original",
     .parity = true},
    {.name = "kvpress-duoattention",
     .about = "kvpress DuoAttentionPress: the ratio is the share of streaming heads.",
     .paper = "DuoAttention, arXiv 2410.10819",
     .recipe = "streaming_llm:sinks=128,recent=0+direct" UNIFORM_TRUNC "+duo:sinks=0,last=0,form=ratio,source=profile,slide=0"
               "+topk:ties=early+original",
     .parity = true},
    {.name = "kvpress-lukv",
     .about = "kvpress LUKVPress: the nearest percent of the curves, every layer rounded by itself.",
     .paper = "LU-KV, arXiv 2602.08585",
     .recipe = EXPECTED("1", "0.02") UNIFORM_TRUNC "+lukv:sinks=0,last=1,form=nearest+topk:ties=early+original",
     .parity = true},
};
/* clang-format on */

const struct wnw__preset *wnw__preset_get(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof presets / sizeof *presets ? &presets[i] : NULL;
}

const struct wnw__preset *wnw__preset_find(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        if (wnw__is_name(name, len, presets[i].name))
            return &presets[i];
    return NULL;
}
