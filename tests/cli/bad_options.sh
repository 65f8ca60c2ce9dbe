# SPDX-License-Identifier: MIT
# What is wrong in the arguments themselves is refused before any model is opened.
. "$(dirname "$0")/lib.sh"

bad 'unknown command' 'did you mean .winnow run' rnu
bad 'a command that nothing is like' 'unknown command .juggle.*lists the commands' juggle -m x
bad 'calibrate what' 'needs one of' calibrate -m x
bad 'help of an unknown command' 'unknown command' help nothing
bad 'unknown option' 'did you mean --budget' run --budgt 4 -p x
bad 'unknown letter' 'unknown option -y' run -y -p x
bad 'missing value' 'missing argument' run -p
bad 'value for a flag' '--json' run --json=1 -p x
bad 'stray argument' "unexpected argument 'stray'" run -p x stray

bad 'budget 0' '--budget 0' run -p x --budget 0
bad 'budget -1' '--budget -1' run -p x --budget -1
bad 'budget 1.5' "'1.5' is not a whole number" run -p x --budget 1.5
bad 'budget 5x' "'5x'" run -p x --budget 5x
bad 'budget with a blank' "' 5'" run -p x --budget ' 5'
bad 'budget empty' '--budget' run -p x --budget ''
bad 'budget too large' '--budget' run -p x --budget 99999999999999999999
bad 'ratio 1' '--ratio 1' run -p x --ratio 1
bad 'ratio 1.0' '--ratio 1.0' run -p x --ratio 1.0
bad 'ratio -0.1' '--ratio -0.1' run -p x --ratio -0.1
bad 'ratio nan' "'nan'" run -p x --ratio nan
bad 'ratio hexadecimal' "'0x1p-2'" run -p x --ratio 0x1p-2
bad 'ratio with rest' "'0.5 '" run -p x --ratio '0.5 '
bad 'bytes 0' '--kv-bytes 0' run -p x --kv-bytes 0
bad 'bytes with another suffix' '--kv-bytes' run -p x --kv-bytes 1T
bad 'bytes that overflow' '--kv-bytes' run -p x --kv-bytes 9999999999G
# Numbers that are too large are refused for their size, and the bound is named.
bad 'budget above the bound' '--budget 2147483648 is out of range; it must be 1 to 2147483647' run -p x --budget 2147483648
bad 'budget above 64 bits' 'out of range; it must be 1 to 2147483647' run -p x --budget 99999999999999999999
bad 'bytes above the bound' 'out of range; it must be 1 byte to 4294967296G' run -p x --kv-bytes 4294967297G
bad 'bytes above 64 bits' 'out of range; it must be 1 byte to 4294967296G' run -p x --kv-bytes 9999999999G
bad 'bytes of 40 digits' 'out of range; it must be 1 byte to' run -p x --kv-bytes "$(printf '%040d' 0 | tr 0 9)"
bad '-n above the bound' 'must be 0 to 2147483647' run -p x -n 2147483648
bad '--top-k above the bound' 'must be 0 to 2147483647' run -p x --top-k 99999999999999999999
bad 'prefix above the bound' 'must be 0 to 2147483647' ppl -f x --prefix 4000000000
bad '-n of ppl above the bound' 'must be 2 to 2147483647' ppl -f x -n 4000000000
bad 'two sizes' 'give one of them' run -p x --budget 8 --ratio 0.5
bad 'two other sizes' 'give one of them' run -p x --kv-bytes 1M --ratio 0.5
bad 'three sizes' 'give one of them' run -p x --kv-bytes 1M --ratio 0.5 --budget 3

bad 'negative -n' '-n -1' run -p x -n -1
bad '-n text' "'many'" run -p x -n many
bad 'no threads' '-threads 0' run -p x -t 0
bad 'seed' '--seed' run -p x --seed 4294967296
bad 'temperature' '--temp' run -p x --temp -1
bad 'top-p' '--top-p' run -p x --top-p 1.5

# Refused before the prompt is read, and even before the model is opened: no model has that name.
bad 'top-p 0' '0 < top_p <= 1' run -m nowhere.gguf -p x --top-p 0
bad 'top-p that is 0 as a float' '0 < top_p <= 1' run -m nowhere.gguf -p x --top-p 1e-60

