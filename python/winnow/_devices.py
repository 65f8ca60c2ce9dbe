# SPDX-License-Identifier: MIT
"""Models on other devices of ggml, and on workers of other machines: sequences that take the place of sessions."""
import ctypes
import os
import threading

import numpy as np

from . import _declarations as c
from ._library import ArgumentError, UsageError, WinnowError, check, library, text, whole
from ._model import Chat, Document, _parts, _Prompt, _Session, _size, run_aside, tokens_from
from ._plan import Plan
from ._scorer import Policy, scorers

_progress_type = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p)


class _Params(ctypes.Structure):
    """struct wnw_python_sequence_params of python/entry.h."""
    _fields_ = [("model", ctypes.c_char_p), ("devices", ctypes.c_char_p), ("split", ctypes.c_char_p), ("n_ctx", ctypes.c_int32), ("n_threads", ctypes.c_int32),
                ("kv_type", ctypes.c_int32), ("profiles", ctypes.c_char_p), ("policy", ctypes.POINTER(c.wnw_policy)), ("progress", _progress_type)]


class Measured(ctypes.Structure):
    """What a cache on devices holds."""
    _fields_ = [("kept", ctypes.c_double), ("bytes", ctypes.c_uint64), ("bytes_full", ctypes.c_uint64)]


def _declared():
    lib = library()
    if not hasattr(lib, "wnw_python_sequence_new"):
        raise WinnowError("this library has no sequences on devices; install winnow's wheel", "E_UNSUPPORTED")
    tokens, pointer, i32 = ctypes.POINTER(ctypes.c_int32), ctypes.c_void_p, ctypes.c_int32
    for name, result, arguments in (
        ("count_layers", ctypes.c_int64, [ctypes.c_char_p]),
        ("devices", ctypes.c_int, [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]),
        ("sequence_new", ctypes.c_int, [ctypes.POINTER(pointer), ctypes.POINTER(_Params)]),
        ("sequence_free", None, [pointer]),
        ("sequence_set_policy", ctypes.c_int, [pointer, ctypes.POINTER(c.wnw_policy)]),
        ("sequence_give", ctypes.c_int, [pointer, ctypes.POINTER(c.wnw_session), tokens]),
        ("sequence_head", ctypes.c_int, [pointer, i32, i32, i32, tokens, tokens]),
        ("sequence_rotates", ctypes.c_bool, [i32]),
        ("sequence_load", ctypes.c_int, [pointer, ctypes.POINTER(ctypes.c_uint8), ctypes.c_size_t, i32]),
        ("sequence_read", ctypes.c_int, [pointer, tokens, i32]),
        ("sequence_compress", ctypes.c_int, [pointer, ctypes.POINTER(c.wnw_size), i32]),
        ("sequence_rewind", ctypes.c_int, [pointer, i32]),
        ("sequence_n_read", i32, [pointer]),
        ("sequence_measure", None, [pointer, ctypes.POINTER(Measured)]),
        ("sequence_generate", ctypes.c_int, [ctypes.POINTER(c.wnw_generated), pointer, ctypes.POINTER(c.wnw_model), ctypes.POINTER(c.wnw_sampler),
                                             ctypes.POINTER(c.wnw_generate_params)]),
    ):
        function = getattr(lib, "wnw_python_" + name)
        function.restype, function.argtypes = result, arguments
    return lib


_made = {}  # what the program names -> names of winnow's devices; they last as long as the process
_lock = threading.Lock()


def device_names(devices):
    """The names of winnow's devices around those that a program names. Each is made once in a process."""
    if not isinstance(devices, (str, list, tuple)):
        raise TypeError(f"devices is a list of names, not {type(devices).__name__}")
    wanted = [devices] if isinstance(devices, str) else list(devices)
    if not wanted:
        raise ArgumentError("devices is empty; name a device, such as \"cpu\" or \"rpc:HOST:PORT\", or leave it out")
    lib, ours = _declared(), []
    with _lock:
        for name in wanted:
            if b"," in text(name, "a device"):
                raise ArgumentError(f"'{name}' names several devices; give a list of them")
            key = "CPU" if name.lower() == "cpu" else name
            if key not in _made:
                found = ctypes.create_string_buffer(4096)
                check(lib.wnw_python_devices(key.encode(), found, len(found)))
                _made[key] = found.value.decode()
            if _made[key] in ours:
                raise ArgumentError(f"devices names {name} twice")
            ours.append(_made[key])
    return ",".join(ours)


