"""python — a verdict on the Python that runs Pillarbox

Owns: whether it was compiled with profile-guided optimisation, which makes all of smtpd and queued faster.
Guarantees: pure. A build that does not say is not reported.
See: https://docs.python.org/3/using/configure.html#performance-options; debian/rules of Debian's python3.13.
Bugs: a build by `make profile-opt` whose installed Makefile does not record it gets the note in vain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from operate.doctor.checks import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Mapping

_CHECK: Final = "python.build"
_ASKED: Final = "--enable-optimizations"
# Of GCC and of Clang: the flags that a compilation with a profile leaves behind.
_USED: Final = ("-fprofile-use", "-fprofile-instr-use")
_LEFT_IN: Final = ("PY_CFLAGS_NODIST", "PY_CORE_CFLAGS", "PY_CFLAGS", "CFLAGS")


def build(version: str, config: Mapping[str, Any]) -> Finding:
    """`config`: as sysconfig.get_config_vars() has it."""
    if is_optimised(config):
        return Finding(_CHECK, Severity.OK, f"Python {version}")
    text = f"Python {version} was built without optimisation (no PGO): it is about a third slower"
    remedy = (
        f"use a distribution's Python, or one built with {_ASKED} --with-lto; rm -r .venv; make … PYTHON=/path/to/it"
    )
    return Finding(_CHECK, Severity.NOTE, text, remedy)


def is_optimised(config: Mapping[str, Any]) -> bool:
    """Whether a profile was used, as far as the build tells.

    `configure` always sets PGO_PROF_USE_FLAG, whether or not it comes to use. Where it is empty, a packager used it and
    swept the traces out of what is installed, so that extensions are not compiled with it: Debian and those after it,
    which call `make profile-opt` themselves.
    """
    if _ASKED in str(config.get("CONFIG_ARGS")) or not config.get("PGO_PROF_USE_FLAG"):
        return True
    return any(flag in str(config.get(name)) for name in _LEFT_IN for flag in _USED)
