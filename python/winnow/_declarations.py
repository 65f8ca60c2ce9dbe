"""The C interface for ctypes. scripts/python_declarations.py writes this file from the public headers."""
# SPDX-License-Identifier: MIT
from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int8, c_int16, c_int32, c_int64,
                    c_size_t, c_uint, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p, sizeof)

# ---- Constants ----

WNW_VERSION_MAJOR = 0
WNW_VERSION_MINOR = 2
WNW_VERSION_PATCH = 0
WNW_VERSION_STRING = "0.2.0"
WNW_PROMPT_NOW = 1721952000
WNW_FINGERPRINT_SIZE = 33
WNW_LIST_MAX = 128
WNW_SAMPLE_HINT = 8
WNW_SAMPLE_PLACES = 16
WNW_N_PROJ_NORMS = 3
WNW_STORED_VERSION = 1
WNW_N_PROFILE_KINDS = 11
WNW_OK = 0
WNW_E_NOMEM = -1
WNW_E_IO = -2
WNW_E_FORMAT = -3
WNW_E_UNSUPPORTED = -4
WNW_E_MISMATCH = -5
WNW_E_ARG = -6
WNW_E_RANGE = -7
WNW_E_NOT_OBSERVED = -8
WNW_E_FULL = -9
WNW_E_CANCELLED = -10
WNW_E_BACKEND = -11
WNW_E_NOT_FINITE = -12
WNW_SIZE_NONE = 0
WNW_SIZE_BUDGET = 1
WNW_SIZE_RATIO = 2
WNW_SIZE_BYTES = 3
WNW_KV_F16 = 0
WNW_KV_F32 = 1
WNW_KV_Q8_0 = 2
WNW_KV_Q4_0 = 3
WNW_ATTN_OWN = 0
WNW_ATTN_GGML = 1
WNW_ATTN_F32 = 2
WNW_PHASE_END = 0
WNW_PHASE_LAYER = 1
WNW_PHASE_CHUNK = 2
WNW_PHASE_DECODE = 3
WNW_END_TOKEN = 0
WNW_END_STOP = 1
WNW_END_LIMIT = 2
WNW_END_CANCELLED = 3
WNW_END_FULL = 4
WNW_LOG_DEBUG = 0
WNW_LOG_INFO = 1
WNW_LOG_WARN = 2
WNW_TURNS_LEAST_NEW = 128
WNW_TURNS_OF_REST = 0
WNW_TURNS_OF_ALL = 1
WNW_TURNS_OF_READ = 2
WNW_PART_SCORER = 0
WNW_PART_AGGREGATION = 1
WNW_PART_LAYER_BUDGET = 2
WNW_PART_HEAD_BUDGET = 3
WNW_PART_SELECTOR = 4
WNW_PART_POSITIONS = 5
WNW_PART_CONTENTS = 6
WNW_OPT_INT = 0
WNW_OPT_REAL = 1
WNW_OPT_BOOL = 2
WNW_OPT_ENUM = 3
WNW_OPT_LIST = 4
WNW_NEED_WINDOW_ATTN = 1
WNW_NEED_KEYS = 2
WNW_NEED_VALUES = 4
WNW_NEED_ATTN_SUM = 8
WNW_NEED_ATTN_MAX = 16
WNW_NEED_PROJ_NORM = 32
WNW_NEED_QUERY_STATS = 64
WNW_NEED_QUERIES = 128
WNW_NEED_QUERIES_F16 = 16384
WNW_NEED_EVERY_QUERY = 16512
WNW_NEED_PERPLEXITY = 256
WNW_NEED_SECOND_PASS = 512
WNW_NEED_PROFILE = 1024
WNW_NEED_ROPE = 2048
WNW_NEED_INPUT_GATE = 4096
WNW_NEED_LOOKAHEAD = 8192
WNW_NEED_TOKEN_TEXT = 32768
WNW_NEED_NOTES = 65536
WNW_NEED_ATTN_NUMBERS = 24
WNW_NEED_NUMBERS = 4120
WNW_PASS_CONTEXT = 0
WNW_PASS_TASK = 1
WNW_PASS_REPEAT = 2
WNW_PASS_REPEAT_SINKS = 3
WNW_PASS_REPEAT_ALL = 4
WNW_PASS_BOTH = 5
WNW_PASS_SAMPLE = 6
WNW_PASS_BY_INPUT = 16
WNW_PROJ_L1 = 0
WNW_PROJ_L2 = 1
WNW_PROJ_SKETCH = 2
WNW_FLAG_PROMPT_ONLY = 1
WNW_FLAG_MATCHES_HEADS = 2
WNW_FLAG_MATCHES_LAYERS = 4
WNW_FLAG_QUERY_HEADS = 8
WNW_FLAG_ATTENTION = 16
WNW_FLAG_UNIFORM = 64
WNW_FLAG_ONE_LIST = 128
WNW_FLAG_SHRINKS = 256
WNW_FLAG_WINDOW_BY_HEAD = 1024
WNW_FLAG_RAGGED = 2048
WNW_FLAG_ALL_LAYERS = 4096
WNW_FLAG_COMPETES = 16384
WNW_FLAG_OWN_SIZE = 65536
WNW_FLAG_BLIND = 2097152
WNW_FLAG_SECOND_LOOK = 4194304
WNW_ROUND_EXACT = 0
WNW_ROUND_TRUNC = 1
WNW_FIT_BIAS = 1
WNW_FIT_VALUES = 2
WNW_PROFILE_SRH = 0
WNW_PROFILE_LAYERS = 1
WNW_PROFILE_COMPILER = 2
WNW_PROFILE_HEADS = 3
WNW_PROFILE_STATS = 4
WNW_PROFILE_CURVES = 5
WNW_PROFILE_SHARES = 6
WNW_PROFILE_GATE = 7
WNW_PROFILE_INPUTGATE = 8
WNW_PROFILE_QUALITY = 9
WNW_PROFILE_GRADIENT = 10
WNW_EFFORT_NORMAL = 0
WNW_EFFORT_QUICK = 1
WNW_EFFORT_PAPER = 2
WNW_MASK_ALL = 0
WNW_MASK_DECODE = 1
WNW_MASK_ZERO = 0
WNW_MASK_MEAN = 1

# ---- Structs ----


class wnw_model(Structure):
    pass


class wnw_model_params(Structure):
    pass


class wnw_reader(Structure):
    pass


class wnw_session(Structure):
    pass


class wnw_chat_message(Structure):
    pass


class wnw_prompt_params(Structure):
    pass


class wnw_prompt(Structure):
    pass


class wnw_policy(Structure):
    pass


class wnw_registry(Structure):
    pass


class wnw_size(Structure):
    pass


class wnw_session_params(Structure):
    pass


class wnw_profile(Structure):
    pass


class wnw_run(Structure):
    pass


class wnw_report(Structure):
    pass


class wnw_sampler(Structure):
    pass


class wnw_sampler_params(Structure):
    pass


class wnw_generate_params(Structure):
    pass


class wnw_generated(Structure):
    pass


class wnw_model_info(Structure):
    pass


class wnw_cache_stats(Structure):
    pass


class wnw_chat(Structure):
    pass


class wnw_bytes(Structure):
    pass


class wnw_prompt_parts(Structure):
    pass


class wnw_policy_facts(Structure):
    pass


class wnw_policy_choice(Structure):
    pass


class wnw_automatic(Structure):
    pass


class wnw_turns(Structure):
    pass


class wnw_turns_part(Structure):
    pass


class wnw_decoder(Structure):
    pass


class wnw_list(Structure):
    pass


class wnw_option(Structure):
    pass


class wnw_sample_size(Structure):
    pass


class wnw_sample_place(Structure):
    pass


class wnw_needs(Structure):
    pass


class wnw_observation(Structure):
    pass


class wnw_shape(Structure):
    pass


class wnw_gather(Structure):
    pass


class wnw_keep_problem(Structure):
    pass


class wnw_protected(Structure):
    pass


class wnw_part(Structure):
    pass


class wnw_blocks(Structure):
    pass


class wnw_block_rule(Structure):
    pass


