#!/bin/sh
# release — say what an installation consists of (sbom), or ask whether a fault of it is known (audit)
#
# usage: sh scripts/dev/release.sh sbom FILE    (make sbom: build/sbom.cdx.json)
#        sh scripts/dev/release.sh audit        (make audit)
#
# Owns: FILE, a CycloneDX bill of materials, which appears complete or not at all; .tools/release, the programs of the extra
#   `release`, as constraints.txt pins them.
# Guarantees: sbom lists what was really installed: deploy/requirements/web.txt by its hashes and our package, in an empty
#   environment. audit fails only for a fault that is known; where the database cannot be asked it says so and ends well.
# Fails: the failed program's own words on standard error, exit status 1.
# See: https://cyclonedx.org/docs/1.6/json/.
set -eu
cd "$(dirname "$0")/../.."

die() { printf 'release: %s\n' "$*" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

tools() {
  marker=.tools/release/.ready
  if [ "$(cat "$marker" 2>/dev/null)" = "$(cksum <constraints.txt)" ]; then return; fi
  rm -rf .tools/release
  .venv/bin/python -m venv .tools/release
  .tools/release/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt cyclonedx-bom pip-audit
  cksum <constraints.txt >"$marker"
}

sbom() {
  mkdir -p "$(dirname "$1")"
  rm -rf build/lib build/bdist.*  # of an earlier build, whose modules may be gone by now
  .venv/bin/python -m venv "$work/venv"
  "$work/venv/bin/python" -m pip install -q --disable-pip-version-check --require-hashes -r deploy/requirements/web.txt
  "$work/venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation .
  "$work/venv/bin/python" -m pip uninstall -q -y setuptools
  .tools/release/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type application --output-reproducible \
    --output-format JSON --output-file "$work/sbom" "$work/venv/bin/python" >"$work/log" 2>&1 || die "$(tail -n 3 "$work/log")"
  # Where it was built is of no use to those who read it.
  if grep -q "$(pwd -P)\|$work" "$work/sbom"; then die "the bill names a folder of this machine"; fi
  mv "$work/sbom" "$1"
  echo "$1"
}

audit() {
  if .tools/release/bin/pip-audit --require-hashes --disable-pip -r deploy/requirements/analytics.txt --progress-spinner off \
    >"$work/log" 2>&1; then
    echo 'release: no fault of the pinned packages is known'
  elif grep -qE 'known vulnerabilit' "$work/log"; then
    cat "$work/log" >&2
    exit 1
  else
    echo "release: the pinned packages were not audited: $(tail -n 1 "$work/log" | cut -c1-200)"
  fi
}

case ${1:-} in
  sbom) [ $# -eq 2 ] || die 'usage: sh scripts/dev/release.sh sbom FILE'; tools; sbom "$2" ;;
  audit) tools; audit ;;
  *) die "unknown verb \"${1:-}\"; allowed: sbom, audit" ;;
esac
