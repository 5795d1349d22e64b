"""The exit status of the program.

| status | meaning                                                                 |
|--------|-------------------------------------------------------------------------|
| 0      | all went well                                                           |
| 1      | something failed; each failure is one line on standard error            |
| 2      | wrong usage                                                             |
| 3      | `verify` and `compare`: the store failed, so the answer is not known    |
| 130    | Ctrl-C                                                                  |
| 141    | the reader of standard output went away, as in `consume t | head -n 1`  |
| 143    | SIGTERM                                                                 |
"""

from __future__ import annotations

FAILED, WRONG_USAGE, NOT_KNOWN = 1, 2, 3
INTERRUPTED, BROKEN_PIPE, TERMINATED = 130, 141, 143