class wnw_scorer(Structure):
    pass


class wnw_aggregation(Structure):
    pass


class wnw_layer_problem(Structure):
    pass


class wnw_layer_budget(Structure):
    pass


class wnw_head_problem(Structure):
    pass


class wnw_head_budget(Structure):
    pass


class wnw_select_problem(Structure):
    pass


class wnw_recursive(Structure):
    pass


class wnw_selector(Structure):
    pass


class wnw_positions(Structure):
    pass


class wnw_merge(Structure):
    pass


class wnw_contents_problem(Structure):
    pass


class wnw_contents(Structure):
    pass


class wnw_run_more(Structure):
    pass


class wnw_plan(Structure):
    pass


class wnw_fitted(Structure):
    pass


class wnw_method_info(Structure):
    pass


class wnw_engine(Structure):
    pass


class wnw_engine_params(Structure):
    pass


class wnw_store_params(Structure):
    pass


class wnw_stored(Structure):
    pass


class wnw_stored_info(Structure):
    pass


class wnw_stored_session_params(Structure):
    pass


class wnw_store(Structure):
    pass


class wnw_store_key(Structure):
    pass


class wnw_store_entry(Structure):
    pass


class wnw_store_report(Structure):
    pass


class wnw_profile_table(Structure):
    pass


class wnw_calibration_text(Structure):
    pass


class wnw_calibrate_params(Structure):
    pass


class wnw_calibration(Structure):
    pass


class wnw_import_params(Structure):
    pass


class llama_context(Structure):
    pass


class wnw_bridge(Structure):
    pass


class wnw_bridge_layer(Structure):
    pass


class wnw_bridge_setting(Structure):
    pass


class wnw_bridge_sample(Structure):
    pass


class wnw_bridge_sample_of(Structure):
    pass


class wnw_bridge_cells_of(Structure):
    pass


class wnw_head(Structure):
    pass


class wnw_work(Structure):
    pass


class wnw_engine_times(Structure):
    pass


class wnw_kernel_info(Structure):
    pass


wnw_model_params._fields_ = [
    ("struct_size", c_uint32),
    ("repack", c_bool),
    ("digests", c_char_p),
]

wnw_chat_message._fields_ = [
    ("role", c_char_p),
    ("content", c_char_p),
]

wnw_prompt_params._fields_ = [
    ("struct_size", c_uint32),
    ("raw", c_bool),
    ("document", c_char_p),
    ("question", c_char_p),
    ("system", c_char_p),
    ("messages", POINTER(wnw_chat_message)),
    ("n_messages", c_int32),
    ("chat", c_char_p),
    ("jinja", c_char_p),
    ("special", c_bool),
    ("verbatim", c_bool),
    ("now", c_int64),
]

wnw_size._fields_ = [
    ("kind", c_int),
    ("budget", c_int64),
    ("ratio", c_double),
    ("bytes", c_uint64),
]

wnw_session_params._fields_ = [
    ("struct_size", c_uint32),
    ("n_ctx", c_int32),
    ("n_ubatch", c_int32),
    ("n_threads", c_int32),
    ("kv_type", c_int),
    ("attn", c_int),
    ("progress", CFUNCTYPE(c_bool, c_int32, c_int32, c_void_p)),
    ("progress_user", c_void_p),
    ("kv_tail", c_int32),
    ("kv_unrotated", c_bool),
]

wnw_run._fields_ = [
    ("struct_size", c_uint32),
    ("phase", c_int),
    ("policy", POINTER(wnw_policy)),
    ("size", wnw_size),
    ("chunk", c_int32),
    ("every", c_int32),
    ("target", c_int64),
    ("profile", POINTER(wnw_profile)),
    ("prompt", POINTER(wnw_prompt)),
    ("recipe", c_char_p),
    ("more", POINTER(wnw_run_more)),
    ("every_ratio", c_double),
    ("every_ratio_read", c_bool),
]

wnw_report._fields_ = [
    ("struct_size", c_uint32),
    ("warning", c_char * 260),
    ("kept_mean", c_double),
    ("entries_before", c_int64),
    ("entries_after", c_int64),
    ("kv_bytes_before", c_uint64),
    ("kv_bytes_after", c_uint64),
    ("read_ms", c_double),
    ("observe_ms", c_double),
    ("score_ms", c_double),
    ("select_ms", c_double),
    ("compact_ms", c_double),
    ("protected_first", c_int32),
    ("protected_last", c_int32),
]

wnw_sampler_params._fields_ = [
    ("struct_size", c_uint32),
    ("temp", c_float),
    ("top_k", c_int32),
    ("top_p", c_float),
    ("seed", c_uint32),
    ("repeat_penalty", c_float),
]

wnw_generate_params._fields_ = [
    ("struct_size", c_uint32),
    ("n_max", c_int32),
    ("stop", POINTER(c_char_p)),
    ("n_stop", c_int32),
    ("on_text", CFUNCTYPE(c_bool, POINTER(c_char), c_size_t, c_int32, c_void_p)),
    ("user", c_void_p),
]

wnw_generated._fields_ = [
    ("struct_size", c_uint32),
    ("end", c_int),
    ("tokens", POINTER(c_int32)),
    ("n_tokens", c_int32),
    ("n_read", c_int32),
    ("text", c_char_p),
    ("n_text", c_size_t),
]

wnw_model_info._fields_ = [
    ("struct_size", c_uint32),
    ("n_layer", c_int32),
    ("n_layer_swa", c_int32),
    ("n_head", c_int32),
    ("n_head_kv", c_int32),
    ("n_embd", c_int32),
    ("n_embd_head", c_int32),
    ("n_ctx_train", c_int32),
    ("n_vocab", c_int32),
    ("n_swa", c_int32),
    ("arch", c_char_p),
    ("name", c_char_p),
    ("weight_bytes", c_uint64),
    ("repacked_bytes", c_uint64),
]

wnw_cache_stats._fields_ = [
    ("struct_size", c_uint32),
    ("growth", c_int32),
    ("n_entries", c_int64),
    ("bytes", c_uint64),
    ("bytes_entries", c_uint64),
    ("bytes_full", c_uint64),
    ("bytes_meta", c_uint64),
    ("bytes_swa", c_uint64),
]

wnw_bytes._fields_ = [
    ("from", c_size_t),
    ("to", c_size_t),
]

wnw_prompt_parts._fields_ = [
    ("struct_size", c_uint32),
    ("n_tokens", c_int32),
    ("tokens", POINTER(c_int32)),
    ("n_context", c_int32),
    ("n_prefix", c_int32),
    ("suffix", POINTER(c_int32)),
    ("n_suffix", c_int32),
    ("text", c_char_p),
    ("n_text", c_size_t),
    ("plain", POINTER(wnw_bytes)),
    ("n_plain", c_int32),
    ("n_past", c_int32),
]

wnw_policy_facts._fields_ = [
    ("struct_size", c_uint32),
    ("phase", c_int),
    ("decodes", c_bool),
    ("question_known", c_bool),
    ("rope_unknown", c_bool),
    ("profiles", c_uint32),
    ("shares_least", c_double),
    ("kept", c_double),
    ("n_tokens", c_int32),
    ("n_ctx_train", c_int32),
    ("was_read", c_bool),
    ("gate_reach", c_int32),
    ("feeds_again", c_bool),
    ("queries_unknown", c_bool),
    ("gate_least", c_double),
    ("more_questions", c_bool),
]

wnw_policy_choice._fields_ = [
    ("struct_size", c_uint32),
    ("recipe", c_char_p),
    ("when", c_char_p),
    ("why", c_char_p),
    ("evidence", c_char_p),
    ("until_tokens", c_int32),
    ("reason", c_char_p),
    ("recipe_known", c_char_p),
]

wnw_automatic._fields_ = [
    ("struct_size", c_uint32),
    ("recipe", c_char_p),
    ("facts", POINTER(wnw_policy_facts)),
    ("profile", POINTER(wnw_profile)),
    ("size", wnw_size),
    ("n_most", c_int32),
]

