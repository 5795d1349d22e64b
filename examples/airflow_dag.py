"""Maintains a store every hour: retention, compaction, merge, publication and vacuum of its topics.

Airflow 3. Copy it into the folder of DAGs. It runs the program, so that pylogtable may have an
environment of its own: `pylogtable` has to be on the PATH of the workers.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import Param, dag, task


@dag(
    dag_id="pylogtable_maintain",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1),
    catchup=False,  # a run does all that is due, also what runs before it have missed
    max_active_runs=1,  # two at once are safe, but do the same work twice
    params={"store": Param("s3://bucket/logs", type="string")},
    # What was done is done: a new try does the rest.
    default_args={"retries": 2, "retry_delay": timedelta(minutes=5)},
)
def pylogtable_maintain() -> None:
    # In the environment, not in the command: what somebody gives as the store is no shell code.
    @task.bash(env={"PYLOGTABLE_STORE": "{{ params.store }}"}, append_env=True)
    def maintain() -> str:
        return "pylogtable maintain --yes --output json"  # exit status 1 if a topic failed

    maintain()


pylogtable_maintain()
