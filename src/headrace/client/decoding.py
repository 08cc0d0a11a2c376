"""Keys and values of records read: left as bytes, or turned into what the caller wants."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError

from headrace.client.serializers import Deserializer, deserializer


class Decoder:
    """Applies deserialisers to records in place; without any it does nothing."""

    def __init__(self, key: str | Deserializer | None, value: str | Deserializer | None) -> None:
        self._key = deserializer(key)
        self._value = deserializer(value)

    def __bool__(self) -> bool:
        return self._key is not None or self._value is not None

    def decode(self, record: Any) -> Exception | None:
        """Decode a record; what a deserialiser raises is returned, and the record keeps its bytes.

        The record's `error()` then says so too, for those who read many at once.
        """
        code = KafkaError._KEY_DESERIALIZATION
        try:
            key, value = record.key(), record.value()
            if self._key is not None and key is not None:
                key = self._key(key)
            code = KafkaError._VALUE_DESERIALIZATION
            if self._value is not None and value is not None:
                value = self._value(value)
        except Exception as problem:
            record.set_error(KafkaError(code, f"{type(problem).__name__}: {problem}"))
            return problem
        record.set_key(key)
        record.set_value(value)
        return None