wnw_turns._fields_ = [
    ("struct_size", c_uint32),
    ("n_header", c_int32),
    ("n", c_int32),
    ("n_judged", c_int32),
    ("at_prompt", c_int32),
    ("compressed", c_bool),
    ("keeps_previous", c_bool),
    ("all_queries", c_bool),
    ("rounds_up", c_bool),
    ("more_follows", c_bool),
    ("slack", c_double),
    ("size", wnw_size),
    ("n_counted", c_int32),
    ("n_least", c_int32),
    ("ratio", c_int),
]

wnw_turns_part._fields_ = [
    ("from", c_int32),
    ("to", c_int32),
    ("size", wnw_size),
    ("fallback", c_bool),
]

wnw_decoder._fields_ = [
    ("struct_size", c_uint32),
    ("model", POINTER(wnw_model)),
    ("logits", CFUNCTYPE(POINTER(c_float), c_void_p)),
    ("decode", CFUNCTYPE(c_int, c_int32, c_void_p)),
    ("n_left", CFUNCTYPE(c_int32, c_void_p)),
    ("user", c_void_p),
]

wnw_list._fields_ = [
    ("n", c_int32),
    ("x", c_double * 128),
]

wnw_option._fields_ = [
    ("name", c_char_p),
    ("help", c_char_p),
    ("type", c_int),
    ("offset", c_size_t),
    ("def", c_double),
    ("min", c_double),
    ("max", c_double),
    ("choices", POINTER(c_char_p)),
]

wnw_sample_size._fields_ = [
    ("least", c_int32),
    ("most", c_int32),
    ("every", c_int32),
    ("place", c_int32),
]

wnw_sample_place._fields_ = [
    ("lead", c_int32),
    ("from", c_int32),
    ("to", c_int32),
]

wnw_needs._fields_ = [
    ("struct_size", c_uint32),
    ("flags", c_uint32),
    ("window", c_int32),
    ("skip", c_int32),
    ("second_pass", c_int32),
    ("profiles", c_uint32),
    ("profiles_optional", c_uint32),
    ("lookahead", c_int32),
    ("sample", wnw_sample_size),
]

wnw_observation._fields_ = [
    ("il", c_int32),
    ("n_layer", c_int32),
    ("n_head", c_int32),
    ("n_head_kv", c_int32),
    ("n_embd_head", c_int32),
    ("n", c_int32),
    ("n_past", c_int32),
    ("n_entry", POINTER(c_int32)),
    ("pos", POINTER(c_int32)),
    ("budget", c_double),
    ("n_settled", c_int32),
    ("n_prefix", c_int32),
    ("n_question", c_int32),
    ("attn_scale", c_float),
    ("n_window", c_int32),
    ("window_attn", POINTER(c_float)),
    ("window_queries", POINTER(c_float)),
    ("keys", CFUNCTYPE(POINTER(c_float), POINTER(wnw_observation), c_int32)),
    ("values", CFUNCTYPE(POINTER(c_float), POINTER(wnw_observation), c_int32)),
    ("key_rows", CFUNCTYPE(POINTER(c_float), POINTER(wnw_observation), c_int32, c_int32, c_int32)),
    ("value_rows", CFUNCTYPE(POINTER(c_float), POINTER(wnw_observation), c_int32, c_int32, c_int32)),
    ("all_keys", CFUNCTYPE(POINTER(c_float), POINTER(wnw_observation))),
    ("all_values", CFUNCTYPE(POINTER(c_float), POINTER(wnw_observation))),
    ("attn_sum", POINTER(c_float)),
    ("attn_max", POINTER(c_float)),
    ("pass2_sum", POINTER(c_float)),
    ("pass2_max", POINTER(c_float)),
    ("n_pass2", c_int32),
    ("pass2_places", POINTER(wnw_sample_place)),
    ("n_pass2_places", c_int32),
    ("proj_norm", CFUNCTYPE(POINTER(c_float), POINTER(wnw_observation), c_int)),
    ("head_proj_norm", CFUNCTYPE(POINTER(c_float), POINTER(wnw_observation), c_int)),
    ("query_mean", POINTER(c_float)),
    ("query_cov", POINTER(c_float)),
    ("n_query_stats", c_int64),
    ("queries", POINTER(c_float)),
    ("n_queries", c_int32),
    ("input_score", POINTER(c_float)),
    ("lookahead_queries", POINTER(c_float)),
    ("n_lookahead", c_int32),
    ("token_text", POINTER(c_char_p)),
    ("note", POINTER(c_float)),
    ("rope_theta", POINTER(c_float)),
    ("n_rot", c_int32),
    ("rope_neox", c_bool),
    ("query_head_used", POINTER(c_bool)),
    ("gathered", POINTER(c_double)),
    ("profile", POINTER(wnw_profile)),
    ("perplexity", c_double),
    ("bias", POINTER(c_float)),
    ("n_ctx_train", c_int32),
    ("each", CFUNCTYPE(None, POINTER(wnw_observation), c_int32, CFUNCTYPE(None, c_int32, c_void_p), c_void_p)),
    ("source", c_void_p),
]

wnw_shape._fields_ = [
    ("n_layer", c_int32),
    ("n_head", c_int32),
    ("n_head_kv", c_int32),
    ("n_embd_head", c_int32),
    ("n_past", c_int32),
]

wnw_gather._fields_ = [
    ("size", CFUNCTYPE(c_size_t, c_void_p, POINTER(wnw_shape))),
    ("needs", CFUNCTYPE(None, c_void_p, POINTER(wnw_needs))),
    ("visit", CFUNCTYPE(c_int, c_void_p, POINTER(wnw_observation), POINTER(c_double))),
]

wnw_keep_problem._fields_ = [
    ("n", c_int32),
    ("budget", c_int32),
    ("sized", c_bool),
    ("n_prefix", c_int32),
    ("n_here", c_int32),
    ("n_left", c_int32),
]

wnw_protected._fields_ = [
    ("n_first", c_int32),
    ("n_last", c_int32),
]

wnw_part._fields_ = [
    ("struct_size", c_uint32),
    ("kind", c_int),
    ("name", c_char_p),
    ("about", c_char_p),
    ("paper", c_char_p),
    ("details", c_char_p),
    ("options", POINTER(wnw_option)),
    ("options_size", c_size_t),
    ("flags", c_uint32),
    ("flags_of", CFUNCTYPE(c_uint32, c_void_p)),
    ("check", CFUNCTYPE(c_int, c_void_p)),
    ("needs", CFUNCTYPE(None, c_void_p, POINTER(wnw_needs))),
    ("keep", CFUNCTYPE(None, c_void_p, POINTER(wnw_keep_problem), POINTER(wnw_protected))),
    ("gather", POINTER(wnw_gather)),
]

wnw_blocks._fields_ = [
    ("sink", c_int32),
    ("lag", c_int32),
]

wnw_block_rule._fields_ = [
    ("of", CFUNCTYPE(None, c_void_p, POINTER(wnw_blocks))),
    ("fit", CFUNCTYPE(c_bool, c_void_p, c_int32, c_int32)),
]

wnw_scorer._fields_ = [
    ("part", wnw_part),
    ("aggregation", c_char_p),
    ("scratch", CFUNCTYPE(c_size_t, c_void_p, POINTER(wnw_observation))),
    ("score", CFUNCTYPE(c_int, c_void_p, POINTER(wnw_observation), POINTER(c_float), POINTER(c_float))),
    ("finish", CFUNCTYPE(None, c_void_p, POINTER(wnw_observation), c_int32, POINTER(c_float), POINTER(c_float))),
    ("blocks", POINTER(wnw_block_rule)),
    ("skips", CFUNCTYPE(c_bool, c_void_p, c_int32)),
    ("counts_age", CFUNCTYPE(c_bool, c_void_p)),
]

wnw_aggregation._fields_ = [
    ("part", wnw_part),
    ("choose", CFUNCTYPE(c_int, c_void_p, POINTER(wnw_observation), POINTER(c_bool))),
    ("scratch", CFUNCTYPE(c_size_t, c_void_p, POINTER(wnw_observation))),
    ("aggregate", CFUNCTYPE(None, c_void_p, POINTER(wnw_observation), POINTER(c_float), c_int32, POINTER(c_float), POINTER(c_float))),
]

