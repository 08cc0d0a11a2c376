"""One Spark for all tests of a process, and the Kafkas that it reads from."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.apache_kafka import ApacheKafka
from tests.client.kafkas import Kafka

from headrace.spark.pipelines.foreach_batch import check_callbacks
from headrace.spark.sessions import home_without_zip
from headrace.testing import BrokerThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A short life gains nothing from the optimising compiler.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"

# Spark calls a foreachBatch function through a socket that this process watches with select(),
# which accepts no descriptor above 1,023. After a few thousand tests the lower ones may all be in
# use, so some are reserved for it here.
LOW_DESCRIPTORS = [os.open(os.devnull, os.O_RDONLY) for _ in range(4)]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session on two cores that has found the source by itself."""
    if shutil.which("java") is None:
        pytest.skip("Java is not installed; Spark needs 17 or later")
    from pyspark.sql import SparkSession

    # Whether ./test has put it first on the path or not.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("headrace tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", QUICK)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
        .config("spark.python.unix.domain.socket.enabled", "true")
    )
    # As pipelines have it: without it every Python process compiles PySpark for a second.
    with home_without_zip():
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    while LOW_DESCRIPTORS:
        os.close(LOW_DESCRIPTORS.pop())
    check_callbacks(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def headrace_kafka() -> Iterator[Kafka]:
    """A Headrace that the tests of a run share."""
    with BrokerThread() as broker:
        yield Kafka("headrace", broker.bootstrap)


@pytest.fixture(params=["headrace", "apache"])
def kafka(request: pytest.FixtureRequest) -> Kafka:
    """Headrace, then Apache Kafka."""
    if request.param == "headrace":
        kafka: Kafka = request.getfixturevalue("headrace_kafka")
        return kafka
    server: ApacheKafka = request.getfixturevalue("apache_kafka")
    return Kafka("apache", server.bootstrap)
