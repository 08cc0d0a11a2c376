"""`meta.properties`: whose a log dir is and which one, as Apache Kafka writes it."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from dataclasses import dataclass

_VERSION = "1"
_DIRECTORY_ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class Identity:
    """The cluster and the node that a log dir belongs to, and the id that it has for ever."""

    cluster_id: str
    node_id: int
    directory_id: str

    def encode(self) -> bytes:
        rows = {
            "version": _VERSION,
            "cluster.id": self.cluster_id,
            "node.id": self.node_id,
            "directory.id": self.directory_id,
        }
        return "".join(f"{name}={value}\n" for name, value in rows.items()).encode()

    @classmethod
    def decode(cls, data: bytes) -> Identity | None:
        """The identity in a file; None when it does not hold a whole one."""
        try:
            lines = data.decode("ascii").splitlines()
            rows = dict(line.split("=", 1) for line in lines if line and line[0] not in "#!")
            values = {name.strip(): value.strip() for name, value in rows.items()}
            if values["version"] != _VERSION:
                return None
            return cls(values["cluster.id"], int(values["node.id"]), values["directory.id"])
        except (ValueError, KeyError):
            return None


def directory_id(random_bits: int) -> str:
    """A new directory id from 128 random bits, in Kafka's form: 22 characters of base64."""
    return urlsafe_b64encode(random_bits.to_bytes(_DIRECTORY_ID_BYTES)).decode().rstrip("=")