wnw_layer_problem._fields_ = [
    ("n_layer", c_int32),
    ("n", c_int32),
    ("n_protected", c_int32),
    ("budget", c_int32),
    ("mean", c_double),
    ("ratio", c_double),
    ("rounding", c_int),
    ("il", POINTER(c_int32)),
    ("n_layer_model", c_int32),
    ("n_head", c_int32),
    ("n_head_kv", c_int32),
    ("profile", POINTER(wnw_profile)),
    ("perplexity", c_double),
    ("score", POINTER(POINTER(c_float))),
    ("row", POINTER(c_int32)),
    ("n_entry", POINTER(c_int32)),
    ("prot", POINTER(wnw_protected)),
    ("gathered", POINTER(c_double)),
    ("scratch", POINTER(c_float)),
    ("work", POINTER(c_double)),
    ("scorer", c_char_p),
    ("n_past", c_int32),
]

wnw_layer_budget._fields_ = [
    ("part", wnw_part),
    ("allocate", CFUNCTYPE(c_int, c_void_p, POINTER(wnw_layer_problem), POINTER(c_int32), POINTER(c_char))),
    ("protected_apart", CFUNCTYPE(c_bool, c_void_p)),
]

wnw_head_problem._fields_ = [
    ("n_head_kv", c_int32),
    ("n", c_int32),
    ("n_entry", POINTER(c_int32)),
    ("score", POINTER(c_float)),
    ("prot", POINTER(wnw_protected)),
    ("budget", c_int32),
    ("rounding", c_int),
    ("gathered", POINTER(c_double)),
]

wnw_head_budget._fields_ = [
    ("part", wnw_part),
    ("allocate", CFUNCTYPE(c_int, c_void_p, POINTER(wnw_head_problem), POINTER(c_int32), POINTER(c_int32), POINTER(c_float))),
    ("allocate_model", CFUNCTYPE(c_int, c_void_p, POINTER(wnw_layer_problem), POINTER(c_int32), POINTER(c_float), POINTER(c_char))),
    ("slides", CFUNCTYPE(c_bool, c_void_p)),
]

wnw_select_problem._fields_ = [
    ("score", POINTER(c_float)),
    ("n", c_int32),
    ("n_keep", c_int32),
    ("prot", wnw_protected),
    ("blocks", wnw_blocks),
    ("n_settled", c_int32),
    ("n_safe", c_int32),
    ("ih", c_int32),
    ("n_head_kv", c_int32),
    ("row", c_int32),
    ("layer_score", POINTER(c_float)),
    ("head_score", POINTER(c_float)),
    ("n_entry", POINTER(c_int32)),
    ("rounding", c_int),
    ("mean", c_double),
    ("obs", POINTER(wnw_observation)),
    ("gathered", POINTER(c_double)),
    ("note", POINTER(c_float)),
]

wnw_recursive._fields_ = [
    ("own_size", CFUNCTYPE(c_int32, c_void_p, POINTER(wnw_blocks), c_int32, c_int)),
    ("fit", CFUNCTYPE(None, c_void_p, POINTER(wnw_blocks), c_int32, c_int32)),
    ("settled", CFUNCTYPE(c_int32, c_void_p, POINTER(wnw_blocks), c_int32, c_int32)),
]

wnw_selector._fields_ = [
    ("part", wnw_part),
    ("advise", CFUNCTYPE(None, c_void_p, POINTER(wnw_protected), c_int32, c_int, POINTER(c_char))),
    ("recursive", POINTER(wnw_recursive)),
    ("scratch", CFUNCTYPE(c_size_t, c_void_p, c_int32)),
    ("select", CFUNCTYPE(c_int32, c_void_p, POINTER(wnw_select_problem), POINTER(c_int32), POINTER(c_float))),
    ("by_block", c_bool),
]

wnw_positions._fields_ = [
    ("part", wnw_part),
    ("rerotates", c_bool),
]

wnw_merge._fields_ = [
    ("from", c_int32),
    ("to", c_int32),
    ("n_to", c_int32),
    ("weight", c_float),
]

wnw_contents_problem._fields_ = [
    ("obs", POINTER(wnw_observation)),
    ("ih", c_int32),
    ("keep", POINTER(c_int32)),
    ("n_keep", c_int32),
    ("n", c_int32),
]

wnw_contents._fields_ = [
    ("part", wnw_part),
    ("scratch", CFUNCTYPE(c_size_t, c_void_p, POINTER(wnw_observation))),
    ("merge", CFUNCTYPE(c_int32, c_void_p, POINTER(wnw_contents_problem), POINTER(wnw_merge), POINTER(c_float))),
    ("prune", CFUNCTYPE(c_int32, c_void_p, POINTER(wnw_contents_problem), POINTER(c_int32), POINTER(c_int32), POINTER(c_float))),
    ("fit", CFUNCTYPE(c_int, c_void_p, POINTER(wnw_contents_problem), POINTER(c_float), POINTER(c_float), POINTER(c_float))),
    ("averages", c_bool),
]

wnw_run_more._fields_ = [
    ("struct_size", c_uint32),
    ("question_later", c_bool),
    ("once", c_bool),
    ("goes_on", c_bool),
    ("n_tasks", c_int32),
    ("task_tokens", POINTER(POINTER(c_int32))),
    ("n_task_tokens", POINTER(c_int32)),
    ("n_policies", c_int32),
    ("policies", POINTER(POINTER(wnw_policy))),
    ("chunk_slack", c_double),
]

wnw_fitted._fields_ = [
    ("n", c_int32),
    ("n_embd_head", c_int32),
    ("bias", POINTER(c_float)),
    ("values", POINTER(c_float)),
]

wnw_method_info._fields_ = [
    ("struct_size", c_uint32),
    ("needs", c_uint32),
    ("phases", c_uint32),
    ("name", c_char_p),
    ("kind", c_char_p),
    ("about", c_char_p),
    ("paper", c_char_p),
    ("recipe", c_char_p),
    ("layout", c_char_p),
    ("options", POINTER(wnw_option)),
    ("details", c_char_p),
]

wnw_engine_params._fields_ = [
    ("struct_size", c_uint32),
    ("n_ubatch", c_int32),
    ("n_threads", c_int32),
    ("attn", c_int),
]

wnw_store_params._fields_ = [
    ("struct_size", c_uint32),
    ("text", POINTER(wnw_prompt_params)),
    ("tokens", POINTER(c_int32)),
    ("n_tokens", c_int32),
    ("pieces", c_bool),
    ("note", c_char_p),
]

wnw_stored_info._fields_ = [
    ("struct_size", c_uint32),
    ("version", c_int32),
    ("writer", c_char_p),
    ("model", c_char_p),
    ("arch", c_char_p),
    ("fingerprint", c_char_p),
    ("n_layer", c_int32),
    ("n_head_kv", c_int32),
    ("n_embd_head", c_int32),
    ("kv_type", c_int),
    ("kv_tail", c_int32),
    ("kv_unrotated", c_bool),
    ("recurrent", c_bool),
    ("policy", c_char_p),
    ("size", wnw_size),
    ("phase", c_int),
    ("chunk", c_int32),
    ("n_tokens", c_int32),
    ("n_past", c_int32),
    ("n_entries", c_int64),
    ("bytes_entries", c_uint64),
    ("bytes_file", c_uint64),
    ("pieces", c_bool),
    ("n_prefix", c_int32),
    ("n_settled", c_int32),
    ("chunk_slack", c_double),
]

wnw_stored_session_params._fields_ = [
    ("struct_size", c_uint32),
    ("n_ctx", c_int32),
    ("room", c_int32),
    ("copied", c_bool),
    ("progress", CFUNCTYPE(c_bool, c_int32, c_int32, c_void_p)),
    ("progress_user", c_void_p),
]

wnw_store_key._fields_ = [
    ("struct_size", c_uint32),
    ("model", POINTER(wnw_model)),
    ("session", POINTER(wnw_session_params)),
    ("run", POINTER(wnw_run)),
    ("tokens", POINTER(c_int32)),
    ("n_tokens", c_int32),
]

