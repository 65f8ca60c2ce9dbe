# SPDX-License-Identifier: MIT
# Objects of the command's build folder, for builds of the same files in another folder: a compiler launcher that copies them.
# Sourced after lib.sh by tests that compile a copy of the tree.
#
# A file is compiled all the same if
# - it, or what it includes, is in $work/changed, a list of /PATH/FROM/ROOT, or
# - the other build gives it other macros or other options than of optimisation, or
# - a build writes it.

# reuse_objects FOLDER: writes $work/reuse, the launcher for the build folder FOLDER, and $work/changed with what has changed since the
# command was linked. $work/reused lists objects that were copied, and which they became.
reuse_objects() {
    local made
    made=$(dirname "${WINNOW:?set WINNOW to the path of the command}")
    (cd "$top" && find "${code[@]}" -type f -newer "$WINNOW" -printf '/%p\n') >"$work/changed"
    : >"$work/reused"
    # Object and options, a line each.
    python3 - "$made" >"$work/options" <<'PY'
import json, os, pathlib, shlex, sys

made = pathlib.Path(sys.argv[1]).resolve()
for entry in json.loads((made / "compile_commands.json").read_text()):
    words = shlex.split(entry["command"])
    made_here = pathlib.Path(entry["directory"], words[words.index("-o") + 1])
    options = [w for w in words if w.startswith(("-D", "-f", "-m", "-std=")) and w != "-fPIE"]
    print(f"/{os.path.relpath(made_here, made)}", *options)
PY
    cat >"$work/reuse" <<SH_END
#!/bin/bash
# reuse COMPILER ARGS...: compiles, or copies the object that is there.
options=() out= from=
for ((i = 1; i <= \$#; i++)); do
    word=\${!i} next=\$((i + 1))
    case \$word in
    -fPIE) ;; # what compilers do anyway
    -D* | -f* | -m* | -std=*) options+=("\$word") ;;
    -o) out=\${!next} ;;
    -c) from=\${!next} ;;
    esac
done
object=\${PWD#"$1"}/\$out
made=$made\$object
if [ -n "\$out" ] && [[ \$from != "$1"/* ]] && [ -f "\$made" ] && [ -f "\$made.d" ] && ! grep -qFf "$work/changed" "\$made.d" &&
    grep -qxF -- "\$object \${options[*]}" "$work/options"; then
    echo "\$made \$PWD/\$out" >>"$work/reused"
    exec cp "\$made" "\$out"
fi
exec "\$@"
SH_END
    chmod +x "$work/reuse"
}