def split_of(layers, n_devices, path):
    """The shares of the layers as libllama takes them. It counts the output as one more layer, of the last device. None: by free memory."""
    if layers is None:
        return None
    if isinstance(layers, (str, bytes)) or not hasattr(layers, "__iter__"):
        raise TypeError("layers is a list of whole numbers, one for each device")
    shares = [whole(n, "a number of layers", 1, 9999999) for n in layers]
    n_layer = _declared().wnw_python_count_layers(os.fsencode(path))
    if len(shares) != n_devices:
        raise ArgumentError(f"layers has {len(shares)} numbers, and there are {n_devices} devices")
    if sum(shares) != n_layer:
        raise ArgumentError(f"layers {shares} are {sum(shares)} layers, and this model has {n_layer}")
    shares[-1] += 1
    return ",".join(map(str, shares)).encode()


def check_policy(policy, device, profile):
    """Refuses, before the model is opened on them, what devices cannot do."""
    if policy is None:
        return
    lib, needs = library(), c.wnw_needs_default()
    names = {one.name for one in scorers()}
    used = names & set(policy.recipe.replace("+", " ").replace(":", " ").split())
    if used:
        raise UsageError(f"the scorer {used.pop()} is written in Python, and devices run scorers in C alone; open the model without devices")
    check(lib.wnw_policy_get_needs(policy.pointer, ctypes.byref(needs)))
    if needs.flags & c.WNW_NEED_SECOND_PASS:
        raise WinnowError("the policy reads the prompt a second time, which is not done on devices; take another, such as auto or snapkv", "E_UNSUPPORTED")
    check(lib.wnw_bridge_check_policy_on(device.split(",")[0].encode(), policy.pointer, profile))


class Sequence:
    """A sequence with a model on devices of its own. policy: by which it will be compressed, or None."""

    def __init__(self, model, n_ctx, policy, profiles=(), goes_on=None):
        self._stop, self._policy = threading.Event(), policy
        self.pointer = ctypes.c_void_p()
        params = _Params(model=os.fsencode(model.path), devices=model._devices.encode(), split=model._split, n_ctx=n_ctx, n_threads=model._params.n_threads,
                         kv_type=model._params.kv_type, profiles=b":".join(os.fsencode(str(p)) for p in profiles) or None)
        if policy is not None:
            params.policy = policy.pointer
        self._progress = params.progress = _progress_type(lambda done, total, user: not self._stop.is_set() and (goes_on is None or goes_on()))
        self.n_ctx = n_ctx
        check(_declared().wnw_python_sequence_new(ctypes.byref(self.pointer), ctypes.byref(params)))

    def set_policy(self, policy):
        """For what is read from now on, by a sequence that is empty."""
        self._policy = policy
        check(library().wnw_python_sequence_set_policy(self.pointer, policy.pointer if policy is not None else None))

    def close(self):
        pointer, self.pointer = self.pointer, ctypes.c_void_p()
        library().wnw_python_sequence_free(pointer)

    def load(self, state, size, n_past):
        check(library().wnw_python_sequence_load(self.pointer, state, size, n_past))

    def read(self, tokens, n):
        if n > 0:
            check(library().wnw_python_sequence_read(self.pointer, tokens, n))

    def compress(self, size, n_prefix):
        check(library().wnw_python_sequence_compress(self.pointer, ctypes.byref(size), n_prefix))

    def rewind(self, n):
        check(library().wnw_python_sequence_rewind(self.pointer, n))

    @property
    def n_read(self):
        return library().wnw_python_sequence_n_read(self.pointer)

    def heads(self, model):
        """The positions that each head holds, [layer][head]."""
        lib, n, keep = library(), ctypes.c_int32(), []
        room = np.empty(self.n_read + 1, np.int32)
        for il in range(model.n_layer):
            keep.append([])
            for ih in range(model.n_head_kv):
                check(lib.wnw_python_sequence_head(self.pointer, il, ih, model._n_swa, room.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)), ctypes.byref(n)))
                keep[-1].append(room[:n.value].copy())
        return keep

    def give(self, session, tokens):
        """Fills a session with what the sequence holds of its tokens."""
        check(library().wnw_python_sequence_give(self.pointer, session, tokens.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))))

    def measure(self):
        out = Measured()
        library().wnw_python_sequence_measure(self.pointer, ctypes.byref(out))
        return out

    def generate(self, said, model, sampler, how):
        return library().wnw_python_sequence_generate(ctypes.byref(said), self.pointer, model, sampler, ctypes.byref(how))


