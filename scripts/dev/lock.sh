#!/bin/sh
# lock — regenerate constraints.txt, the exact version of every package that a clean resolve installs, and the hashes of what ships
#
# usage: make lock      (PYTHON=/path/to/python3.12 chooses the interpreter)
#
# Owns: constraints.txt; deploy/requirements, whose pins are those of constraints.txt, with the hash of every file of them.
# Guarantees: only pins of the form `name==version`, without hashes, hosts and file paths, so the file works with any
#   mirror; resolved on the oldest supported Python, so that no package needs a newer one.
# Fails: pip's or uv's own message, or one line, exit status 1; the old files are kept.
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
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check -e '.[tracing,test,dev,java,docs,release]'
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
# uv reads the index's hashes of all files of a version, for every platform and Python; pip knows those that it downloads.
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check uv
for each in web analytics; do
  extras='--extra web'
  if [ "$each" = analytics ]; then extras='--extra web --extra analytics'; fi
  echo "# What the image and the Debian package install ($each), each file by its hash; written by \`make lock\`, not by hand." \
    >"$work/$each.txt"
  # shellcheck disable=SC2086 - two words each
  echo 'setuptools>=77' | "$work/venv/bin/uv" pip compile -q --universal --python-version 3.12 --generate-hashes --no-header \
    --no-annotate $extras -c "$work/constraints.txt" pyproject.toml - >>"$work/$each.txt"
done
cp "$work/constraints.txt" constraints.txt
cp "$work/web.txt" "$work/analytics.txt" deploy/requirements/
echo "pillarbox: constraints.txt pins $(grep -c . "$work/all") packages"
