"""The image is built, and runs as Docker, Kubernetes and systemd run it, on a local folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pylogtable import Topic
from tests.documents import ROOT
from tests.examples.commands import EXAMPLES, STORE, dockerfile, pods
from tests.examples.programs import run, until

IMAGE = "localhost/pylogtable-examples"
NAME = "pylogtable-examples"
TERMINATED = "143"
ON_SYSTEMD = f"""
FROM {IMAGE}
USER root
RUN apt-get update -q && apt-get install -y -q --no-install-recommends systemd systemd-sysv
COPY pylogtable-run.service /etc/systemd/system/
COPY run.env /etc/pylogtable/
COPY local_disk.conf /etc/systemd/system/pylogtable-run.service.d/
RUN systemctl enable pylogtable-run
ENTRYPOINT []
CMD ["/sbin/init"]
"""


@pytest.fixture(scope="module")
def image(podman: str) -> str:
    base = os.environ.get("PYLOGTABLE_BASE_IMAGE")
    given = ["--build-arg", f"BASE={base}"] if base else []
    run(podman, "build", "-q", *given, "-f", EXAMPLES / "Dockerfile", "-t", IMAGE, ROOT)
    return IMAGE


@pytest.fixture
def logs(topic: Topic) -> Path:
    """The folder of the store, in which everybody may write, as the user of the image has to."""
    folder = Path(topic.url.removeprefix("file://")).parent
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    return folder


@pytest.fixture
def container(podman: str) -> Iterator[str]:
    """A name for a container, which is removed in the end."""
    yield NAME
    run(podman, "rm", "--force", "--ignore", "--time", "0", NAME)


def looked_after(podman: str, container: str, topic: Topic) -> bool:
    """True once retention has removed the record. Fails if the container has ended."""
    what = ("inspect", "--format", "{{.State.Running}}", container)
    assert run(podman, *what).strip() == "true", run(podman, "logs", container)
    return topic.start_offsets() == {0: 1}


def metrics_in(podman: str, container: str) -> str:
    """What Prometheus would get of the process in there."""
    fetch = "import urllib.request as r; print(r.urlopen('http://localhost:9464/metrics').read())"
    return run(podman, "exec", container, "/opt/pylogtable/bin/python", "-c", fetch)


def test_the_image_looks_after_a_store_until_sigterm(
    podman: str, image: str, topic: Topic, logs: Path, container: str
) -> None:
    given = ["--env", "PYLOGTABLE_STORE=/logs", "--volume", f"{logs}:/logs"]
    run(podman, "run", "--detach", "--name", container, *given, image)
    until(lambda: looked_after(podman, container, topic))
    assert "pylogtable_topic_partitions" in metrics_in(podman, container)
    run(podman, "stop", "--time", "120", container)
    said = run(podman, "logs", container)
    assert "Traceback" not in said
    assert run(podman, "inspect", "--format", "{{.State.ExitCode}}", container).strip() == (
        TERMINATED
    ), said


@pytest.fixture
def play(podman: str, image: str, logs: Path, tmp_path: Path) -> Iterator[Any]:
    """Starts the pod of an object of `kubernetes.yaml`, as podman can. It has no service accounts,
    and its probes are not those of Kubernetes."""
    file = tmp_path / "pod.yaml"

    def start(kind: str) -> str:
        template = pods()[kind]
        (container,) = template["spec"]["containers"]
        for name in ("readinessProbe", "livenessProbe"):
            container.pop(name, None)
        container["image"] = f"{image}:latest"
        container["args"] = ["/logs" if word == STORE else word for word in container["args"]]
        container["volumeMounts"].append({"name": "logs", "mountPath": "/logs"})
        template["spec"]["volumes"].append({"name": "logs", "hostPath": {"path": str(logs)}})
        pod = {"apiVersion": "v1", "kind": "Pod", **template}
        pod["metadata"] = {**template.get("metadata", {}), "name": NAME}
        file.write_text(yaml.safe_dump(pod))
        run(podman, "kube", "play", file)
        return f"{NAME}-{container['name']}"

    yield start
    if file.exists():
        run(podman, "kube", "play", "--down", file)


def test_pod_of_the_deployment_looks_after_a_store_until_sigterm(
    podman: str, topic: Topic, play: Any
) -> None:
    container = play("Deployment")
    until(lambda: looked_after(podman, container, topic))
    assert "pylogtable_topic_partitions" in metrics_in(podman, container)
    what = "{{.Config.User}} {{.HostConfig.ReadonlyRootfs}} {{.EffectiveCaps}}"
    assert run(podman, "inspect", "--format", what, container).split() == [
        dockerfile()["USER"],
        "true",
        "[]",
    ]
    run(podman, "pod", "stop", "--time", "120", NAME)
    status = run(podman, "inspect", "--format", "{{.State.ExitCode}}", container).strip()
    assert status == TERMINATED, run(podman, "logs", container)


def test_pod_of_the_cron_job_maintains_a_store(podman: str, topic: Topic, play: Any) -> None:
    container = play("CronJob")
    assert run(podman, "wait", container).strip() == "0", run(podman, "logs", container)
    assert topic.start_offsets() == {0: 1}


def test_systemd_starts_the_unit_and_ends_it(
    podman: str, image: str, topic: Topic, logs: Path, container: str, tmp_path: Path
) -> None:
    folder = tmp_path / "image"
    folder.mkdir()
    shutil.copy(EXAMPLES / "pylogtable-run.service", folder)
    (folder / "run.env").write_text("PYLOGTABLE_STORE=/logs\n")
    (folder / "local_disk.conf").write_text("[Service]\nReadWritePaths=/logs\n")
    (folder / "Dockerfile").write_text(ON_SYSTEMD)
    run(podman, "build", "-q", "-t", f"{IMAGE}-systemd", folder)
    given = ["--privileged", "--systemd=always", "--volume", f"{logs}:/logs"]
    run(podman, "run", "--detach", "--name", container, *given, f"{IMAGE}-systemd")
    until(lambda: looked_after(podman, container, topic))
    assert "pylogtable_topic_partitions" in metrics_in(podman, container)
    run(podman, "exec", container, "systemctl", "stop", "pylogtable-run")
    show = ("show", "pylogtable-run", "--property=ActiveState,Result,ExecMainStatus")
    shown = run(podman, "exec", container, "systemctl", *show).split()
    assert sorted(shown) == [
        "ActiveState=inactive",
        f"ExecMainStatus={TERMINATED}",
        "Result=success",
    ]
