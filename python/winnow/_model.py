# SPDX-License-Identifier: MIT
"""Models, documents and conversations."""
import atexit
import ctypes
import os
import pathlib
import queue
import threading
import time
import weakref

import numpy as np

from . import _declarations as c
from ._library import FOLDER, ArgumentError, Owned, UsageError, check, library, real, text, whole
from ._plan import Plan
from ._scorer import Policy, Scorer

_progress_type = dict(c.wnw_session_params._fields_)["progress"]
_text_type = dict(c.wnw_generate_params._fields_)["on_text"]
_MOST = (1 << 31) - 1  # of an int32


def _size(ratio, budget, kv_bytes):
    given = [(name, value) for name, value in (("ratio", ratio), ("budget", budget), ("kv_bytes", kv_bytes)) if value is not None]
    if len(given) > 1:
        raise ArgumentError("ratio, budget and kv_bytes exclude each other; give one of them")
    size = c.wnw_size(kind=c.WNW_SIZE_NONE)
    for name, value in given:
        number = real(value, name)
        if name == "ratio":
            if not 0 <= number < 1:
                raise ArgumentError(f"a ratio of {number:g}; give the fraction that is removed, at least 0 and less than 1", "E_RANGE")
            size.kind, size.ratio = c.WNW_SIZE_RATIO, number
        else:
            n = whole(int(number) if isinstance(value, (float, np.floating)) and number.is_integer() else value, name, 1, (1 << 63) - 1)
            if name == "budget":
                size.kind, size.budget = c.WNW_SIZE_BUDGET, n
            else:
                size.kind, size.bytes = c.WNW_SIZE_BYTES, n
    return size


def cache_folder():
    return pathlib.Path(os.environ.get("WINNOW_CACHE") or pathlib.Path.home() / ".cache" / "winnow")


def model_path(model):
    """The file of a model: a path, or the name of a model in the cache folder."""
    path = pathlib.Path(model).expanduser()
    if path.exists() or path.suffix == ".gguf" or os.sep in str(model):
        return path
    named = cache_folder() / "models" / f"{model}.gguf"
    if named.exists():
        return named
    there = sorted(p.stem for p in named.parent.glob("*.gguf"))
    raise ArgumentError(f"there is no model '{model}'; give the path of a GGUF file" + (f", or one of {', '.join(there)}" if there else ""), "E_IO")


def profile_paths(model, profile):
    """The files of calibration results for the file of a model, and whether they were looked for: then those that do not fit are left out."""
    if profile is None:
        return [], False
    if profile != "auto":
        return listed(profile), False
    paths, stem = [], pathlib.Path(model).stem
    for folder in (cache_folder() / "profiles" / stem, FOLDER / "share" / "winnow" / "profiles" / stem):
        names = {p.name for p in paths}
        paths += [p for p in sorted(folder.glob("*.json")) if p.name not in names]
    return paths, True


def listed(value):
    """One thing, or several of them, as a list."""
    if value is None:
        return []
    if isinstance(value, (str, os.PathLike)) or not hasattr(value, "__iter__"):
        return [value]
    return list(value)


def _text_of(document):
    """A document that is a path is the text of a file in UTF-8, as the command reads it."""
    if not isinstance(document, os.PathLike):
        return document
    data = pathlib.Path(document).read_bytes()
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ArgumentError(f"{document} is text in UTF-16 or UTF-32; convert it to UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        raise ArgumentError(f"{document} is not UTF-8 at byte {fault.start}; convert it, or decode it and give the str") from None


def _ids(tokens, n_vocab):
    """Token ids as int32 in one piece of memory."""
    ids = np.asarray(tokens)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise TypeError(f"tokens are a row of whole numbers, not {ids.dtype} of the shape {ids.shape}")
    wrong = ids[(ids < 0) | (ids >= n_vocab)] if ids.size else ids
    if wrong.size:
        raise ArgumentError(f"a token is {wrong[0]}; the vocabulary has 0 to {n_vocab - 1}", "E_RANGE")
    return np.ascontiguousarray(ids, np.int32)


def _at(ids):
    return ids.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))


def tokens_from(tokens, n):
    """A pointer to the tokens after the first n."""
    return ctypes.cast(ctypes.addressof(tokens.contents) + 4 * n, ctypes.POINTER(ctypes.c_int32))


_CHOICES = ("raw", "special", "verbatim", "now")  # fields of a layout that are no texts


def _today():
    """The present as the library counts the date of a prompt. A document keeps it: questions are laid out with it on other days, too."""
    now = int(time.time())
    return now + time.localtime(now).tm_gmtoff


