"""A topic's records through Spark's own Parquet reader, over exactly the files of a snapshot.

Planning is pure: read tasks become *scans*, whose union is the result. Sealed segments that are
read whole share one plain scan, so that Spark's filters on `offset` reach Parquet. A segment that
is read in part gets a scan of its own with a filter on the stored offset, as long as there are few
of them. All others share one scan that looks up each file's shift in a literal table.

Measured with `count(*)` of 10 M rows in 306 shifted files: 1.0 s, the same as the plain scan. A
broadcast join on the file name took 3.1 s. A union of one scan per shift took 8 s for 72 files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pylogtable import View
from pylogtable.engine import ReadTask, Scan
from pyspark_pylogtable.columns import spark_schema

try:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
except ImportError:  # a Spark Connect client may not have it
    Py4JError = PySparkException

#: A scan costs at least one Spark task and about 45 ms of planning, so there are at most this many
#: for segments that are read in part.
MAX_CUT_SCANS = 16

_NO_END = 2**63 - 1
_LISTING_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_TABLE_TYPE = "array<map<string,struct<shift:bigint,low:bigint,high:bigint>>>"


class NativeUnavailable(Exception):
    """Spark itself cannot read these files; the message says why."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """The records of a file whose *stored* offsets are in `[low, high)`; None means no limit."""

    path: str
    size_bytes: int
    shift: int = 0
    low: int | None = None
    high: int | None = None

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def is_cut(self) -> bool:
        return self.low is not None or self.high is not None


@dataclass(frozen=True, slots=True)
class FileScan:
    """The files of one scan. `append_time` is their timestamp type."""

    parts: tuple[FilePart, ...]
    append_time: bool

    @property
    def uniform(self) -> FilePart | None:
        """One of the parts if all have the same shift and bounds; otherwise None."""
        first = self.parts[0]
        same = all(
            (part.shift, part.low, part.high) == (first.shift, first.low, first.high)
            for part in self.parts
        )
        return first if same else None


def plan_scans(tasks: Iterable[ReadTask], *, by_time_type: bool) -> tuple[FileScan, ...]:
    """The scans that read these tasks. With `by_time_type` each has a single timestamp type."""
    sealed: dict[bool, list[FilePart]] = {}
    looked_up: dict[bool, list[FilePart]] = {}
    cut: list[tuple[bool, FilePart]] = []
    for task in tasks:
        part = _part(task)
        append_time = by_time_type and task.segment.append_time
        if part.is_cut:
            cut.append((append_time, part))
        else:
            chosen = looked_up if part.shift else sealed
            chosen.setdefault(append_time, []).append(part)
    scans = [FileScan(tuple(parts), time) for time, parts in sealed.items()]
    if len(cut) <= MAX_CUT_SCANS:
        scans += [FileScan((part,), time) for time, part in cut]
    else:
        for time, part in cut:
            looked_up.setdefault(time, []).append(part)
    scans += [FileScan(tuple(parts), time) for time, parts in looked_up.items()]
    return tuple(scans)


def native_df(
    spark: SparkSession,
    view: View,
    tasks: Iterable[ReadTask],
    columns: Sequence[str],
    *,
    url: str | None = None,
) -> DataFrame:
    """The records of `tasks` with these columns, in no order.

    Raises `NativeUnavailable` if Spark cannot open the store. Spark analyses the plan here, so that
    this happens here and not in a later action. `url` is the address the user gave; it is tried
    first.
    """
    scans = plan_scans(tasks, by_time_type="timestampType" in columns)
    if not scans:
        return spark.createDataFrame([], spark_schema(Scan(view).reader(columns).schema))
    _check_names(view)
    reasons = []
    for root in roots(view.url, url):
        df = _union(spark, root, view, scans, columns)
        if isinstance(df, DataFrame):
            return df
        reasons.append(f"{root}: {_first_line(df)}")
    raise NativeUnavailable("; ".join(reasons) or f"{view.url} is not a store Spark can open")


def roots(topic_url: str, given: str | None) -> tuple[str, ...]:
    """The addresses under which Spark may open the directory at `topic_url`.

    The address that the user gave comes first: the user knows that its scheme works, and only it
    has the account of an Azure store. Hadoop takes paths literally, so nothing is quoted.
    """
    scheme, separator, place = topic_url.partition("://")
    if not separator or scheme == "file":
        local = f"file:{place or topic_url}"
        return (given, local) if given and given.startswith("dbfs:/") else (local,)
    if scheme == "memory":
        return ()
    schemes = [scheme, "s3a"] if scheme == "s3" else [scheme]
    addresses = [f"{name}://{place}" for name in schemes]
    if given and "://" in given:
        addresses.insert(0, given.rstrip("/"))
    return tuple(dict.fromkeys(addresses))


def _part(task: ReadTask) -> FilePart:
    segment = task.segment
    return FilePart(
        path=segment.path,
        size_bytes=segment.size_bytes,
        shift=segment.shift,
        low=task.start - segment.shift if task.start > segment.base_offset else None,
        high=task.end - segment.shift if task.end < segment.end_offset else None,
    )


def _union(
    spark: SparkSession, root: str, view: View, scans: Sequence[FileScan], columns: Sequence[str]
) -> DataFrame | Exception:
    """The union of all scans, analysed by Spark, or its error."""
    try:
        with _files_listed_on_driver(spark, root):
            frames = [_frame(spark, root, view, scan, columns) for scan in scans]
            df = reduce(DataFrame.unionAll, frames)
            df.schema  # noqa: B018
    except (PySparkException, Py4JError) as error:
        return error
    return df


def _frame(
    spark: SparkSession, root: str, view: View, scan: FileScan, columns: Sequence[str]
) -> DataFrame:
    """The rows of one scan. The schema is given, so Spark infers nothing, whatever the settings of
    the session. `partition` comes from the name of the directory. A renamed column has its old name
    in the files."""
    stored_names = view.stored_names
    df = (
        spark.read.schema(spark_schema(_stored_schema(view)))
        .option("basePath", root)
        .option("__globPaths__", "false")
        .option("datetimeRebaseMode", "CORRECTED")
        .parquet(*(f"{root}/{part.path}" for part in scan.parts))
    )
    stored = F.col("offset")
    uniform = scan.uniform
    if uniform is not None:
        if uniform.low is not None:
            df = df.where(stored >= uniform.low)
        if uniform.high is not None:
            df = df.where(stored < uniform.high)
        offset = stored + F.lit(uniform.shift).cast("bigint") if uniform.shift else stored
    else:
        entry = _looked_up(scan.parts)
        missing = F.raise_error(F.lit("a file of the snapshot was replaced")).cast("bigint")
        if any(part.is_cut for part in scan.parts):
            low = F.coalesce(entry["low"], missing)
            df = df.where((stored >= low) & (stored < entry["high"]))
        offset = stored + F.coalesce(entry["shift"], missing)
    computed = {
        "offset": offset,
        # `nullif` makes the column nullable, as in the schema of `format("pylogtable")`.
        "topic": F.nullif(F.lit(view.name), F.lit("")),
        "timestampType": F.nullif(F.lit(int(scan.append_time)), F.lit(-1)),
    }

    def column(name: str) -> Column:
        if name in computed:
            return computed[name].alias(name)
        stored = stored_names.get(name, name)
        found = F.col(_quoted(stored))
        return found if stored == name else found.alias(name)

    return df.select(*map(column, columns))


def _looked_up(parts: Sequence[FilePart]) -> Column:
    """Shift and bounds of a row's file, from a hash table that is one literal.

    The file size selects the bucket because it costs nothing per row; the file name decides within
    the bucket.
    """
    buckets: list[dict[str, dict[str, int]]] = [{} for _ in range(len(parts) | 1)]
    for part in parts:
        buckets[part.size_bytes % len(buckets)][part.name] = {
            "shift": part.shift,
            "low": 0 if part.low is None else part.low,
            "high": _NO_END if part.high is None else part.high,
        }
    table = F.from_json(F.lit(json.dumps(buckets)), _TABLE_TYPE)
    bucket = (F.col("_metadata.file_size") % len(buckets)).cast("int")
    return F.element_at(F.get(table, bucket), F.col("_metadata.file_name"))


@contextmanager
def _files_listed_on_driver(spark: SparkSession, root: str) -> Iterator[None]:
    """Make Spark list local files on the driver instead of one task per path. For 5,000 files that
    takes 1.0 s instead of 13.6 s. On other stores the tasks save round trips."""
    before = spark.conf.get(_LISTING_THRESHOLD)
    if root.startswith("file:"):
        spark.conf.set(_LISTING_THRESHOLD, str(2**31 - 1))
    try:
        yield
    finally:
        spark.conf.set(_LISTING_THRESHOLD, str(before))


def _stored_schema(view: View) -> pa.Schema:
    """The columns of the view under the names that they have in files."""
    names = view.stored_names
    return pa.schema([field.with_name(names.get(field.name, field.name)) for field in view.schema])


def _check_names(view: View) -> None:
    folded = [name.lower() for name in (*_stored_schema(view).names, *view.retired_names)]
    if len(set(folded)) != len(folded):
        raise NativeUnavailable("two column names in the files differ in case only")
    if "_metadata" in folded:
        raise NativeUnavailable("a column is called _metadata, a name that Spark reserves")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _first_line(error: Exception) -> str:
    return str(getattr(error, "java_exception", error)).strip().partition("\n")[0]
