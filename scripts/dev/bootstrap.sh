#!/bin/sh
# bootstrap — prepare .venv for one purpose, unless it is ready already
#
# usage: sh scripts/dev/bootstrap.sh demo|test|docs      (PYTHON=/path/to/python3.12 chooses the interpreter)
#
# Owns: .venv, and .tools/uv if a Python must be downloaded.
# Guarantees: demo installs the daemons' packages, the API's too, without Spark and the tests. The marker file is written last, so an
#   interrupted installation never counts as complete. A moved checkout, a missing interpreter or changed pins rebuild
#   or refresh .venv. pip does all the installing, so its settings apply (PIP_CERT, PIP_INDEX_URL, PIP_CONFIG_FILE, …).
# Fails: one line that says what to install, exit status 1.
# Bugs: written for POSIX sh, because there may be no Python yet.
set -eu
cd "$(dirname "$0")/../.."
here=$(pwd -P)

say() { printf 'pillarbox: %s\n' "$*"; }
die() { printf 'pillarbox: %s\n' "$*" >&2; exit 1; }

purpose=${1:-}
case $purpose in
  demo) extras='[web]' ;;
  test) extras='[tracing,test,dev]' ;;
  docs) extras='[web,docs]' ;;
  *) die "bootstrap: unknown purpose \"$purpose\"; allowed: demo, test, docs" ;;
esac

ready() { printf '%s %s' "$(cat pyproject.toml constraints.txt | cksum)" "$1"; }
is_ready() { [ "$(cat ".venv/.ready-$1" 2>/dev/null)" = "$(ready "$1")" ]; }

# A venv is complete if its interpreter runs, it was created for this path, and no installation was interrupted.
is_whole() {
  [ ! -e .venv/.installing ] && [ "$(cat .venv/.checkout 2>/dev/null)" = "$here" ] &&
    .venv/bin/python -c 'import pip' >/dev/null 2>&1
}

if is_whole && is_ready "$purpose"; then exit 0; fi

# Two terminals may start at once on a fresh clone; without flock (macOS) they are not protected from each other.
mkdir -p .tools
if command -v flock >/dev/null 2>&1; then
  exec 9>.tools/bootstrap.lock
  flock 9
  if is_whole && is_ready "$purpose"; then exit 0; fi
fi

# Only running it proves that it works: a pyenv shim may exist and fail, a framework stub opens a window.
suits() {
  [ -n "$1" ] && "$1" -c '
import sys
sys.exit(not (sys.version_info >= (3, 12) and sys.version_info.releaselevel == "final"
              and sys.implementation.name == "cpython"))' >/dev/null 2>&1 </dev/null
}

absolute() { "$1" -c 'import sys; print(sys.executable)'; }

# Tested versions first, then anything newer.
find_python() {
  for name in "${PYTHON:-}" python3.13 python3.12 python3.14 python3; do
    if suits "$name"; then absolute "$name"; return 0; fi
  done
  pyenv_root=${PYENV_ROOT:-$(pyenv root 2>/dev/null || printf '%s' "${HOME:-}/.pyenv")}
  uv_pythons=${UV_PYTHON_INSTALL_DIR:-${XDG_DATA_HOME:-${HOME:-}/.local/share}/uv/python}
  for version in 3.13 3.12 3.14 3; do
    for candidate in "$pyenv_root"/versions/"$version"*/bin/python3 \
      "$uv_pythons"/cpython-"$version"*/bin/python3 "$here"/.tools/python/cpython-"$version"*/bin/python3 \
      /usr/local/bin/python"$version"* /opt/homebrew/bin/python"$version"* \
      /Library/Frameworks/Python.framework/Versions/"$version"*/bin/python3; do
      case $candidate in *-config | *t) continue ;; esac  # few wheels exist for free-threaded builds
      if [ -x "$candidate" ] && suits "$candidate"; then absolute "$candidate"; return 0; fi
    done
  done
  return 1
}

