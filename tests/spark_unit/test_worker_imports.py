"""Zip archives are read again only if they changed, and only in workers of a Spark before 4.3."""

from __future__ import annotations

import os
import sys
import zipfile
import zipimport
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from pyspark_pylogtable import worker_imports
from pyspark_pylogtable.worker_imports import SETTLED_SECONDS, TURNED_OFF_BY, read_again_if_changed
from tests.opened_files import opened_by

PYTHONS_OWN = zipimport.zipimporter.invalidate_caches


def write(archive: Path, *modules: str) -> None:
    """An archive with these modules; each one takes the same number of bytes."""
    with zipfile.ZipFile(archive, "w") as file:
        for name in modules:
            file.writestr(zipfile.ZipInfo(f"{name}.py"), "x = 1\n")


def after(archive: Path, seconds: float) -> Callable[[], float]:
    """A clock: so long after the last change of the archive."""
    found = os.stat(archive)
    return lambda: max(found.st_mtime, found.st_ctime) + seconds


def settled(archive: Path) -> Callable[[], float]:
    return after(archive, SETTLED_SECONDS)


def knows(importer: zipimport.zipimporter, module: str) -> bool:
    return importer.find_spec(module) is not None


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "modules.zip"
    write(path, "old")
    return path


@pytest.fixture
def importer(archive: Path) -> zipimport.zipimporter:
    """An importer of the archive that was told once to read it again."""
    found = zipimport.zipimporter(str(archive))
    read_again_if_changed(found, settled(archive))
    assert knows(found, "old")
    return found


def test_an_unchanged_archive_is_not_read_again(
    importer: zipimport.zipimporter, archive: Path
) -> None:
    def ask_again() -> None:
        read_again_if_changed(importer, settled(archive))
        assert not knows(importer, "new")

    def ask_python() -> None:
        PYTHONS_OWN(importer)
        assert not knows(importer, "new")

    assert [str(archive) in opened_by(ask_again) for _ in range(3)] == [False, False, False]
    assert str(archive) in opened_by(ask_python)


def test_a_changed_archive_is_read_again(importer: zipimport.zipimporter, archive: Path) -> None:
    write(archive, "old", "new")
    assert not knows(importer, "new")
    read_again_if_changed(importer, settled(archive))
    assert knows(importer, "new")


def test_another_archive_of_the_same_size_and_time_is_read_again(
    importer: zipimport.zipimporter, archive: Path, tmp_path: Path
) -> None:
    before = os.stat(archive)
    other = tmp_path / "other.zip"
    write(other, "new")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(archive)
    found = os.stat(archive)
    assert (found.st_size, found.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    read_again_if_changed(importer, settled(archive))
    assert (knows(importer, "old"), knows(importer, "new")) == (False, True)


def test_an_archive_that_is_gone_is_forgotten_and_read_again_when_it_is_back(
    importer: zipimport.zipimporter, archive: Path, tmp_path: Path
) -> None:
    away = tmp_path / "away.zip"
    archive.rename(away)
    read_again_if_changed(importer, settled(away))
    assert not knows(importer, "old")
    away.rename(archive)
    read_again_if_changed(importer, settled(archive))
    assert knows(importer, "old")


def test_an_archive_that_has_just_changed_is_read_every_time(
    importer: zipimport.zipimporter, archive: Path
) -> None:
    """Two changes may fall into one tick of the file system's clock."""

    def ask_again() -> None:
        read_again_if_changed(importer, after(archive, SETTLED_SECONDS - 0.001))
        assert not knows(importer, "new")

    assert [str(archive) in opened_by(ask_again) for _ in range(3)] == [True, True, True]


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None, str], None]:
    """Makes this process look like one that runs this main module, with this PySpark."""
    monkeypatch.setattr(zipimport.zipimporter, "invalidate_caches", PYTHONS_OWN)
    monkeypatch.delenv(TURNED_OFF_BY, raising=False)

    def become(main: str | None, version: str) -> None:
        program, pyspark = ModuleType("__main__"), ModuleType("pyspark")
        program.__spec__ = None if main is None else ModuleSpec(main, None)
        pyspark.__version__ = version  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "__main__", program)
        monkeypatch.setitem(sys.modules, "pyspark", pyspark)

    return become


@pytest.mark.parametrize(
    ("main", "version", "installed"),
    [
        ("pyspark.daemon", "4.0.5", True),
        ("pyspark.daemon", "4.1.1", True),
        ("pyspark.worker", "4.2.0.dev3", True),
        ("pyspark.daemon", "4.3.0", False),
        ("pyspark.daemon", "5.0.0", False),
        (None, "4.1.1", False),
        ("pytest.__main__", "4.1.1", False),
    ],
)
def test_only_workers_of_a_spark_before_4_3_have_it(
    process: Callable[[str | None, str], None], main: str | None, version: str, installed: bool
) -> None:
    process(main, version)
    worker_imports.install()
    assert (zipimport.zipimporter.invalidate_caches is read_again_if_changed) == installed


def test_an_environment_variable_turns_it_off(
    process: Callable[[str | None, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    process("pyspark.daemon", "4.1.1")
    monkeypatch.setenv(TURNED_OFF_BY, "0")
    worker_imports.install()
    assert zipimport.zipimporter.invalidate_caches is PYTHONS_OWN
