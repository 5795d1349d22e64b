"""The PySpark side of pylogtable. Nothing is offered here yet: `format("pylogtable")` comes later.

Spark imports every installed `pyspark_*` module by itself: this one stays cheap and never raises.
"""
