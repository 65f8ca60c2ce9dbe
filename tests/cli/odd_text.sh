# SPDX-License-Identifier: MIT
# Text that is not UTF-8: every invalid sequence is read as U+FFFD, in documents and questions, and
# no sequence ends the process.
. "$(dirname "$0")/lib.sh"
model=$tiny/tiny-llama.gguf
chat=$tiny/chat/qwen2.5.gguf # its template takes a system message
need_file "$model"
need_file "$chat"
cd "$work" || exit 1

# Beyond Unicode (F4 90.., F5, F7), a surrogate, a lone byte, an unfinished sequence, an overlong form; each has as many
# replacements as it has longest beginnings of a sequence (Unicode 15, section 3.9).
cases=('\xf5\x80\x80\x80:4' '\xf4\x90\x80\x80:4' '\xf7\xbf\xbf\xbf:4' '\xed\xa0\x80:3' '\xff:1' '\x80:1' '\xe2\x82:1'
    '\xf0\x9f\x98:1' '\xc0\xaf:2')
for case in "${cases[@]}"; do
    bytes=$(printf '%b' "a ${case%:*} b")
    fixed='a '
    for _ in $(seq "${case#*:}"); do fixed+=$'\xef\xbf\xbd'; done
    fixed+=' b'
    for how in question document system; do
        printf '%s' "$bytes" >bad.txt
        printf '%s' "$fixed" >good.txt
        if [ $how = question ]; then
            one=(-p "$bytes") other=(-p "$fixed")
        elif [ $how = system ]; then
            one=(-m "$chat" -p x --system "$bytes") other=(-m "$chat" -p x --system "$fixed")
        else
            one=(-f bad.txt) other=(-f good.txt)
        fi
        good "$how $case" run -m "$model" "${one[@]}" -n 3 --json && cp "$work/out" one.json
        good "$how $case, repaired" run -m "$model" "${other[@]}" -n 3 --json && cp "$work/out" other.json
        py <<'PY' || fail "$how $case: not read as its repaired form"
import json
one, other = (json.load(open(name)) for name in ("one.json", "other.json"))
assert one["prompt_tokens"] == other["prompt_tokens"] and one["tokens"] == other["tokens"], (one, other)
PY
    done
done
printf '%b' 'text \xf5\x80\x80\x80 of many bytes' >bad.txt
good 'perplexity of such a text' ppl -m "$model" -f bad.txt
good 'plan of such a text' plan -m "$model" -f bad.txt -o plan.json

# Without a place for models there is one line and nothing else.
WINNOW_CACHE='' HOME='' bad 'no cache folder' 'neither WINNOW_CACHE nor HOME' models
finish
