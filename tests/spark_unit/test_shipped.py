"""A package that comes as a zip or a wheel is found by processes that were not told where."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from pyspark import cloudpickle

import pyspark_pylogtable
from pyspark_pylogtable import DefaultSource
from pyspark_pylogtable.shipped import archive_of, place_of
from tests.documents import ROOT

PACKAGES = (ROOT / "pylogtable", Path(pyspark_pylogtable.__path__[0]))

WITHOUT_IT = (
    "import os, sys\n"
    "has_it = [p for p in sys.path if os.path.isdir(f'{p}/pylogtable')"
    " or os.path.isdir(f'{p}/pyspark_pylogtable')]\n"
    "sys.path = [p for p in sys.path if p not in has_it]\n"
)


@pytest.fixture(params=["shipped.zip", "shipped-1.0-py3-none-any.whl"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / str(request.param)
    with zipfile.ZipFile(path, "w") as file:
        for package in PACKAGES:
            for module in package.rglob("*.py*"):
                if "__pycache__" not in module.parts:
                    file.write(module, module.relative_to(package.parent))
    return path


def run(code: str, archive: Path, folder: Path) -> str:
    """What code prints in a Python whose path does not lead to an installed pylogtable."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_IT + code, str(archive)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_pickled_source_brings_the_place_of_its_archive(archive: Path, tmp_path: Path) -> None:
    """As Spark does for a stream: it pickles the source in one process, and loads it in another
    whose path has no archive."""
    kept = tmp_path / "source.pickle"
    run(
        "sys.path.insert(0, sys.argv[1])\n"
        "from pyspark import cloudpickle\n"
        "from pyspark_pylogtable import DefaultSource\n"
        f"open({str(kept)!r}, 'wb').write(cloudpickle.dumps(DefaultSource({{'path': '/no'}})))",
        archive,
        tmp_path,
    )
    found = run(
        "import pickle\n"
        "assert not [n for n in sys.modules if 'pylogtable' in n]\n"
        f"source = pickle.load(open({str(kept)!r}, 'rb'))\n"
        "print(source.name(), source.options['path'], sys.modules['pyspark_pylogtable'].__file__)",
        archive,
        tmp_path,
    )
    name, path, place = found.split()
    assert (name, path) == ("pylogtable", "/no")
    assert place.startswith(str(archive))


def test_pickled_source_brings_the_place_of_the_module_that_gives_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = tmp_path / "userfiles"
    shipped.mkdir()
    (shipped / "keys_of_ours.py").write_text("def session():\n    raise RuntimeError('asked')\n")
    monkeypatch.syspath_prepend(shipped)
    options = '{"credentials": "keys_of_ours:session", "endpoint_url": "http://127.0.0.1:9"}'
    source = DefaultSource({"path": "s3://bucket/t", "storageOptions": options})
    kept = tmp_path / "source.pickle"
    kept.write_bytes(cloudpickle.dumps(source))
    found = subprocess.run(
        [
            sys.executable,
            "-c",
            "import pickle, sys\n"
            "pickle.load(open(sys.argv[1], 'rb'))\n"
            "import keys_of_ours\n"
            "print(keys_of_ours.__file__)",
            str(kept),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == str(shipped / "keys_of_ours.py")
    assert place_of("keys_of_ours.session") == shipped
    assert place_of("pytest") is None, "what is installed is found without help"


def test_wheel_gets_a_name_that_spark_takes_for_an_archive(archive: Path, tmp_path: Path) -> None:
    found = run(
        "sys.path.insert(0, sys.argv[1])\n"
        "from pyspark_pylogtable.shipped import zip_of_wheel\n"
        "first, second = zip_of_wheel(), zip_of_wheel()\n"
        "assert first == second\n"
        "print(first, first and first.read_bytes() == open(sys.argv[1], 'rb').read())",
        archive,
        tmp_path,
    ).split()
    if archive.suffix == ".zip":
        assert found == ["None", "None"]
    else:
        assert found[0].endswith("shipped-1.0-py3-none-any.zip")
        assert found[1] == "True"


def test_installed_package_is_in_no_archive() -> None:
    assert archive_of(str(pyspark_pylogtable.__file__)) is None
