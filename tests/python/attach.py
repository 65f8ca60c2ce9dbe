# SPDX-License-Identifier: MIT
"""winnow.llama_cpp with the package llama-cpp-python as pip installs it: attach.py TINY.gguf OTHER.gguf

The models are random: what is compared are numbers of entries, which rounding does not change, and answers of the same computation.
"""
import contextlib
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

import llama_cpp
import numpy as np

import winnow
import winnow.llama_cpp as attached

TINY, OTHER = sys.argv[1:]
TEXT = " ".join(f"The keeper of tower {k} is called Name{k * 7} and has {k * 3} lamps." for k in range(24))


def llama(**options):
    return llama_cpp.Llama(TINY, **{"n_gpu_layers": -1, "n_ctx": 4096, "n_threads": 1, "n_batch": 512, "verbose": False, **options})


def ask(llm, prompt, n=6):
    return llm.create_completion(prompt, max_tokens=n, temperature=0)["choices"][0]["text"]


class Reads:
    """Counts the tokens that a Llama computes."""

    def __init__(self, llm):
        self.n, self._eval = 0, llm.eval
        llm.eval = self

    def __call__(self, tokens):
        self.n += len(tokens)
        self._eval(tokens)

    def take(self):
        n, self.n = self.n, 0
        return n


