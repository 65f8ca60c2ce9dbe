# SPDX-License-Identifier: MIT
# winnow completion: the scripts parse, and bash's completes what is typed.
. "$(dirname "$0")/lib.sh"
for shell in bash zsh fish; do
    good "the script of $shell" completion $shell
    cp "$work/out" "$work/$shell"
    if command -v $shell >/dev/null; then
        $shell -n "$work/$shell" || fail "$shell does not parse its script"
    fi
done
. "$work/bash"
complete -p winnow >/dev/null || fail 'bash knows no completion of winnow'

# completes WORDS... = WANTED...: what the last word is completed to, in any order.
completes() {
    local words=() wanted
    while [ "$1" != = ]; do
        words+=("$1")
        shift
    done
    shift
    wanted=$(printf '%s\n' "$@" | sort)
    COMP_WORDS=("${words[@]}")
    COMP_CWORD=$((${#words[@]} - 1))
    _winnow
    [ "$(printf '%s\n' "${COMPREPLY[@]}" | sort)" = "$wanted" ] || fail "${words[*]} was completed to: ${COMPREPLY[*]}"
}
completes winnow doc = doctor
completes winnow pl = plan
completes winnow --v = --version
completes winnow help insp = inspect
completes winnow help bench obs = observe
completes winnow man store c = check
completes winnow store = store
completes winnow store '' = list rm check du
completes winnow bench ob = observe
completes winnow bench --cp = --cpu-time
completes winnow bench observe --rat = --ratio
completes winnow profile import --ki = --kind
completes winnow run --kv-b = --kv-bytes
completes winnow run -m gemma = gemma-3-270m
completes winnow run --policy strea = streaming_llm streaming_llm-rerotated
completes winnow run --nothing = ''
completes winnow completion '' = bash zsh fish
completes winnow completion z = zsh
mkdir "$work/in"
: >"$work/in/some text.txt"
completes winnow run -f "$work/in/so" = "$work/in/some text.txt"
completes winnow run -m "$work/in/so" = "$work/in/some text.txt"

# Every option of every command is in its list, in fish's too.
py "$WINNOW" "$work" <<'PY' || fail 'options are missing'
import re, subprocess, sys
winnow, work = sys.argv[1:]
output = lambda *args: subprocess.run([winnow, *args], stdout=subprocess.PIPE, check=True).stdout.decode()
commands = re.findall(r"^  ([a-z]+(?: [a-z]+)?) +[A-Z]", output("--help"), flags=re.M)
bash, fish = (open(f"{work}/{shell}", encoding="utf-8").read() for shell in ("bash", "fish"))
lists = dict(re.findall(r"^    '([a-z ]+)'\) choices='(.*)' ;;$", bash, flags=re.M))
faults, n = [], 0
for name in commands:
    if name == "help":
        continue
    lines = [line for line in fish.splitlines() if line.startswith(
        'complete -c winnow -n "' + "; and ".join("__fish_seen_subcommand_from " + word for word in name.split()) + '"')]
    for letter, long in re.findall(r"^  (?:(-\w)(?:, )?|    )(--[a-z0-9-]+)?", output(*name.split(), "--help-all"), flags=re.M):
        n += 1
        for option in filter(None, (letter, long)):
            if option not in lists[name].split():
                faults.append(f"bash: {name} {option}")
        in_fish = (f" -l {long[2:]}" if long else "") + (f" -s {letter[1]}" if letter else "")
        if not any(f"{in_fish} -" in line for line in lines):
            faults.append(f"fish: {name} {in_fish}")
if n < 200:
    faults.append(f"only {n} options found")
print("\n".join(faults), file=sys.stderr)
sys.exit(bool(faults))
PY
bad 'no shell' 'needs one of: bash, zsh, fish' completion
bad 'nearly a shell' 'did you mean bash' completion bsh
bad 'another shell' "the shell 'tcsh-or-so'" completion tcsh-or-so
bad 'two shells' "unexpected argument 'zsh'" completion bash zsh
finish
