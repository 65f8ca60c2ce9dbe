# SPDX-License-Identifier: MIT
"""python -m winnow: the command of this package. `serve` starts the server where the package has one."""
import os
import sys

from ._library import FOLDER, WinnowError, check_cpu


def main():
    try:
        check_cpu()
    except WinnowError as error:
        sys.exit(f"winnow: {error}")
    program = os.environ.get("WINNOW_COMMAND") or str(FOLDER / "bin" / "winnow")
    try:
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"winnow: cannot start {program}: {error.strerror}; install winnow's wheel, or set WINNOW_COMMAND to the command of a build")


if __name__ == "__main__":
    main()
