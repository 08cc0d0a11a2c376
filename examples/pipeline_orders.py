"""Orders with the names of their customers, from a compacted topic.

    headrace pipeline run pipeline_orders:named_orders
    headrace pipeline run pipeline_orders:customers

Each batch reads the customers as they are then: the latest record of each key. The second pipeline
keeps them in a table, where a record without a value deletes its row.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from headrace.spark import Json, Source, Table, Topic, pipeline

CUSTOMER = Json("id STRING, name STRING")


@pipeline(
    source={
        "orders": Source("orders", Json("order STRING, customer STRING, amount DOUBLE")),
        "customers": Source("customers", CUSTOMER, latest=True),
    },
    sink=Topic("named-orders", key="order"),
)
def named_orders(orders: DataFrame, customers: DataFrame) -> DataFrame:
    people = customers.selectExpr("id", "name")
    joined = orders.join(people, orders.customer == people.id, "left")
    return joined.select("order", "name", "amount")


@pipeline(
    source=Source("customers", CUSTOMER),
    sink=Table(
        "sqlite:///shop.db", "customers", keys=["key"], deletes="_deleted", latest_by="_offset"
    ),
)
def customers(records: DataFrame) -> DataFrame:
    return records.selectExpr("CAST(_key AS STRING) AS key", "name", "_deleted", "_offset")
