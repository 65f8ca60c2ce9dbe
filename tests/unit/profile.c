/* SPDX-License-Identifier: MIT */
/* Profiles: what files hold, what is refused and why, the authors' formats, damaged files. */
#include "asserts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "peek_plan.h"
#include "random.h"
#include "winnow_calibrate.h"

#define PRINT "0123456789abcdef0123456789abcdef"
/* Shapes of every profile here: 2 layers, 4 query heads, 2 KV heads of 2. */
#define MODEL                                                                              \
    "\"model\":{\"fingerprint\":\"" PRINT "\",\"n_layer\":2,\"n_head\":4,\"n_head_kv\":2," \
    "\"n_embd_head\":2}"
#define HEAD(kind) \
    "{\"format\":\"winnow-profile-1\",\"kind\":\"" kind "\"," MODEL ",\"data\":{\"text\":\"x\"},"

static const char srh_text[] =
    HEAD("srh") "\"settings\":{\"k\":3},\"results\":{\"srh\":[[3,2,1,0],[0,2,1,3]],\"srh_mean\":[[0,0.5,1,2],"
                "[4,2,3,1]],"
                "\"trad\":[[0,1,2,3],[0,1,2,3]],\"trad_mean\":[[0,0,0,0],[1,0,0,0]]}}";
static const char layers_text[] = HEAD("layers") "\"results\":{\"avg_score\":[0.25,0.75]}}";
static const char compiler_text[] =
    HEAD("compiler") "\"settings\":{\"budget\":128,\"window\":16,\"alpha_scope\":\"global\",\"score_norm\":"
                     "\"mean\","
                     "\"gate\":\"elastic\",\"entropy_norm\":false},\"results\":{\"entropy_edges\":[2,3.5],"
                     "\"ppl_edges\":[8],"
                     "\"default_ppl_bin\":1,\"weight\":[[1,1,1,1],[0.85,1,1.15,1]],"
                     "\"tau\":[[[1,2],[3,4],[5,6]],[[1,1],[1,1],[1,0.5]]]}}";
static const char heads_text[] =
    HEAD("heads") "\"settings\":{\"sink\":4,\"recent\":32},\"results\":{\"score\":[[1,2,3,4],[5,6,7,8]],"
                  "\"alpha\":[[0,1],[0.5,0.25]]}}";
static const char stats_text[] = HEAD("stats") "\"results\":{\"query_mean\":[[[1,2],[3,4],[5,6],[7,8]],[[1,2]"
                                               ",[3,4],[5,6],[7,-8]]],\"query_cov\":"
                                               "[[[[1,0],[0,1]],[[1,0],[0,1]],[[1,0],[0,1]],[[1,0],[0,1]]],"
                                               "[[[1,0],[0,1]],[[1,0],[0,1]],[[1,0],[0,1]],[[1,0],[0,2]]]]}}";
/* Head 0 of layer 0: standard deviations 2 and 3, correlation -0.5, so a covariance of -3; the rest is 1, 1, 0. */
static const char correlations_text[] =
    HEAD("stats") "\"results\":{\"query_mean\":[[[1,2],[3,4],[5,6],[7,8]],[[1,2],[3,4],[5,6],[7,8]]],"
                  "\"query_std\":[[[2,3],[1,1],[1,1],[1,1]],[[1,1],[1,1],[1,1],[1,1]]],"
                  "\"query_corr\":[[[-5000],[0],[0],[0]],[[0],[0],[0],[0]]],"
                  "\"filter\":[[[1,0],[0,1]],[[0.6,-0.8],[-1,0]]]}}";
/* The same numbers as texts of base64, mixed: one for a layer, one for a head, one for everything. */
static const char packed_text[] =
    HEAD("stats") "\"results\":{\"query_mean\":[\"AACAPwAAAEAAAEBAAACAQAAAoEAAAMBAAADgQAAAAEE=\","
                  "[[1,2],[3,4],\"AACgQAAAwEA=\",[7,8]]],"
                  "\"query_std\":[\"AAAAQAAAQEAAAIA/AACAPwAAgD8AAIA/AACAPwAAgD8=\","
                  "\"AACAPwAAgD8AAIA/AACAPwAAgD8AAIA/AACAPwAAgD8=\"],"
                  "\"query_corr\":[\"eOwAAAAAAAA=\",\"AAAAAAAAAAA=\"],"
                  "\"filter\":\"AACAPwAAAAAAAAAAAACAP5qZGT/NzEy/AACAvwAAAAA=\"}}";
static const char filters_text[] =
    HEAD("stats") "\"results\":{\"filter\":[[[1,0],[0,1]],[[0.6,-0.8],[-1,0]]]}}";
static const char curves_text[] =
    HEAD("curves") "\"settings\":{\"policy\":\"snapkv:window=32+uniform\"},\"results\":{\"ratio\":[0.25,0.5],"
                   "\"keep\":[[[1,0.5],[0.75,0.7]],[[0.5,0.25],[0.75,0.5]]]}}";
static const char shares_text[] =
    HEAD("shares") "\"settings\":{\"target\":\"kvzip\"},\"results\":{\"size\":[0.5,0.25],\"layers\":[1],"
                   "\"share\":[[[1,1],[0.75,0.25]],[[1,1],[0.5,0]]]}}";
static const char gate_text[] =
    HEAD("gate") "\"settings\":{\"features\":[\"lk\",\"keydiff\",\"ea\",\"lev\"]},\"results\":{\"weight\":"
                 "[[[1,2,3,4],[5,6,7,8]],[[9,10,11,12],[13,14,15,16]]],\"bias\":[[-1,-2],[-3,-4]]}}";
/* Layer 0 has the weights 1 to 6 and the biases -1 and -2; layer 1 has none. */
#define INPUT_LAYER "AACAPwAAAEAAAEBAAACAQAAAoEAAAMBAAACAvwAAAMA="
static const char inputgate_text[] = HEAD(
    "inputgate") "\"settings\":{\"form\":\"linear\",\"n_embd\":3},\"results\":{\"layers\":[\"" INPUT_LAYER
                 "\",\"\"]}}";
static const char quality_text[] =
    HEAD("quality") "\"settings\":{\"gate\":\"00000000000000ff\"},\"results\":{\"dropped\":[0.1,0.4],"
                    "\"replay\":[0.02,0.3],\"replay_kept\":[0.6,0.25],"
                    "\"kvgate\":[0.01,0.1],\"kvgate_kept\":[0.5,0.2]}}";