class Attach(unittest.TestCase):
    def test_half_is_kept(self):
        llm = llama()
        whole = ask(llm, TEXT)
        before = attached.stats(llm)
        self.assertEqual(before.kept, before.n_tokens)
        attached.attach(llm, policy="knorm", ratio=0.5)
        llm.reset()
        ask(llm, TEXT)
        after = attached.stats(llm)
        n = len(llm.tokenize(TEXT.encode()))
        self.assertEqual(after.n_tokens, before.n_tokens)
        self.assertAlmostEqual(after.kept, n - n // 2 + after.n_tokens - n, delta=1)
        self.assertLess(after.bytes, after.bytes_full)
        self.assertEqual({one.layer for one in after.layers}, set(range(len(after.layers))))
        attached.attach(llm, policy=None)
        llm.reset()
        self.assertEqual(ask(llm, TEXT), whole)
        self.assertEqual(attached.stats(llm).kept, before.kept)

    def test_chunks(self):
        """A prompt of several batches is compressed before it has ended."""
        llm = llama(n_batch=256, n_ubatch=256)
        kept = []
        for chunk in (None, 256):
            attached.attach(llm, policy="knorm", ratio=0.5, chunk=chunk)
            llm.reset()
            llm.eval(llm.tokenize(TEXT.encode())[:700])
            kept.append(attached.stats(llm).kept)
        self.assertEqual(kept, [700, 256 + 700 - 512])

    def test_sizes(self):
        llm = llama()
        for options, kept in (({}, 0.5), ({"policy": "snapkv"}, 0.5), ({"policy": winnow.presses.KnormPress(0.75)}, 0.25), ({"policy": "knorm", "budget": 40}, None)):
            with self.subTest(options):
                attached.attach(llm, **options)
                llm.reset()
                ask(llm, TEXT, 4)
                n, now = len(llm.tokenize(TEXT.encode())), attached.stats(llm)
                self.assertAlmostEqual(now.kept - (now.n_tokens - n), 40 if kept is None else kept * n, delta=1)

    def test_a_scorer_in_python(self):
        """It keeps what the same one in C keeps, in a recipe too."""
        @winnow.scorer(needs=["keys"], first=0, last=0)
        def py_norms(keys):
            return -np.sqrt(np.einsum("hnd,hnd->hn", keys.astype(np.float64), keys))

        said = []
        for policy in ("knorm", py_norms, "knorm+adakv", py_norms + "adakv"):
            llm = llama()
            attached.attach(llm, policy, ratio=0.5)
            said.append((ask(llm, TEXT, 8), [one.entries for one in attached.stats(llm).layers]))
        self.assertEqual(said[0], said[1])
        self.assertEqual(said[2], said[3])

    def test_scorers_that_fail(self):
        """A traceback is printed, the prompt stays whole, and the Llama goes on."""
        @winnow.scorer
        def raises(keys):
            raise ZeroDivisionError("of the test")

        @winnow.scorer
        def not_finite(keys):
            return np.full(keys.shape[:2], np.nan)

        @winnow.scorer
        def of_a_wrong_shape(keys):
            return keys

        @winnow.scorer
        def stopped(keys):
            raise KeyboardInterrupt

        llm = llama()
        for policy, sentence in ((raises, "ZeroDivisionError: of the test"), (not_finite, "not finite"), (of_a_wrong_shape, "returned the shape")):
            attached.attach(llm, policy)
            llm.reset()
            with self.subTest(sentence), contextlib.redirect_stderr(io.StringIO()) as printed:
                ask(llm, TEXT)
                self.assertIn(sentence, printed.getvalue())
                self.assertEqual(attached.stats(llm).kept, attached.stats(llm).n_tokens)
        attached.attach(llm, stopped)
        llm.reset()
        with self.assertRaises(KeyboardInterrupt):
            ask(llm, TEXT)
            time.sleep(60)
        attached.attach(llm, "knorm")
        llm.reset()
        ask(llm, TEXT)
        self.assertLess(attached.stats(llm).kept, attached.stats(llm).n_tokens)

    def test_bad_input(self):
        llm = llama()
        for kind, sentence, call in (
            (TypeError, "llama_cpp.Llama, not str", lambda: attached.attach("model")),
            (winnow.ArgumentError, "nonsense", lambda: attached.attach(llm, "nonsense")),
            (winnow.ArgumentError, "no_scorer", lambda: attached.attach(llm, "no_scorer+adakv")),
            (winnow.ArgumentError, "exclude each other", lambda: attached.attach(llm, ratio=0.5, budget=4)),
            (winnow.WinnowError, "kvzip", lambda: attached.attach(llm, "kvzip")),
            (winnow.ArgumentError, "chunk is 100 tokens", lambda: attached.attach(llm, "knorm", chunk=100)),
            (TypeError, "float", lambda: attached.attach(llm, "knorm", chunk=512.0)),
            (winnow.FileError, "nosuch.json", lambda: attached.attach(llm, profile="nosuch.json")),
            (winnow.UsageError, "n_gpu_layers=-1", lambda: attached.attach(llama(n_gpu_layers=0))),
            (winnow.UsageError, "n_gpu_layers=-1", lambda: attached.stats(llama(n_gpu_layers=0))),
            (winnow.UsageError, "another process", lambda: winnow.run_command("--version", show=False, plugins=["plugin.so"])),
        ):
            with self.subTest(sentence), self.assertRaisesRegex(kind, sentence):
                call()
        attached.attach(llm, "knorm")
        self.assertIsInstance(ask(llm, TEXT), str)

    def test_a_call_that_raises_changes_nothing(self):
        @winnow.scorer(needs=["keys"], first=0, last=0)
        def of_this_test(keys):
            return -np.arange(keys.shape[1], dtype=np.float32)[None].repeat(keys.shape[0], 0)

        llm = llama(n_batch=256, n_ubatch=256)
        tokens = llm.tokenize(TEXT.encode())[:700]
        for policy in ("knorm", of_this_test):
            attached.attach(llm, policy, ratio=0.5, chunk=256)
            for kind, arguments in (
                (winnow.ArgumentError, {"chunk": 100}), (TypeError, {"chunk": 2.5}), (winnow.ArgumentError, {"ratio": 2}), (TypeError, {"budget": "x"}),
                (winnow.ArgumentError, {"ratio": 0.5, "kv_bytes": 1 << 20}), (winnow.FileError, {"profile": "nosuch.json"}), (TypeError, {"profile": 5}),
                (winnow.ArgumentError, {"policy": "nonsense"}), (winnow.WinnowError, {"policy": "kvzip"}), (winnow.WinnowError, {"policy": "replay+quality:dropped=0.2", "chunk": 256}),
                (winnow.ArgumentError, {"policy": None, "chunk": 5}),
            ):
                with self.subTest(policy, **arguments), self.assertRaises(kind):
                    attached.attach(llm, **{"policy": "snapkv", **arguments})
            llm.reset()
            llm.eval(tokens)
            self.assertEqual(attached.stats(llm).kept, 256 + 700 - 512)

    def test_a_library_that_does_not_fit(self):
        for path, sentence in (("/nosuch.so", "cannot load /nosuch.so"), (TINY, "cannot load .*tiny")):
            done = subprocess.run([sys.executable, "-c", "import winnow.llama_cpp"], env={**os.environ, "WINNOW_BACKEND": path}, capture_output=True, text=True)
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stderr.splitlines()[-1], sentence)

    def test_both_libraries_in_any_order(self):
        """The package's own ggml and that of llama-cpp-python are in one process."""
        first = f"import winnow\nm = winnow.Model({TINY!r})\ndoc = m.compress({TEXT!r}, policy='knorm', ratio=0.5)\nprint(doc.kept)\n"
        second = (f"import winnow.llama_cpp, llama_cpp\nllm = llama_cpp.Llama({TINY!r}, n_gpu_layers=-1, n_ctx=4096, verbose=False)\n"
                  f"winnow.llama_cpp.attach(llm, 'knorm', 0.5)\nllm({TEXT!r}, max_tokens=4, temperature=0)\nprint(winnow.llama_cpp.stats(llm).kept)\n")
        said = []
        for program in (first + second, second + first):
            done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr[-2000:])
            said.append(sorted(done.stdout.split()))
        self.assertEqual(said[0], said[1])


