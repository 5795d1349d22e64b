"""The recipes of the guide that ship pylogtable with a job run as they stand.

They run on a real cluster whose Python has no pylogtable. The guide's table says what each does."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.processes import PATIENCE_SECONDS, Cluster
from tests.conftest import S3_BUCKET, S3_KEY, S3_SECRET
from tests.documents import code, read, section, table

GUIDE = "spark_ext/README.md"
HEADING = "### Ship it with the job"
# By its place: a client without Java may have no folder of programs at all.
BASH = shutil.which("bash") or "/bin/bash"
STEPS = ("write", "read", "sql", "stream", "table")


@pytest.fixture(scope="session")
def guide() -> str:
    return section(read(GUIDE), HEADING)


@pytest.fixture(scope="session")
def built(cluster: Cluster, checkout: Path, guide: str) -> Path:
    """The checkout after the commands that build the wheel, the zip and the archive."""
    run(commands(guide, "build"), checkout, cluster.variables(with_needed=False))
    return checkout


def commands(guide: str, name: str) -> str:
    (found,) = (body for note, body in code(guide, "sh") if note == f"cluster {name}")
    return found


def promised(guide: str, name: str) -> dict[str, str]:
    """The guide's row of a recipe: what it says of each step."""
    (cells,) = (cells for cells in table(guide) if f"({name})" in cells[0])
    return dict(zip(STEPS, cells[1:], strict=True))


def run(script: str, folder: Path, variables: dict[str, str]) -> dict[str, str]:
    """What the job in the script found."""
    done = subprocess.run(
        [BASH, "-euc", script],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    found: dict[str, str] = json.loads(lines[-1].removeprefix("FOUND ")) if lines else {}
    return found


def assert_as_promised(found: dict[str, str], row: dict[str, str]) -> None:
    for step, says in row.items():
        if says == "works":
            assert found[step] == "works", f"{step}: {found[step][-1500:]}"
        else:
            assert says.strip("`") in found[step], f"{step}: {found[step][-1500:]}"


def job(folder: Path, name: str, **more: Any) -> None:
    """`job.py` of the guide's commands, with the path of a topic of its own."""
    text = f"import runpy, sys\nsys.argv[1:] = [{str(folder / name / 'orders')!r}]\n"
    source = Path(__file__).with_name("job.py")
    text += f"runpy.run_path({str(source)!r}, run_name='__main__')\n"
    (folder / "job.py").write_text(text)


@pytest.mark.parametrize(
    ("name", "registers", "with_needed"),
    [
        ("wheel", True, True),
        ("zip", True, True),
        ("zip on the path", False, True),
        ("archive", False, False),
    ],
)
def test_submitted_job_does_what_the_guide_says(
    cluster: Cluster, built: Path, guide: str, name: str, registers: bool, with_needed: bool
) -> None:
    job(built, name)
    more = {"REGISTER": "1"} if registers else {}
    found = run(commands(guide, name), built, cluster.variables(with_needed=with_needed, **more))
    assert_as_promised(found, promised(guide, name))
    assert found["second session"] == "works"


def test_connect_client_without_a_jvm_does_what_the_guide_says(
    cluster: Cluster, connect: str, client: Path, built: Path, guide: str
) -> None:
    job(built, "connect")
    variables = cluster.variables(
        with_needed=True, CONNECT=connect, ARTIFACT="pylogtable.zip", REGISTER="1"
    )
    for name in ("SPARK_HOME", "JAVA_HOME", "SPARK_CONF_DIR"):
        variables.pop(name, None)
    without_java = [
        folder for folder in variables["PATH"].split(":") if not Path(folder, "java").exists()
    ]
    variables["PATH"] = ":".join([str(client.parent), *without_java])
    assert shutil.which("java", path=variables["PATH"]) is None
    found = run(f"{client} job.py", built, variables)
    assert_as_promised(found, promised(guide, "connect"))


def test_executors_without_the_drivers_variables_say_which(
    cluster: Cluster, built: Path, s3_endpoint: str
) -> None:
    """One error that names them, and the topic that stays."""
    source = Path(__file__).with_name("job.py")
    own = {"AWS_ACCESS_KEY_ID": S3_KEY, "AWS_SECRET_ACCESS_KEY": S3_SECRET}
    both = {"AWS_ENDPOINT_URL": s3_endpoint, "AWS_EC2_METADATA_DISABLED": "true"}
    executors = " ".join(f"--conf spark.executorEnv.{name}={both[name]}" for name in both)
    found = run(
        f"spark-submit --py-files pylogtable.zip {executors} {source} s3://{S3_BUCKET}/cluster/orders",
        built,
        cluster.variables(
            with_needed=True, STEPS="write", REGISTER="1", AWS_REGION="us-east-1", **own, **both
        ),
    )
    assert "The driver has AWS_ACCESS_KEY_ID, AWS_REGION, AWS_SECRET_ACCESS_KEY" in found["write"]
    assert "spark.executorEnv.<NAME>" in found["write"]
    assert "Topic 'orders' stays, without records" in found["write"]
    assert "During handling" not in found["write"]
