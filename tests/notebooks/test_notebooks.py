"""The notebooks run from top to bottom, and are kept without what they showed."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

#: Notebooks about a platform, and the session that is like it.
PLATFORMS = {
    "databricks_serverless": {"SPARK_REMOTE": "local[2]"},
    "emr": {"PYSPARK_SUBMIT_ARGS": "--master local-cluster[2,1,1024] pyspark-shell"},
}
NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


class ThisPython(AsyncKernelManager):
    """A kernel of the Python that runs the tests, whatever kernels are installed."""

    @property
    def kernel_spec(self) -> KernelSpec:
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=command, display_name="tests", language="python")


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def test_there_is_a_quickstart() -> None:
    assert "quickstart.ipynb" in [path.name for path in NOTEBOOKS]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_stored_without_outputs(path: Path) -> None:
    for cell in read(path).cells:
        assert not cell.get("outputs"), cell.source
        assert cell.get("execution_count") is None, cell.source


def test_notebooks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other in one kernel, which starts one JVM for all; each in a folder of its own
    and without the names of the one before it."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    notebooks = {path.stem: read(path) for path in NOTEBOOKS}
    run = nbformat.v4.new_notebook()
    for name, notebook in notebooks.items():
        (tmp_path / name).mkdir()
        fresh = f"%reset -f\n%cd {tmp_path / name}"
        run.cells += [nbformat.v4.new_code_cell(fresh), *notebook.cells]
    client = NotebookClient(
        run,
        timeout=600,
        kernel_manager_class=ThisPython,
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()
    ran = [cell for cell in run.cells if cell.cell_type == "code" and cell.source.strip()]
    assert all(cell.execution_count for cell in ran)
    assert has_a_picture(notebooks["quickstart"])
    assert has_a_picture(notebooks["published_tables"])


@pytest.mark.deep
@pytest.mark.parametrize("name", list(PLATFORMS))
def test_notebook_of_a_platform_runs_where_it_is_emulated(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above runs it in the session of the other notebooks."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    for variable, value in PLATFORMS[name].items():
        monkeypatch.setenv(variable, value)
    (path,) = (path for path in NOTEBOOKS if path.stem == name)
    notebook = read(path)
    client = NotebookClient(
        notebook,
        timeout=600,
        kernel_manager_class=ThisPython,
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()
    shown = str([cell.get("outputs") for cell in notebook.cells])
    assert ("Spark Connect" in shown) == (name == "databricks_serverless")
    assert "works in this Spark session" in shown


def has_a_picture(notebook: nbformat.NotebookNode) -> bool:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return any("image/png" in output.get("data", {}) for output in outputs)