# ---- Documents and conversations ----

_ROOM = 2048  # tokens of a question and its answer, where the model has no context of its own


def _context(model, n_tokens):
    return model._params.n_ctx or min(model.n_ctx_train, n_tokens + _ROOM)


def _chosen(model, prompt, size, n_tokens, question_later):
    """The policy that "auto" is, of those that work on devices."""
    lib, more, facts = library(), c.wnw_run_more_default(), c.wnw_policy_facts_default()
    more.question_later = question_later
    run = c.wnw_run_default()
    run.recipe, run.prompt, run.more, run.profile, run.size = b"auto", prompt, ctypes.pointer(more), model._profiles(), size
    check(lib.wnw_policy_facts_of(ctypes.byref(facts), model._model, ctypes.byref(run)))
    facts.feeds_again = False
    share = {c.WNW_SIZE_RATIO: 1 - size.ratio, c.WNW_SIZE_BUDGET: size.budget / max(1, n_tokens)}.get(size.kind, 0)
    facts.kept = min(1.0, share)
    choice = c.wnw_policy_choice_default()
    check(lib.wnw_policy_choose(ctypes.byref(choice), ctypes.byref(facts)))
    return Policy(choice.recipe.decode())


def _fitting(model, policy):
    """The files of calibration results that a policy is given on devices."""
    if policy is None or not policy.needs_profile:
        return []
    model._profiles()
    return model._profile_files


def _policy_and_size(model, recipe, size, prompt, n_tokens, question_later):
    """A recipe as a Policy, "auto" as the one that it is here, and the size, half where none was given."""
    policy = None if recipe == "auto" else Policy(recipe)
    if size.kind == c.WNW_SIZE_NONE and not (policy and (policy.has_own_size or policy.is_full)):
        size = _size(0.5, None, None)
    return policy or _chosen(model, prompt, size, n_tokens, question_later), size


def plans(model, prompt, pairs, budget, kv_bytes, context_only, plugins):
    """What the devices' cache holds after each policy: a Plan for each pair of a recipe and a ratio."""
    if plugins:
        raise UsageError("plugins are for models on the CPU; open the model without devices")
    lib, p = library(), prompt.parts
    n, made = p.n_context if context_only else p.n_tokens, []
    tokens = np.ctypeslib.as_array(p.tokens, (n,)).copy()
    for recipe, ratio in pairs:
        policy, size = _policy_and_size(model, recipe, _size(ratio, budget, kv_bytes), prompt.pointer, n, context_only)
        if lib.wnw_policy_rewrites(policy.pointer):
            raise WinnowError(f"{policy.recipe} changes entries that are kept, and a plan made on devices has positions alone; "
                              "open the model without devices", "E_UNSUPPORTED")
        check_policy(policy, model._devices, model._profiles() if policy.needs_profile else None)
        made.append((policy, size, recipe))
    if not made:
        return []
    files = next((_fitting(model, policy) for policy, *_ in made if policy.needs_profile), [])
    sequence = Sequence(model, min(_context(model, n), n + 1), None, files)
    try:
        return [run_aside(lambda one=one: _plan_of(model, sequence, p, n, tokens, *one), sequence._stop) for one in made]
    finally:
        sequence.close()


def _plan_of(model, sequence, p, n, tokens, policy, size, name):
    sequence.rewind(0)
    sequence.set_policy(None if policy.is_full else policy)
    sequence.read(p.tokens, n)
    if not policy.is_full:
        sequence.compress(size, p.n_prefix)
    return Plan(sequence.heads(model), n, policy.recipe, tokens, name=name)


