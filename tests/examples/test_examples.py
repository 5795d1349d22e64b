"""The examples call commands and options that exist, and their files agree with each other."""

from __future__ import annotations

import importlib
import re

import botocore.session
import click
import pytest
from botocore.validate import ParamValidator

from pylogtable.cli.app import app
from tests.documents import ROOT, read, table
from tests.examples.commands import (
    EXAMPLES,
    STORE,
    commands,
    dockerfile,
    jobs_of_databricks,
    objects_of_kubernetes,
    pods,
    service,
    steps_of_emr,
)

#: Entry points of the wheel, by name: module and function.
SCRIPTS = dict(re.findall(r'^([\w-]+) = "([\w.]+):main"$', read("pyproject.toml"), re.MULTILINE))
COMMANDS = dict(commands())


def parse(name: str, arguments: list[str]) -> None:
    """Raises if the program does not take these arguments."""
    if name != "pylogtable":
        importlib.import_module(SCRIPTS[name])._parser().parse_args(arguments)
        return
    with click.Context(app) as context:
        command = app.get_command(context, arguments[0])
        assert command is not None, f"there is no command {arguments[0]!r}"
        command.make_context(arguments[0], list(arguments[1:]), parent=context)


@pytest.mark.parametrize("place", COMMANDS)
def test_command_of_an_example_exists_and_takes_its_options(place: str) -> None:
    parse(COMMANDS[place][0], COMMANDS[place][1:])


@pytest.mark.parametrize("name", ["pylogtable maintain", "pylogtable-maintain-job"])
def test_an_option_that_does_not_exist_is_noticed(name: str) -> None:
    program, *arguments = name.split()
    with pytest.raises((click.UsageError, SystemExit)):
        parse(program, [*arguments, STORE, "--wrong"])


def test_every_example_is_in_the_table_of_the_readme() -> None:
    rows = list(table(read("examples/README.md")))
    named = [re.findall(r"\]\(([^)]+)\)", cells[0])[0] for cells in rows]
    files = {path.name for path in EXAMPLES.iterdir() if path.is_file()}
    assert sorted(named) == sorted(files - {"README.md"})
    assert all(cell for cells in rows for cell in cells)


def test_what_asks_for_the_metrics_knows_their_port() -> None:
    run = COMMANDS["Deployment"]
    port = run[run.index("--metrics-port") + 1]
    pod = pods()["Deployment"]
    (container,) = pod["spec"]["containers"]
    (named,) = container["ports"]
    assert pod["metadata"]["annotations"]["prometheus.io/port"] == port
    assert str(named["containerPort"]) == port == dockerfile()["EXPOSE"]
    assert container["readinessProbe"]["httpGet"] == {
        "path": pod["metadata"]["annotations"]["prometheus.io/path"],
        "port": named["name"],
    }
    assert container["livenessProbe"]["tcpSocket"] == {"port": named["name"]}


@pytest.mark.parametrize("kind", ["Deployment", "CronJob"])
def test_pods_run_as_the_user_of_the_image_and_may_do_nothing_else(kind: str) -> None:
    spec = pods()[kind]["spec"]
    user = spec["securityContext"]
    assert user["runAsNonRoot"]
    assert f"{user['runAsUser']}:{user['runAsGroup']}" == dockerfile()["USER"]
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert set(container["resources"]["requests"]) == {"cpu", "memory"}
    assert "memory" in container["resources"]["limits"]
    accounts = objects_of_kubernetes()["ServiceAccount"]["metadata"]["name"]
    assert spec["serviceAccountName"] == accounts


def test_sigterm_reaches_the_program_which_has_time_to_end() -> None:
    assert dockerfile()["ENTRYPOINT"].startswith("[")  # no shell in between
    for pod in pods().values():
        assert pod["spec"]["terminationGracePeriodSeconds"] >= 60
    unit = service()
    assert unit["TimeoutStopSec"] == "5min"
    assert unit["SuccessExitStatus"] == "143"
    assert "KillSignal" not in unit  # SIGTERM is the default


def test_the_image_is_made_of_files_that_exist() -> None:
    text = (EXAMPLES / "Dockerfile").read_text()
    copied = [line.split()[1:-1] for line in text.splitlines() if re.match(r"COPY (?!--)", line)]
    assert copied
    for name in (name for names in copied for name in names):
        assert (ROOT / name).exists(), name
    extras = re.findall(r"'/src\[([\w,]+)\]'", text)[0].split(",")
    assert set(extras) <= set(re.findall(r"^(\w+) = \[", read("pyproject.toml"), re.MULTILINE))


def test_jobs_of_databricks_run_entry_points_of_the_wheel() -> None:
    for job in jobs_of_databricks().values():
        (task,) = job["tasks"]
        assert task["python_wheel_task"]["package_name"] == "pylogtable"
        assert task["python_wheel_task"]["entry_point"] in SCRIPTS


def test_steps_have_the_form_that_emr_takes() -> None:
    service = botocore.session.get_session().get_service_model("emr")
    shape = service.operation_model("AddJobFlowSteps").input_shape
    given = {"JobFlowId": "j-1", "Steps": steps_of_emr()}
    assert ParamValidator().validate(given, shape).generate_report() == ""
    assert "Unknown parameter" in (
        ParamValidator()
        .validate({**given, "Steps": [{**steps_of_emr()[0], "Jar": "x"}]}, shape)
        .generate_report()
    )