wnw_store_entry._fields_ = [
    ("struct_size", c_uint32),
    ("n_tokens", c_int32),
    ("bytes", c_uint64),
    ("made", c_int64),
    ("used", c_int64),
    ("name", c_char * 40),
    ("fingerprint", c_char * 33),
    ("policy", c_char * 300),
]

wnw_store_report._fields_ = [
    ("struct_size", c_uint32),
    ("n_whole", c_int64),
    ("n_added", c_int64),
    ("n_aside", c_int64),
    ("n_gone", c_int64),
    ("n_other", c_int64),
]

wnw_profile_table._fields_ = [
    ("struct_size", c_uint32),
    ("name", c_char_p),
    ("kind", c_int),
    ("n_dim", c_int32),
    ("shape", c_int32 * 4),
    ("is_whole", c_bool),
]

wnw_calibration_text._fields_ = [
    ("name", c_char_p),
    ("text", c_char_p),
    ("len", c_size_t),
]

wnw_calibrate_params._fields_ = [
    ("struct_size", c_uint32),
    ("effort", c_int),
    ("options", c_char_p),
    ("texts", POINTER(wnw_calibration_text)),
    ("n_texts", c_int32),
    ("seed", c_uint32),
    ("kv_type", c_int),
    ("budgets", POINTER(c_int32)),
    ("n_budgets", c_int32),
    ("recipe", c_char_p),
    ("profile", POINTER(wnw_profile)),
    ("n_threads", c_int32),
    ("outputs", POINTER(c_char_p)),
    ("n_outputs", c_int32),
    ("journal", c_char_p),
    ("progress", CFUNCTYPE(c_bool, c_int64, c_int64, POINTER(c_char), c_void_p)),
    ("progress_user", c_void_p),
]

wnw_import_params._fields_ = [
    ("struct_size", c_uint32),
    ("as", c_char_p),
    ("sink", c_int32),
    ("recent", c_int32),
]

wnw_bridge_layer._fields_ = [
    ("struct_size", c_uint32),
    ("layer", c_int32),
    ("ragged", c_int32),
    ("n_streams", c_int32),
    ("n_cells", c_int32),
    ("n_heads", c_int32),
    ("n_entries", c_int64),
    ("bytes", c_uint64),
    ("entry_bytes", c_int32),
    ("query_bytes", c_int32),
    ("n_readers", c_int32),
    ("query_numbers", c_int32),
    ("sliding", c_int32),
    ("key_bytes", c_int32),
    ("room_entries", c_int32),
]

wnw_bridge_setting._fields_ = [
    ("struct_size", c_uint32),
    ("recipe", c_char_p),
    ("size", POINTER(wnw_size)),
    ("by_itself", c_bool),
    ("found", c_bool),
    ("chunk", c_int32),
    ("n_parts", c_int32),
    ("n_profiles", c_int32),
    ("parts", POINTER(POINTER(wnw_part))),
    ("profiles", POINTER(c_char_p)),
]

wnw_bridge_sample_of._fields_ = [
    ("struct_size", c_uint32),
    ("n_cells", c_int32),
    ("cells", POINTER(c_int32)),
    ("n_fed", c_int32),
    ("places", POINTER(wnw_sample_place)),
    ("n_places", c_int32),
]

wnw_bridge_cells_of._fields_ = [
    ("struct_size", c_uint32),
    ("n_cells", c_int32),
    ("cells", POINTER(c_int32)),
    ("policy", POINTER(wnw_policy)),
    ("size", POINTER(wnw_size)),
    ("n_prefix", c_int32),
    ("sample", POINTER(wnw_bridge_sample)),
    ("n_settled", POINTER(c_int32)),
    ("prefix", POINTER(c_int32)),
]

wnw_head._fields_ = [
    ("il", c_int32),
    ("h", c_int32),
]

wnw_work._fields_ = [
    ("ms", c_double),
    ("ops", c_double),
    ("bytes", c_double),
]

wnw_engine_times._fields_ = [
    ("struct_size", c_uint32),
    ("n_pass", c_int64),
    ("n_token", c_int64),
    ("weights", wnw_work),
    ("attention", wnw_work),
    ("observation", wnw_work),
    ("logits", wnw_work),
    ("other", wnw_work),
]

wnw_kernel_info._fields_ = [
    ("struct_size", c_uint32),
    ("work", c_char_p),
    ("name", c_char_p),
    ("lacks", c_char_p),
    ("built", c_bool),
    ("used", c_bool),
]

# ---- Types of functions ----

wnw_text_fn = CFUNCTYPE(c_bool, POINTER(c_char), c_size_t, c_int32, c_void_p)
wnw_log_fn = CFUNCTYPE(None, c_int, POINTER(c_char), c_void_p)
wnw_logits_fn = CFUNCTYPE(c_bool, c_int32, POINTER(c_float), c_void_p)
wnw_automatic_what = CFUNCTYPE(c_int, POINTER(c_char), POINTER(wnw_policy_choice), c_void_p)
wnw_bridge_rows = CFUNCTYPE(None, POINTER(c_int32), c_int32, c_int32, c_void_p)

# ---- Defaults ----


def wnw_model_default_params():
    p = wnw_model_params()
    p.struct_size = sizeof(p)
    p.repack = 1
    return p


def wnw_prompt_default_params():
    p = wnw_prompt_params()
    p.struct_size = sizeof(p)
    return p


def wnw_session_default_params():
    p = wnw_session_params()
    p.struct_size = sizeof(p)
    return p


def wnw_run_default():
    p = wnw_run()
    p.struct_size = sizeof(p)
    return p


def wnw_report_default():
    p = wnw_report()
    p.struct_size = sizeof(p)
    return p


def wnw_sampler_default_params():
    p = wnw_sampler_params()
    p.struct_size = sizeof(p)
    p.top_k = 40
    p.top_p = 0.95
    p.seed = 42
    p.repeat_penalty = 1.0
    return p


def wnw_generate_default_params():
    p = wnw_generate_params()
    p.struct_size = sizeof(p)
    return p


def wnw_generated_default():
    p = wnw_generated()
    p.struct_size = sizeof(p)
    return p


def wnw_model_info_default():
    p = wnw_model_info()
    p.struct_size = sizeof(p)
    return p


def wnw_cache_stats_default():
    p = wnw_cache_stats()
    p.struct_size = sizeof(p)
    return p


def wnw_prompt_parts_default():
    p = wnw_prompt_parts()
    p.struct_size = sizeof(p)
    return p


def wnw_policy_facts_default():
    p = wnw_policy_facts()
    p.struct_size = sizeof(p)
    return p


def wnw_policy_choice_default():
    p = wnw_policy_choice()
    p.struct_size = sizeof(p)
    return p


def wnw_automatic_default():
    p = wnw_automatic()
    p.struct_size = sizeof(p)
    return p


def wnw_turns_default():
    p = wnw_turns()
    p.struct_size = sizeof(p)
    return p


def wnw_decoder_default():
    p = wnw_decoder()
    p.struct_size = sizeof(p)
    return p


def wnw_needs_default():
    p = wnw_needs()
    p.struct_size = sizeof(p)
    return p


def wnw_run_more_default():
    p = wnw_run_more()
    p.struct_size = sizeof(p)
    return p


def wnw_method_info_default():
    p = wnw_method_info()
    p.struct_size = sizeof(p)
    return p


def wnw_engine_default_params():
    p = wnw_engine_params()
    p.struct_size = sizeof(p)
    return p


def wnw_store_default_params():
    p = wnw_store_params()
    p.struct_size = sizeof(p)
    return p


def wnw_stored_info_default():
    p = wnw_stored_info()
    p.struct_size = sizeof(p)
    return p


def wnw_stored_session_default_params():
    p = wnw_stored_session_params()
    p.struct_size = sizeof(p)
    return p


def wnw_store_key_default():
    p = wnw_store_key()
    p.struct_size = sizeof(p)
    return p


def wnw_store_entry_default():
    p = wnw_store_entry()
    p.struct_size = sizeof(p)
    return p