def stored_layout(stored):
    """How the text of a stored document was laid out, for _Prompt; empty: it has no text."""
    layout = c.wnw_prompt_default_params()
    if not library().wnw_stored_get_text(stored, ctypes.byref(layout)) or not layout.document:
        return {}
    texts = {name: getattr(layout, name) for name in ("document", "system", "chat", "jinja")}
    fields = {name: value.decode("utf-8") for name, value in texts.items() if value is not None}  # an empty system message is one
    return {**fields, **{name: getattr(layout, name) for name in _CHOICES}}


def _set_layout(params, fields):
    """Fills wnw_prompt_params. Returns what it points to."""
    values = {name: value if name in _CHOICES else text(value, name) for name, value in fields.items() if value is not None}
    for name, value in values.items():
        setattr(params, name, value)
    return values


def _parts(prompt):
    """What a prompt is made of; its arrays live as long as the prompt."""
    parts = c.wnw_prompt_parts_default()
    check(library().wnw_prompt_get_parts(prompt, ctypes.byref(parts)))
    return parts


class _Prompt:
    """A prompt as the library lays it out; released with the object."""

    def __init__(self, model, **fields):
        params = c.wnw_prompt_default_params()
        self.fields = _set_layout(params, fields)
        self.pointer = ctypes.POINTER(c.wnw_prompt)()
        check(library().wnw_prompt_build(ctypes.byref(self.pointer), model, ctypes.byref(params)))
        self.parts = _parts(self.pointer)

    def __del__(self):
        if hasattr(self, "pointer"):
            library().wnw_prompt_free(self.pointer)


