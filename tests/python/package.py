# SPDX-License-Identifier: MIT
"""The Python package, as an installed wheel or from the tree: package.py WINNOW TINY.gguf KEEP_SETS

WINNOW is the command and KEEP_SETS a program in C (keep_sets.c). Both print plans, which must be those of the package. The model is random:
its answers are compared with other answers only.
"""
import importlib.util
import os
import pathlib
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
                    here.save(self.folder / "doc.wkv")
                    kept = here.kept
                with m.load(self.folder / "doc.wkv") as loaded:
                    self.assertAlmostEqual(loaded.kept, kept, delta=1)
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
                (winnow.UsageError, "compress, load, chat and ask", lambda: m.plan(TEXT, "knorm")),
                (winnow.UsageError, "compress, load, chat and ask", lambda: m.observe(TEXT, ["keys"])),
                (winnow.UsageError, "without devices", lambda: doc.plan),
                (winnow.UsageError, "without devices", lambda: doc.save(self.folder / "never")),
                (winnow.ArgumentError, "no device 'nosuch0'", lambda: winnow.Model(TINY, devices=["nosuch0"])),
                (winnow.ArgumentError, "devices is empty", lambda: winnow.Model(TINY, devices=[])),
                (winnow.ArgumentError, "cpu twice", lambda: winnow.Model(TINY, devices=["cpu", "cpu"])),
                (winnow.ArgumentError, "2 numbers, and there are 1", lambda: winnow.Model(TINY, devices=["cpu"], layers=[1, 3])),
                (winnow.ArgumentError, "this model has 4", lambda: winnow.Model(TINY, devices=["cpu"], layers=[3])),
                (winnow.ArgumentError, "at least 1", lambda: winnow.Model(TINY, devices=["cpu"], layers=[0])),
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
        with self.assertRaisesRegex(winnow.ArgumentError, "layer 99"):
            self.m.observe(TEXT, ["keys"], layer=99)

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
            (TypeError, "whole numbers", lambda: winnow.Plan([[[0.5]]], 3)),
            (ValueError, "must ascend", lambda: winnow.Plan([[[2, 1]]], 3)),
            (ValueError, "0 to 2", lambda: winnow.Plan([[[3]]], 3)),
            (ValueError, "shape", lambda: winnow.Plan.from_kvpress([np.zeros((2, 3, 4))], 5)),
        ):
            with self.subTest(sentence), self.assertRaisesRegex(kind, sentence):
                call()

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

    def test_old_cpu(self):
        with mock.patch.object(_library, "_cpu_flags", return_value={"sse2", "avx"}):
            with self.assertRaisesRegex(winnow.WinnowError, "^this CPU has no avx2, f16c, fma, which"):
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
