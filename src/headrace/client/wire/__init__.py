"""A small blocking client that speaks the Kafka protocol itself, for calls that librdkafka lacks.

`addresses.py` reads the addresses of brokers. `connection.py` is one connection to one broker,
secured by `security.py` and `sasl.py`; `cluster.py` finds the broker to ask and asks again while a
refusal is passing; `leaders.py` asks many partitions at once; `batch_reader.py` fetches whole
batches of one partition, and `committed.py` leaves out what transactions have aborted.
"""