bad 'unknown policy' 'did you mean .snapkv' run -p x --policy snapk
bad 'unknown second part' 'nothing' run -p x --policy snapkv+nothing
bad 'unknown policy option' 'windo' run -p x --policy snapkv:windo=3
bad 'policy option out of range' 'window' run -p x --policy snapkv:window=-3
bad 'policy option without value' 'window' run -p x --policy snapkv:window
bad 'two parts of one kind' '.' run -p x --policy snapkv+topk+partition
bad 'empty policy' '.' run -p x --policy ''
bad 'policy with a blank' '.' run -p x --policy 'snapkv + adakv'
bad 'kv type' 'q5_0' run -p x --kv-type q5_0
bad 'rotation' "--kv-rotate 'yes' is unknown; use on or off" run -p x --kv-type q4_0 --kv-rotate yes
bad 'tail of an f16 cache' 'give --kv-type q8_0 or q4_0' run -p x --kv-tail 128
bad 'short tail' '--kv-tail 31 is out of range; it must be 0, or 32 to 1048576' run -p x --kv-type q4_0 --kv-tail 31
bad 'long tail' '--kv-tail 1048577 is out of range' plan -o x -p x --kv-type q4_0 --kv-tail 1048577
bad 'negative tail' '--kv-tail -1 is out of range' ppl -f x --kv-type q4_0 --kv-tail -1
bad 'short tail of bench' '--kv-tail 8 is out of range' bench --kv-type q8_0 --kv-tail 8
bad 'tail with the ggml attention' '--kv-tail needs --attn own' run -p x --kv-type q8_0 --kv-tail 64 --attn ggml
bad 'attention' "--attn 'fast'" run -p x --attn fast
bad 'evict soon' "'soon' is unknown" run -p x --evict soon
bad 'evict chunks' "'chunks' is unknown" run -p x --evict chunks
bad 'evict layer:3' "'layer:3' is unknown" run -p x --evict layer:3
for c in '' 0 -1 1.5 x '5 ' 99999999999; do
    bad "evict chunk:$c" '1 to 2147483647' run -p x --evict "chunk:$c"
done
for i in '' 0 -1 1.5 x 5: 5:0 5:x :5 5:6:7 99999999999 5:1.5 5:0.0 5:1.0 5:-0.5 5::all 5:0.5:al 5:0.5:all:all 0.5:all; do
    bad "evict every $i" 'give I or I:T' run -p x --evict-every "$i"
done
bad 'evict layer needs all layers' 'all layers' run -p x --policy kvcompose --evict layer --ratio 0.5
bad 'plan by chunk' 'use --evict end' plan -p x -o "$work/p.json" --evict chunk
bad 'plan by layer' 'use --evict end' plan -p x -o "$work/p.json" --evict layer
bad 'plan while generating' 'leave out --evict-every' plan -p x -o "$work/p.json" --evict-every 4
bad 'ppl while generating' 'leave out --evict-every' ppl -f /dev/null --evict-every 4
bad 'mask phase' "'often' is unknown" run -p x --mask-heads 0-0 --mask-phase often
bad 'mask phase without heads' 'name them with --mask-heads' run -p x --mask-phase decode
bad 'mask form' "'none' is unknown; use zero or mean" run -p x --mask-heads 0-0 --mask-form none
bad 'mask form without heads' 'name them with --mask-heads' run -p x --mask-form mean
bad 'ppl while decoding' 'masks nothing' ppl -f /dev/null --mask-heads 0-0 --mask-phase decode
bad 'profile' 'cannot read' run -p x --profile nowhere

bad 'no input' 'no input' run
bad 'empty question' 'no input' run -p ''
bad 'tokens and question' 'leave out' run --tokens x -p x
bad 'tokens and document' 'leave out' run --tokens x -f x
bad 'raw and chat' 'exclude each other' run -p x --raw --chat chatml
bad 'context only without document' 'give one with -f' run -p x --context-only

bad 'plan without output' 'name one with -o' plan -p x
bad 'plan into no folder' 'no folder' plan -p x -o "$work/nowhere/plan.json"
bad 'plan over a folder' 'not a regular file' plan -p x -o "$work"
bad 'plan over a device' 'not a regular file' plan -p x -o /dev/null
bad 'unknown method' 'did you mean snapkv' methods snapk
bad 'ppl without text' 'no input' ppl
bad 'ppl of one token' '-n 1' ppl -f x -n 1
bad 'bench observe lengths' "'long'" bench observe --lengths 512,long
bad 'bench lengths' "'long'" bench --lengths 512,long
bad 'bench with nothing to compress' 'full' bench --policy full
finish
