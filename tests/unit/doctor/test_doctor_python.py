"""test_doctor_python — doctor recognises a Python without profile-guided optimisation by its build settings

Owns: proofs about operate/doctor/python.py, with the settings of real builds.
"""

from __future__ import annotations

from typing import Any

import pytest

from operate.doctor.checks import Severity
from operate.doctor.python import build

GCC = "-fprofile-use -fprofile-correction"
CLANG = '-fprofile-instr-use="/build/code.profclangd"'
PLAIN = "-fno-strict-overflow -Wsign-compare -DNDEBUG -g -O3 -Wall"
SHARED = "'--enable-shared' '--prefix=/usr'"


@pytest.mark.parametrize(
    ("config", "verdict"),
    [
        # pyenv's default: configured for GCC, and the flag never came to use.
        ({"CONFIG_ARGS": SHARED, "PGO_PROF_USE_FLAG": GCC, "PY_CFLAGS_NODIST": "-std=c11"}, Severity.NOTE),
        ({"CONFIG_ARGS": SHARED, "PGO_PROF_USE_FLAG": CLANG, "PY_CFLAGS": PLAIN}, Severity.NOTE),
        # The images of python.org, Fedora, uv: configure was asked.
        ({"CONFIG_ARGS": f"{SHARED} '--enable-optimizations' '--with-lto'", "PGO_PROF_USE_FLAG": GCC}, Severity.OK),
        # Debian 12 and 13, Ubuntu: profile-opt by hand, flags swept out, -fprofile-generate left as it came.
        ({"CONFIG_ARGS": SHARED, "PGO_PROF_USE_FLAG": "", "PGO_PROF_GEN_FLAG": "-fprofile-generate"}, Severity.OK),
        # profile-opt by hand, flags left in.
        ({"CONFIG_ARGS": SHARED, "PGO_PROF_USE_FLAG": GCC, "PY_CORE_CFLAGS": f"{PLAIN} {GCC}"}, Severity.OK),
        ({"CONFIG_ARGS": SHARED, "PGO_PROF_USE_FLAG": CLANG, "PY_CFLAGS_NODIST": CLANG}, Severity.OK),
        # A platform without configure.
        ({}, Severity.OK),
        ({"CONFIG_ARGS": None, "PGO_PROF_USE_FLAG": None}, Severity.OK),
    ],
)
def test_the_build_of_python_has_its_verdict(config: dict[str, Any], verdict: Severity) -> None:
    finding = build("3.13.0", config)
    assert (finding.check, finding.verdict) == ("python.build", verdict)
    assert "Python 3.13.0" in finding.found
    assert ("a third slower" in finding.found) is ("--enable-optimizations" in finding.remedy) is bool(verdict)