# uv can download a Python without root; it is kept in .tools so that nothing outside the checkout changes.
fetch_python() {
  uv=$(command -v uv || true)
  if [ -z "$uv" ] && [ -x .tools/uv/bin/uv ]; then uv=.tools/uv/bin/uv; fi
  if [ -z "$uv" ] && python3 -c '' >/dev/null 2>&1; then
    say "no Python 3.12 or newer found; installing uv, which can download one …" >&2
    rm -rf .tools/uv
    if { python3 -m venv .tools/uv && .tools/uv/bin/python -m pip install -q --disable-pip-version-check uv; } \
      >.tools/uv.log 2>&1; then
      uv=.tools/uv/bin/uv
    elif rm -rf .tools/uv && python3 -m pip install -q --disable-pip-version-check --target .tools/uv uv \
      >>.tools/uv.log 2>&1; then
      uv=.tools/uv/bin/uv
    fi
  fi
  [ -n "$uv" ] || return 1
  say "downloading Python 3.13 with uv …" >&2
  SSL_CERT_FILE=${SSL_CERT_FILE:-${PIP_CERT:-}}  # uv does not read pip's certificate setting
  if [ -n "$SSL_CERT_FILE" ]; then export SSL_CERT_FILE; else unset SSL_CERT_FILE; fi
  UV_PYTHON_INSTALL_DIR="$here/.tools/python" "$uv" python install 3.13 >>.tools/uv.log 2>&1 || return 1
  find_python
}

# Debian packages venv's pip separately, in python3-venv; the steps below need neither root nor that package.
make_venv() {
  rm -rf .venv
  if "$1" -m venv .venv >.tools/venv.log 2>&1; then return 0; fi
  rm -rf .venv
  "$1" -m venv --without-pip .venv >>.tools/venv.log 2>&1 || return 1
  if "$1" -m pip --python .venv/bin/python install -q pip >>.tools/venv.log 2>&1; then return 0; fi
  if uv pip install -q --python .venv/bin/python pip >>.tools/venv.log 2>&1; then return 0; fi
  if sh scripts/dev/fetch_debs.sh .tools/pip python3-pip-whl >>.tools/venv.log 2>&1; then
    for wheel in .tools/pip/usr/share/python-wheels/pip-*.whl; do
      if .venv/bin/python "$wheel/pip" install -q --disable-pip-version-check pip >>.tools/venv.log 2>&1; then
        return 0
      fi
    done
  fi
  rm -rf .venv
  return 1
}

if ! is_whole; then
  rm -f .tools/uv.log
  python=$(find_python) || python=$(fetch_python) || {
    tried=''
    if [ -s .tools/uv.log ]; then tried=" (the download failed too, see .tools/uv.log)"; fi
    die "Python 3.12 or newer is required and was not found$tried; install one (your system's package," \
      "\`brew install python@3.13\`, \`pyenv install 3.13\` or \`uv python install 3.13\`)" \
      "or name one: make PYTHON=/path/to/python3.12 …"
  }
  make_venv "$python" || die "$python cannot create a virtual environment; install its venv module" \
    "(Debian, Ubuntu: apt-get install python3-venv); details in .tools/venv.log"
fi

began=$(date +%s)
count=$(sed -n "s/^# $purpose: \([0-9]*\) packages.*/\1/p" constraints.txt)
say "installing ${count:-the} packages for $purpose with $(.venv/bin/python -V) …"
: >.venv/.installing
# The output is shown only on failure: the build backend prints much about editable installations.
.venv/bin/python -m pip install -q --disable-pip-version-check --no-input -c constraints.txt -e ".$extras" \
  >.tools/pip.log 2>&1 || {
  cat .tools/pip.log >&2
  die "pip could not install Pillarbox's packages; its reason is above (behind a proxy or mirror, pip's own" \
    "settings apply: PIP_INDEX_URL, PIP_CERT, PIP_PROXY)"
}
printf '%s' "$here" >.venv/.checkout
ready demo >.venv/.ready-demo  # the sets of test and docs contain the demo set
ready "$purpose" >".venv/.ready-$purpose"
rm -f .venv/.installing
say "ready for $purpose after $(($(date +%s) - began)) s"