static const char gradient_text[] = HEAD("gradient") "\"results\":{\"gradient\":[0.5,1.5]}}";

static const char *const texts[] = {srh_text,       layers_text,  compiler_text, heads_text,
                                    stats_text,     curves_text,  shares_text,   gate_text,
                                    inputgate_text, quality_text, gradient_text};

static char folder[] = "/tmp/winnow-profile-XXXXXX";

static const char *file_of(const char *name, const char *text, size_t len)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, len, f), len);
    fclose(f);
    return path;
}

static wnw_profile *empty(void)
{
    wnw_profile *p = NULL;
    assert_int_equal(
        wnw__profile_new(
            &p, &(struct wnw__profile_shape){.model = {.n_layer = 2, .n_head = 4, .n_head_kv = 2, .d = 2},
                                             .fingerprint = PRINT}),
        WNW_OK);
    return p;
}

static int add(wnw_profile *p, const char *name, const char *text)
{
    const char *path = file_of(name, text, strlen(text));
    const int rc = wnw_profile_add_file(p, path);
    unlink(path);
    return rc;
}

static void add_ok(wnw_profile *p, const char *name, const char *text)
{
    if (add(p, name, text) != WNW_OK)
        fail_msg("%s: %s", name, wnw_last_error());
}

static void every_kind(void **state)
{
    (void)state;
    wnw_profile *p = empty();
    assert_int_equal(wnw_profile_kinds(p), 0);
    assert_int_equal(wnw_profile_kinds(NULL), 0);
    for (int32_t kind = 0; kind < WNW_N_PROFILE_KINDS; kind++) {
        add_ok(p, "p.json", texts[kind]);
        assert_int_equal(wnw_profile_kinds(p), (1u << (kind + 1)) - 1);
    }
    assert_int_equal(p->srh_k, 3);
    assert_int_equal(p->srh_rank[0], 3);
    assert_int_equal(p->srh_rank[5], 2);
    assert_float_equal(p->srh_mean[4], 4, 0);
    assert_int_equal(p->trad_rank[3], 3);
    assert_float_equal(p->trad_mean[4], 1, 0);
    assert_cmp(p->layer_share[0], ==, 0.25);
    assert_cmp(p->layer_share[1], ==, 0.75);
    assert_int_equal(p->compiler.n_entropy, 3);
    assert_int_equal(p->compiler.n_ppl, 2);
    assert_cmp(p->compiler.entropy_edge[1], ==, 3.5);
    assert_cmp(p->compiler.ppl_edge[0], ==, 8);
    assert_float_equal(p->compiler.tau[5], 6, 0);
    assert_float_equal(p->compiler.tau[11], 0.5, 0);
    assert_float_equal(p->compiler.weight[6], 1.15, 1e-7);
    assert_int_equal(p->compiler.budget, 128);
    assert_int_equal(p->compiler.n_sink, -1); /* not said */
    assert_int_equal(p->compiler.kernel, 0);
    assert_int_equal(p->compiler.pool, -1);
    assert_false(p->compiler.foreign);
    assert_int_equal(p->head_recent, 32);
    assert_cmp(p->head_score[7], ==, 8);
    assert_cmp(p->head_alpha[2], ==, 0.5);
    assert_float_equal(p->query_mean[15], -8, 0);
    assert_float_equal(p->query_cov[31], 2, 0);
    assert_int_equal(p->n_curve, 2);
    assert_cmp(p->curve_ratio[1], ==, 0.5);
    assert_float_equal(p->curve_keep[1], 0.5, 0);
    assert_float_equal(p->curve_keep[5], 0.25, 0);
    assert_string_equal(p->curve_scorer, "snapkv");
    assert_int_equal(p->n_best, 2);
    assert_cmp(p->best_size[1], ==, 0.25);
    assert_float_equal(p->best_share[2], 0.75, 0);
    assert_float_equal(p->best_share[7], 0, 0);
    assert_int_equal(p->n_gate_feature, 4);
    assert_float_equal(p->gate_weight[9], 10, 0);
    assert_float_equal(p->gate_bias[3], -4, 0);
    assert_true(p->inputs.there[0]);
    assert_false(p->inputs.there[1]);
    const float layer[] = {1, 2, 3, 4, 5, 6, -1, -2};
    assert_memory_equal(p->inputs.number, layer, sizeof layer);
    assert_cmp(p->layer_gradient[1], ==, 1.5);
    assert_int_equal(p->n_quality, 2);
    assert_cmp(p->quality_dropped[1], ==, 0.4);
    assert_cmp(p->quality_loss[WNW_QUALITY_REPLAY][1], ==, 0.3);
    assert_cmp(p->quality_kept[WNW_QUALITY_REPLAY][0], ==, 0.6);
    assert_cmp(p->quality_loss[WNW_QUALITY_KVGATE][1], ==, 0.1);
    assert_true(p->quality_of[WNW_QUALITY_KVGATE] == 0xff);
    assert_null(p->quality_loss[WNW_QUALITY_INPUTGATE]);
    /* What was measured with other gates than the profile's own is not shown. */
    double two[2];
    assert_ok(wnw_profile_get_values(two, 2, p, "replay"));
    assert_error(wnw_profile_get_values(two, 2, p, "kvgate"), WNW_E_ARG);
    p->quality_of[WNW_QUALITY_KVGATE] = wnw__profile_hash(p, 1u << WNW_PROFILE_GATE);
    assert_ok(wnw_profile_get_values(two, 2, p, "kvgate"));
    assert_cmp(two[0], ==, 0.01);
    /* The same kind again replaces the old. */
    add_ok(p, "p.json", HEAD("srh") "\"results\":{\"srh\":[[0,1,2,3],[0,1,2,3]]}}");
    assert_int_equal(p->srh_rank[0], 0);
    assert_int_equal(p->srh_k, 0);
    assert_null(p->srh_mean);
    assert_null(p->trad_rank);
    wnw_profile_free(p);
    wnw_profile_free(NULL);
    assert_string_equal(wnw_profile_kind_name(2), "compiler");
    assert_string_equal(wnw_profile_kind_name(5), "curves");
    assert_string_equal(wnw_profile_kind_name(6), "shares");
    assert_string_equal(wnw_profile_kind_name(7), "gate");
    assert_string_equal(wnw_profile_kind_name(8), "inputgate");
    assert_string_equal(wnw_profile_kind_name(9), "quality");
    assert_string_equal(wnw_profile_kind_name(10), "gradient");
    assert_null(wnw_profile_kind_name(11));
    assert_null(wnw_profile_kind_name(-1));
}

