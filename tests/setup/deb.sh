#!/bin/bash
# SPDX-License-Identifier: MIT
# scripts/deb.sh and debian/, with made-up tools of Debian's in place of real ones: what is copied, what is installed where, and what
# is said when something fails. `make deb` itself compiles everything and is not run here.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
command -v git >/dev/null || skip 'no git'
tools=$work/tools
mkdir "$tools"
cat >"$tools/dpkg-buildpackage" <<'SH'
#!/bin/bash
# Lists the tree that it is run in.
find . -type f | sort
echo "$PWD" >"$WHERE"
[ ! -e fails ] || exit 2
touch ../winnow_1_amd64.deb ../winnow_1_amd64.changes
SH
cat >"$tools/lintian" <<'SH'
#!/bin/bash
printf '%s\n' "$@"
SH
chmod +x "$tools"/*
export PATH=$tools:$PATH WHERE=$work/where

# A project of a few files, in a folder with blanks: one that git ignores, one that is new, one that was removed.
project="$work/a project"
mkdir -p "$project/scripts" "$project/src"
cp "$top/scripts/deb.sh" "$project/scripts"
cd "$project" || exit 1
printf '/build*/\n' >.gitignore
touch src/kept.c src/removed.c 'src/with blanks.c'
git init -q . && git add . && git -c user.name=t -c user.email=t@example.org commit -qm all || skip 'git does not commit'
rm src/removed.c
mkdir build
touch src/new.c build/object.o

# makes NAME FOLDER: runs it, which copies what belongs to the project and nothing else.
makes() {
    scripts/deb.sh "$2" >"$work/out" 2>"$work/err" || fail "$1: $(cat "$work/err")"
    printf './%s\n' .gitignore scripts/deb.sh src/kept.c src/new.c 'src/with blanks.c' | LC_ALL=C sort | diff - <(LC_ALL=C sort "$2/log") >"$work/diff" || fail "$1: $(cat "$work/diff")"
    [ "$(cat "$work/where")" = "$(realpath "$2")/winnow" ] || fail "$1: built in $(cat "$work/where")"
    grep -q 'winnow_1_amd64.deb' "$work/out" || fail "$1: names no package: $(cat "$work/out")"
    [ ! -e "$2/winnow" ] || fail "$1: leaves its copy"
}
makes 'an ignored folder' build/deb
makes 'a folder of the project' 'my debs' # what is there from the first time must not come into the second
makes 'it again' 'my debs'
rm -rf 'my debs'
makes 'a folder elsewhere' "$work/else where"
touch fails
scripts/deb.sh build/deb >"$work/out" 2>"$work/err" && fail 'a build that fails is none'
says 'a build that fails' 'dpkg-buildpackage failed; the whole log is'
rm fails
mv .git "$work/git" # an archive of the sources has none
rm -rf build
makes 'without git' "$work/else where"

# ---- What goes into which package ----
[ -f /usr/share/dpkg/architecture.mk ] || { printf 'no dpkg-dev: debian/rules is left out\n' && finish; }
arch=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
cat >"$tools/dh_install" <<'SH'
#!/bin/bash
echo "dh_install $*"
SH
chmod +x "$tools/dh_install"
mkdir -p "$work/pkg/debian/tmp/usr/lib/$arch/winnow"
cd "$work/pkg" || exit 1
make -s -f "$top/debian/rules" override_dh_install >"$work/out" 2>&1 || fail "without a server: $(cat "$work/out")"
grep -q llama-server "$work/out" "$top"/debian/*.install && fail 'a server is wanted that is not there'
touch "debian/tmp/usr/lib/$arch/winnow/winnow-llama-server"
make -s -f "$top/debian/rules" override_dh_install >"$work/out" 2>&1
grep -qx "dh_install --package=winnow usr/lib/$arch/winnow/winnow-llama-server" "$work/out" || fail "the server is in no package: $(cat "$work/out")"
finish
