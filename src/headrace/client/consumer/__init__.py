"""The consumer: a member of a group, or a reader without one.

`consumer.py` is what applications call, with the settings of `settings.py`. `assignment.py` takes
the partitions that the group assigns; `start.py` and `group_start.py` decide where each of them
starts, by `offsets.py`. `poller.py` takes records from librdkafka, and `commits.py` commits what
the caller has processed.
"""