static void correlations(void **state)
{
    (void)state;
    wnw_profile *p = empty();
    add_ok(p, "p.json", correlations_text);
    const float want[] = {4, -3, -3, 9, 1, 0, 0, 1};
    assert_floats_near(p->query_cov, want, 8, 1e-6);
    assert_float_equal(p->query_filter[5], -0.8, 1e-7);
    /* A file of filters alone takes their place; the statistics of another run go. */
    add_ok(p, "p.json", filters_text);
    assert_null(p->query_mean);
    assert_null(p->query_cov);
    assert_float_equal(p->query_filter[4], 0.6, 1e-7);
    wnw_profile_free(p);
}

/* Texts of base64 are the same numbers as digits, bit for bit. */
static void packed(void **state)
{
    (void)state;
    const uint32_t kind = 1u << WNW_PROFILE_STATS;
    wnw_profile *digits = empty(), *texts64 = empty();
    add_ok(digits, "p.json", correlations_text);
    add_ok(texts64, "p.json", packed_text);
    assert_memory_equal(digits->query_mean, texts64->query_mean, 16 * sizeof(float));
    assert_memory_equal(digits->query_cov, texts64->query_cov, 32 * sizeof(float));
    assert_memory_equal(digits->query_filter, texts64->query_filter, 8 * sizeof(float));
    assert_true(wnw__profile_hash(digits, kind) == wnw__profile_hash(texts64, kind));
    wnw_profile_free(digits);
    wnw_profile_free(texts64);
}