class Model(Owned):
    """A GGUF model. Threads may share it; documents and conversations of it belong to one thread at a time.

    model: path of a GGUF file, or a name in the cache folder ("smollm2-135m")
    threads: most threads to compute with; 0 = usable cores
    context: longest timeline in tokens; 0 = what the model was trained for
    kv_type: of keys and values, "f16", "f32", "q8_0" or "q4_0"
    profile: calibration results: "auto" = those of the cache folder or of this package for a model of this file name; None; a path or a list of
        paths of JSON files
    devices: where the model computes, names of ggml such as "cpu" or "rpc:HOST:PORT", as a list or one str; None = this package's own code on
        the CPU. On devices a document and a conversation hold the model once more, and documents can be asked, but not stored again.
    layers: how many layers each device has, a list; None = by their free memory
    """

    def __init__(self, model="smollm2-135m", *, threads=0, context=0, kv_type="f16", profile="auto", devices=None, layers=None):
        super().__init__("model")
        self._closed = True  # until it is open
        self._users, self._users_lock = 0, threading.RLock()  # a document may be collected while a thread has it
        lib = library()
        self.path = model_path(model)
        self._params = c.wnw_session_default_params()
        self._params.n_threads, self._params.n_ctx = whole(threads, "threads", 0, 512), whole(context, "context", 0, 1 << 30)
        self._devices = self._split = None
        if layers is not None and devices is None:
            raise ArgumentError("layers are shared out among devices; name them")
        if devices is not None:
            from . import _devices
            self._devices = _devices.device_names(devices)
        kind = ctypes.c_int()
        check(lib.wnw_kv_type_parse(ctypes.byref(kind), text(kv_type, "kv_type")))
        self._params.kv_type = kind.value
        self._model = ctypes.POINTER(c.wnw_model)()
        check(lib.wnw_model_open(ctypes.byref(self._model), os.fsencode(self.path), None))
        self._profile, self._profile_of, self._profile_files = None, profile, []
        self._closed = False
        info = c.wnw_model_info_default()
        check(lib.wnw_model_get_info(self._model, ctypes.byref(info)))
        self.arch, self.name = info.arch.decode(), info.name.decode("utf-8", "replace")
        self.n_layer, self.n_head, self.n_head_kv = info.n_layer, info.n_head, info.n_head_kv
        self.n_embd_head, self.n_ctx_train, self.n_vocab, self._n_swa = info.n_embd_head, info.n_ctx_train, info.n_vocab, info.n_swa
        if layers is not None:
            try:
                self._split = _devices.split_of(layers, len(self._devices.split(",")), self.path)
            except Exception:
                self.close()
                raise

    def __repr__(self):
        return f"<winnow.Model {self.name}: {self.n_layer} layers, {self.n_head_kv} KV heads>"

    def close(self):
        """Releases the model. Documents and conversations of it must be closed before."""
        with self._users_lock:
            if not self._closed and self._pid == os.getpid() and self._users:
                raise UsageError(f"the model has {self._users} open documents or conversations; close them first")
            super().close()

    def _release(self):
        lib = library()
        lib.wnw_profile_free(self._profile)
        lib.wnw_model_free(self._model)

    def _count(self, n):
        """Adds to those that use the model, so that it stays open."""
        with self._users_lock:
            if n > 0:
                self._check()
            self._users += n

    def _profiles(self):
        """The calibration results, read when they are needed first; NULL = none."""
        with self._users_lock:
            if self._profile is None:
                self._profile = self._read_profiles()
        return self._profile

    def _read_profiles(self):
        lib, (paths, found) = library(), profile_paths(self.path, self._profile_of)
        profile = ctypes.POINTER(c.wnw_profile)()
        if not paths:
            return profile
        check(lib.wnw_profile_new(ctypes.byref(profile), self._model))
        for path in paths:
            status = lib.wnw_profile_add_file(profile, os.fsencode(path))
            if status >= 0:
                self._profile_files.append(path)
            if status < 0 and not (found and status in (c.WNW_E_MISMATCH, c.WNW_E_FORMAT)):
                try:
                    check(status)
                finally:
                    lib.wnw_profile_free(profile)
        if found:
            lib.wnw_profile_set_found(profile, lib.wnw_profile_kinds(profile))
        return profile

    # ---- Text ----

    def tokenize(self, string, special=False):
        """Token ids of a text, int32 [n]. special: text such as "<|im_end|>" becomes the control token."""
        lib, data = library(), text(string, "the text")
        ids, n = ctypes.POINTER(ctypes.c_int32)(), ctypes.c_int32()
        with self._using_shared():
            check(lib.wnw_tokenize(self._model, data, len(data), False, bool(special), ctypes.byref(ids), ctypes.byref(n)))
        try:
            return np.ctypeslib.as_array(ids, (n.value,)).copy() if n.value else np.empty(0, np.int32)
        finally:
            lib.wnw_free(ids)

    def detokenize(self, tokens):
        """Text of token ids, a row of whole numbers."""
        lib, ids, out = library(), _ids(tokens, self.n_vocab), ctypes.c_char_p()
        with self._using_shared():
            check(lib.wnw_detokenize(self._model, _at(ids), len(ids), ctypes.byref(out)))
        try:
            return out.value.decode("utf-8", "replace")
        finally:
            lib.wnw_free(out)

    def prompt(self, document=None, question=None, system=None):
        """Token ids of a prompt as winnow lays it out: (int32 [n], the number of tokens before the question)."""
        with self._using_shared():
            prompt = _Prompt(self._model, document=_text_of(document), question=question, system=system)
        p = prompt.parts
        return np.ctypeslib.as_array(p.tokens, (p.n_tokens,)).copy(), p.n_context

    # ---- Compression ----

    def compress(self, document, *, ratio=None, budget=None, kv_bytes=None, policy="auto", system=None):
        """Reads a text, a str or the path of a file, keeps what the policy says, and returns a Document for any number of questions.

        ratio: fraction of the entries that is removed, 0 to 1; budget: average entries kept per layer and KV head; kv_bytes: bytes of kept keys
        and values; without a size 0.5 is removed. policy: a recipe, a scorer, a press, or "auto". KeyboardInterrupt stops the reading."""
        document = _text_of(document)
        policy, ratio = _policy_and_ratio(policy, ratio, budget, kv_bytes)
        doc = self._kind(Document)._new(self, {"document": document, "system": system, "now": _today()})
        try:
            doc._begin(policy, _size(ratio, budget, kv_bytes))
        except BaseException:
            doc.close()
            raise
        return doc

    def load(self, path):
        """A Document that `Document.save` or `winnow compress` has stored."""
        return self._kind(Document)._load(self, path)

    def chat(self, *, system=None, ratio=None, budget=None, kv_bytes=None, policy="auto"):
        """A conversation. With a size or a policy the cache is compressed after every turn; sizes are those of `compress`."""
        return self._kind(Chat)(self, system, policy, ratio, budget, kv_bytes)

    def _kind(self, kind):
        """Document or Chat, or what takes its place on devices."""
        if self._devices is None:
            return kind
        from . import _devices
        return _devices.DeviceDocument if kind is Document else _devices.DeviceChat

    def plan(self, document, policy="auto", *, ratio=None, budget=None, kv_bytes=None, question=None, context_only=False, system=None):
        """Which entries a policy would keep of a prompt, without dropping any: a Plan, as `winnow plan` writes it.

        question: is put after the document and compressed with it; context_only: the document alone is compressed."""
        return self.plans(document, [policy], ratio=ratio, budget=budget, kv_bytes=kv_bytes, question=question, context_only=context_only, system=system)[0]

    def plans(self, document, policies, *, ratio=None, budget=None, kv_bytes=None, question=None, context_only=False, system=None, plugins=()):
        """Plans of several policies from one reading, in their order."""
        document, pairs = _text_of(document), [_policy_and_ratio(policy, ratio, budget, kv_bytes) for policy in listed(policies)]
        with self._using_shared():
            prompt = _Prompt(self._model, document=document, question=question, system=system)
            if self._devices is not None:
                from . import _devices
                return _devices.plans(self, prompt, pairs, budget, kv_bytes, context_only, plugins)
            session = _Session(self)
            try:
                return session.run(lambda: session.plans(prompt, pairs, budget, kv_bytes, context_only, plugins))
            finally:
                session.close()

    def observe(self, document, needs, layer=0, *, window=32, question=None):
        """What policies observe of a layer, as arrays of one's own: {name: float32 array} by the names of Observation, for notebooks."""
        if self._devices is not None:
            raise UsageError("an observation needs winnow's own code on the CPU; open the model without devices")
        document, seen = _text_of(document), {}
        needs = listed(needs)

        def _look(obs):
            if obs.layer == layer:
                seen.update({name: np.array(getattr(obs, name)) for name in [*needs, "positions"]})
            return np.zeros((obs.n_head_kv, obs.n), np.float32)

        look = Scorer(_look, "_observe", needs, window, 0, 0, False)
        with self._using_shared():
            prompt = _Prompt(self._model, document=document, question=question)
            session = _Session(self)
            try:
                session.run(lambda: session.plans(prompt, [("_observe", 0.5)], None, None, False, (), scorers=[look]))
            finally:
                session.close()
        if not seen:
            raise ArgumentError(f"layer {layer} is not observed; the model has {self.n_layer}, and policies leave layers with a sliding window alone", "E_RANGE")
        return seen

    def _using_shared(self):
        return _Counted(self)


