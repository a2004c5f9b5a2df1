"""The driver of scripts/test-spark: grades a file of OTLP exports on a cluster and writes the verdict rows as lines.

  spark_driver.py MASTER EXPORTS ROWS SETTINGS

SETTINGS is JSON for `gradus.spark.grade`, with the additional keys `executor_environment`, `usual_batches`, and `hold`: a file to wait for
before the session ends.
"""
import json
import os
import pathlib
import sys
import time

from pyspark.sql import SparkSession

import gradus.spark


def main():
    master, exports, rows, settings = sys.argv[1:]
    settings = json.loads(settings)
    hold = settings.pop("hold", None)
    builder = SparkSession.builder.master(master).appName("gradus").config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    # One core for each executor, so that both workers have tasks; a lost executor is noticed by its closed connection.
    builder = builder.config("spark.executor.memory", "512m").config("spark.executor.cores", "1").config("spark.scheduler.minRegisteredResourcesRatio", "1.0").config("spark.scheduler.maxRegisteredResourcesWaitingTime", "300s")
    # Small batches show what happens between them. Whoever measures wants those of Spark.
    if not settings.pop("usual_batches", False):
        builder = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", "16")
    for name, value in {"PYTHONPATH": os.environ["PYTHONPATH"], **settings.pop("executor_environment", {})}.items():
        builder = builder.config(f"spark.executorEnv.{name}", value)
    spark = builder.getOrCreate()
    try:
        records = spark.read.text(exports).withColumnRenamed("value", "record")
        verdicts = gradus.spark.grade(gradus.spark.split_records(records), **settings)
        with open(rows, "w") as file:
            for row in verdicts.toLocalIterator() if settings.get("judge", "offline") == "offline" else verdicts.collect():
                file.write(json.dumps(row.asDict(recursive=True)) + "\n")
        # Whoever measures looks at the executors before they end.
        if hold:
            pathlib.Path(f"{rows}.done").touch()
            while not os.path.exists(hold):
                time.sleep(0.1)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