/* `text` with the first `from` replaced. */
static char *changed(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    char *out = malloc(strlen(text) + strlen(to) + 1);
    assert_non_null(out);
    if (!at)
        fail_msg("no \"%s\"", from);
    sprintf(out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return out;
}

/* One change to a good file, and the words of the refusal. */
static const struct change {
    const char *name, *text, *from, *to;
    int rc;
    const char *because;
} changes[] = {
    {"a head twice", srh_text, "[3,2,1,0]", "[3,2,1,1]", WNW_E_FORMAT, "srh[0] names head 1 twice"},
    {"a head too many", srh_text, "[3,2,1,0]", "[3,2,1,4]", WNW_E_FORMAT, "srh[0][3] is 4"},
    {"a negative head", srh_text, "[3,2,1,0]", "[3,2,1,-1]", WNW_E_FORMAT, "srh[0][3] is -1"},
    {"a short list", srh_text, "[3,2,1,0]", "[3,2,1]", WNW_E_FORMAT, "srh[0] has 3 elements; 4"},
    {"a half head", srh_text, "[3,2,1,0]", "[3,2,1,0.5]", WNW_E_FORMAT, "not a whole number"},
    {"a number for a list", srh_text, "[3,2,1,0]", "7", WNW_E_FORMAT, "srh[0] is not an array"},
    {"k above the heads", srh_text, "\"k\":3", "\"k\":5", WNW_E_FORMAT, "k is 5"},
    {"results of another name", layers_text, "avg_score", "average", WNW_E_FORMAT,
     "results.avg_score is missing"},
    {"a text for a number", srh_text, "[0,0.5,1,2]", "[0,0.5,1,\"2\"]", WNW_E_FORMAT,
     "srh_mean[0][3] is not a number"},
    {"another format", srh_text, "winnow-profile-1", "winnow-profile-2", WNW_E_FORMAT,
     "winnow-profile-1 is expected"},
    {"a number for the format", srh_text, "\"winnow-profile-1\"", "1", WNW_E_FORMAT, "no string"},
    {"an unknown kind", srh_text, "\"kind\":\"srh\"", "\"kind\":\"hrs\"", WNW_E_FORMAT, "its kind is not"},
    {"a short fingerprint", srh_text, PRINT, "0123456789abcde", WNW_E_FORMAT, "32 hexadecimal digits"},
    {"a long fingerprint", srh_text, PRINT, PRINT "0", WNW_E_FORMAT, "32 hexadecimal digits"},
    {"no digits", srh_text, PRINT, "0123456789ABCDEF0123456789abcdef", WNW_E_FORMAT, "32 hexadecimal digits"},
    {"an old fingerprint", srh_text, PRINT, "0123456789abcdef", WNW_E_MISMATCH,
     "make it again with `winnow calibrate srh`"},
    {"another fingerprint", srh_text, PRINT, "0123456789abcdef0123456789abcdee", WNW_E_MISMATCH,
     "another model"},
    {"another depth", srh_text, "\"n_layer\":2", "\"n_layer\":3", WNW_E_MISMATCH, "another model"},
    {"a negative depth", srh_text, "\"n_layer\":2", "\"n_layer\":-3", WNW_E_FORMAT, "n_layer is -3"},
    {"no depth", srh_text, "\"n_layer\":2,", "", WNW_E_FORMAT, "model.n_layer is missing"},
    {"no end", srh_text, "}}", "}", WNW_E_FORMAT, "not JSON"},
    {"a key twice", srh_text, "\"kind\"", "\"format\":\"x\",\"kind\"", WNW_E_FORMAT, "not JSON"},
    {"a negative score", layers_text, "0.25", "-0.25", WNW_E_FORMAT, "avg_score[0] is -0.25"},
    {"NaN", layers_text, "0.25", "NaN", WNW_E_FORMAT, "not JSON"},
    {"infinity", layers_text, "0.25", "1e999", WNW_E_FORMAT, "not JSON"},
    {"scores that sum to 0", layers_text, "[0.25,0.75]", "[0,0]", WNW_E_FORMAT, "sum to 0"},
    {"a layer too many", layers_text, "[0.25,0.75]", "[0.25,0.5,0.25]", WNW_E_FORMAT, "has 3 elements"},
    {"edges that do not ascend", compiler_text, "[2,3.5]", "[2,2]", WNW_E_FORMAT,
     "entropy_edges[1] is not above"},
    {"an edge too many", compiler_text, "[2,3.5]", "[2,3.5,4]", WNW_E_FORMAT, "tau[0] has 3 elements; 4"},
    {"a bin too many", compiler_text, "\"default_ppl_bin\":1", "\"default_ppl_bin\":2", WNW_E_FORMAT,
     "default_ppl_bin is 2"},
    {"no budget", compiler_text, "\"budget\":128,", "", WNW_E_FORMAT, "settings must say budget"},
    {"an unknown gate", compiler_text, "\"gate\":\"elastic\"", "\"gate\":\"hard\"", WNW_E_FORMAT,
     "gate is \"hard\""},
    {"an unknown pool", compiler_text, "\"window\":16", "\"window\":16,\"pool\":\"min\"", WNW_E_FORMAT,
     "pool is \"min\""},
    {"utility is no text", compiler_text, "\"window\":16", "\"window\":16,\"utility\":3", WNW_E_FORMAT,
     "utility"},
    {"kernel 0", compiler_text, "\"window\":16", "\"window\":16,\"kernel\":0", WNW_E_FORMAT, "kernel"},
    {"more heads", compiler_text, "\"n_head\":4", "\"n_head\":8", WNW_E_MISMATCH, "another model"},
    {"a weight out of range", compiler_text, "0.85", "1e7", WNW_E_FORMAT, "weight[1][0]"},
    {"alpha above 1", heads_text, "[0,1]", "[0,1.5]", WNW_E_FORMAT, "alpha[0][1] is 1.5"},
    {"neither score nor alpha", heads_text, "\"results\"", "\"result\"", WNW_E_FORMAT,
     "neither score nor alpha"},
    {"no correlations", correlations_text, "\"query_corr\"", "\"query_cor\"", WNW_E_FORMAT,
     "results.query_corr is missing"},
    {"neither covariance nor deviations", stats_text, "\"query_cov\"", "\"query_co\"", WNW_E_FORMAT,
     "results.query_std is missing"},
    {"a correlation below -1", correlations_text, "-5000", "-10001", WNW_E_FORMAT,
     "query_corr[0][0][0] is -10001"},
    {"a packed correlation below -1", packed_text, "eOwAAAAAAAA=", "79gAAAAAAAA=", WNW_E_FORMAT,
     "number 0 of query_corr[0] is -10001"},
    {"a packed number that is none", packed_text, "AACAPwAAAEAAAEBA", "AACAPwAAwH8AAEBA", WNW_E_FORMAT,
     "number 1 of query_mean[0] is nan"},
    {"a packed layer cut short", packed_text, "eOwAAAAAAAA=", "eOwAAAAA", WNW_E_FORMAT,
     "query_corr[0] is not the base64 of 4 numbers of 2 bytes"},
    {"a packed layer that is no base64", packed_text, "AACgQAAAwEA=", "AACgQ*AAwEA=", WNW_E_FORMAT,
     "query_mean[1][2] is not the base64 of 2 numbers of 4 bytes"},
    {"packed shares of layers", layers_text, "[0.25,0.75]", "\"AAAAAAAA0D8AAAAAAADoPw==\"", WNW_E_FORMAT,
     "avg_score is not an array of 2"},
    {"a negative deviation", correlations_text, "[2,3]", "[2,-3]", WNW_E_FORMAT, "query_std[0][0][1] is -3"},
    {"a short filter", filters_text, "[0.6,-0.8]", "[0.6]", WNW_E_FORMAT, "filter[1][0] has 1 element"},
    {"neither means nor filters", filters_text, "\"filter\"", "\"filters\"", WNW_E_FORMAT,
     "neither query_mean nor filter"},
    {"a short mean", stats_text, "[[1,2],[3,4],[5,6],[7,8]]", "[[1,2],[3,4],[5,6],[7]]", WNW_E_FORMAT,
     "query_mean[0][3]"},
    {"ratios that do not ascend", curves_text, "[0.25,0.5]", "[0.5,0.5]", WNW_E_FORMAT,
     "ratio[1] is not above"},
    {"a ratio of 1", curves_text, "[0.25,0.5]", "[0.25,1]", WNW_E_FORMAT, "ratio[1] is 1"},
    {"no ratios", curves_text, "[0.25,0.5]", "[]", WNW_E_FORMAT, "results.ratio is not an array of 1"},
    {"a share above 1", curves_text, "[1,0.5]", "[1.5,0.5]", WNW_E_FORMAT, "keep[0][0][0] is 1.5"},
    {"a share that rises", curves_text, "[0.5,0.25]", "[0.5,0.75]", WNW_E_FORMAT, "keep[1][0][1] is above"},
    {"a row too many", curves_text, "[0.75,0.7]]", "[0.75,0.7],[1,1]]", WNW_E_FORMAT,
     "keep[0] has 3 elements"},
    {"an unknown feature", gate_text, "\"ea\"", "\"x\"", WNW_E_FORMAT, "settings.features is neither"},
    {"features in another order", gate_text, "\"lk\",\"keydiff\"", "\"keydiff\",\"lk\"", WNW_E_FORMAT,
     "settings.features is neither"},
    {"features that are no list", gate_text, "[\"lk\",\"keydiff\",\"ea\",\"lev\"]", "4", WNW_E_FORMAT,
     "settings.features is neither"},
    {"weights of all features, the names of four", gate_text, "[1,2,3,4]", "[1,2,3,4,5,6,7,8]", WNW_E_FORMAT,
     "weight[0][0] has 8 elements"},
    {"an absurd weight", gate_text, "[1,2,", "[1e9,2,", WNW_E_FORMAT, "weight[0][0][0] is"},
    {"gates for more than all", gate_text, "\"settings\":{", "\"settings\":{\"least\":1.5,", WNW_E_FORMAT,
     "settings.least is not a number from 0 to 1"},
    {"gates for a word", gate_text, "\"settings\":{", "\"settings\":{\"least\":\"half\",", WNW_E_FORMAT,
     "settings.least is not a number from 0 to 1"},
    {"no biases", gate_text, "\"bias\"", "\"offset\"", WNW_E_FORMAT, "results.bias is missing"},
    {"no losses", quality_text, "\"results\"", "\"other\"", WNW_E_FORMAT, "results"},
    {"gates that are no hash", quality_text, "00000000000000ff", "0x000000000000ff", WNW_E_FORMAT,
     "settings.gate is not 16 hexadecimal digits"},
    {"gates of a short hash", quality_text, "00000000000000ff", "ff", WNW_E_FORMAT, "settings.gate"},
    {"gates of a hash that is a number", quality_text, "\"00000000000000ff\"", "255", WNW_E_FORMAT,
     "settings.gate"},
    {"losses of one scorer without what stays", quality_text, "\"kvgate_kept\"", "\"kvgate_kep\"",
     WNW_E_FORMAT, "kvgate_kept is missing"},
    {"losses that fall", quality_text, "0.02,0.3", "0.3,0.02", WNW_E_FORMAT, "replay[1] is below"},
    {"losses beyond 1", quality_text, "0.02,0.3", "0.02,1.3", WNW_E_FORMAT, "replay[1]"},
    {"losses of another number of shares", quality_text, "0.02,0.3", "0.02", WNW_E_FORMAT, "replay"},
    {"losses without what stays", quality_text, "\"replay_kept\"", "\"replay_kep\"", WNW_E_FORMAT,
     "replay_kept is missing"},
    {"shares that fall", quality_text, "0.1,0.4", "0.4,0.1", WNW_E_FORMAT, "dropped[1] is not above"},
    {"a share of all", quality_text, "0.1,0.4", "0.1,1", WNW_E_FORMAT, "dropped[1]"},
    {"gradients that are missing", gradient_text, "\"gradient\":[0", "\"gradients\":[0", WNW_E_FORMAT,
     "results.gradient is missing"},
    {"gradients of other layers", gradient_text, "0.5,1.5", "0.5,1.5,1", WNW_E_FORMAT, "gradient"},
    {"a negative gradient", gradient_text, "0.5,", "-0.5,", WNW_E_FORMAT, "gradient[0]"},
    {"gates of no form", inputgate_text, "\"form\"", "\"shape\"", WNW_E_FORMAT, "settings.form is missing"},
    {"gates of an unknown form", inputgate_text, "linear", "cubic", WNW_E_FORMAT, "form is \"cubic\""},
    {"gates of no size", inputgate_text, "\"n_embd\":3", "\"n_emb\":3", WNW_E_FORMAT,
     "settings.n_embd is missing"},
    {"gates of another size", inputgate_text, "\"n_embd\":3", "\"n_embd\":4", WNW_E_FORMAT,
     "layers[0] is not the base64 of 10 numbers"},
    {"gates of an absurd size", inputgate_text, "\"n_embd\":3", "\"n_embd\":900000", WNW_E_FORMAT,
     "n_embd is 900000"},
    {"gates for prompts of a negative length", inputgate_text, "\"n_embd\":3", "\"n_embd\":3,\"reach\":-1",
     WNW_E_FORMAT, "reach is -1"},
    {"gates from pieces of no length", inputgate_text, "\"n_embd\":3", "\"n_embd\":3,\"length\":0",
     WNW_E_FORMAT, "length is 0"},
    {"gates from pieces of a length that is a text", inputgate_text, "\"n_embd\":3",
     "\"n_embd\":3,\"length\":\"3000\"", WNW_E_FORMAT, "length"},
    {"hidden units that are not there", inputgate_text, "linear", "mlp", WNW_E_FORMAT,
     "settings.hidden is missing"},
    {"gates that are no base64", inputgate_text, "AACAPw", "AACA*w", WNW_E_FORMAT,
     "layers[0] is not the base64"},
    {"gates that are not all numbers", inputgate_text, "AAAEBA", "AAAMB/", WNW_E_FORMAT,
     "number 2 of layers[0] is"},
    {"a layer too many", inputgate_text, "\"\"]", "\"\",\"\"]", WNW_E_FORMAT,
     "results.layers is not an array of 2"},
    {"gates of no layer", inputgate_text, INPUT_LAYER, "", WNW_E_FORMAT, "gates of no layer"},
    {"a layer that is a number", inputgate_text, ",\"\"]", ",7]", WNW_E_FORMAT, "layers[1] is no text"},
    {"sizes that do not fall", shares_text, "[0.5,0.25]", "[0.25,0.25]", WNW_E_FORMAT,
     "size[1] is not below the one before it"},
    {"a size of 1", shares_text, "[0.5,0.25]", "[1,0.25]", WNW_E_FORMAT, "size[0] is 1"},
    {"no sizes", shares_text, "[0.5,0.25]", "{}", WNW_E_FORMAT, "results.size is not an array of 1"},
    {"a share of more entries than it has", shares_text, "[0.75,0.25]", "[1.25,0.25]", WNW_E_FORMAT,
     "share[0][1][0] is 1.25"},
    {"a share that is not finite", shares_text, "[0.75,0.25]", "[1e999,0.25]", WNW_E_FORMAT,
     "real number overflow"},
    {"a share that rises as less is kept", shares_text, "[0.5,0]", "[0.2,0.3]", WNW_E_FORMAT,
     "share[1][1][1] is above that of the size before it"},
    {"shares that do not come to their size", shares_text, "[0.75,0.25]", "[0.75,0.3]", WNW_E_FORMAT,
     "share[0] have the mean 0.525, not their size 0.5"},
    {"shares of another number of layers", shares_text, "[[1,1],[0.75,0.25]]", "[[0.75,0.25]]", WNW_E_FORMAT,
     "share[0] has 1 elements"},
    {"no measured layer", shares_text, "[1],", "[],", WNW_E_FORMAT,
     "results.layers is not an array of 1 to 2"},
    {"layers that come twice", shares_text, "[1],", "[1,1],", WNW_E_FORMAT, "layers[1] is not above"},
    {"a layer that the model lacks", shares_text, "[1],", "[2],", WNW_E_FORMAT, "layers[0] is 2"},
    {"a curve too few", curves_text, "[0.25,0.5]", "[0.25,0.5,0.75]", WNW_E_FORMAT, "keep has 2 elements"},
};

static void refused(void **state)
{
    const struct change *c = *state;
    wnw_profile *p = empty();
    add_ok(p, "p.json", layers_text);
    char *text = changed(c->text, c->from, c->to);
    assert_error(add(p, "p.json", text), c->rc);
    assert_says(c->because);
    /* What was there before is untouched. */
    assert_int_equal(wnw_profile_kinds(p), 1u << WNW_PROFILE_LAYERS);
    assert_cmp(p->layer_share[0], ==, 0.25);
    assert_null(p->srh_rank);
    assert_null(p->compiler.tau);
    free(text);
    wnw_profile_free(p);
}

static void no_profiles(void **state)
{
    (void)state;
    wnw_profile *p = empty();
    assert_error(wnw_profile_add_file(p, "/nonexistent.json"), WNW_E_IO);
    assert_error(wnw_profile_add_file(p, folder), WNW_E_FORMAT);
    assert_error(wnw_profile_add_file(p, "/dev/null"), WNW_E_FORMAT);
    assert_error(add(p, "p.json", ""), WNW_E_FORMAT);
    assert_error(add(p, "p.json", "[]"), WNW_E_FORMAT);
    assert_error(add(p, "p.json", "{}"), WNW_E_FORMAT);
    assert_error(add(p, "p.json", "{\"a\":1}"), WNW_E_FORMAT);
    wnw_profile_free(p);
}

/* The parser refuses an array that is too deep for it; its stack must not overflow. */
static void too_deep(void **state)
{
    (void)state;
    const size_t deep = 200000;
    wnw_profile *p = empty();
    char *text = malloc(2 * deep + 10);
    assert_non_null(text);
    const size_t n = (size_t)sprintf(text, "{\"a\":");
    memset(text + n, '[', deep);
    memset(text + n + deep, ']', deep);
    memcpy(text + n + 2 * deep, "}", 2);
    assert_error(add(p, "p.json", text), WNW_E_FORMAT);
    free(text);
    wnw_profile_free(p);
}

/* Tables of another model with as many heads are taken, and marked. */
static void foreign_compiler_tables(void **state)
{
    (void)state;
    wnw_profile *p = empty();
    char *text = changed(compiler_text, PRINT, "000000000000000000000000000000ff");
    add_ok(p, "p.json", text);
    assert_true(p->compiler.foreign);
    free(text);
    text = changed(compiler_text, "\"n_layer\":2", "\"n_layer\":3");
    assert_int_equal(add(p, "p.json", text), WNW_E_FORMAT); /* its rows are those of 2 layers */
    free(text);
    wnw_profile_free(p);
}

static char logged[512];

static void log_line(wnw_log_level level, const char *text, void *user)
{
    (void)user;
    if (level == WNW_LOG_WARN)
        snprintf(logged, sizeof logged, "%s", text);
}

static void shares_are_scaled(void **state)
{
    (void)state;
    wnw_profile *p = empty();
    wnw_set_log(log_line, NULL);
    logged[0] = '\0';
    char *text = changed(layers_text, "[0.25,0.75]", "[0.2502,0.7502]");
    add_ok(p, "p.json", text);
    free(text);
    assert_string_equal(logged, "");
    text = changed(layers_text, "[0.25,0.75]", "[1,3]");
    add_ok(p, "p.json", text);
    free(text);
    assert_contains(logged, "sum to 4");
    assert_cmp(p->layer_share[0], ==, 0.25);
    assert_cmp(p->layer_share[1], ==, 0.75);
    wnw_set_log(NULL, NULL);
    wnw_profile_free(p);
}

#define ROW4   "[[0.81,0.82,0.83,0.84]"
#define ROWS4  ",[0.85,0.85,0.85,0.85]"
#define ROWS16 ROWS4 ROWS4 ROWS4 ROWS4
#define LEX    ROW4 ROWS16 ROWS16 ROWS16 ROWS16 ROWS4 ROWS4 ROWS4 "]" /* 1 + 16 + 3 = 20 */

/* ---- Files as the papers' authors publish them ---- */

static void imported_ranks_and_scores(void **state)
{
    (void)state;
    wnw_profile *p = empty();
    wnw_set_log(log_line, NULL);
    logged[0] = '\0';
    add_ok(p, "Some-Model_head_idx.json", "{\"0\": [3,0,1,2], \"1\": [1,0,2,3]}");
    assert_contains(logged, "does not name its model");
    assert_int_equal(p->srh_rank[0], 3);
    assert_null(p->trad_rank);
    /* Scores: means, ranked, ties to the lower head; the ranked list above stays. */
    add_ok(p, "Some-Model.json",
           "{\"0-0\":[0,0],\"0-1\":[1,0],\"0-2\":[0.5,0.5],\"0-3\":[1,1],"
           "\"1-0\":[0,0],\"1-1\":[0,0],\"1-2\":[0,0],\"1-3\":[0,0]}");
    assert_ints(p->trad_rank, 3, 1, 2, 0, 0, 1, 2, 3);
    assert_near(p->trad_mean[1], 0.5, 0);
    assert_int_equal(p->srh_rank[0], 3);
    /* A name settles which score is meant. */
    add_ok(
        p, "srh-scores.json",
        "{\"0-0\":[0],\"0-1\":[1],\"0-2\":[2],\"0-3\":[3],\"1-0\":[3],\"1-1\":[2],\"1-2\":[1],\"1-3\":[0]}");
    assert_int_equal(p->srh_rank[1], 2);
    assert_int_equal(p->srh_rank[4], 0);
    add_ok(p, "errors.jsonl", "{\"qasper\":[1,1],\"avg_score\":[0.5,0.5]}");
    assert_cmp(p->layer_share[0], ==, 0.5);
    assert_int_equal(wnw_profile_kinds(p), 1u << WNW_PROFILE_SRH | 1u << WNW_PROFILE_LAYERS);
    wnw_set_log(NULL, NULL);
    wnw_profile_free(p);
}

/* Head weights and thresholds are two files that belong together. */
static void imported_weights_and_thresholds(void **state)
{
    (void)state;
    wnw_profile *p = empty();
    wnw_set_log(log_line, NULL);
    logged[0] = '\0';
    add_ok(p, "W_head.json", "{\"shape\":[2,4],\"W_head\":[[1,1.1,1,1],[1,1,1,0.99]]}");
    assert_contains(logged, "synthetic");
    assert_null(p->compiler.tau);
    add_ok(p, "M_lex.json", "{\"shape\":[2,20,4],\"M_lex\":[" LEX "," LEX "]}");
    const struct wnw__compiler_table *t = &p->compiler;
    assert_near(t->weight[1], 1.1, 1e-7);
    assert_near(t->tau[83], 0.84, 1e-7);
    assert_int_equal(t->n_entropy, 20);
    assert_int_equal(t->n_ppl, 4);
    /* Their thresholds are parts of the largest score; nothing else is known of their run. */
    assert_int_equal(t->score_norm, WNW_NORM_MAX);
    assert_int_equal(t->n_sink, -1);
    assert_int_equal(t->pool, -1);
    assert_int_equal(t->utility, -1);
    assert_int_equal(t->alpha_scope, -1);
    assert_near(t->entropy_edge[0], 2 + 8.0 / 19, 1e-12);
    assert_cmp(t->entropy_edge[18], ==, 10);
    assert_near(t->ppl_edge[0], 4.64159, 1e-5);
    assert_near(t->ppl_edge[1], 21.5443, 1e-4);
    assert_cmp(t->ppl_edge[2], ==, 100);
    /* Weights that come after thresholds take the place of the weights alone. */
    add_ok(p, "W_head.json", "{\"shape\":[2,4],\"W_head\":[[2,1,1,1],[1,1,1,1]]}");
    assert_near(t->weight[0], 2, 0);
    assert_near(t->tau[83], 0.84, 1e-7);
    assert_int_equal(wnw_profile_kinds(p), 1u << WNW_PROFILE_COMPILER);
    /* A calibrated table takes the place of both. */
    add_ok(p, "p.json", compiler_text);
    assert_int_equal(t->n_entropy, 3);
    wnw_set_log(NULL, NULL);
    wnw_profile_free(p);
}

static const struct import {
    const char *name, *text;
    int rc;
} imports[] = {
    {"ranks of one layer", "{\"0\":[0,1,2,3]}", WNW_E_MISMATCH},
    {"a short list of ranks", "{\"0\":[0,1,2,3],\"1\":[0,1,2]}", WNW_E_MISMATCH},
    {"a layer is left out", "{\"0\":[0,1,2,3],\"2\":[0,1,2,3]}", WNW_E_FORMAT},
    {"a rank twice", "{\"0\":[0,1,2,3],\"1\":[0,1,1,3]}", WNW_E_FORMAT},
    {"scores of two heads", "{\"0-0\":[0],\"0-1\":[0]}", WNW_E_MISMATCH},
    {"a head without scores",
     "{\"0-0\":[0],\"0-1\":[1],\"0-2\":[2],\"0-3\":[3],\"1-0\":[3],\"1-1\":[2],\"1-2\":[1],\"1-3\":[]}",
     WNW_E_FORMAT},
    {"a negative mean",
     "{\"0-0\":[0],\"0-1\":[1],\"0-2\":[2],\"0-3\":[3],\"1-0\":[3],\"1-1\":[2],\"1-2\":[1],\"1-3\":[-1]}",
     WNW_E_FORMAT},
    {"a layer too many", "{\"avg_score\":[1,1,1]}", WNW_E_MISMATCH},
    {"a number for the layers", "{\"avg_score\":1}", WNW_E_FORMAT},
    {"weights of one layer", "{\"W_head\":[[1,1,1,1]]}", WNW_E_MISMATCH},
    {"weights of three heads", "{\"W_head\":[[1,1,1],[1,1,1]]}", WNW_E_MISMATCH},
    {"weights are no list", "{\"W_head\":{}}", WNW_E_FORMAT},
    {"thresholds of one head", "{\"M_lex\":[[[1]],[[1]]]}", WNW_E_FORMAT},
    {"ranks are no lists", "{\"0\":1,\"1\":2}", WNW_E_FORMAT},
};

static void import_refused(void **state)
{
    const struct import *i = *state;
    wnw_profile *p = empty();
    add_ok(p, "p.json", compiler_text);
    assert_error(add(p, "bad.json", i->text), i->rc);
    assert_int_equal(p->compiler.n_entropy, 3);
    wnw_profile_free(p);
}

/* For any damage, reading a file ends in a profile or in a message. */
static void damaged_files(void **state)
{
    (void)state;
    uint32_t seed = 1;
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
        const size_t len = strlen(texts[t]);
        char *text = malloc(len + 1);
        assert_non_null(text);
        wnw_profile *p = empty();
        for (size_t n = 0; n < len; n += 3) {
            const char *path = file_of("cut.json", texts[t], n);
            assert_int_equal(wnw_profile_add_file(p, path), WNW_E_FORMAT);
        }
        for (int round = 0; round < 400; round++) {
            memcpy(text, texts[t], len + 1);
            for (int k = 0; k <= round % 3; k++) {
                const size_t at = test_lcg(&seed) % len;
                static const char digits[] = "0123456789-.,[]{}\"e";
                const unsigned flipped = (unsigned char)text[at] ^ 1u << (seed >> 4) % 8;
                text[at] = round % 2 ? digits[seed % (sizeof digits - 1)] : (char)(flipped & 0xffu);
            }
            const char *path = file_of("flip.json", text, len);
            const int rc = wnw_profile_add_file(p, path);
            assert_true(rc == WNW_OK || ((rc == WNW_E_FORMAT || rc == WNW_E_MISMATCH) && *wnw_last_error()));
        }
        wnw_profile_free(p);
        free(text);
    }
}

