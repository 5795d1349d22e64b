"""The HTML report of a store: measure every topic, derive advice, draw a page.

Which modules a new metric touches:

| step                 | module                                                                    |
|----------------------|---------------------------------------------------------------------------|
| name the number      | `health.py`: a field of `PartitionHealth`, `TopicHealth` or `GroupHealth` |
| compute it           | `measure.py`; a rule of maintenance goes into `due.py`                    |
| show it in a table   | one line in `COLUMNS` of `page/document.py` or `page/topic_section.py`    |
| draw it (optional)   | `page/topic_charts.py`                                                    |
| advise on it (opt.)  | `advice.py`: a function in `_SOURCES`                                     |
"""