class _Counted:
    """While it is entered the model cannot be closed."""

    def __init__(self, model):
        self._model = model

    def __enter__(self):
        self._model._count(1)

    def __exit__(self, *unused):
        self._model._count(-1)


def _policy_and_ratio(policy, ratio, budget, kv_bytes):
    of_press = getattr(policy, "compression_ratio", None)
    if of_press is not None and ratio is None and budget is None and kv_bytes is None:
        ratio = of_press
    return str(policy), ratio


def _outlast(event, seconds=None):
    """Waits for an event, and goes on waiting where another interrupt comes: what the other thread uses must stay. Returns whether it came."""
    while True:
        try:
            return event.wait(seconds)
        except KeyboardInterrupt:
            pass


def run_aside(work, stop):
    """Calls work(). In the main thread another one does that, so that KeyboardInterrupt comes at once and stops the reading: `stop` is set."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    said, began, done = [], threading.Event(), threading.Event()

    def call():
        began.set()
        try:
            said.append((work(), None))
        except BaseException as raised:
            said.append((None, raised))
        done.set()

    # Thread.join takes a running thread for ended after an interrupt (Python 3.11), so an event is waited for.
    try:
        threading.Thread(target=call, name="winnow reading", daemon=True).start()
        while not done.wait(0.2):
            pass
    except BaseException:
        stop.set()
        if _outlast(began, 5):  # the interrupt may have come while it was being started
            _outlast(done)
        raise
    if said[0][1] is not None:
        raise said[0][1]
    return said[0][0]


class _Session:
    """A session with an engine of its own."""

    def __init__(self, model, pointer=None, goes_on=None, unrotated=False):
        self.model, self.policies, self._stop, self._goes_on = model, [], threading.Event(), goes_on
        self.pointer = pointer
        if pointer is None:
            params = c.wnw_session_params.from_buffer_copy(model._params)
            self._progress = _progress_type(lambda done, total, user: self._on_progress(done, total, user))
            params.progress, params.kv_unrotated = self._progress, unrotated
            self.pointer = ctypes.POINTER(c.wnw_session)()
            check(library().wnw_session_new(ctypes.byref(self.pointer), model._model, ctypes.byref(params)))

    def _on_progress(self, done, total, user):
        return not self._stop.is_set() and (self._goes_on is None or self._goes_on())

    def run(self, work):
        return run_aside(work, self._stop)

    def close(self):
        pointer, self.pointer = self.pointer, None
        library().wnw_session_free(pointer)

    def plans(self, prompt, pairs, budget, kv_bytes, context_only, plugins, scorers=()):
        lib, p = library(), prompt.parts
        n = len(pairs)
        if n == 0:
            return []
        policies, sizes = [], (c.wnw_size * n)()
        for i, (recipe, ratio) in enumerate(pairs):
            size = _size(ratio, budget, kv_bytes)
            if recipe == "auto":
                recipe = self._choose(prompt, size, context_only)
            policy = Policy(recipe, plugins, scorers)
            if size.kind == c.WNW_SIZE_NONE and not policy.is_full and not policy.has_own_size:
                size = _size(0.5, None, None)
            policies.append(policy)
            sizes[i] = c.wnw_size(kind=c.WNW_SIZE_NONE) if policy.is_full else size
        self.policies += policies
        pointers = (ctypes.POINTER(c.wnw_policy) * n)(*[policy.pointer for policy in policies])
        more = c.wnw_run_more_default()
        more.question_later, more.n_policies, more.policies = context_only, n, pointers
        run = c.wnw_run_default()
        run.prompt, run.more = prompt.pointer, ctypes.pointer(more)
        if any(policy.needs_profile for policy in policies):
            run.profile = self.model._profiles()
        check(lib.wnw_session_begin(self.pointer, ctypes.byref(run)))
        n_read = p.n_context if context_only else p.n_tokens
        check(lib.wnw_session_prefill(self.pointer, p.tokens, n_read, _no_logits, None))
        made = (ctypes.POINTER(c.wnw_plan) * n)()
        reports = (c.wnw_report * n)(*[c.wnw_report_default() for _ in range(n)])
        check(lib.wnw_session_plan_many(self.pointer, pointers, sizes, n, made, reports))
        tokens = np.ctypeslib.as_array(p.tokens, (n_read,)).copy()
        try:
            return [_plan_of(made[i], policies[i].recipe, tokens, reports[i], pairs[i][0]) for i in range(n)]
        finally:
            for one in made:
                lib.wnw_plan_free(one)

    def _choose(self, prompt, size, context_only):
        """The recipe that "auto" chooses, asked of a session that has read nothing."""
        more = c.wnw_run_more_default()
        more.question_later = context_only
        run = c.wnw_run_default()
        run.recipe, run.prompt, run.more, run.profile = b"auto", prompt.pointer, ctypes.pointer(more), self.model._profiles()
        run.size = size if size.kind != c.WNW_SIZE_NONE else _size(0.5, None, None)
        lib = library()
        check(lib.wnw_session_begin(self.pointer, ctypes.byref(run)))
        return lib.wnw_policy_string(lib.wnw_session_policy(self.pointer)).decode()


_no_logits = c.wnw_logits_fn()


def _plan_of(plan, recipe, tokens, report, name):
    lib, at = library(), ctypes.POINTER(ctypes.c_int32)()
    keep = []
    for il in range(lib.wnw_plan_n_layer(plan)):
        layer = []
        for ih in range(lib.wnw_plan_n_head_kv(plan)):
            n = lib.wnw_plan_head(plan, il, ih, ctypes.byref(at))
            layer.append(np.ctypeslib.as_array(at, (n,)).copy() if n else np.empty(0, np.int32))
        keep.append(layer)
    times = {"observe": report.observe_ms, "score": report.score_ms, "select": report.select_ms}
    return Plan(keep, lib.wnw_plan_n_tokens(plan), recipe, tokens, report.warning.decode("utf-8", "replace"), times, name)


_running = weakref.WeakSet()  # answers that threads of this module make


@atexit.register
def _end_answers():
    """The interpreter must not end while a thread is in the library."""
    for answer in list(_running):
        answer.end()


class _Answer:
    """An answer that is made on a thread of its own, which waits while nobody takes its pieces."""

    def __init__(self, make):
        self._make, self._pieces = make, queue.Queue(maxsize=1)
        self.ended, self._done = threading.Event(), threading.Event()  # nobody wants it; the library is left
        self._thread = threading.Thread(target=self._work, name="winnow answer", daemon=True)

    def _put(self, piece):
        while not self.ended.is_set():
            try:
                self._pieces.put(piece, timeout=0.1)
                return
            except queue.Full:
                pass

    def _on_text(self, data, n_bytes, n_tokens, user):
        if n_bytes:
            self._put(ctypes.string_at(data, n_bytes).decode("utf-8", "replace"))
        return not self.ended.is_set()

    def _work(self):
        last = None
        try:
            self._make(self)
        except BaseException as raised:
            last = raised
        self._done.set()
        self._put(("end", last))

    def pieces(self):
        try:
            _running.add(self)
            self._thread.start()
            while True:
                piece = self._pieces.get()
                if isinstance(piece, tuple):
                    if piece[1] is not None:
                        raise piece[1]
                    return
                yield piece
        finally:
            self.end()

    def end(self):
        """Stops the reading and the generating, and waits for that."""
        self.ended.set()
        if self._thread.ident is not None:  # else it sees that it has ended
            _outlast(self._done)
        _running.discard(self)


class _Answering(Owned):
    """What can be asked: documents and conversations."""

    _answer_now = None  # the _Answer of the thread that uses the object

    def ask(self, question, *, max_tokens=256, temperature=0.0, top_k=40, top_p=0.95, seed=42, repeat_penalty=1.0, stop=()):
        """The answer to a question, str. KeyboardInterrupt stops it.

        max_tokens: 0 = what the context holds; temperature: 0 = greedy; stop: texts that end the answer; repeat_penalty: 1 or more, 1 = none"""
        return "".join(self.stream(question, max_tokens=max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed,
                                   repeat_penalty=repeat_penalty, stop=stop))

    def stream(self, question, *, max_tokens=256, temperature=0.0, top_k=40, top_p=0.95, seed=42, repeat_penalty=1.0, stop=()):
        """The same in pieces, as they are generated. An iteration that ends early ends the answer."""
        stops = listed(stop)
        sampler = c.wnw_sampler_default_params()
        sampler.temp, sampler.top_p, sampler.repeat_penalty = real(temperature, "temperature"), real(top_p, "top_p"), real(repeat_penalty, "repeat_penalty")
        sampler.top_k, sampler.seed = whole(top_k, "top_k", 0, _MOST), whole(seed, "seed", 0, (1 << 32) - 1)
        how = c.wnw_generate_default_params()
        how.n_max, how.n_stop = whole(max_tokens, "max_tokens", 0, _MOST), len(stops)
        how.stop = (ctypes.c_char_p * max(1, len(stops)))(*[text(s, "a stop text") for s in stops])
        question = text(question, "the question")
        self._check()

        def make(answer):
            how.on_text = _text_type(answer._on_text)
            with self._using():
                self._answer_now = answer
                try:
                    if not answer.ended.is_set():
                        self._answer(question, sampler, how)
                finally:
                    self._answer_now = None

        return _Answer(make).pieces()

    def _goes_on(self):
        """Whether a reading for an answer should go on."""
        answer = self._answer_now
        return answer is None or not answer.ended.is_set()

    def _generate(self, session, sampler, how, generate=None):
        lib, made = library(), ctypes.POINTER(c.wnw_sampler)()
        said = c.wnw_generated_default()
        check(lib.wnw_sampler_new(ctypes.byref(made), ctypes.byref(sampler)))
        try:
            status = generate(said, made) if generate else lib.wnw_generate(ctypes.byref(said), session, made, ctypes.byref(how))
            tokens = said.tokens[:said.n_tokens] if said.n_tokens else []
            return status, tokens
        finally:
            lib.wnw_generated_clear(ctypes.byref(said))
            lib.wnw_sampler_free(made)


class Document(_Answering):
    """A text that was read and compressed. Each question is answered in a copy, so that no question sees another one.

    Attributes: `plan` (a Plan of what is kept), `policy` (the recipe, "" where all stays), `n_tokens`, `kept` (entries per head, mean),
    `kv_bytes` (bytes of keys and values), `kv_bytes_full` (of all entries), `warning` ("" or a sentence).
    """

    @classmethod
    def _new(cls, model, layout):
        self = cls.__new__(cls)
        Owned.__init__(self, "document")
        self._closed = True  # until the model is held
        self._model, self._layout, self._session, self._stored, self._engine, self._pieces_read = model, layout, None, None, None, False
        model._count(1)
        self._closed = False
        return self

    def _begin(self, policy, size):
        self._session = _Session(self._model, goes_on=self._goes_on)
        self._session.run(lambda: self._read(policy, size))

    def _read(self, policy, size):
        lib = library()
        prompt = _Prompt(self._model._model, **self._layout)
        p = prompt.parts
        self.n_tokens, self.policy, self.warning = p.n_context, "", ""
        self._tokens = np.ctypeslib.as_array(p.tokens, (p.n_context,)).copy()
        more = c.wnw_run_more_default()
        more.question_later = more.once = True
        run = c.wnw_run_default()
        run.prompt, run.more = prompt.pointer, ctypes.pointer(more)
        parsed = Policy(policy) if policy != "auto" else None
        if size.kind == c.WNW_SIZE_NONE and not (parsed and (parsed.has_own_size or parsed.is_full)):
            size = _size(0.5, None, None)
        if parsed is None:
            run.recipe = b"auto"
            run.profile = self._model._profiles()
        elif not parsed.is_full:
            run.policy = parsed.pointer
            self._session.policies.append(parsed)
            if parsed.needs_profile:
                run.profile = self._model._profiles()
        report = c.wnw_report_default()
        if parsed is None or not parsed.is_full:
            run.size = size
            check(lib.wnw_session_begin(self._session.pointer, ctypes.byref(run)))
            self.policy = lib.wnw_policy_string(lib.wnw_session_policy(self._session.pointer)).decode()
        check(lib.wnw_session_read(self._session.pointer, p.tokens, p.n_context, ctypes.byref(report)))
        self.warning = report.warning.decode("utf-8", "replace")

    @classmethod
    def _load(cls, model, path):
        lib = library()
        self = cls._new(model, {})
        try:
            self._stored = ctypes.POINTER(c.wnw_stored)()
            check(lib.wnw_stored_open(ctypes.byref(self._stored), os.fsencode(path)))
            check(lib.wnw_stored_check_model(self._stored, model._model))
            self._layout, info = stored_layout(self._stored), c.wnw_stored_info_default()
            if not self._layout:
                raise ArgumentError(f"'{path}' has no text, so that no question can be asked about it")
            check(lib.wnw_stored_get_info(self._stored, ctypes.byref(info)))
            self._pieces_read, self.warning = info.pieces, ""
            self.policy = (info.policy or b"").decode()
            n = ctypes.c_int32()
            tokens = lib.wnw_stored_tokens(self._stored, ctypes.byref(n))
            self.n_tokens, self._tokens = n.value, np.ctypeslib.as_array(tokens, (n.value,)).copy()
            self._open_stored()
        except BaseException:
            self.close()
            raise
        return self

    def _open_stored(self):
        lib, session, of_model = library(), ctypes.POINTER(c.wnw_session)(), self._model._params
        self._engine, how = ctypes.POINTER(c.wnw_engine)(), c.wnw_stored_session_default_params()
        engine = c.wnw_engine_default_params()
        engine.n_threads, how.n_ctx = of_model.n_threads, of_model.n_ctx
        self._progress = how.progress = _progress_type(lambda done, total, user: self._goes_on())
        check(lib.wnw_engine_new(ctypes.byref(self._engine), self._model._model, ctypes.byref(engine)))
        check(lib.wnw_stored_session(ctypes.byref(session), self._stored, self._engine, ctypes.byref(how)))
        self._session = _Session(self._model, session)

    def _release(self):
        lib = library()
        if self._session:
            self._session.close()
        if self._engine:
            lib.wnw_engine_free(self._engine)
        if self._stored:
            lib.wnw_stored_free(self._stored)
        self._model._count(-1)

    def __repr__(self):
        if self._closed:
            return "<winnow.Document, closed>"
        return f"<winnow.Document of {self.n_tokens} tokens, {self.kept:.1f} kept per head, {self.kv_bytes} bytes>"

    def _stats(self):
        with self._using():
            stats = c.wnw_cache_stats_default()
            check(library().wnw_cache_get_stats(self._session.pointer, ctypes.byref(stats)))
            return stats

    @property
    def kv_bytes(self):
        return self._stats().bytes

    @property
    def kv_bytes_full(self):
        return self._stats().bytes_full

    @property
    def kept(self):
        return float(self.plan.counts().mean())

    @property
    def plan(self):
        """What the cache holds, as a Plan."""
        with self._using():
            lib, s = library(), self._session.pointer
            keep = []
            for il in range(self._model.n_layer):
                layer = []
                for ih in range(self._model.n_head_kv):
                    n = lib.wnw_cache_n(s, il, ih)
                    layer.append(np.ctypeslib.as_array(lib.wnw_cache_positions(s, il, ih), (n,)).copy() if n else np.empty(0, np.int32))
                keep.append(layer)
            return Plan(keep, self.n_tokens, self.policy, self._tokens)

    def save(self, path):
        """Stores the document as a file, which `Model.load`, `winnow ask` and `winnow serve` open. It appears when it is complete."""
        with self._using():
            self._store(self._session, path)

    def _store(self, session, path):
        layout = c.wnw_prompt_default_params()
        _set_layout(layout, self._layout)
        params = c.wnw_store_default_params()
        params.text, params.pieces = ctypes.pointer(layout), self._pieces_read
        check(library().wnw_session_store(session.pointer, os.fsencode(path), ctypes.byref(params)))

    def _answer(self, question, sampler, how):
        prompt = _Prompt(self._model._model, **self._layout, question=question.decode("utf-8"))
        p = prompt.parts
        if not self._pieces_read and (p.n_context != self.n_tokens or p.tokens[:p.n_context] != self._tokens.tolist()):
            raise ArgumentError("the model's template writes the document differently than when it was read; read it again", "E_MISMATCH")
        self._answer_rest(p, sampler, how)

    def _answer_rest(self, p, sampler, how):
        """Answers what follows the document in the parts of a prompt."""
        lib, copy = library(), ctypes.POINTER(c.wnw_session)()
        check(lib.wnw_session_copy(ctypes.byref(copy), self._session.pointer))
        try:
            rest = tokens_from(p.tokens, p.n_context)
            check(lib.wnw_session_read(copy, rest, p.n_tokens - p.n_context, None))
            check(self._generate(copy, sampler, how)[0])
        finally:
            lib.wnw_session_free(copy)


class Chat(_Answering):
    """A conversation. The cache is compressed after every turn, if a size or a policy was given."""

    def __init__(self, model, system, policy, ratio, budget, kv_bytes):
        super().__init__("conversation")
        self._closed = True
        policy, ratio = _policy_and_ratio(policy, ratio, budget, kv_bytes)
        self._size, self._policy = _size(ratio, budget, kv_bytes), Policy(policy) if policy != "auto" else None
        named = self._policy is not None and not self._policy.is_full
        if named and self._size.kind == c.WNW_SIZE_NONE and not self._policy.has_own_size:
            self._size = _size(0.5, None, None)
        self._rules = named or self._policy is None and self._size.kind != c.WNW_SIZE_NONE
        lib, params = library(), c.wnw_prompt_default_params()
        if system is not None:
            params.system = text(system, "the system message")
        self._model, self._chat, self._begun, self._n_read = model, ctypes.POINTER(c.wnw_chat)(), False, 0
        model._count(1)
        try:
            check(lib.wnw_chat_open(ctypes.byref(self._chat), model._model, ctypes.byref(params)))
            self._session = self._open_session()
        except BaseException:
            lib.wnw_chat_free(self._chat)
            model._count(-1)
            raise
        self._closed = False

    def _open_session(self):
        return _Session(self._model, goes_on=self._goes_on)

    def _release(self):
        self._session.close()
        library().wnw_chat_free(self._chat)
        self._model._count(-1)

    @property
    def kv_bytes(self):
        """Bytes of keys and values."""
        with self._using():
            stats = c.wnw_cache_stats_default()
            check(library().wnw_cache_get_stats(self._session.pointer, ctypes.byref(stats)))
            return stats.bytes

    @property
    def n_tokens(self):
        """Tokens of the conversation so far."""
        with self._using():
            n = ctypes.c_int32()
            library().wnw_chat_tokens(self._chat, ctypes.byref(n))
            return n.value

    def _answer(self, question, sampler, how):
        lib, turn, n = library(), ctypes.POINTER(c.wnw_prompt)(), ctypes.c_int32()
        check(lib.wnw_chat_user(ctypes.byref(turn), self._chat, None, question, None))
        try:
            tokens = lib.wnw_chat_tokens(self._chat, ctypes.byref(n))
            status, said = self._take_turn(turn, tokens, n.value, sampler, how)
            said = _ids(said, self._model.n_vocab)
            check(lib.wnw_chat_answer(self._chat, _at(said), len(said)))
            check(status)
        finally:
            lib.wnw_prompt_free(turn)

    def _take_turn(self, turn, tokens, n, sampler, how):
        """Reads the tokens of the conversation that are new, and answers. Returns the status and the tokens of the answer."""
        lib, s = library(), self._session.pointer
        self._go_back(lib.wnw_prompt_n_past(turn))
        if not self._begun and self._rules:
            run = c.wnw_run_default()
            run.prompt, run.size = turn, self._size
            if self._policy is None:
                run.recipe, run.profile = b"auto", self._model._profiles()
            else:
                run.policy = self._policy.pointer
                if self._policy.needs_profile:
                    run.profile = self._model._profiles()
            check(lib.wnw_session_begin(s, ctypes.byref(run)))
        self._begun = True
        rest = tokens_from(tokens, self._n_read)
        self._counted(lambda: check(lib.wnw_session_read(s, rest, n - self._n_read, None)))
        self._n_read = n  # a policy may have renumbered what stays
        return self._counted(lambda: self._generate(s, sampler, how))

    def _counted(self, work):
        """Counts the tokens that the session reads in work()."""
        lib, s = library(), self._session.pointer
        before = lib.wnw_session_n_past(s)
        try:
            return work()
        finally:
            self._n_read += lib.wnw_session_n_past(s) - before

    def _go_back(self, n):
        """Takes back all but the first n tokens of the conversation, or all, where a policy has seen those that go."""
        lib, s = library(), self._session.pointer
        if n >= self._n_read:
            return
        left = lib.wnw_session_n_past(s) - (self._n_read - n)
        if left < 1 or lib.wnw_session_rewind(s, left) < 0:
            check(lib.wnw_session_rewind(s, 0))
            n = 0
        self._n_read = n