/* A text of n times `piece` between `head` and `tail`. */
static int add_many(wnw_profile *p, const char *head, const char *piece, int32_t n, const char *tail)
{
    char path[128];
    snprintf(path, sizeof path, "%s/many.json", folder);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(head, f);
    for (int32_t i = 0; i < n; i++)
        fputs(piece, f);
    fputs(tail, f);
    assert_int_equal(fclose(f), 0);
    const int rc = wnw_profile_add_file(p, path);
    unlink(path);
    return rc;
}

static void assert_too_large(int status)
{
    assert_int_equal(status, WNW_E_FORMAT);
    if (!strstr(wnw_last_error(), "more values than a profile of this model can have"))
        fail_msg("refused with: %s", wnw_last_error());
}

/* The bounds of the shape above, which has 8 heads of 2: 262144 + 8 (4096 + 2 x 3) + 2 x 16384 = 327728
 * values, 65536 + 8 (2 + 4) = 65584 lists and objects. The parser would take a hundred bytes for every one of
 * them. */
static void too_many_values(void **state)
{
    (void)state;
    wnw_profile *p = empty();
    assert_too_large(add_many(p, "{\"avg_score\":[0", ",1", 327727, "]}"));
    assert_too_large(add_many(p, "{\"avg_score\":[[]", ",[]", 65584, "]}"));
    assert_too_large(add_many(p, "[", "[", 65584, ""));
    assert_too_large(add_many(p, "{\"a\":1", ",\"a\":1", 163864, "}"));
    /* The contents of a string are no values, and quotes after a backslash do not end it. */
    assert_int_equal(add_many(p, "{\"format\":\"\\\\\",\"x\":\"\\\"", "[,", 400000, "\"}"), WNW_E_FORMAT);
    assert_says("winnow-profile-1 is expected");
    /* 64 bytes for every value. */
    assert_int_equal(add_many(p, "", "                ", 327728 * 4 + 1, ""), WNW_E_FORMAT);
    assert_says("a profile of this model has at most 20974592");
    wnw_profile_free(p);
}

