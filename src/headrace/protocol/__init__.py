"""The Kafka wire protocol, pure: messages, their codecs, headers, errors and record batches.

`schema` declares messages; `api/` has one module per API and `logs/` those of the internal topics.
`codec` encodes and decodes them with functions that `encoding` and `decoding` generate (`source` is
what these share, `primitives` the varints). `headers` and `api_keys` are what precedes a message,
`errors` the error codes, and `error_responses` turns an error into a response. `batch`, `records`,
`compression` and `control` are record batches; `partitions` and `leaders` name a partition
and its leader.
"""
