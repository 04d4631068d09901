#!/bin/sh
# lock — regenerate constraints.txt: the exact version of every package that a clean resolve installs
#
# usage: make lock      (PYTHON=/path/to/python3.12 chooses the interpreter)
#
# Owns: constraints.txt.
# Guarantees: only pins of the form `name==version`, without hashes, hosts and file paths, so the file works with any
#   mirror; resolved on the oldest supported Python, so that no package needs a newer one.
# Fails: pip's own message, or one line, exit status 1; the old file is kept.
set -eu
cd "$(dirname "$0")/../.."

python=${PYTHON:-.venv/bin/python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

freeze() { "$work/venv/bin/python" -m pip freeze -q --exclude-editable | sort -f; }

"$python" -m venv "$work/venv"
echo 'pillarbox: resolving the demo set …'
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check -e '.[web]'
freeze >"$work/demo"
echo 'pillarbox: resolving the test set …'
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check -e '.[tracing,test,dev]'
freeze >"$work/test"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check -e '.[tracing,test,dev,java]'
freeze >"$work/all"

if grep -v '^[A-Za-z0-9._-]*==[A-Za-z0-9.+!-]*$' "$work/all"; then
  echo 'lock: the lines above are not plain pins; constraints.txt was not changed' >&2
  exit 1
fi
{
  echo '# Exact versions for `pip install -c constraints.txt`; written by `make lock`, not by hand.'
  echo "# demo: $(grep -c . "$work/demo") packages"
  echo "# test: $(grep -c . "$work/test") packages"
  cat "$work/all"
} >"$work/constraints.txt"
cp "$work/constraints.txt" constraints.txt
echo "pillarbox: constraints.txt pins $(grep -c . "$work/all") packages"
