"""`format("pylogtable")` works after `pip install`, and the package never disturbs Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import pyspark_pylogtable
from pylogtable import Store
from tests.builders import kafka


def run(code: str) -> dict[str, object]:
    """The JSON that this code prints in a fresh Python process."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        cwd="/",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_spark_finds_the_source_by_itself(spark: SparkSession, logs: Store, tmp_path: Path) -> None:
    """No other test of this session registers the source. A fresh driver: test_write_faults.py."""
    logs.create_topic("t").append(kafka(["a"]))
    for session in (spark, spark.newSession()):
        assert session.read.format("pylogtable").load(str(tmp_path / "logs" / "t")).count() == 1


def test_spark_finds_the_source_in_a_fresh_process() -> None:
    """As `pyspark.sql.worker.lookup_data_sources` does, in a fresh process."""
    found = run(
        "import json\n"
        "from importlib import import_module\n"
        "from pkgutil import iter_modules\n"
        "from pyspark.sql.datasource import DataSource\n"
        "names = [m.name for m in iter_modules() if m.name.startswith('pyspark_')]\n"
        "module = import_module('pyspark_pylogtable')\n"
        "source = module.DefaultSource\n"
        "print(json.dumps({'names': names, 'is': issubclass(source, DataSource),"
        " 'name': source.name(), 'home': source.__module__}))"
    )
    assert "pyspark_pylogtable" in found["names"]  # type: ignore[operator]
    assert (found["is"], found["name"]) == (True, "pylogtable")
    assert found["home"] == "pyspark_pylogtable.source"


def test_register_may_be_called_at_any_time(
    spark: SparkSession, logs: Store, tmp_path: Path
) -> None:
    logs.create_topic("t").append(kafka(["a"]))
    other = spark.newSession()
    for session in (other, other, spark.newSession()):
        pyspark_pylogtable.register(session)
        assert session.read.format("pylogtable").load(str(tmp_path / "logs" / "t")).count() == 1


def test_importing_the_package_imports_nothing_large() -> None:
    found = run(
        "import json, sys\n"
        "import pyspark_pylogtable\n"
        "large = [n for n in ('pyarrow', 'fsspec', 'pyspark', 'numpy', 'pylogtable')"
        " if n in sys.modules]\n"
        "print(json.dumps({'large': large}))"
    )
    assert found["large"] == []


def test_source_discovery_does_not_import_arrow() -> None:
    """Spark imports it in every session that uses a format which Spark does not know."""
    found = run(
        "import json, sys\n"
        "import pyspark.sql.datasource\n"
        "before = set(sys.modules)\n"
        "from pyspark_pylogtable import DefaultSource\n"
        "added = set(sys.modules) - before\n"
        "print(json.dumps({'large': sorted(n for n in added"
        " if n in ('fsspec', 'pylogtable', 'msgspec', 's3fs'))}))"
    )
    assert found["large"] == []


def test_without_pyspark_the_package_imports_and_names_what_is_missing() -> None:
    found = run(
        "import json, sys\n"
        "sys.modules['pyspark'] = None\n"
        "import pyspark_pylogtable as module\n"
        "said = {}\n"
        "for name in ('LogTable', 'register'):\n"
        "    try:\n"
        "        exec(f'from pyspark_pylogtable import {name}')\n"
        "    except ImportError as error:\n"
        "        said[name] = str(error)\n"
        "print(json.dumps({'source': hasattr(module, 'DefaultSource'), **said}))"
    )
    assert found["source"] is False
    for name in ("LogTable", "register"):
        assert f"pyspark_pylogtable.{name} needs PySpark 4.0 or newer" in str(found[name])
        assert "has no PySpark: pip install 'pylogtable[spark]'" in str(found[name])
        assert "install pylogtable without that extra" in str(found[name])


@pytest.mark.parametrize(
    ("version", "imports", "expected"),
    [
        ("3.5.1", "", "has PySpark 3.5.1, which has no Python data sources"),
        ("4.1.1", "import no_grpc", "has PySpark 4.1.1, and lacks no_grpc: pip install no_grpc"),
        ("4.1.1", "", "has PySpark 4.1.1, and cannot import what is needed"),
    ],
)
def test_a_pyspark_that_does_not_fit_is_named(
    tmp_path: Path, version: str, imports: str, expected: str
) -> None:
    """The package imports all the same: otherwise Spark would find no source of anybody."""
    (tmp_path / "pyspark" / "sql").mkdir(parents=True)
    (tmp_path / "pyspark" / "__init__.py").write_text(f"__version__ = {version!r}\n")
    (tmp_path / "pyspark" / "sql" / "__init__.py").write_text(imports)
    found = run(
        "import json, sys\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "import pyspark_pylogtable as module\n"
        "try:\n"
        "    from pyspark_pylogtable import LogTable\n"
        "except ImportError as error:\n"
        "    said = str(error)\n"
        "print(json.dumps({'source': hasattr(module, 'DefaultSource'), 'said': said}))"
    )
    assert found["source"] is False
    assert expected in str(found["said"])


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Logtable'"):
        pyspark_pylogtable.Logtable  # noqa: B018
