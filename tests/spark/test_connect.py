"""The smoke suite again, in a Spark Connect session."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tests.depth import rounds
from tests.spark.conftest import CONNECT

pytest.importorskip("grpc", reason="Spark Connect needs pyspark[connect]")
# Spark 4.0 has no INSERT with only some columns.
SKIPS_ONE = pyspark.__version__.startswith("4.0.")
ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(900)
@pytest.mark.skipif(CONNECT, reason="these tests run with Connect already")
def test_the_smoke_suite_passes_with_connect() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-v",
            "-p",
            "no:cacheprovider",
            "tests/spark/test_smoke.py",
        ],
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYLOGTABLE_CONNECT": "1"},
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    # This test fails if the session is not a Connect session.
    assert "test_session_is_of_the_requested_kind PASSED" in done.stdout
    (passed,) = re.findall(r"(\d+) passed", done.stdout)
    assert int(passed) >= rounds(6, deep=10) - SKIPS_ONE
    assert ("skipped" in done.stdout) == SKIPS_ONE