class Cache(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.work.name)
        cls.m = winnow.Model(TINY, threads=1)
        with cls.m.compress(TEXT, policy="knorm+adakv", ratio=0.5) as doc:
            doc.save(cls.folder / "doc.wkv")
            cls.counts, cls.n = doc.plan.counts(), doc.n_tokens

    @classmethod
    def tearDownClass(cls):
        cls.m.close()
        cls.work.cleanup()

    def test_a_stored_document(self):
        llm = llama(flash_attn=True)
        cache = attached.WkvCache(llm, self.folder / "doc.wkv")
        llm.set_cache(cache)
        reads, prompt = Reads(llm), cache.prompt("Who keeps tower 3?")
        answer = ask(llm, prompt)
        n_more = llm.n_tokens - self.n
        self.assertEqual(reads.take(), n_more, "the document was read again")
        entries = {one.layer: one.entries for one in attached.stats(llm).layers}
        self.assertEqual(entries, {il: int(heads.sum()) + n_more * len(heads) for il, heads in enumerate(self.counts)})
        ask(llm, "Another prompt, which has nothing to do with the document.")
        reads.take()
        self.assertEqual(ask(llm, cache.prompt("Who keeps tower 3?", "doc")), answer)
        self.assertLess(reads.take(), 10 + n_more)

    def test_earlier_prompts(self):
        llm = llama(flash_attn=True)
        attached.attach(llm, policy="knorm", ratio=0.5)
        cache = attached.WkvCache(llm)
        llm.set_cache(cache)
        reads, first = Reads(llm), llm.tokenize(TEXT.encode())
        ask(llm, first)
        kept, tokens = attached.stats(llm).kept, llm.input_ids[:llm.n_tokens].tolist()
        ask(llm, "Something else.")
        reads.take()
        ask(llm, tokens + llm.tokenize(b" And then?", add_bos=False), 1)
        self.assertLess(reads.take(), 20, "the first prompt was read again")
        now = attached.stats(llm)
        self.assertEqual(now.kept - (now.n_tokens - len(tokens)), kept)
        n, mask, words, _ = cache._earlier[tuple(tokens)]
        self.assertLess(mask.nbytes + words.nbytes, 0.75 * n, "dropped entries take memory")

    def test_room(self):
        llm = llama(flash_attn=True)
        cache = attached.WkvCache(llm, capacity_bytes=1)
        llm.set_cache(cache)
        ask(llm, TEXT)
        self.assertEqual(cache.cache_size, 0)
        self.assertNotIn(llm.tokenize(TEXT.encode()), cache)

    def test_bytes(self):
        data = np.random.default_rng(0).integers(0, 4, 4099, np.uint8)
        data[(data == 3).repeat(1)] = 255
        data[400:2000] = 255
        for n in (0, 1, 4, 4099):
            self.assertEqual(attached._unpack(attached._pack(data[:n].tobytes())), data[:n].tobytes())

    def test_bad_input(self):
        llm = llama(flash_attn=True)
        cache = attached.WkvCache(llm)
        with self.assertRaisesRegex(winnow.ArgumentError, "0 documents"):
            cache.prompt("Who?")
        cache.add(self.folder / "doc.wkv", name="towers")
        with self.assertRaisesRegex(winnow.ArgumentError, "no document 'doc'; there are towers"):
            cache.prompt("Who?", "doc")
        with self.assertRaises(winnow.FileError):
            cache.add(TINY)
        with winnow.Model(OTHER) as other, other.compress(TEXT, policy="knorm", ratio=0.5) as doc:
            doc.save(self.folder / "other.wkv")
        with self.assertRaises(winnow.FileError):
            cache.add(self.folder / "other.wkv")
        with self.assertRaisesRegex(winnow.UsageError, "n_gpu_layers=-1"):
            attached.WkvCache(llama(n_gpu_layers=0))
        small = llama(flash_attn=True, n_ctx=256)
        mine = attached.WkvCache(small, self.folder / "doc.wkv")
        small.set_cache(mine)
        with self.assertRaisesRegex(winnow.WinnowError, "the context cannot hold"):
            mine[mine.prompt("Who?")]
        del llm
        with self.assertRaisesRegex(winnow.UsageError, "is gone"):
            cache.add(self.folder / "doc.wkv")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + os.environ.get("WINNOW_TESTS", "").split())
