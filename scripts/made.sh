# SPDX-License-Identifier: MIT
# Sourced by scripts: records of files that were fetched or made, so that a damaged one is noticed.
#
# The first line of a record identifies the sources of the files. Then each file has a line: SHA-256, size, the times
# when contents and inode changed, and the name in the record's folder. A change of a file changes these times,
# so a large file is read again only then.

sha256_of() { sha256sum <"$1" | cut -d' ' -f1; }
stat_of() { stat -c '%s %.9Y %.9Z' -- "$1"; }

# record RECORD FROM FILE...: writes the record of files that are known to be good. Files lie in the record's folder.
record() {
    local to=$1 from=$2 file
    shift 2
    {
        printf 'from %s\n' "$from"
        for file in "$@"; do
            printf '%s %s %s\n' "$(sha256_of "$file")" "$(stat_of "$file")" "${file##*/}"
        done
    } >"$to.tmp"
    mv "$to.tmp" "$to"
}

# intact RECORD FROM: whether the record is there, says FROM, and all its files are what they were. Else $why_not says
# what is wrong. Files that were only touched or copied are read once and recorded again.
intact() {
    local record=$1 from=$2 folder=${1%/*} lines=() line sum times name files=() touched=
    [ ! -f "$record" ] || mapfile -t lines <"$record"
    why_not="it is not known what it was made from"
    [ ${#lines[@]} -gt 1 ] || return 1
    why_not="what it is made from has changed"
    [ "${lines[0]}" = "from $from" ] || return 1
    for line in "${lines[@]:1}"; do
        sum=${line%% *} name=${line##* }
        times=${line#* } times=${times% *}
        why_not="$name is missing"
        [ -f "$folder/$name" ] || return 1
        files+=("$folder/$name")
        [ "$(stat_of "$folder/$name")" != "$times" ] || continue
        why_not="$name is damaged"
        [ "$(sha256_of "$folder/$name")" = "$sum" ] || return 1
        touched=1
    done
    [ -z "$touched" ] || record "$record" "$from" "${files[@]}"
}
