"""The command of each example, as the program would get it."""

from __future__ import annotations

import ast
import configparser
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.documents import ROOT

EXAMPLES = ROOT / "examples"
STORE = "s3://bucket/logs"


def objects_of_kubernetes() -> dict[str, Any]:
    """The objects by kind."""
    loaded = yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text())
    return {each["kind"]: each for each in loaded}


def pods() -> dict[str, Any]:
    """The templates of the pods, by the kind of the object that makes them."""
    objects = objects_of_kubernetes()
    return {
        "Deployment": objects["Deployment"]["spec"]["template"],
        "CronJob": objects["CronJob"]["spec"]["jobTemplate"]["spec"]["template"],
    }


def dockerfile() -> dict[str, str]:
    """The instructions of the last stage by name; the last one of each."""
    text = (EXAMPLES / "Dockerfile").read_text()
    lines = [line.partition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: rest for name, _, rest in lines if name}


def service() -> configparser.SectionProxy:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(EXAMPLES / "pylogtable-run.service")
    return unit["Service"]


def jobs_of_databricks() -> dict[str, Any]:
    """The jobs, with the variables at their defaults."""
    text = (EXAMPLES / "databricks.yml").read_text()
    for name, variable in yaml.safe_load(text)["variables"].items():
        text = text.replace("${var." + name + "}", variable["default"])
    found: dict[str, Any] = yaml.safe_load(text)["resources"]["jobs"]
    return found


def steps_of_emr() -> list[Any]:
    found: list[Any] = json.loads((EXAMPLES / "emr_steps.json").read_text())
    return found


def command_of_airflow() -> list[str]:
    tree = ast.parse((EXAMPLES / "airflow_dag.py").read_text())
    (line,) = (
        node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Constant)
    )
    return shlex.split(str(line))


def commands() -> Iterator[tuple[str, list[str]]]:
    """Where each command stands, and its words."""
    started = service()["ExecStart"].replace("${PYLOGTABLE_STORE}", STORE)
    program, *arguments = shlex.split(started)
    yield "systemd", [Path(program).name, *arguments]
    image = dockerfile()
    entry = json.loads(image["ENTRYPOINT"])
    yield "Docker", [*entry, *json.loads(image["CMD"])]
    for kind, pod in pods().items():
        yield kind, [*entry, *pod["spec"]["containers"][0]["args"]]
    yield "Airflow", command_of_airflow()
    for name, job in jobs_of_databricks().items():
        task = job["tasks"][0]["python_wheel_task"]
        yield f"Databricks {name}", [task["entry_point"], *task["parameters"]]
    for step in steps_of_emr():
        _, _, line, name, *arguments = step["HadoopJarStep"]["Args"]
        (module,) = re.findall(r"import (\S+) as job", line)
        assert name == "pylogtable-" + module.rpartition(".")[2].replace("_", "-")
        yield "EMR", [name, *arguments]
