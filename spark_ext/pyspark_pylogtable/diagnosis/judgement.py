"""From facts to checks: what differs between the driver and the workers, and what to do. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pylogtable.engine import DoctorCheck
from pyspark_pylogtable.diagnosis.facts import Facts

OK, WARNING, FAILED = "ok", "warning", "failed"

#: The oldest pyarrow that works.
OLDEST_PYARROW = (18,)
#: The package that opens a store, by the scheme of its address; and the variables that its client
#: takes credentials and endpoints from.
CLIENTS = {"s3": "s3fs", "gs": "gcsfs", "abfs": "adlfs"}
EXTRAS = {"s3fs": "s3", "gcsfs": "gcs", "adlfs": "azure"}
VARIABLES = {
    "s3": (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_PROFILE",
        "AWS_ROLE_ARN",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_ENDPOINT_URL",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
    ),
    "gs": ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT"),
    "abfs": (
        "AZURE_STORAGE_ACCOUNT_NAME",
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_CONNECTION_STRING",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_CLIENT_ID",
        "AZURE_CLIENT_SECRET",
        "AZURE_TENANT_ID",
        "AZURE_FEDERATED_TOKEN_FILE",
    ),
}
_FILE_SYSTEMS = {
    "s3": "hadoop-aws and spark.hadoop.fs.s3a.*",
    "gs": "Google's gcs-connector and spark.hadoop.fs.gs.*",
    "abfs": "hadoop-azure and spark.hadoop.fs.azure.*",
}
#: Of Unity Catalog, which gives credentials for every cloud.
CATALOG_VARIABLES = ("DATABRICKS_HOST", "DATABRICKS_TOKEN")
_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "az": "abfs"}

_INSTALL_ON_WORKERS = (
    "install it where the workers run (an image, a library of the cluster), or ship it: see "
    "'Install' in the Spark guide"
)
_SAME_PYTHON = (
    "set PYSPARK_PYTHON, or spark.pyspark.python, to a Python {version} that every machine has, "
    "and start the session anew"
)
#: Errors of Spark by what is in them, and the way out.
_KNOWN_ERRORS = (
    ("PYTHON_VERSION_MISMATCH", _SAME_PYTHON.format(version="of the driver's version")),
    ("Cannot run program", _SAME_PYTHON.format(version="of the driver's version")),
    (r"No module named 'py(spark_py)?logtable", f"pylogtable: {_INSTALL_ON_WORKERS}"),
    ("No module named '(pyarrow|pandas)", f"pyarrow and pandas: {_INSTALL_ON_WORKERS}"),
    (
        "DATA_SOURCE_NOT_FOUND",
        "call pyspark_pylogtable.register(spark) if the package came with the job, or pip install "
        "pylogtable where Spark's driver or server runs",
    ),
    ("no answer in", "see whether the cluster has executors, and room for one more task"),
)


def scheme_of(url: str | None) -> str:
    """The scheme of a store on a cloud, in the form of `CLIENTS`; empty if it is none."""
    scheme = (url or "").partition(":")[0].lower()
    scheme = _SCHEMES.get(scheme, scheme)
    return scheme if scheme in CLIENTS else ""


def packages_to_ask_for(scheme: str) -> tuple[str, ...]:
    """The packages that reads and writes need, with a store of this scheme."""
    needed = ("pyspark", "pyarrow", "pandas", "pylogtable")
    return (*needed, CLIENTS[scheme]) if scheme else needed


def variables_to_ask_for(scheme: str) -> tuple[str, ...]:
    """The variables that a store of this scheme may be opened with."""
    return (*VARIABLES[scheme], *CATALOG_VARIABLES) if scheme else ()


def reason(error: BaseException) -> str:
    """One line of an error. Of Spark's pages, it is the last line that names an exception of
    Python, or else the first that says something."""
    lines = [line.strip(": \t") for line in str(error).partition("JVM stacktrace")[0].splitlines()]
    told = [line for line in lines if line and not line.startswith("An error occurred while")]
    named = [line for line in told if re.match(r"[A-Za-z_][\w.]*(Error|Exception): \S", line)]
    of_python = [line for line in named if not line.startswith(("org.", "java."))]
    chosen = (of_python or told or [type(error).__name__])[-1 if of_python else 0]
    return chosen if len(chosen) <= 400 else f"{chosen[:400]} …"


def advice_for(error: BaseException) -> str:
    """What to do about an error of Spark; empty if that is not known."""
    found = (advice for words, advice in _KNOWN_ERRORS if re.search(words, str(error)))
    return next(found, "")


def judge_workers(workers: Sequence[Facts]) -> DoctorCheck:
    """How many there were."""
    processes = {(facts["machine"], facts["process"]) for facts in workers}
    machines = {facts["machine"] for facts in workers}
    return DoctorCheck(
        "workers",
        OK,
        f"{len(workers)} tasks ran in {len(processes)} Python process(es) on {len(machines)} "
        "machine(s)",
    )


def judge_python(here: str, driver: Facts, workers: Sequence[Facts]) -> DoctorCheck:
    """Whether all have the same Python, but for the last digit."""
    others = sorted({facts["python"] for facts in workers})
    where = sorted({facts["executable"] for facts in workers})
    found = (
        f"{driver['python']} on the {here}, {', '.join(others)} on the workers ({', '.join(where)})"
    )
    if {_minor(version) for version in others} != {_minor(driver["python"])}:
        advice = _SAME_PYTHON.format(version=_minor(driver["python"]))
        return DoctorCheck("python", FAILED, found, advice)
    return DoctorCheck("python", OK, found)


def judge_package(name: str, here: str, driver: Facts, workers: Sequence[Facts]) -> DoctorCheck:
    """Whether a package is on the driver and on all workers, in one version."""
    mine, others = driver["packages"][name], [facts["packages"][name] for facts in workers]
    found = f"{_told([mine])} on the {here}, {_told(others)} on the workers"
    if name == "pandas" and None in (mine, *others):
        return DoctorCheck(name, WARNING, found, f"LogTable.append needs it: {_install(name)}")
    if mine is None:
        return DoctorCheck(name, FAILED, found, f"on the {here}: {_install(name)}")
    if None in others:
        advice = f"{_install(name)}; {_INSTALL_ON_WORKERS}"
        return DoctorCheck(name, FAILED, found, advice)
    broken = [version for version in (mine, *others) if version and version.startswith("!")]
    if broken:
        return DoctorCheck(name, FAILED, found, f"mend the installation: {broken[0][1:]}")
    if name == "pyarrow" and any(_number(v) < OLDEST_PYARROW for v in (mine, *others)):
        oldest = ".".join(map(str, OLDEST_PYARROW))
        return DoctorCheck(name, FAILED, found, f"use pyarrow {oldest} or newer")
    if name != "pandas" and {mine} != set(others):
        advice = f"use one version of {name} on the {here} and on the workers"
        return DoctorCheck(name, FAILED if name == "pylogtable" else WARNING, found, advice)
    return DoctorCheck(name, OK, found)


def judge_variables(
    here: str, driver: Facts, workers: Sequence[Facts], *, has_options: bool
) -> DoctorCheck:
    """Whether the workers have the variables of the driver. Only names are shown."""
    mine = ", ".join(sorted(driver["variables"])) or "none"
    theirs = sorted({name for facts in workers for name in facts["variables"]})
    options = "storage_options are given; " if has_options else ""
    found = (
        f"{options}variables on the {here}: {mine}; on the workers: {', '.join(theirs) or 'none'}"
    )
    if missing := missing_variables(driver, workers):
        return DoctorCheck("credentials", WARNING, found, variables_advice(missing))
    return DoctorCheck("credentials", OK, found)


def missing_variables(driver: Facts, workers: Sequence[Facts]) -> list[str]:
    """The variables that the driver has and some worker does not."""
    mine = driver["variables"]
    return [n for n in mine if not all(n in facts["variables"] for facts in workers)]


def variables_advice(names: Iterable[str]) -> str:
    """How the workers get these variables."""
    confs = " ".join(f"--conf spark.executorEnv.{name}=…" for name in sorted(names))
    return (
        f"give them to the workers: {confs}; where spark.executorEnv is refused, as on Databricks, "
        "set them as environment variables of the compute; or pass storage_options; or use a role "
        "of the machines"
    )


def judge_tasks(
    name: str, checks: Sequence[DoctorCheck], driver_passed: bool, missing: Iterable[str]
) -> DoctorCheck:
    """One check of several tasks: the worst of them. If only the workers fail, it is about what
    they do not have."""
    worst = max(checks, key=lambda check: (OK, WARNING, FAILED).index(check.status))
    alike = sum(check.status == worst.status for check in checks)
    share = "" if alike == len(checks) else f" (in {alike} of {len(checks)} tasks)"
    advice = worst.advice
    names = list(missing)
    if worst.status == FAILED and driver_passed and names:
        advice = f"{variables_advice(names)}; or {advice}" if advice else variables_advice(names)
    return DoctorCheck(f"workers: {name}", worst.status, f"{worst.detail}{share}", advice)


def judge_native(scheme: str, why: str) -> DoctorCheck:
    """Rows came, but through Python: Spark itself has no file system for the store."""
    needed = _FILE_SYSTEMS.get(scheme, "a file system for this store")
    return DoctorCheck(
        "native read",
        WARNING,
        why,
        "LogTable.to_df reads through Python, which is slower; Spark's own Parquet reader needs "
        f"{needed}",
    )


def judge_race(winners: int, tasks: int) -> DoctorCheck:
    """Whether at most one task created the same object."""
    if winners > 1:
        return DoctorCheck(
            "workers: race",
            FAILED,
            f"{winners} of {tasks} tasks created the same object",
            "use a store that honours conditional puts: on this one, writers would overwrite each "
            "other's commits",
        )
    return DoctorCheck("workers: race", OK, f"one of {tasks} tasks created the object, no other")


def _install(name: str) -> str:
    if name in EXTRAS:
        return f"pip install 'pylogtable[{EXTRAS[name]}]'"
    return f"pip install {name}"


def _told(versions: Sequence[str | None]) -> str:
    shown = {"missing" if v is None else "broken" if v.startswith("!") else v for v in versions}
    return ", ".join(sorted(shown))


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _number(version: str | None) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version or "")[:2])