def wnw_store_report_default():
    p = wnw_store_report()
    p.struct_size = sizeof(p)
    return p


def wnw_profile_table_default():
    p = wnw_profile_table()
    p.struct_size = sizeof(p)
    return p


def wnw_calibrate_default_params():
    p = wnw_calibrate_params()
    p.struct_size = sizeof(p)
    p.seed = 42
    return p


def wnw_import_default_params():
    p = wnw_import_params()
    p.struct_size = sizeof(p)
    return p


def wnw_bridge_layer_default():
    p = wnw_bridge_layer()
    p.struct_size = sizeof(p)
    return p


def wnw_bridge_setting_default():
    p = wnw_bridge_setting()
    p.struct_size = sizeof(p)
    return p


def wnw_bridge_sample_of_default():
    p = wnw_bridge_sample_of()
    p.struct_size = sizeof(p)
    return p


def wnw_bridge_cells_of_default():
    p = wnw_bridge_cells_of()
    p.struct_size = sizeof(p)
    return p


def wnw_engine_times_default():
    p = wnw_engine_times()
    p.struct_size = sizeof(p)
    return p


def wnw_kernel_info_default():
    p = wnw_kernel_info()
    p.struct_size = sizeof(p)
    return p


# ---- Functions: result, arguments ----

FUNCTIONS = {
    "wnw_ask": (c_int, [POINTER(wnw_reader), c_char_p, c_double, c_char_p, c_char_p, CFUNCTYPE(c_bool, POINTER(c_char), c_size_t, c_int32, c_void_p), c_void_p]),
    "wnw_automatic_choose": (c_int, [POINTER(c_char_p), POINTER(wnw_automatic), c_int32, c_bool]),
    "wnw_automatic_chunk": (c_int32, [POINTER(wnw_automatic), c_int32]),
    "wnw_automatic_each": (c_int, [POINTER(wnw_automatic), CFUNCTYPE(c_int, POINTER(c_char), POINTER(wnw_policy_choice), c_void_p), c_void_p]),
    "wnw_automatic_is": (c_bool, [c_char_p, POINTER(c_double)]),
    "wnw_bridge_built_for": (c_char_p, []),
    "wnw_bridge_cells": (c_int, [POINTER(wnw_bridge), c_int32, c_int32, c_int32, POINTER(c_int32), c_int32, POINTER(c_int32)]),
    "wnw_bridge_check_model": (c_int, [c_char_p]),
    "wnw_bridge_check_policy": (c_int, [POINTER(wnw_policy), POINTER(wnw_profile)]),
    "wnw_bridge_check_policy_on": (c_int, [c_char_p, POINTER(wnw_policy), POINTER(wnw_profile)]),
    "wnw_bridge_check_workers": (c_int, [c_char_p]),
    "wnw_bridge_compress": (c_int, [POINTER(wnw_bridge)]),
    "wnw_bridge_compress_cells": (c_int, [POINTER(wnw_bridge), POINTER(wnw_bridge_cells_of)]),
    "wnw_bridge_drop": (c_int, [POINTER(wnw_bridge), c_int32, c_int32, c_int32, POINTER(c_int32), c_int32]),
    "wnw_bridge_find": (c_int, [POINTER(POINTER(wnw_bridge)), CFUNCTYPE(None, POINTER(llama_context)), POINTER(llama_context)]),
    "wnw_bridge_forget": (c_int, [POINTER(wnw_bridge), POINTER(c_int32), c_int32]),
    "wnw_bridge_forget_queries": (c_int, [POINTER(wnw_bridge), POINTER(c_int32), c_int32]),
    "wnw_bridge_get_layer": (c_int, [POINTER(wnw_bridge), c_int32, POINTER(wnw_bridge_layer)]),
    "wnw_bridge_is_address": (c_bool, [c_char_p]),
    "wnw_bridge_is_loopback": (c_bool, [c_char_p]),
    "wnw_bridge_load_modules": (c_int, []),
    "wnw_bridge_lost_workers": (c_int, [c_char_p]),
    "wnw_bridge_n_layers": (c_int32, [POINTER(wnw_bridge)]),
    "wnw_bridge_observe": (c_int, [POINTER(wnw_bridge), c_char_p]),
    "wnw_bridge_register": (c_int, []),
    "wnw_bridge_sample_free": (None, [POINTER(wnw_bridge_sample)]),
    "wnw_bridge_sample_new": (c_int, [POINTER(POINTER(wnw_bridge_sample)), POINTER(wnw_bridge), POINTER(wnw_bridge_sample_of)]),
    "wnw_bridge_seen": (c_int, [POINTER(wnw_bridge), c_int32, POINTER(c_int32), c_int32, POINTER(c_int32)]),
    "wnw_bridge_set": (c_int, [POINTER(wnw_bridge), POINTER(wnw_bridge_setting)]),
    "wnw_bridge_set_policy": (c_int, [POINTER(wnw_bridge), c_char_p, POINTER(wnw_size), c_bool]),
    "wnw_bridge_set_profiles": (c_int, [POINTER(wnw_bridge), c_char_p]),
    "wnw_bridge_set_tight": (c_int, [POINTER(wnw_bridge), c_bool]),
    "wnw_bridge_skip_query": (c_int, [POINTER(wnw_bridge), c_int32]),
    "wnw_bridge_tell_rows": (c_int, [POINTER(wnw_bridge), CFUNCTYPE(None, POINTER(c_int32), c_int32, c_int32, c_void_p), c_void_p]),
    "wnw_bridge_unobserve": (c_int, [POINTER(wnw_bridge)]),
    "wnw_bridge_worker": (c_int, [c_char_p, c_char_p, c_int32]),
    "wnw_bridge_wrap": (c_int, [c_char_p]),
    "wnw_cache_get_stats": (c_int, [POINTER(wnw_session), POINTER(wnw_cache_stats)]),
    "wnw_cache_n": (c_int32, [POINTER(wnw_session), c_int32, c_int32]),
    "wnw_cache_positions": (POINTER(c_int32), [POINTER(wnw_session), c_int32, c_int32]),
    "wnw_calibrate": (c_int, [POINTER(POINTER(wnw_calibration)), POINTER(wnw_model), c_char_p, POINTER(wnw_calibrate_params)]),
    "wnw_calibration_free": (None, [POINTER(wnw_calibration)]),
    "wnw_calibration_output": (c_char_p, [POINTER(wnw_calibration), c_char_p]),
    "wnw_calibration_profile": (c_char_p, [POINTER(wnw_calibration), c_int32, POINTER(c_char_p)]),
    "wnw_chat_answer": (c_int, [POINTER(wnw_chat), POINTER(c_int32), c_int32]),
    "wnw_chat_answer_text": (c_int, [POINTER(wnw_chat), c_char_p]),
    "wnw_chat_free": (None, [POINTER(wnw_chat)]),
    "wnw_chat_open": (c_int, [POINTER(POINTER(wnw_chat)), POINTER(wnw_model), POINTER(wnw_prompt_params)]),
    "wnw_chat_tokens": (POINTER(c_int32), [POINTER(wnw_chat), POINTER(c_int32)]),
    "wnw_chat_user": (c_int, [POINTER(POINTER(wnw_prompt)), POINTER(wnw_chat), c_char_p, c_char_p, c_char_p]),
    "wnw_close": (None, [POINTER(wnw_reader)]),
    "wnw_decode_batch": (c_int, [POINTER(wnw_engine), POINTER(POINTER(wnw_session)), POINTER(c_int32), c_int32]),
    "wnw_detokenize": (c_int, [POINTER(wnw_model), POINTER(c_int32), c_int32, POINTER(c_char_p)]),
    "wnw_engine_free": (None, [POINTER(wnw_engine)]),
    "wnw_engine_get_times": (c_int, [POINTER(wnw_engine), POINTER(wnw_engine_times)]),
    "wnw_engine_measure": (c_int, [POINTER(wnw_engine), c_bool]),
    "wnw_engine_new": (c_int, [POINTER(POINTER(wnw_engine)), POINTER(wnw_model), POINTER(wnw_engine_params)]),
    "wnw_file_fingerprint": (c_int, [c_char_p, POINTER(wnw_model_params), c_char_p]),
    "wnw_free": (None, [c_void_p]),
    "wnw_generate": (c_int, [POINTER(wnw_generated), POINTER(wnw_session), POINTER(wnw_sampler), POINTER(wnw_generate_params)]),
    "wnw_generate_by": (c_int, [POINTER(wnw_generated), POINTER(wnw_decoder), POINTER(wnw_sampler), POINTER(wnw_generate_params)]),
    "wnw_generated_clear": (None, [POINTER(wnw_generated)]),
    "wnw_heads_parse": (c_int, [POINTER(POINTER(wnw_head)), POINTER(c_int32), c_char_p, POINTER(wnw_model), POINTER(wnw_profile)]),
    "wnw_heads_profiles": (c_uint32, [c_char_p]),
    "wnw_kernel_get": (c_int, [c_int32, POINTER(wnw_kernel_info)]),
    "wnw_kernel_name": (c_char_p, []),
    "wnw_kv_bytes": (c_uint64, [c_int, c_int32, c_int32, c_int32, c_int32]),
    "wnw_kv_entry_bytes": (c_size_t, [c_int, c_int32]),
    "wnw_kv_type_name": (c_char_p, [c_int]),
    "wnw_kv_type_parse": (c_int, [POINTER(c_int), c_char_p]),
    "wnw_last_error": (c_char_p, []),
    "wnw_method_get": (c_bool, [c_int32, POINTER(wnw_method_info)]),
    "wnw_model_check_files": (c_int, [POINTER(wnw_model)]),
    "wnw_model_fingerprint": (None, [POINTER(wnw_model), c_char_p]),
    "wnw_model_free": (None, [POINTER(wnw_model)]),
    "wnw_model_get_info": (c_int, [POINTER(wnw_model), POINTER(wnw_model_info)]),
    "wnw_model_layer_is_swa": (c_bool, [POINTER(wnw_model), c_int32]),
    "wnw_model_open": (c_int, [POINTER(POINTER(wnw_model)), c_char_p, POINTER(wnw_model_params)]),
    "wnw_n_kernels": (c_int32, []),
    "wnw_need_name": (c_char_p, [c_int32]),
    "wnw_observation_key_norms": (c_int, [POINTER(wnw_observation), POINTER(c_float)]),
    "wnw_observation_window_mean": (c_int, [POINTER(wnw_observation), POINTER(c_float)]),
    "wnw_open": (c_int, [POINTER(POINTER(wnw_reader)), c_char_p]),
    "wnw_part_warn": (None, [c_char_p, c_char_p]),
    "wnw_phase_name": (c_char_p, [c_int]),
    "wnw_plan_channels": (c_int32, [POINTER(wnw_plan), c_int32, c_int32, POINTER(POINTER(c_int32)), POINTER(c_int32)]),
    "wnw_plan_fitted": (wnw_fitted, [POINTER(wnw_plan), c_int32, c_int32]),
    "wnw_plan_free": (None, [POINTER(wnw_plan)]),
    "wnw_plan_head": (c_int32, [POINTER(wnw_plan), c_int32, c_int32, POINTER(POINTER(c_int32))]),
    "wnw_plan_merges": (c_int32, [POINTER(wnw_plan), c_int32, c_int32, POINTER(POINTER(wnw_merge))]),
    "wnw_plan_n_head_kv": (c_int32, [POINTER(wnw_plan)]),
    "wnw_plan_n_layer": (c_int32, [POINTER(wnw_plan)]),
    "wnw_plan_n_tokens": (c_int32, [POINTER(wnw_plan)]),
    "wnw_plan_new": (c_int, [POINTER(POINTER(wnw_plan)), c_int32, c_int32, c_int32, POINTER(c_int32), POINTER(POINTER(c_int32))]),
    "wnw_policy_allows": (c_bool, [POINTER(wnw_policy), c_int, POINTER(c_char_p)]),
    "wnw_policy_choose": (c_int, [POINTER(wnw_policy_choice), POINTER(wnw_policy_facts)]),
    "wnw_policy_choose_quality": (c_int, [POINTER(wnw_policy_choice), POINTER(wnw_policy_facts), POINTER(wnw_profile), c_double]),
    "wnw_policy_chunk": (c_int32, [POINTER(wnw_policy_facts)]),
    "wnw_policy_facts_add": (None, [POINTER(wnw_policy_facts), POINTER(wnw_profile)]),
    "wnw_policy_facts_of": (c_int, [POINTER(wnw_policy_facts), POINTER(wnw_model), POINTER(wnw_run)]),
    "wnw_policy_free": (None, [POINTER(wnw_policy)]),
    "wnw_policy_get_needs": (c_int, [POINTER(wnw_policy), POINTER(wnw_needs)]),
    "wnw_policy_has_own_size": (c_bool, [POINTER(wnw_policy)]),
    "wnw_policy_has_own_times": (c_bool, [POINTER(wnw_policy)]),
    "wnw_policy_is_full": (c_bool, [POINTER(wnw_policy)]),
    "wnw_policy_parse": (c_int, [POINTER(POINTER(wnw_policy)), c_char_p, POINTER(wnw_registry)]),
    "wnw_policy_rerotates": (c_bool, [POINTER(wnw_policy)]),
    "wnw_policy_rewrites": (c_bool, [POINTER(wnw_policy)]),
    "wnw_policy_rule": (c_bool, [c_int32, POINTER(wnw_policy_choice)]),
    "wnw_policy_short": (c_int, [POINTER(wnw_policy), POINTER(c_char_p)]),
    "wnw_policy_string": (c_char_p, [POINTER(wnw_policy)]),
    "wnw_profile_add_file": (c_int, [POINTER(wnw_profile), c_char_p]),
    "wnw_profile_fingerprint": (c_char_p, [POINTER(wnw_profile)]),
    "wnw_profile_free": (None, [POINTER(wnw_profile)]),
    "wnw_profile_get_table": (c_bool, [POINTER(wnw_profile), c_int32, POINTER(wnw_profile_table)]),
    "wnw_profile_get_values": (c_int, [POINTER(c_double), c_int64, POINTER(wnw_profile), c_char_p]),
    "wnw_profile_import": (c_int, [POINTER(c_char_p), POINTER(wnw_model), c_char_p, POINTER(wnw_import_params)]),
    "wnw_profile_kind_name": (c_char_p, [c_int32]),
    "wnw_profile_kinds": (c_uint32, [POINTER(wnw_profile)]),
    "wnw_profile_new": (c_int, [POINTER(POINTER(wnw_profile)), POINTER(wnw_model)]),
    "wnw_profile_next": (c_int, [POINTER(c_char_p), POINTER(c_char_p)]),
    "wnw_profile_open": (c_int, [POINTER(POINTER(wnw_profile)), c_char_p]),
    "wnw_profile_set_found": (None, [POINTER(wnw_profile), c_uint32]),
    "wnw_prompt_build": (c_int, [POINTER(POINTER(wnw_prompt)), POINTER(wnw_model), POINTER(wnw_prompt_params)]),
    "wnw_prompt_free": (None, [POINTER(wnw_prompt)]),
    "wnw_prompt_get_parts": (c_int, [POINTER(wnw_prompt), POINTER(wnw_prompt_parts)]),
    "wnw_prompt_n_context": (c_int32, [POINTER(wnw_prompt)]),
    "wnw_prompt_n_past": (c_int32, [POINTER(wnw_prompt)]),
    "wnw_prompt_new": (c_int, [POINTER(POINTER(wnw_prompt)), POINTER(wnw_prompt_parts)]),
    "wnw_prompt_tokens": (POINTER(c_int32), [POINTER(wnw_prompt), POINTER(c_int32)]),
    "wnw_reader_load": (c_int, [POINTER(wnw_reader), c_char_p]),
    "wnw_reader_session": (POINTER(wnw_session), [POINTER(wnw_reader)]),
    "wnw_reader_store": (c_int, [POINTER(wnw_reader), c_char_p]),
    "wnw_registry_add": (c_int, [POINTER(wnw_registry), POINTER(wnw_part)]),
    "wnw_registry_free": (None, [POINTER(wnw_registry)]),
    "wnw_registry_load": (c_int, [POINTER(wnw_registry), c_char_p]),
    "wnw_registry_new": (c_int, [POINTER(POINTER(wnw_registry))]),
    "wnw_sample_fed": (c_int32, [POINTER(wnw_sample_size), c_int32]),
    "wnw_sample_places": (c_int32, [POINTER(wnw_sample_size), c_int32, c_int32, POINTER(wnw_sample_place)]),
    "wnw_sampler_free": (None, [POINTER(wnw_sampler)]),
    "wnw_sampler_new": (c_int, [POINTER(POINTER(wnw_sampler)), POINTER(wnw_sampler_params)]),
    "wnw_sampler_pick": (c_int32, [POINTER(wnw_sampler), POINTER(c_float), c_int32]),
    "wnw_second_passes_agree": (c_bool, [POINTER(wnw_needs), POINTER(wnw_needs)]),
    "wnw_session_append": (c_int, [POINTER(wnw_session), POINTER(wnw_stored), c_int32, c_int32]),
    "wnw_session_apply": (c_int, [POINTER(wnw_session), POINTER(wnw_plan), POINTER(wnw_report)]),
    "wnw_session_attention": (POINTER(c_float), [POINTER(wnw_session), c_int32, POINTER(c_int32)]),
    "wnw_session_begin": (c_int, [POINTER(wnw_session), POINTER(wnw_run)]),
    "wnw_session_compress": (c_int, [POINTER(wnw_session), POINTER(wnw_policy), POINTER(wnw_size), POINTER(wnw_report)]),
    "wnw_session_copy": (c_int, [POINTER(POINTER(wnw_session)), POINTER(wnw_session)]),
    "wnw_session_decode": (c_int, [POINTER(wnw_session), c_int32]),
    "wnw_session_free": (None, [POINTER(wnw_session)]),
    "wnw_session_logits": (POINTER(c_float), [POINTER(wnw_session)]),
    "wnw_session_mask_form": (c_int, [POINTER(wnw_session), c_int]),
    "wnw_session_mask_heads": (c_int, [POINTER(wnw_session), POINTER(wnw_head), c_int32, c_int]),
    "wnw_session_n_past": (c_int32, [POINTER(wnw_session)]),
    "wnw_session_new": (c_int, [POINTER(POINTER(wnw_session)), POINTER(wnw_model), POINTER(wnw_session_params)]),
    "wnw_session_new_on": (c_int, [POINTER(POINTER(wnw_session)), POINTER(wnw_engine), POINTER(wnw_session_params)]),
    "wnw_session_plan": (c_int, [POINTER(wnw_session), POINTER(wnw_policy), POINTER(wnw_size), POINTER(POINTER(wnw_plan)), POINTER(wnw_report)]),
    "wnw_session_plan_many": (c_int, [POINTER(wnw_session), POINTER(POINTER(wnw_policy)), POINTER(wnw_size), c_int32, POINTER(POINTER(wnw_plan)), POINTER(wnw_report)]),
    "wnw_session_policy": (POINTER(wnw_policy), [POINTER(wnw_session)]),
    "wnw_session_prefill": (c_int, [POINTER(wnw_session), POINTER(c_int32), c_int32, CFUNCTYPE(c_bool, c_int32, POINTER(c_float), c_void_p), c_void_p]),
    "wnw_session_read": (c_int, [POINTER(wnw_session), POINTER(c_int32), c_int32, POINTER(wnw_report)]),
    "wnw_session_renumber": (c_int, [POINTER(wnw_session)]),
    "wnw_session_reset": (c_int, [POINTER(wnw_session)]),
    "wnw_session_rewind": (c_int, [POINTER(wnw_session), c_int32]),
    "wnw_session_store": (c_int, [POINTER(wnw_session), c_char_p, POINTER(wnw_store_params)]),
    "wnw_session_take_sequence": (c_int, [POINTER(wnw_session), POINTER(c_uint8), c_size_t, POINTER(c_int32), c_int32, c_int32]),
    "wnw_session_watch": (c_int, [POINTER(wnw_session), c_bool]),
    "wnw_set_log": (None, [CFUNCTYPE(None, c_int, POINTER(c_char), c_void_p), c_void_p]),
    "wnw_store_add": (c_int, [POINTER(wnw_store), POINTER(wnw_store_key), POINTER(wnw_session), POINTER(wnw_store_params)]),
    "wnw_store_check": (c_int, [POINTER(wnw_store), POINTER(wnw_store_report), CFUNCTYPE(None, POINTER(c_char), POINTER(c_char), c_void_p), c_void_p]),
    "wnw_store_close": (None, [POINTER(wnw_store)]),
    "wnw_store_continues": (c_bool, [POINTER(wnw_run)]),
    "wnw_store_find": (c_int, [POINTER(POINTER(wnw_stored)), POINTER(wnw_store), POINTER(wnw_store_key), c_bool]),
    "wnw_store_is": (c_bool, [c_char_p]),
    "wnw_store_list": (c_int, [POINTER(wnw_store), CFUNCTYPE(c_bool, POINTER(wnw_store_entry), c_void_p), c_void_p]),
    "wnw_store_open": (c_int, [POINTER(POINTER(wnw_store)), c_char_p, c_uint64]),
    "wnw_store_remove": (c_int, [POINTER(wnw_store), c_char_p]),
    "wnw_store_repair": (c_int, [c_char_p]),
    "wnw_stored_check_model": (c_int, [POINTER(wnw_stored), POINTER(wnw_model)]),
    "wnw_stored_free": (None, [POINTER(wnw_stored)]),
    "wnw_stored_get_info": (c_int, [POINTER(wnw_stored), POINTER(wnw_stored_info)]),
    "wnw_stored_get_text": (c_bool, [POINTER(wnw_stored), POINTER(wnw_prompt_params)]),
    "wnw_stored_head": (c_int32, [POINTER(wnw_stored), c_int32, c_int32, POINTER(POINTER(c_int32))]),
    "wnw_stored_is": (c_bool, [c_char_p]),
    "wnw_stored_note": (c_char_p, [POINTER(wnw_stored)]),
    "wnw_stored_open": (c_int, [POINTER(POINTER(wnw_stored)), c_char_p]),
    "wnw_stored_resume": (c_int, [POINTER(wnw_session), POINTER(wnw_stored), POINTER(wnw_run)]),
    "wnw_stored_sequence": (c_int, [POINTER(wnw_stored), POINTER(POINTER(c_uint8)), POINTER(c_size_t)]),
    "wnw_stored_session": (c_int, [POINTER(POINTER(wnw_session)), POINTER(wnw_stored), POINTER(wnw_engine), POINTER(wnw_stored_session_params)]),
    "wnw_stored_tokens": (POINTER(c_int32), [POINTER(wnw_stored), POINTER(c_int32)]),
    "wnw_strerror": (c_char_p, [c_int]),
    "wnw_text_exceeds": (c_bool, [POINTER(wnw_model), c_char_p, c_size_t, c_int32, POINTER(c_size_t)]),
    "wnw_text_of": (c_int, [POINTER(wnw_model), POINTER(c_int32), c_int32, POINTER(c_size_t), POINTER(c_char_p)]),
    "wnw_token_is_eog": (c_bool, [POINTER(wnw_model), c_int32]),
    "wnw_token_piece": (c_int, [POINTER(wnw_model), c_int32, POINTER(c_char_p)]),
    "wnw_tokenize": (c_int, [POINTER(wnw_model), c_char_p, c_size_t, c_bool, c_bool, POINTER(POINTER(c_int32)), POINTER(c_int32)]),
    "wnw_turns_first_new": (c_int32, [POINTER(wnw_turns)]),
    "wnw_turns_is_due": (c_bool, [c_int32, c_int32, c_bool]),
    "wnw_turns_parts": (c_int32, [POINTER(wnw_turns_part), POINTER(wnw_turns)]),
    "wnw_usable_cores": (c_int32, []),
    "wnw_version": (c_char_p, []),
}
