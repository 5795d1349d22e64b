"""How the library cuts its work: sizes, intervals and depths, as one value.

Every object store carries one (`store.limits`), so all that works with a store has it, in other
processes too; a `LogState` has it for plans. These are no settings of users. Tests open stores with
smaller ones. Where the specification has the number, its rule is cited.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """All limits, with the values that users have."""

    # The index of a topic.
    root_interval: int = 64
    #: If the writer of commit 64k dies before it writes the root, others do so this many commits
    #: later.
    root_grace: int = 8
    #: A root is also written when the commits after the last one have this many bytes of rows:
    #: whoever opens the topic reads all of them.
    root_tail_bytes: int = 1 << 20
    #: Entries that a root holds itself.
    tail_max: int = 256
    #: Entries of a leaf.
    leaf_max: int = 16_384
    #: How many leaves of about the same size are merged into one.
    merge_width: int = 8
    runs_max: int = 4_096
    leaves_cached: int = 16
    #: How many commits are requested at once when a topic is opened.
    cold_wave: int = 12

    #: After a lost race, so many commits are read with the one that has won.
    race_looks_ahead: int = 3

    # Appends of several writers in one commit: bytes of packed rows, and entries.
    combined_bytes: int = 256 << 10
    combined_entries: int = 4_096
    #: How often an append is put directly before it becomes an offer.
    direct_tries: int = 4
    #: If the log has not moved in so many looks, the first in line commits. The one behind it gives
    #: it some looks more, and so on.
    quiet_looks: int = 2
    looks_per_rank: int = 4
    #: If the log moves, and the offer was left behind in so many looks, its writer commits.
    passed_looks: int = 8

    # The chain of a group: states that stay, for at least a time in a remote store [GRP-7], and the
    # number of commits between cleanups.
    group_states_kept: int = 32
    group_kept_ms: int = 120_000
    group_clean_every: int = 32

    # Files and batches.
    row_group_rows: int = 131_072
    row_group_bytes: int = 16 << 20
    #: A page has at most this many rows, and a file with more has an index of its pages. So Spark
    #: reads a range of offsets page by page, and not a row group of 131,072 rows: 0.15 s instead of
    #: 0.35 s.
    page_rows: int = 20_000
    batch_rows: int = 131_072
    batch_bytes: int = 32 << 20
    #: What a reader has to accept, and a writer may write [SEG-12].
    max_record_bytes: int = 512 << 20
    max_group_bytes: int = 2 << 30
    #: How much of the end of a file is fetched at once. Most footers fit.
    footer_bytes: int = 64 << 10

    # The newest record of each key.
    #: Memory for the keys of one partition's dirty part.
    key_budget_bytes: int = 512 << 20
    #: When this many bytes of keys are gathered, all but the newest of each key go. So memory
    #: depends on the number of different keys, and not on how often they occur.
    key_fold_bytes: int = 128 << 20
    #: How many clean keys are looked up among the dirty keys at a time.
    key_lookup_rows: int = 1 << 22

    # What is fetched before it is used.
    prefetch_objects: int = 16
    prefetch_bytes: int = 4 << 20
    #: So many segments are searched for keys at once. Each may hold a row group in memory.
    begun_ahead: int = 8
    #: An object is copied in chunks of this size, so that it never has to fit into memory.
    copy_bytes: int = 8 << 20

    # Rows that are appended: chunks that are shaped at once, what waits in memory, open files.
    chunk_rows: int = 1 << 16
    chunk_bytes: int = 16 << 20
    waiting_bytes: int = 128 << 20
    encoding_bytes: int = 64 << 20
    open_files: int = 128
    #: Files of one partition with more bytes than this are joined in several units.
    join_bytes: int = 2 << 30

    # Reads in parallel.
    part_bytes: int = 64 << 20
    #: The cost of opening a file, as the number of bytes that could be read in that time.
    open_bytes: int = 4 << 20
    #: Reading so much takes Spark about as long as starting a Python task, 0.1 to 0.2 s. Parts that
    #: are together not larger share a task. Others keep their own, because there may be many cores.
    shared_bytes: int = 4 << 20
    shared_records: int = 100_000

    # Consumers.
    #: Each open partition holds a batch of records in memory. If more partitions have records, they
    #: take turns.
    open_partitions: int = 8
    turn_records: int = 10_000
    #: How long a request waits for its reply, unless the user has changed that.
    reply_seconds: float = 15.0

    # Checks.
    #: Footers and commits that are read to count records without a key.
    counted_footers: int = 64
    #: So many offsets share a digest: a difference is first narrowed down to such a block.
    compared_offsets: int = 1 << 20

    # Maintenance.
    #: Records in commits are worth a file from this many bytes of a partition on,
    worth_bytes: int = 1 << 20
    #: or from this many such segments of the topic on: each keeps a commit from being removed.
    worth_segments: int = 256
    #: A vacuum reads the commits of the versions that it keeps, unless there are more. Then it
    #: keeps data files for 3.5 days longer instead [VAC-2].
    vacuum_commits: int = 20_000
    #: A merge that comes back every few seconds joins at least so many neighbours, and looks at so
    #: many segments of a partition.
    merge_least: int = 4
    merge_looks_back: int = 1_000
    #: How often other jobs may replace what an erase is about to replace before it gives up.
    erase_rounds: int = 50
    #: The most entries of an Iceberg manifest. A manifest with less than half as many is small.
    manifest_entries: int = 2000
    #: With more small manifests than this, they are merged: opening the table stays cheap.
    small_manifests: int = 100
    #: So many rows of a delete file are encoded at a time. A million take about 40 MB.
    delete_rows: int = 1_000_000
    #: Units of work of so many bytes in all are done by a loop itself, as many at once as the store
    #: can take.
    small_work_bytes: int = 4 << 20
    #: How often a publication tries to commit sealed copies. Where appends are always faster, they
    #: belong to its tables alone, until the next merge replaces what they stand for.
    seal_tries: int = 4
    #: A file of a table that has at most this many bytes is kept in memory when it is written: its
    #: footer is read next.
    kept_file_bytes: int = 256 << 10
    #: Snapshots of an Iceberg table that stay, besides the last one of each hour.
    snapshots_kept: int = 500
    #: Metadata files of an Iceberg table that stay, and how many are removed at a time. Each has
    #: all snapshots in it.
    metadata_files_kept: int = 2_000
    metadata_files_removed: int = 500
    #: Entries of a Delta table that stay, and how many are removed at a time. Both are multiples of
    #: the interval of checkpoints.
    table_entries_kept: int = 20_000
    table_entries_removed: int = 1_000
    #: What a process knows of a published table is looked at again after this time.
    table_known_ms: int = 600_000

    # Mirrors.
    #: So much is brought by one commit of the first mirror. What was copied is then not lost if the
    #: mirror is killed.
    mirror_first_units: int = 5_000
    mirror_first_bytes: int = 4 << 30
    #: The same for later ones. More takes several commits, which are not one step for readers, and
    #: txns come with the last of them [MIR-3]. So that is a lot.
    mirror_units: int = 20_000
    mirror_bytes: int = 256 << 30
    #: So much is replaced by one commit of what the source has removed.
    mirror_removal_units: int = 500
    mirror_removal_bytes: int = 4 << 30
    #: Records in commits of the source are written to files of about this size.
    mirror_file_bytes: int = 8 << 20
    #: Up to this many names are asked for one by one.
    mirror_few_files: int = 64

    # Imports from Kafka.
    #: How long a stop may have to wait for a request to a cluster that does not answer.
    kafka_stop_seconds: float = 3.0
    #: A bounded import gives up if Kafka sends nothing for this long.
    kafka_silence_seconds: float = 60.0
    #: How often who follows many topics looks for new ones, and how long a topic that has failed is
    #: left alone.
    kafka_look_seconds: float = 30.0

    # Spark.
    #: So much is rewritten in the driver. It takes about a second there, as a Spark job of Python
    #: tasks does without any work.
    driver_bytes: int = 32 << 20
    driver_segments: int = 128
    #: So much is copied to another store by the driver. Files are copied as they are, which is
    #: faster.
    driver_copy_bytes: int = 256 << 20
    #: The driver reads at most so many commits, and sends at most so many bytes with the plan.
    driver_commits: int = 256
    driver_inline_bytes: int = 8 << 20
    #: Rows that wait in memory, over all topics of a task.
    task_waiting_bytes: int = 192 << 20
    #: A scan costs at least one Spark task and about 45 ms of planning. So segments that are read
    #: in part share the scan of whole ones, unless Spark may then read more than this for nothing.
    needless_bytes: int = 32 << 20


DEFAULT_LIMITS = Limits()
