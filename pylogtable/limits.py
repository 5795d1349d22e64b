"""How the library cuts its work: sizes, intervals and depths, as one value.

None of them changes what is read or written, only in which pieces. Every object store carries one
(`store.limits`), so all that works with a store has it, in other processes too. Tests give stores
with smaller ones.
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

    # The chain of a group: states that stay, for at least a time, and how often it is cleaned.
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

    # What is fetched before it is used, and kept after it.
    prefetch_objects: int = 16
    prefetch_bytes: int = 4 << 20
    cached_object_bytes: int = 8 << 20
    #: Unpacked rows of commits: the entries of a commit are read one by one.
    cached_row_bytes: int = 32 << 20
    #: An object is copied in chunks of this size, so that it never has to fit into memory.
    copy_bytes: int = 8 << 20

    # Rows that are appended: chunks that are shaped at once, what waits in memory, open files.
    chunk_rows: int = 1 << 16
    chunk_bytes: int = 16 << 20
    waiting_bytes: int = 128 << 20
    encoding_bytes: int = 64 << 20
    open_files: int = 128


DEFAULT_LIMITS = Limits()
