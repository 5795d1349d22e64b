"""The suite itself: a test that is skipped for a reason nobody wrote down fails the run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import KNOWN_SKIPS

TESTS = Path(__file__).parent


def test_skip_for_an_unknown_reason_fails_the_run(tmp_path: Path) -> None:
    """Also where `pytest -n` runs the tests in other processes."""
    file = tmp_path / "test_it.py"
    file.write_text(
        "import pytest\n"
        "def test_passes(): pass\n"
        "def test_unknown(): pytest.skip('out of the blue')\n"
        "def test_known(): pytest.skip('root may write anywhere')\n"
    )
    options = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-c", "/dev/null", "-n", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--rootdir", str(tmp_path), str(file)],
        capture_output=True,
        text=True,
        check=False,
        cwd=TESTS.parent,
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "1 passed, 2 skipped" in done.stdout
    assert re.findall(r"\d skipped: .*", done.stdout) == ["1 skipped: out of the blue"]


def test_list_of_known_skips_has_no_reason_that_no_test_gives() -> None:
    texts = [path.read_text() for path in TESTS.rglob("test_*.py") if path.name != "test_suite.py"]
    texts += [(TESTS / name).read_text() for name in ("spark/support.py", "storage/fuse_volume.py")]
    texts += [
        (TESTS / room / "conftest.py").read_text()
        for room in ("cluster", "engines", "examples", "kafka", "clouds")
    ]
    unused = [reason for reason in KNOWN_SKIPS if not any(re.search(reason, t) for t in texts)]
    assert unused == []
