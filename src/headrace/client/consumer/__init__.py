"""The consumer: a member of a group, or a reader on its own.

`consumer.py` is what applications call. `settings.py` reads its settings; `assignment.py` takes
the partitions that the group assigns; `start.py` and `group_start.py` decide where each of them
begins, by `offsets.py`; `commits.py` commits what the caller has read.
"""
