# SPDX-License-Identifier: MIT
# Objects of the command's build folder, for builds of the same files in another folder: a compiler launcher that copies them.
# Sourced after lib.sh by tests that compile a copy of the tree.
#
# A file is compiled all the same if
# - it, or what it includes, is in $work/changed, a list of /PATH/FROM/ROOT, when take_changed is called, or
# - the other build gives it other macros or other options than of optimisation, or
# - a build writes it.

# reuse_objects FOLDER: writes $work/reuse, the launcher for the build folder FOLDER, and $work/changed with what has changed since the
# command was linked. $work/reused lists objects that were copied: their names from the build folder.
reuse_objects() {
    local made
    made=$(dirname "${WINNOW:?set WINNOW to the path of the command}")
    (cd "$top" && find "${code[@]}" -type f -newer "$WINNOW" -printf '/%p\n') >"$work/changed"
    : >"$work/reused"
    # A file for each object: a line of its options, and what it was made of. make leaves the list next to the object; Ninja keeps all lists together.
    python3 - "$made" "$work/known" <<'PY'
import json, os, pathlib, shlex, subprocess, sys

made, known = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
kept = {}
if (made / "build.ninja").exists():
    name = None
    for line in subprocess.run(["ninja", "-C", made, "-t", "deps"], capture_output=True, text=True, check=True).stdout.splitlines():
        if not line.startswith(" "):
            name, told, _ = line.partition(": #deps")
            kept.update({name: []} if told and line.endswith("(VALID)") else {})
        elif name in kept:
            kept[name].append(line)
for entry in json.loads((made / "compile_commands.json").read_text()):
    words = shlex.split(entry["command"])
    made_here = pathlib.Path(entry["directory"], words[words.index("-o") + 1])
    options = [w for w in words if w.startswith(("-D", "-f", "-m", "-std=")) and w != "-fPIE"]
    name, listed = os.path.relpath(made_here, made), pathlib.Path(f"{made_here}.d")
    if made_here.exists() and (name in kept or listed.exists()):
        (known / name).parent.mkdir(parents=True, exist_ok=True)
        (known / name).write_text(" ".join(options) + "\n" + ("\n".join(kept[name]) if name in kept else listed.read_text()))
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
object=\$PWD/\$out
name=\${object#"$1"/}
if [ -n "\$out" ] && [[ \$from != "$1"/* ]] && [ -f "$work/known/\$name" ] &&
    read -r given <"$work/known/\$name" && [ "\$given" = "\${options[*]}" ]; then
    echo "\$name" >>"$work/reused"
    exec cp "$made/\$name" "\$out"
fi
exec "\$@"
SH_END
    chmod +x "$work/reuse"
    take_changed
}

# Objects that depend on what is in $work/changed by now are compiled from here on.
take_changed() {
    grep -rlFf "$work/changed" "$work/known" | xargs -r rm -f
}
