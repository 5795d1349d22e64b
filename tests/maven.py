"""Fetches jars, and what else there is, from Maven Central."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CENTRAL = "https://repo1.maven.org/maven2"


class MavenUnreachable(Exception):
    """A jar cannot be fetched. The text names it and says why."""


def path_of(coordinate: str) -> str:
    """Where `group:artifact:version[:classifier][@extension]` is in a repository."""
    names, _, extension = coordinate.partition("@")
    group, artifact, version, *classifier = names.split(":")
    name = "-".join([artifact, version, *classifier])
    return f"{group.replace('.', '/')}/{artifact}/{version}/{name}.{extension or 'jar'}"


def fetch(coordinates: Iterable[str], folder: Path, repository: str = CENTRAL) -> list[Path]:
    """The jars in `folder`. Those that are missing there are fetched."""
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(4) as threads:
        return list(threads.map(lambda each: _fetch(each, folder, repository), coordinates))


def missing(coordinates: Iterable[str], folder: Path) -> list[str]:
    """Those jars that are not in `folder`."""
    return [each for each in coordinates if not (folder / Path(path_of(each)).name).exists()]


def _fetch(coordinate: str, folder: Path, repository: str) -> Path:
    url = f"{repository}/{path_of(coordinate)}"
    place = folder / url.rpartition("/")[2]
    if not place.exists():
        partial = place.with_suffix(".part")
        try:
            urllib.request.urlretrieve(url, partial)
        except OSError as error:
            raise MavenUnreachable(f"{url} cannot be fetched: {error}") from error
        partial.rename(place)
    return place