class DeviceDocument(Document):
    """A document on devices. Devices give memory back when they compute the next token, so that `kv_bytes` is less after the first question."""

    def _begin(self, policy, size):
        model, prompt = self._model, _Prompt(self._model._model, **self._layout)
        p = prompt.parts
        self.n_tokens, self.warning = p.n_context, ""
        self._tokens = np.ctypeslib.as_array(p.tokens, (p.n_context,)).copy()
        chosen, size = _policy_and_size(model, policy, size, prompt.pointer, p.n_context, True)
        if chosen.is_full:
            chosen = None
        check_policy(chosen, model._devices, model._profiles() if chosen and chosen.needs_profile else None)
        self.policy = chosen.recipe if chosen else ""
        sequence = self._session = Sequence(model, _context(model, p.n_context), chosen, _fitting(model, chosen), self._goes_on)

        def read():
            sequence.read(p.tokens, p.n_context)
            sequence.compress(size, p.n_prefix)

        run_aside(read, sequence._stop)
        self._measured = sequence.measure()

    def _open_stored(self):
        lib, state, size = library(), ctypes.POINTER(ctypes.c_uint8)(), ctypes.c_size_t()
        check(lib.wnw_stored_sequence(self._stored, ctypes.byref(state), ctypes.byref(size)))
        try:
            self._session = Sequence(self._model, _context(self._model, self.n_tokens), None, goes_on=self._goes_on)
            self._session.load(state, size.value, self.n_tokens)
        finally:
            lib.wnw_free(state)
        self._measured = self._session.measure()

    @property
    def kv_bytes(self):
        with self._using():
            return self._session.measure().bytes

    @property
    def kv_bytes_full(self):
        self._check()
        return self._measured.bytes_full

    @property
    def kept(self):
        self._check()
        return self._measured.kept

    @property
    def plan(self):
        with self._using():
            if self._stored:  # its cells are not known on the devices
                keep = self._stored_heads()
            else:
                self._session.rewind(self.n_tokens)
                keep = self._session.heads(self._model)
            return Plan(keep, self.n_tokens, self.policy, self._tokens)

    def _stored_heads(self):
        lib, at, keep = library(), ctypes.POINTER(ctypes.c_int32)(), []
        for il in range(self._model.n_layer):
            keep.append([])
            for ih in range(self._model.n_head_kv):
                n = lib.wnw_stored_head(self._stored, il, ih, ctypes.byref(at))
                keep[-1].append(np.ctypeslib.as_array(at, (n,)).copy() if n else np.empty(0, np.int32))
        return keep

    def save(self, path):
        with self._using():
            self._session.rewind(self.n_tokens)
            session = _Session(self._model, unrotated=not library().wnw_python_sequence_rotates(self._model.n_embd_head))
            try:
                self._session.give(session.pointer, self._tokens)
                self._store(session, path)
            finally:
                session.close()

    def _answer_rest(self, p, sampler, how):
        sequence = self._session
        sequence.rewind(self.n_tokens)
        sequence.read(tokens_from(p.tokens, p.n_context), p.n_tokens - p.n_context)
        check(self._generate(None, sampler, how, lambda said, made: sequence.generate(said, self._model._model, made, how))[0])


class DeviceChat(Chat):
    """A conversation on devices. The model is opened on them with the first turn."""

    def _open_session(self):
        policy = self._policy if self._rules else None
        check_policy(policy, self._model._devices, self._model._profiles() if policy and policy.needs_profile else None)

    def _release(self):
        if self._session is None:
            library().wnw_chat_free(self._chat)
            self._model._count(-1)
        else:
            super()._release()

    @property
    def kv_bytes(self):
        with self._using():
            return self._session.measure().bytes if self._session else 0

    def _open_sequence(self, turn, n):
        model, policy = self._model, self._policy
        if self._rules and policy is None:
            policy = _chosen(model, turn, self._size, n, False)
        if policy is not None and policy.is_full:
            policy = None
        check_policy(policy, model._devices, model._profiles() if policy and policy.needs_profile else None)
        n_ctx = model._params.n_ctx or min(model.n_ctx_train, max(8192, n + _ROOM))
        self._session = Sequence(model, n_ctx, policy, _fitting(model, policy), self._goes_on)

    def _take_turn(self, turn, tokens, n, sampler, how):
        if self._session is None:
            self._open_sequence(turn, n)
        sequence, past = self._session, library().wnw_prompt_n_past(turn)
        if past < sequence.n_read:
            try:
                sequence.rewind(past)
            except WinnowError:  # they were compressed together with others
                sequence.rewind(0)
        past = sequence.n_read
        sequence.read(tokens_from(tokens, past), n - past)
        if self._rules:
            sequence.compress(self._size, _parts(turn).n_prefix)
        return self._generate(None, sampler, how, lambda said, made: sequence.generate(said, self._model._model, made, how))
