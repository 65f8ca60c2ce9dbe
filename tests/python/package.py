# SPDX-License-Identifier: MIT
"""The Python package, as an installed wheel or from the tree: package.py WINNOW TINY.gguf KEEP_SETS

WINNOW is the command and KEEP_SETS a program in C (keep_sets.c; -: there is none). Both print plans, which must be those of the package. The model is random:
its answers are compared with other answers only.
"""
import asyncio
import copy
import functools
import importlib.util
import os
import pathlib
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

import numpy as np

import winnow
from winnow import _declarations as declarations
from winnow import _library, presses

WINNOW, TINY, KEEP_SETS = sys.argv[1:]
TEXT = " ".join(f"The keeper of tower {k} is called Name{k * 7} and has {k * 3} lamps." for k in range(24))
POLICIES = ["snapkv", "knorm", "streaming_llm", "tova", "lagkv", "adakv", "pyramidkv", "expected_attention", "keydiff", "kvzip"]


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.m = winnow.Model(TINY, threads=1)
        cls.work = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.work.name)
        (cls.folder / "text").write_text(TEXT)

    @classmethod
    def tearDownClass(cls):
        cls.m.close()
        cls.work.cleanup()

    def test_ten_lines(self):
        doc = self.m.compress(TEXT, ratio=0.75)
        self.assertLess(doc.kv_bytes, doc.kv_bytes_full)
        self.assertAlmostEqual(doc.kept, 0.25 * doc.n_tokens, delta=2)
        doc.save(self.folder / "doc.wkv")
        again = self.m.load(self.folder / "doc.wkv")
        self.assertEqual(again.plan, doc.plan)
        answer = doc.ask("Who keeps tower 3?", max_tokens=6)
        self.assertEqual(again.ask("Who keeps tower 3?", max_tokens=6), answer)
        self.assertEqual("".join(doc.stream("Who keeps tower 3?", max_tokens=6)), answer)
        self.assertEqual(doc.ask("Who keeps tower 3?", max_tokens=6), answer, "a question changed the document")
        shown = subprocess.run([WINNOW, "inspect", self.folder / "doc.wkv"], capture_output=True, text=True)
        self.assertEqual(shown.returncode, 0, shown.stderr)
        for one in (doc, again):
            one.close()

    def test_full_document(self):
        with self.m.compress(TEXT, ratio=0, policy="full") as doc:
            self.assertTrue(all(len(head) == doc.n_tokens for layer in doc.plan for head in layer))

    def test_an_answer_can_be_left(self):
        with self.m.compress(TEXT, ratio=0.5, policy="knorm") as doc:
            for piece in doc.stream("Who?", max_tokens=200):
                break
            self.assertIsInstance(doc.ask("Who?", max_tokens=2), str)

    def test_chat(self):
        with self.m.chat(system="Be brief.", budget=64, policy="knorm") as chat:
            chat.ask(TEXT, max_tokens=4)
            n = chat.n_tokens
            chat.ask("And then?", max_tokens=4)
            self.assertGreater(chat.n_tokens, n)

    def test_plans_are_those_of_the_command_and_of_c(self):
        plans = self.m.plans(TEXT, POLICIES, ratio=0.5, question="Who keeps tower 3?")
        for recipe, plan in zip(POLICIES, plans):
            out = self.folder / "plan.json"
            subprocess.run([WINNOW, "plan", "-m", TINY, "-f", self.folder / "text", "-p", "Who keeps tower 3?", "--policy", recipe, "--ratio", "0.5",
                            "-t", "1", "-o", out], check=True, capture_output=True)
            theirs = winnow.Plan.load(out)
            self.assertEqual(theirs, plan, recipe)
            self.assertEqual(theirs.policy, plan.policy)
            self.assertEqual(theirs.tokens.tolist(), plan.tokens.tolist())
            if KEEP_SETS == "-":
                continue
            said = subprocess.run([KEEP_SETS, TINY, self.folder / "text", "Who keeps tower 3?", recipe], check=True, capture_output=True, text=True)
            (self.folder / "sets").write_text(said.stdout)
            self.assertEqual(winnow.Plan.read_keep_sets(self.folder / "sets", plan.n_tokens), plan, recipe)

    def test_plan_arrays(self):
        plan = winnow.plan(TEXT, "knorm", model=self.m, ratio=0.5)
        mask = plan.to_numpy()
        self.assertEqual(mask.shape, (self.m.n_layer, self.m.n_head_kv, plan.n_tokens))
        self.assertTrue((mask.sum(axis=2) == plan.counts()).all())
        self.assertEqual(np.flatnonzero(mask[1, 0]).tolist(), plan[1][0].tolist())
        plan.save(self.folder / "mine.json")
        self.assertEqual(winnow.Plan.load(self.folder / "mine.json"), plan)
        indices = [np.stack([np.random.default_rng(0).permutation(head) for head in layer])[np.newaxis] for layer in plan]
        self.assertEqual(winnow.Plan.from_kvpress(indices, plan.n_tokens), plan)
        masked = [((np.zeros((~rows).sum(), int), *np.nonzero(~rows)), self.m.n_head_kv) for rows in mask]
        self.assertEqual(winnow.Plan.from_kvpress(masked, plan.n_tokens), plan)

    def test_plot(self):
        plan = self.m.plan(TEXT, "knorm", ratio=0.5)
        if not importlib.util.find_spec("matplotlib"):
            with self.assertRaisesRegex(ImportError, r"winnow\[plot\]"):
                plan.plot()
            return
        import matplotlib
        matplotlib.use("Agg")
        axes = plan.plot(columns=plan.n_tokens)
        self.assertEqual(axes.get_title(), "knorm")
        self.assertTrue(np.array_equal(axes.images[0].get_array(), plan.to_numpy().mean(axis=1)))
        self.assertEqual(plan.plot(columns=7).images[0].get_array().shape, (self.m.n_layer, 7))

    def test_presses(self):
        press = presses.AdaKVPress(presses.SnapKVPress(compression_ratio=0.5, window_size=32))
        self.assertEqual(winnow.plan(TEXT, press, model=self.m), winnow.plan(TEXT, "kvpress-adakv_snapkv", ratio=0.5, model=self.m))
        made = 0
        for name in presses.__all__:
            kind = getattr(presses, name)
            if kind in (presses.Press, presses.QFilterPress) or issubclass(kind, presses._Wrapper):
                continue
            self.m.plan(TEXT, kind(compression_ratio=0.5))
            made += 1
        self.assertGreater(made, 12)
        with self.assertRaises(ValueError):
            presses.SnapKVPress(compression_ratio=1.5)

    # ---- Devices ----

    def ask_on(self, device):
        """A document and a conversation on a device hold as many entries as those of sessions do, and answer the same when asked again."""
        with winnow.Model(TINY, threads=1, devices=[device]) as m:
            for policy in ("knorm", "snapkv+adakv"):
                with self.m.compress(TEXT, policy=policy, ratio=0.5) as here, m.compress(TEXT, policy=policy, ratio=0.5) as there:
                    self.assertEqual((there.n_tokens, there.policy), (here.n_tokens, here.policy))
                    self.assertAlmostEqual(there.kept, here.kept, delta=1)
                    answer = there.ask("Who keeps tower 3?", max_tokens=6)
                    self.assertLess(there.kv_bytes, 0.8 * there.kv_bytes_full)
                    there.ask("How many lamps are there?", max_tokens=6)
                    self.assertEqual(there.ask("Who keeps tower 3?", max_tokens=6), answer, "a question changed the document")
                    self.assertEqual("".join(there.stream("Who keeps tower 3?", max_tokens=6)), answer)
                    plan = there.plan
                    self.assertAlmostEqual(plan.counts().mean(), there.kept)
                    self.assertEqual(m.plan(TEXT, policy, ratio=0.5, context_only=True), plan)
                    there.save(self.folder / "doc.wkv")
                for which in (self.m, m):
                    with which.load(self.folder / "doc.wkv") as loaded:
                        self.assertEqual(loaded.plan, plan)
                        self.assertIsInstance(loaded.ask("Who?", max_tokens=2), str)
            with m.compress(TEXT, ratio=0.75) as doc:
                self.assertAlmostEqual(doc.kept, 0.25 * doc.n_tokens, delta=2)
            with m.chat(system="Be brief.", budget=64, policy="knorm") as chat:
                self.assertEqual(chat.kv_bytes, 0)
                chat.ask(TEXT, max_tokens=4)
                n = chat.n_tokens
                chat.ask("And then?", max_tokens=4)
                self.assertGreater(chat.n_tokens, n)
                self.assertGreater(chat.kv_bytes, 0)

    def test_device_cpu(self):
        self.ask_on("cpu")

    def test_device_of_another_process(self):
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{one.getsockname()[1]}"
        worker = subprocess.Popen([WINNOW, "worker", "--listen", address, "--device", "CPU", "-t", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for _ in range(300):
                try:
                    device = winnow.Model(TINY, devices=["rpc:" + address])
                    break
                except winnow.WinnowError:
                    time.sleep(0.1)
            device.close()
            self.ask_on("rpc:" + address)
            with winnow.Model(TINY, threads=1) as here, winnow.Model(TINY, threads=1, devices=["cpu", "rpc:" + address], layers=[1, 3]) as m:
                with here.compress(TEXT, policy="knorm", ratio=0.5) as whole, m.compress(TEXT, policy="knorm", ratio=0.5) as shared:
                    self.assertAlmostEqual(shared.kept, whole.kept, delta=1)
                    self.assertIsInstance(shared.ask("Who?", max_tokens=2), str)
        finally:
            worker.terminate()
            worker.wait()

    def test_what_devices_refuse(self):
        @winnow.scorer
        def py_here(keys):
            return keys[:, :, 0]

        with winnow.Model(TINY, threads=1, devices="cpu") as m, m.compress(TEXT, policy="knorm") as doc:
            for kind, sentence, call in (
                (winnow.UsageError, "py_here is written in Python", lambda: m.compress(TEXT, policy=py_here)),
                (winnow.UsageError, "py_here is written in Python", lambda: m.compress(TEXT, policy=py_here + "adakv")),
                (winnow.WinnowError, "a second time", lambda: m.compress(TEXT, policy="kvzip")),
                (winnow.UsageError, "py_here is written in Python", lambda: m.plan(TEXT, py_here)),
                (winnow.WinnowError, "a second time", lambda: m.plan(TEXT, "kvzip")),
                (winnow.WinnowError, "a second time", lambda: m.chat(policy="kvzip")),
                (winnow.UsageError, "py_here is written in Python", lambda: m.chat(policy=py_here, budget=64)),
                (winnow.ArgumentError, "nonsense", lambda: m.chat(policy="nonsense")),
                (winnow.UsageError, "plugins are for models", lambda: m.plans(TEXT, ["knorm"], plugins=["mine.so"])),
                (winnow.UsageError, "without devices", lambda: m.observe(TEXT, ["keys"])),
                (winnow.FileError, "nosuch", lambda: doc.save("/nosuch/doc.wkv")),
                (winnow.ArgumentError, "no device 'nosuch0'", lambda: winnow.Model(TINY, devices=["nosuch0"])),
                (winnow.ArgumentError, "devices is empty", lambda: winnow.Model(TINY, devices=[])),
                (winnow.ArgumentError, "cpu twice", lambda: winnow.Model(TINY, devices=["cpu", "cpu"])),
                (winnow.ArgumentError, "2 numbers, and there are 1", lambda: winnow.Model(TINY, devices=["cpu"], layers=[1, 3])),
                (winnow.ArgumentError, "this model has 4", lambda: winnow.Model(TINY, devices=["cpu"], layers=[3])),
                (winnow.ArgumentError, "a number of layers is 0", lambda: winnow.Model(TINY, devices=["cpu"], layers=[0])),
                (winnow.ArgumentError, "name them", lambda: winnow.Model(TINY, layers=[4])),
                (TypeError, "whole numbers", lambda: winnow.Model(TINY, devices=["cpu"], layers="4")),
                (winnow.ArgumentError, "several devices", lambda: winnow.Model(TINY, devices="cpu,cuda0")),
                (winnow.WinnowError, "cannot be reached", lambda: winnow.Model(TINY, devices=["rpc:127.0.0.1:1"])),
                (TypeError, "a device is a str, not int", lambda: winnow.Model(TINY, devices=[3])),
                (TypeError, "devices is a list", lambda: winnow.Model(TINY, devices=3)),
            ):
                with self.subTest(sentence), self.assertRaisesRegex(kind, sentence):
                    call()
            self.assertIsInstance(doc.ask("Who?", max_tokens=2), str)

    # ---- Scorers ----

    def test_a_scorer_is_a_policy(self):
        seen = []

        @winnow.scorer(needs=["keys", "window_attention"], last=8)
        def mine(keys, window_attention, layer, positions):
            seen.append((layer, keys.shape, window_attention.shape))
            self.assertEqual(keys.dtype, np.float32)
            return -np.linalg.norm(keys, axis=-1)

        plan = self.m.plan(TEXT, mine, ratio=0.5)
        self.assertEqual([s[0] for s in seen], list(range(self.m.n_layer)))
        self.assertEqual(seen[0][1], (self.m.n_head_kv, plan.n_tokens, self.m.n_embd_head))
        self.assertEqual(seen[0][2], (self.m.n_head, 32, plan.n_tokens))
        self.assertTrue(all(head[-8:].tolist() == list(range(plan.n_tokens - 8, plan.n_tokens)) for layer in plan for head in layer))
        ragged = self.m.plan(TEXT, f"{mine}+adakv", ratio=0.5)
        self.assertEqual(ragged.counts().sum(), plan.counts().sum())
        self.assertGreater(len(set(ragged.counts().ravel().tolist())), 1)
        with self.m.compress(TEXT, policy=mine, ratio=0.5) as doc:
            self.assertIsInstance(doc.ask("Who?", max_tokens=2), str)

    def test_a_scorer_has_options(self):
        @winnow.scorer(needs="keys")
        def optional(keys, power=2, **more):
            return -(np.abs(keys) ** power).sum(axis=-1)

        self.assertEqual(self.m.plan(TEXT, optional, ratio=0.5), self.m.plan(TEXT, optional, ratio=np.float32(0.5)))

    def test_a_scorer_scores_what_the_library_does(self):
        @winnow.scorer(needs=["keys"], first=0, last=0)
        def norms(obs):
            return np.stack([-np.linalg.norm(obs.head_keys(h).astype(np.float64), axis=1) for h in range(obs.n_head_kv)])

        ours, theirs = self.m.plans(TEXT, ["norms", "knorm"], ratio=0.5)
        same = sum(len(np.intersect1d(a, b)) for la, lb in zip(ours, theirs) for a, b in zip(la, lb))
        self.assertGreater(same, 0.99 * ours.counts().sum())

    def refused(self, kind, sentence, function, **options):
        winnow.scorer(function, name="refused", **options)
        with self.assertRaisesRegex(kind, sentence):
            self.m.plan(TEXT, "refused", ratio=0.5)
        self.assertIsInstance(self.m.plan(TEXT, "knorm", ratio=0.5), winnow.Plan)

    def test_a_scorer_writes_its_scores(self):
        @winnow.scorer(needs=["keys"], first=0, last=0)
        def py_written(keys, out):
            np.sqrt(np.einsum("hnd,hnd->hn", keys, keys), out=out)
            np.negative(out, out=out)

        @winnow.scorer(needs=["keys"], first=0, last=0)
        def py_returned(obs):
            obs.out[...] = 0
            return -np.sqrt(np.einsum("hnd,hnd->hn", obs.keys, obs.keys))

        plans = self.m.plans(TEXT, ["knorm", py_written, py_returned], ratio=0.5)
        self.assertEqual(plans[1], plans[2])
        self.assertGreater((plans[0].to_numpy() == plans[1].to_numpy()).mean(), 0.99)
        self.refused(TypeError, "scores are numbers", lambda keys: None)
        self.refused(ValueError, "not finite, in layer 0", lambda out: out.fill(np.nan))

    def test_bad_scorers(self):
        def raises(keys):
            raise LookupError("mine alone")

        self.refused(ValueError, r"returned the shape \(3,\), not", lambda keys: np.zeros(3))
        self.refused(TypeError, "scores are numbers", lambda keys: np.full(keys.shape[:2], "a"))
        self.refused(ValueError, "not finite, in layer 0", lambda keys: np.full(keys.shape[:2], np.nan))
        self.refused(ValueError, "not finite, in layer 0", lambda keys: np.full(keys.shape[:2], 1e300))
        self.refused(ValueError, "read-only", lambda obs: obs.head_keys(0).fill(0))
        self.refused(LookupError, "mine alone", raises)
        self.refused(LookupError, "values was not observed|not observed", lambda obs: obs.values)
        try:
            self.m.plan(TEXT, winnow.scorer(raises, name="refused"), ratio=0.5)
        except LookupError as error:
            names = []
            trace = error.__traceback__
            while trace:
                names.append(trace.tb_frame.f_code.co_name)
                trace = trace.tb_next
            self.assertIn("raises", names, "the traceback does not reach the scorer")
        kept = []
        winnow.scorer(lambda obs: kept.append(obs) or np.zeros((obs.n_head_kv, obs.n)), name="refused")
        self.m.plan(TEXT, "refused", ratio=0.5)
        for name in ("keys", "positions", "n_entry"):
            with self.assertRaisesRegex(LookupError, "within the call"):
                getattr(kept[0], name)
        with self.assertRaisesRegex(LookupError, "key_norms was not observed"):
            self.m.plan(TEXT, winnow.scorer(lambda obs: obs.key_norms, name="refused", needs=["values"]), ratio=0.5)
        for kind, sentence, options in ((TypeError, "no name", {}), (TypeError, "window is a whole number", {"name": "x", "window": 2.5}),
                                        (ValueError, "window is 0", {"name": "x", "window": 0}), (ValueError, "first is -1", {"name": "x", "first": -1})):
            with self.subTest(sentence), self.assertRaisesRegex(kind, sentence):
                winnow.scorer(functools.partial(raises), **options)
        with self.assertRaisesRegex(TypeError, "a scorer is a function"):
            winnow.scorer(3, name="x")
        with self.assertRaisesRegex(ValueError, "needs has 'hidden'"):
            winnow.scorer(lambda keys: keys, needs=["hidden"], name="x")
        with self.assertRaisesRegex(TypeError, "no parameter 'other'"):
            winnow.scorer(lambda keys, other: keys, name="x")
        with self.assertRaisesRegex(winnow.ArgumentError, "taken"):
            winnow.scorer(lambda keys: keys, name="snapkv")
        with self.assertRaisesRegex(winnow.ArgumentError, "letters"):
            winnow.scorer(lambda keys: keys, name="A B")

    def test_observations(self):
        seen = self.m.observe(TEXT, ["keys", "values", "window_attention", "value_norms"], layer=1, window=16)
        n = seen["positions"].shape[1]
        self.assertEqual(seen["keys"].shape, (self.m.n_head_kv, n, self.m.n_embd_head))
        self.assertEqual(seen["window_attention"].shape, (self.m.n_head, 16, n))
        self.assertTrue(np.allclose(seen["window_attention"].sum(axis=2), 1, atol=1e-3))
        self.assertEqual(seen["value_norms"].shape, (self.m.n_head_kv, n))
        self.assertEqual(self.m.observe(TEXT, "key_norms")["key_norms"].shape, (self.m.n_head_kv, n))
        with self.assertRaisesRegex(winnow.ArgumentError, "layer 99"):
            self.m.observe(TEXT, ["keys"], layer=99)

    def test_what_the_library_makes(self):
        """It keeps what the scorers in C keep that take the same."""
        @winnow.scorer(needs="key_norms", first=0, last=0)
        def py_norms_made(key_norms, out):
            np.negative(key_norms, out=out)

        @winnow.scorer(needs=["window_mean", "window_attention"], first=0, last=32, query_heads=True)
        def py_window_made(window_mean, window_attention):
            self.assertTrue(np.allclose(window_mean, window_attention.mean(axis=1), atol=1e-6))
            return window_mean

        plans = self.m.plans(TEXT, ["knorm", py_norms_made, "snapkv:window=32,kernel=1", py_window_made], ratio=0.5)
        self.assertEqual(plans[0], plans[1])
        self.assertEqual(plans[2], plans[3])

        @winnow.scorer(needs=["keys", "values"])
        def py_heads(obs):
            for h in range(obs.n_head_kv):
                self.assertTrue(np.array_equal(obs.keys[h], obs.head_keys(h)) and np.array_equal(obs.values[h], obs.head_values(h)))
            self.assertFalse(np.array_equal(obs.keys, obs.values))
            return obs.keys.sum(axis=-1)

        self.m.plan(TEXT, py_heads, ratio=0.5)

    def test_evaluate(self):
        @winnow.scorer(needs=["keys"])
        def evaluated(keys):
            return -np.linalg.norm(keys, axis=-1)

        (self.folder / "user.jsonl").write_text('{"context": "%s", "question": "Who?", "answers": ["Name7"]}\n' % TEXT)
        options = dict(model=TINY, jsonl=self.folder / "user.jsonl", threads=1, quiet=True, show=False)
        rows = winnow.evaluate(policies=[evaluated, f"{evaluated}+adakv", presses.KnormPress(0.5)], tasks=["user"], **options)
        if importlib.util.find_spec("pandas"):
            self.assertEqual(type(rows).__module__.split(".")[0], "pandas")
            self.assertTrue((rows[rows.policy != "full"]["lo"].dropna() <= 0).all())
            rows = rows.to_dict("records")
        self.assertIsInstance(rows, list)
        names = {row["policy"] for row in rows}
        self.assertLessEqual({"full", "evaluated", "evaluated+adakv", "kvpress-knorm"}, names)
        self.assertIn("lo", rows[0])
        with self.assertRaisesRegex(winnow.WinnowError, "nonsense"):
            winnow.evaluate(policies=["nonsense"], tasks=["user"], **options)
        with mock.patch("winnow._evaluate.run_command", return_value=(1, "", "winnow: stopped here\n")) as run, \
                self.assertRaisesRegex(winnow.WinnowError, "stopped here"):
            winnow.evaluate(policies=["knorm"], tasks=["user"], ratios=[0.1234567], seed=0, alone=False, **options)
        words = run.call_args[0]
        self.assertEqual([words[words.index(name) + 1] for name in ("--seed", "--ratios")], [0, "0.1234567"])
        self.assertNotIn("--alone", words)
        winnow.scorer(lambda keys: 1 / 0, name="evaluated")
        with self.assertRaises(ZeroDivisionError):
            winnow.evaluate(policies=["evaluated"], tasks=["user"], ratios=0.5, **options)

    # ---- Bad input ----

    def test_bad_arguments(self):
        for kind, sentence, call in (
            (TypeError, "document is a str", lambda: self.m.compress(3, ratio=0.5)),
            (TypeError, "ratio is a number", lambda: self.m.compress(TEXT, ratio="half")),
            (winnow.ArgumentError, "a ratio of 1", lambda: self.m.compress(TEXT, ratio=1)),
            (winnow.ArgumentError, "not nan", lambda: self.m.compress(TEXT, ratio=float("nan"))),
            (winnow.ArgumentError, "threads is -1", lambda: winnow.Model(TINY, threads=-1)),
            (winnow.ArgumentError, "context is 4294967296", lambda: winnow.Model(TINY, context=1 << 32)),
            (winnow.ArgumentError, "exclude each other", lambda: self.m.compress(TEXT, ratio=0.5, budget=3)),
            (winnow.ArgumentError, "NUL character", lambda: self.m.compress("a\0b", ratio=0.5)),
            (winnow.ArgumentError, "nosuch", lambda: self.m.compress(TEXT, ratio=0.5, policy="nosuch")),
            (winnow.WinnowError, "nosuch.gguf", lambda: winnow.Model("/nosuch.gguf")),
            (winnow.WinnowError, "there is no model 'nosuch'", lambda: winnow.Model("nosuch")),
            (winnow.WinnowError, "f17", lambda: winnow.Model(TINY, kv_type="f17")),
            (winnow.WinnowError, "", lambda: self.m.load(TINY)),
            (TypeError, "threads is a whole number, not '2'", lambda: winnow.Model(TINY, threads="2")),
            (TypeError, "budget is a whole number, not 2.5", lambda: self.m.compress(TEXT, budget=2.5)),
            (winnow.ArgumentError, "budget is -1", lambda: self.m.compress(TEXT, budget=-1)),
            (winnow.ArgumentError, "kv_bytes is 36893488147419103232", lambda: self.m.compress(TEXT, kv_bytes=1 << 65)),
            (TypeError, "budget is a whole number, not inf", lambda: self.m.compress(TEXT, budget=float("inf"))),
            (winnow.ArgumentError, "a ratio of inf", lambda: self.m.compress(TEXT, ratio=float("inf"))),
            (TypeError, "document is a str, not bytes", lambda: self.m.compress(TEXT.encode(), ratio=0.5)),
            (FileNotFoundError, "nosuch.txt", lambda: self.m.compress(pathlib.Path("/nosuch.txt"), ratio=0.5)),
            (TypeError, "tokens are a row", lambda: self.m.detokenize([0.5])),
            (TypeError, "tokens are a row", lambda: self.m.detokenize("abc")),
            (winnow.ArgumentError, "a token is", lambda: self.m.detokenize([1, 1 << 40])),
            (winnow.ArgumentError, "vocabulary", lambda: self.m.detokenize([self.m.n_vocab])),
            (TypeError, "system is a str", lambda: self.m.compress(TEXT, system=3)),
            (TypeError, "the system message is a str", lambda: self.m.chat(system=3)),
            (TypeError, "n_tokens is a whole number", lambda: winnow.Plan([[[0]]], "3")),
            (ValueError, "masked entries", lambda: winnow.Plan.from_kvpress([(([0], [9]), 1)], 5)),
            (ValueError, "compression_ratio is nan|not nan", lambda: presses.KnormPress(float("nan"))),
            (TypeError, "window_size is a whole number", lambda: presses.SnapKVPress(0.5, window_size=2.5)),
            (TypeError, "whole numbers", lambda: winnow.Plan([[[0.5]]], 3)),
            (ValueError, "must ascend", lambda: winnow.Plan([[[2, 1]]], 3)),
            (ValueError, "0 to 2", lambda: winnow.Plan([[[3]]], 3)),
            (ValueError, "shape", lambda: winnow.Plan.from_kvpress([np.zeros((2, 3, 4))], 5)),
        ):
            with self.subTest(sentence), self.assertRaisesRegex(kind, sentence):
                call()

    def test_questions(self):
        """Options of an answer, each outside of what it can be, and as NumPy's scalars."""
        with self.m.compress(TEXT, ratio=0.5, policy="knorm") as doc, self.m.chat() as chat:
            for one in (doc, chat):
                for kind, sentence, options in (
                    (winnow.ArgumentError, "max_tokens is -1", {"max_tokens": -1}),
                    (winnow.ArgumentError, "max_tokens is 1099511627776", {"max_tokens": 1 << 40}),
                    (TypeError, "max_tokens is a whole number, not '9'", {"max_tokens": "9"}),
                    (winnow.ArgumentError, "top_k is -1", {"top_k": -1}),
                    (winnow.ArgumentError, "seed is -1", {"seed": -1}),
                    (winnow.ArgumentError, "temp >= 0", {"temperature": -1}),
                    (winnow.ArgumentError, "not nan", {"temperature": float("nan")}),
                    (TypeError, "temperature is a number, not 'hot'", {"temperature": "hot"}),
                    (winnow.ArgumentError, "top_p <= 1", {"top_p": 2}),
                    (winnow.ArgumentError, "repeat_penalty", {"repeat_penalty": 0.5}),
                    (winnow.ArgumentError, "stop string 0 is empty", {"stop": ""}),
                    (TypeError, "a stop text is a str, not int", {"stop": [3]}),
                ):
                    with self.subTest(f"{type(one).__name__}: {sentence}"), self.assertRaisesRegex(kind, sentence):
                        one.ask("Who?", **options)
                with self.assertRaisesRegex(TypeError, "the question is a str, not bytes"):
                    one.ask(b"Who?")
                with self.assertRaisesRegex(winnow.ArgumentError, "NUL"):
                    one.ask("Who\0?")
                said = one.ask("Wer? \u00fc\u4e2d\U0001f600", max_tokens=np.int64(3), temperature=np.float32(0), top_k=np.int32(4), seed=np.uint8(1), stop=None)
                self.assertIsInstance(said, str)

    def test_texts(self):
        """Short ones, those of other scripts, and ids from arrays."""
        strange = "\u00fc\u4e2d\U0001f600 \u202e\u0301 \ud7ff\ufffd\t\r\n" * 20
        ids = self.m.tokenize(strange)
        self.assertEqual(self.m.detokenize(ids), self.m.detokenize(ids.tolist()))
        self.assertEqual(self.m.detokenize(ids), strange)
        self.assertEqual(self.m.detokenize([]), "")
        (self.folder / "strange.txt").write_bytes(strange.encode())
        for text, options in (("a", {"ratio": 0.999}), ("a", {"budget": np.int64(1)}), (strange, {"ratio": np.float32(0.75)}), (strange, {"kv_bytes": 1 << 20}),
                              (self.folder / "strange.txt", {"budget": 1e9})):
            with self.subTest(text=str(text)[:9], options=options), self.m.compress(text, policy="knorm", **options) as doc:
                self.assertLessEqual(doc.kept, doc.n_tokens)
                self.assertGreaterEqual(doc.kept, 1)
                self.assertIsInstance(doc.ask("Who?", max_tokens=2), str)
        path = self.folder / "file.txt"
        path.write_bytes(b"\xef\xbb\xbf" + f"a\r\n{TEXT}".encode())
        self.assertEqual(self.m.plan(path, "knorm", ratio=0.5).tokens.tolist(), self.m.plan(f"a\r\n{TEXT}", "knorm", ratio=0.5).tokens.tolist())
        for data, sentence in ((b"ab\xff", "not UTF-8 at byte 2"), ("ab".encode("utf-16"), "UTF-16"), (b"a\0b", "NUL")):
            path.write_bytes(data)
            with self.subTest(sentence), self.assertRaisesRegex(winnow.ArgumentError, sentence):
                self.m.compress(path, ratio=0.5)
        with self.assertRaisesRegex(winnow.ArgumentError, "empty"):
            self.m.compress("", ratio=0.5)

    def test_layouts(self):
        """A stored document is asked as it was laid out, on any day."""
        text = self.folder / "layout.txt"
        text.write_text(TEXT + " <s> </s>")
        for i, options in enumerate((["--raw"], ["--special"], ["--system", ""], ["--system", "Be brief."])):
            path = self.folder / f"layout{i}.wkv"
            with self.subTest(options):
                for given in (["compress", "-f", text, "-o", path, "--policy", "knorm", "--ratio", "0.5", *options], ["ask", "-c", path, "-p", "Who?", "-n", "6"]):
                    said = subprocess.run([WINNOW, given[0], "-m", TINY, "-t", "1", *given[1:]], check=True, capture_output=True, text=True).stdout
                with self.m.load(path) as doc:
                    self.assertEqual(doc.ask("Who?", max_tokens=6).strip(), said.strip())
                    doc.save(self.folder / "layout.wkv")
                with self.m.load(self.folder / "layout.wkv") as doc:
                    self.assertEqual(doc.ask("Who?", max_tokens=6).strip(), said.strip())
        with mock.patch("winnow._model._today", lambda: 86400), self.m.compress(TEXT, ratio=0.5, policy="knorm") as doc:
            doc.save(self.folder / "dated.wkv")
        with self.m.load(self.folder / "dated.wkv") as doc:
            self.assertEqual(doc._layout["now"], 86400)

    def test_no_copies(self):
        """Two owners of one object of the library would release it twice."""
        with self.m.compress(TEXT, ratio=0.5, policy="knorm") as doc, self.m.chat() as chat:
            for one in (self.m, doc, chat):
                for take in (copy.copy, copy.deepcopy, pickle.dumps):
                    with self.subTest(f"{take.__name__} {one._what}"), self.assertRaisesRegex(TypeError, "cannot be copied or pickled"):
                        take(one)
            plan = doc.plan
            self.assertEqual(pickle.loads(pickle.dumps(plan)), plan)
            self.assertEqual(copy.deepcopy(plan), plan)

    def test_no_plans(self):
        for name, data, sentence in (("empty", b"", "no keep-plan"), ("binary", bytes(range(256)), "no keep-plan"), ("list", b"[1]", "no keep-plan"),
                                     ("other", b'{"format": "x"}', "its format is 'x'"), ("short", b'{"format": "winnow-plan-1"}', "it has no"),
                                     ("order", b'{"format": "winnow-plan-1", "n_tokens": 3, "layers": [{"heads": [[2, 1]]}]}', "must ascend"),
                                     ("wide", b'{"format": "winnow-plan-1", "n_tokens": 3, "layers": [{"heads": [[9999999999999999999999]]}]}', "no keep-plan")):
            (self.folder / name).write_bytes(data)
            with self.subTest(name), self.assertRaisesRegex(ValueError, sentence):
                winnow.Plan.load(self.folder / name)

    def test_closed(self):
        m = winnow.Model(TINY)
        doc = m.compress(TEXT, ratio=0.5, policy="knorm")
        with self.assertRaisesRegex(winnow.UsageError, "1 open documents"):
            m.close()
        doc.close()
        doc.close()
        for call in (lambda: doc.ask("Who?"), lambda: doc.plan, lambda: doc.kv_bytes, lambda: doc.save("x")):
            with self.assertRaisesRegex(winnow.UsageError, "the document is closed"):
                call()
        m.close()
        for call in (lambda: m.compress(TEXT), lambda: m.tokenize("a"), lambda: m.plan(TEXT, "knorm"), lambda: m.chat()):
            with self.assertRaisesRegex(winnow.UsageError, "the model is closed"):
                call()

    def test_two_threads(self):
        with self.m.compress(TEXT, ratio=0.5, policy="knorm") as doc:
            pieces = doc.stream("Who?", max_tokens=100)
            next(pieces)  # the answer goes on, on its own thread
            with self.assertRaisesRegex(winnow.UsageError, "in use by another call"):
                doc.ask("Who?", max_tokens=2)
            with self.assertRaisesRegex(winnow.UsageError, "in use by another call"):
                doc.close()
            pieces.close()
            answers = []
            with self.m.compress(TEXT, ratio=0.5, policy="snapkv") as other:
                threads = [threading.Thread(target=lambda d=d: answers.append(d.ask("Who?", max_tokens=3))) for d in (doc, other)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            self.assertEqual(len(answers), 2)

    def test_fork(self):
        doc = self.m.compress(TEXT, ratio=0.5, policy="knorm")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                doc.ask("Who?", max_tokens=1)
            except winnow.UsageError as error:
                code = 0 if "before a fork" in str(error) else 2
            os._exit(code)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertIsInstance(doc.ask("Who?", max_tokens=1), str)
        doc.close()

    def test_interrupt(self):
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
        self.addCleanup(signal.signal, signal.SIGINT, before)
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        begun = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            while time.monotonic() < begun + 60:
                self.m.compress(TEXT * 3, ratio=0.5, policy="knorm").close()
        self.assertIsInstance(self.m.plan(TEXT, "knorm", ratio=0.5), winnow.Plan)

    def interrupted(self, one):
        """An interrupt that comes while a prompt is read, and another while that stops. The reading ends at the next step."""
        real, calls = winnow._model._Session._on_progress, []

        def on_progress(session, done, total, user):
            calls.append((done, total))
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(600):
                if not real(session, done, total, user):
                    break
                time.sleep(0.1)
            os.kill(os.getpid(), signal.SIGINT)
            return real(session, done, total, user)

        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with mock.patch.object(winnow._model._Session, "_on_progress", on_progress), self.assertRaises(KeyboardInterrupt):
                one()
        finally:
            signal.signal(signal.SIGINT, before)
        self.assertEqual(len(calls), 1)
        self.assertLess(*calls[0])

    def test_interrupted_readings(self):
        chats = []

        def chat():
            chats.append(self.m.chat(budget=64, policy="knorm"))
            chats[0].ask(TEXT * 2, max_tokens=2)

        self.interrupted(lambda: self.m.compress(TEXT * 2, ratio=0.5, policy="knorm"))
        self.interrupted(lambda: self.m.plan(TEXT * 2, "knorm", ratio=0.5))
        self.interrupted(chat)
        self.assertIsInstance(chats[0].ask("And then?", max_tokens=2), str)
        n = chats[0].n_tokens
        self.assertLess(n, len(self.m.tokenize(TEXT)), "the question whose reading was stopped is still there")
        chats[0].ask(TEXT, max_tokens=2)
        self.assertLess(self.entries(chats[0]), chats[0].n_tokens / 2, "it is not compressed any more")
        chats[0].close()
        with self.m.chat(budget=64, policy="h2o") as chat:  # sums over all tokens, which cannot be taken back
            chat.ask(TEXT, max_tokens=2)
            self.interrupted(lambda: chat.ask(TEXT * 2, max_tokens=2))
            self.assertIsInstance(chat.ask("And then?", max_tokens=2), str)
            self.assertLess(self.entries(chat), chat.n_tokens / 2)

    def entries(self, chat):
        """Of a head, on average, with keys and values of 2 bytes."""
        return chat.kv_bytes / (self.m.n_layer * self.m.n_head_kv * self.m.n_embd_head * 2 * 2)

    def test_chat_policies(self):
        """A policy is compressed by, with half as its size where none is given, and "full" keeps all."""
        kept = []
        for options in ({}, {"policy": "full", "budget": 64}, {"policy": "knorm"}, {"budget": 64}):
            with self.m.chat(**options) as chat:
                chat.ask(TEXT, max_tokens=1)
                kept.append(self.entries(chat) / chat.n_tokens)
        self.assertGreater(min(kept[:2]), 0.99)
        self.assertAlmostEqual(kept[2], 0.5, delta=0.05)
        self.assertLess(kept[3], 0.4)
        with self.assertRaisesRegex(winnow.ArgumentError, "nonsense"):
            self.m.chat(policy="nonsense")
        read = []

        def count(read_of):
            def session_read(s, tokens, n, report):
                read.append(n)
                return read_of(s, tokens, n, report)
            return session_read

        lib = _library.library()
        with self.m.chat(policy="knorm+rerotate", budget=64) as chat, mock.patch.object(lib, "wnw_session_read", count(lib.wnw_session_read)):
            chat.ask(TEXT, max_tokens=1)
            chat.ask("And then?", max_tokens=1)
        self.assertLess(read[1], 40, "what was renumbered is read again")

    def test_exit(self):
        """The interpreter ends, with status 0 and without a word, with anything open."""
        begin = f"import winnow, threading, gc\nm = winnow.Model({TINY!r}, threads=1)\ndoc = m.compress({TEXT!r}, ratio=0.5, policy='knorm')\n"
        for name, end in (("open", "chat = m.chat(budget=64)\nchat.ask('Who?', max_tokens=2)"),
                          ("an answer", "pieces = doc.stream('Who?', max_tokens=100000)\nnext(pieces)"),
                          ("an answer that nobody holds", "next(doc.stream('Who?', max_tokens=100000))"),
                          ("an answer in a thread", "threading.Thread(target=lambda: doc.ask('Who?', max_tokens=20)).start()"),
                          ("the model first", "del m\ngc.collect()\nprint(end='', file=__import__('sys').stdout if doc.ask('Who?', max_tokens=2) is not None else None)"),
                          ("a cycle", "class A: pass\na = A(); a.me = a; a.doc = doc; a.m = m\ndel a, doc, m\ngc.collect()"),
                          ("an error", "pieces = doc.stream('Who?', max_tokens=100000)\nnext(pieces)\nraise SystemExit(0)")):
            with self.subTest(name):
                done = subprocess.run([sys.executable, "-c", begin + end], capture_output=True, text=True, timeout=300)
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_other_ways_to_run(self):
        """asyncio, and processes that are started or are forked before anything is open."""
        async def both():
            return await asyncio.gather(*(asyncio.to_thread(doc.ask, "Who?", max_tokens=3) for doc in docs))

        docs = [self.m.compress(TEXT, ratio=0.5, policy=policy) for policy in ("knorm", "snapkv")]
        self.assertEqual([type(answer) for answer in asyncio.run(both())], [str, str])
        for doc in docs:
            doc.close()
        program = self.folder / "pool.py"
        program.write_text(f"import multiprocessing, winnow\n@winnow.scorer\ndef sharp(keys): return keys.max(axis=-1)\n"
                           f"def plan(recipe):\n    with winnow.Model({TINY!r}, threads=1) as m: return m.plan({TEXT!r}, recipe, ratio=0.5)\n"
                           "if __name__ == '__main__':\n    here = plan('sharp+adakv')\n    for way in ('spawn', 'fork'):\n"
                           "        with multiprocessing.get_context(way).Pool(2) as pool:\n"
                           "            print(all(one == here for one in pool.map(plan, ['sharp+adakv'] * 3)))\n")
        done = subprocess.run([sys.executable, "-W", "ignore", program], capture_output=True, text=True, timeout=300)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "True\nTrue\n", ""))

    def test_a_model_is_closed_while_it_is_used(self):
        """By another thread: each call works, or says that the model is closed or in use."""
        for _ in range(20):
            m, faults = winnow.Model(TINY, threads=1), []

            def use():
                try:
                    for _ in range(50):
                        m.detokenize(m.tokenize("The keeper of the tower."))
                except winnow.UsageError:
                    pass
                except Exception as error:
                    faults.append(error)

            thread = threading.Thread(target=use)
            thread.start()
            while thread.is_alive():
                try:
                    m.close()
                    break
                except winnow.UsageError:
                    pass
            thread.join()
            self.assertEqual(faults, [])

    def test_old_cpu(self):
        with mock.patch.object(_library, "_cpu_flags", return_value={"sse2", "avx"}):
            with self.assertRaisesRegex(winnow.WinnowError, "^this CPU has no avx2, bmi2, f16c, fma, which"):
                _library.check_cpu()

    def test_typed(self):
        folder = pathlib.Path(winnow.__file__).parent
        self.assertTrue((folder / "py.typed").exists())
        for name in winnow.__all__:
            if callable(getattr(winnow, name)):
                self.assertTrue(getattr(winnow, name).__doc__, name)

    def test_struct_sizes(self):
        """Structs of the declarations are as large as the library's: it accepts their struct_size, and rejects a larger one."""
        lib = _library.library()
        stats = declarations.wnw_model_info_default()
        self.assertEqual(lib.wnw_model_get_info(self.m._model, stats), 0)
        stats.struct_size += 8
        self.assertLess(lib.wnw_model_get_info(self.m._model, stats), 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + os.environ.get("WINNOW_TESTS", "").split())