/* What is large and right is taken: free data, and published scores of 4096 probes for every head. */
static void many_values_in_their_place(void **state)
{
    (void)state;
    wnw_profile *p = empty();
    assert_int_equal(add_many(p, HEAD("layers") "\"notes\":[0", ",1", 250000,
                              "],\"results\":{\"avg_score\":[0.25,0.75]}}"),
                     WNW_OK);
    char path[128];
    snprintf(path, sizeof path, "%s/probes.json", folder);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (int32_t i = 0; i < 8; i++) {
        fprintf(f, "%s\n    \"%d-%d\": [", i ? "," : "{", i / 4, i % 4);
        for (int32_t k = 0; k < 4096; k++)
            fprintf(f, "%s\n        0.%d123456789012345", k ? "," : "", i);
        fputs("\n    ]", f);
    }
    fputs("\n}\n", f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(wnw_profile_add_file(p, path), WNW_OK);
    unlink(path);
    assert_float_equal(p->trad_mean[7], 0.7123456789, 1e-6);
    wnw_profile_free(p);
}

/* What a choice of policies learns from profiles, one file after the other. */
static void facts_for_a_choice(void **state)
{
    (void)state;
    wnw_policy_facts f = wnw_policy_facts_default();
    wnw_profile *p = empty();
    wnw_policy_facts_add(&f, p);
    assert_true(f.profiles == 0 && f.gate_reach == 0 && !(f.shares_least > 0));
    add_ok(p, "shares", shares_text); /* of sizes 0.5 and 0.25 */
    wnw_policy_facts_add(&f, p);
    assert_int_equal(f.profiles, 1 << WNW_PROFILE_SHARES);
    assert_float_equal(f.shares_least, 0.25, 0);
    char gate[1024];
    const char *after = strstr(gate_text, "\"settings\":{");
    add_ok(p, "gate", gate_text);
    wnw_policy_facts_add(&f, p);
    assert_float_equal(f.gate_least, 0, 0);
    snprintf(gate, sizeof gate, "%.*s\"settings\":{\"least\":0.75,%s", (int)(after - gate_text), gate_text,
             after + strlen("\"settings\":{"));
    add_ok(p, "gate", gate);
    wnw_policy_facts_add(&f, p);
    assert_float_equal(f.gate_least, 0.75, 0);
    wnw_profile_free(p);
    p = empty();
    f = wnw_policy_facts_default();
    add_ok(p, "shares", shares_text);
    wnw_policy_facts_add(&f, p);
    add_ok(p, "gates", inputgate_text); /* does not say what they were learned from */
    wnw_policy_facts_add(&f, p);
    assert_int_equal(f.profiles, 1 << WNW_PROFILE_SHARES | 1 << WNW_PROFILE_INPUTGATE);
    assert_int_equal(f.gate_reach, 0);
    add_ok(p, "gates",
           HEAD("inputgate") "\"settings\":{\"form\":\"linear\",\"n_embd\":3,\"length\":3000},\"results\":{"
                             "\"layers\":[\"" INPUT_LAYER "\",\"\"]}}");
    wnw_policy_facts_add(&f, p);
    assert_int_equal(f.gate_reach, 6000); /* twice that */
    add_ok(p, "gates",
           HEAD("inputgate") "\"settings\":{\"form\":\"linear\",\"n_embd\":3,\"length\":3000,\"reach\":2500},"
                             "\"results\":{\"layers\":[\"" INPUT_LAYER "\",\"\"]}}");
    wnw_policy_facts_add(&f, p);
    assert_int_equal(f.gate_reach, 2500);
    assert_float_equal(f.shares_least, 0.25, 0);
    wnw_profile_free(p);
}

/* However long a name is; what lies between two ':' may be nothing. */
static void lists_of_files(void **state)
{
    (void)state;
    enum { LONG = 6000, FIRST = 9 };
    char text[FIRST + LONG + 2], *path = text;
    const char *list = text;
    memcpy(text, ":a.json::", FIRST);
    memset(text + FIRST, 'x', LONG);
    memcpy(text + FIRST + LONG, ":", 2);
    assert_int_equal(wnw_profile_next(&path, &list), WNW_OK);
    assert_string_equal(path, "a.json");
    wnw_free(path);
    assert_int_equal(wnw_profile_next(&path, &list), WNW_OK);
    assert_int_equal(strlen(path), LONG);
    wnw_free(path);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(wnw_profile_next(&path, &list), WNW_OK);
        assert_null(path);
    }
}

/* 0: nothing else is left in it. */
static int remove_folder(void)
{
    char path[128];
    static const char *const names[] = {"cut.json", "flip.json"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    return rmdir(folder) != 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind),
        cmocka_unit_test(correlations),
        cmocka_unit_test(packed),
        cmocka_unit_test(no_profiles),
        cmocka_unit_test(too_deep),
        cmocka_unit_test(foreign_compiler_tables),
        cmocka_unit_test(shares_are_scaled),
        cmocka_unit_test(imported_ranks_and_scores),
        cmocka_unit_test(imported_weights_and_thresholds),
        cmocka_unit_test(damaged_files),
        cmocka_unit_test(too_many_values),
        cmocka_unit_test(many_values_in_their_place),
        cmocka_unit_test(facts_for_a_choice),
        cmocka_unit_test(lists_of_files),
    };
    return (mkdtemp(folder) == NULL) + cmocka_run_group_tests_name("profiles", tests, NULL, NULL) +
           run_rows(refused, changes) + run_rows(import_refused, imports) + remove_folder();
}
