# SPDX-License-Identifier: MIT
"""OpenVINO GenAI on a GGUF file, for compare.py: openvino_engine.py MODEL THREADS"""
import sys

import numpy as np
import openvino
import openvino_genai

from protocol import serve

MOST_TOKENS = 32768


def main():
    model, threads = sys.argv[1], int(sys.argv[2])
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.enable_prefix_caching = False  # the same prompt comes again in every round
    scheduler.max_num_batched_tokens = MOST_TOKENS  # a prompt is not cut
    scheduler.cache_size = 1  # GB
    pipe = openvino_genai.LLMPipeline(model, "CPU", scheduler_config=scheduler, INFERENCE_NUM_THREADS=threads)

    def run(tokens, decode, keep):
        if keep is not None:
            raise ValueError("OpenVINO runs with the full cache alone")
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = decode + 1
        config.ignore_eos = True
        config.do_sample = False
        config.apply_chat_template = False
        result = pipe.generate(openvino.Tensor(np.array([tokens], dtype=np.int64)), config)
        metrics = result.perf_metrics
        return metrics.get_ttft().mean, metrics.get_tpot().mean * decode, list(result.tokens[0])

    serve(f"OpenVINO GenAI {openvino_genai.__version__.split('-')[0]}, its own cache type (u8), prefix cache off", run)


main()
