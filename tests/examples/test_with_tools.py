"""The examples, checked and run by the tools they are for. `make test-examples` brings these."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pylogtable import Topic
from tests.documents import ROOT
from tests.examples.commands import EXAMPLES, STORE, jobs_of_databricks, steps_of_emr
from tests.examples.programs import run

SYSTEMD = shutil.which("systemd-analyze")


@pytest.mark.skipif(SYSTEMD is None, reason="no systemd-analyze here")
@pytest.mark.parametrize("wrong", [None, "TimeoutStopSec", "SystemCallFilter", "ExecStart"])
def test_systemd_knows_every_line_of_the_unit(wrong: str | None, tmp_path: Path) -> None:
    program = tmp_path / "opt" / "pylogtable" / "bin" / "pylogtable"
    units = tmp_path / "etc" / "systemd" / "system"
    for folder in (program.parent, units):
        folder.mkdir(parents=True)
    program.touch(0o755)
    unit = (EXAMPLES / "pylogtable-run.service").read_text()
    if wrong is not None:
        assert f"\n{wrong}=" in unit
        unit = unit.replace(f"\n{wrong}=", f"\n{wrong}=/no/such/")
    (units / "pylogtable-run.service").write_text(unit)
    command = ["verify", "--man=no", "--recursive-errors=no", f"--root={tmp_path}"]
    done = subprocess.run(
        [str(SYSTEMD), *command, "pylogtable-run.service"],
        capture_output=True,
        text=True,
        check=False,
    )
    said = (done.stdout + done.stderr).strip()
    assert (said == "" and done.returncode == 0) == (wrong is None), said


def test_hadolint_finds_nothing_in_the_dockerfile(tools: Path) -> None:
    run(tools / "hadolint", EXAMPLES / "Dockerfile")


def test_kubernetes_knows_every_field(tools: Path, tmp_path: Path) -> None:
    """The oldest version of which the tool has a schema, and the newest."""
    file = EXAMPLES / "kubernetes.yaml"
    command = (tools / "kubernetes-validate", "--strict")
    assert run(*command, file).count(" passed ") == 3
    assert run(*command, "-k", "1.25", file).count(" passed ") == 3
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(file.read_text().replace("readinessProbe", "readynessProbe"))
    with pytest.raises(AssertionError, match="readynessProbe"):
        run(*command, wrong)


def test_databricks_knows_every_field_of_the_jobs(tools: Path) -> None:
    """In the classes of its own package for bundles, which refuse what they do not know."""
    check = (
        "import json, sys; from databricks.bundles.jobs import Job\n"
        "for job in json.loads(sys.argv[1]): Job.from_dict(job)"
    )
    jobs = list(jobs_of_databricks().values())
    run(tools / "python", "-c", check, json.dumps(jobs))
    with pytest.raises(AssertionError, match="Unexpected field 'taks'"):
        run(tools / "python", "-c", check, json.dumps([{**jobs[0], "taks": []}]))


def test_the_dag_maintains_a_store(tools: Path, topic: Topic, tmp_path: Path) -> None:
    airflow = {
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(EXAMPLES),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        # pylogtable is not in the environment of Airflow.
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
        "PYTHONPATH": "",
    }
    run(tools / "airflow", "db", "migrate", **airflow)
    conf = json.dumps({"store": topic.url.rpartition("/")[0]})
    said = run(
        *(tools / "airflow", "dags", "test", "pylogtable_maintain", "--conf", conf), **airflow
    )
    assert topic.start_offsets() == {0: 1}, said


def test_the_step_runs_with_spark_submit(topic: Topic, tmp_path: Path) -> None:
    """On the local disk and a local Spark, as the user of EMR's `command-runner.jar` would."""
    binaries = Path(sys.executable).parent
    ((*line, store, _, _),) = (step["HadoopJarStep"]["Args"] for step in steps_of_emr())
    assert store == STORE
    environment = {
        "PATH": os.pathsep.join((str(binaries), os.environ["PATH"])),
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "spark_ext"))),
    }
    said = run(*line, topic.url.rpartition("/")[0], "--output", "json", **environment)
    assert topic.start_offsets() == {0: 1}, said
