# SPDX-License-Identifier: MIT
"""Python environments of other engines in the cache folder, made when they are first wanted. Used by compare.py and
scripts/check_answers.py."""
import os
import subprocess
import sys

CACHE = os.environ.get("WINNOW_CACHE") or os.path.expanduser("~/.cache/winnow")
PACKAGES = {
    "openvino": ["openvino-genai==2026.4.1.0"],
    "kvpress": ["torch==2.15.0", "transformers==5.2.0", "kvpress==0.5.5", "gguf==0.17.1"],
}
SIZES = {"openvino": "0.3 GB", "kvpress": "5.6 GB"}


class Missing(Exception):
    """An engine cannot be had here; the message says why."""


def environment(name, say):
    """Python of the environment that has these packages; made if need be. `say` gets a line before that begins."""
    folder = os.path.join(CACHE, "peers", name)
    python, stamp = os.path.join(folder, "bin", "python"), os.path.join(folder, "made")
    wanted = " ".join(PACKAGES[name])
    if os.path.exists(stamp):
        with open(stamp, encoding="ascii") as f:
            if f.read() == wanted:
                return python
    say(f"{name}: making the environment {folder} ({SIZES[name]}): {wanted}")
    try:
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES[name]], check=True)
    except (subprocess.CalledProcessError, OSError) as e:
        raise Missing(f"{name}: its packages could not be installed ({e})") from e
    with open(stamp, "w", encoding="ascii") as f:
        f.write(wanted)
    return python
