"""Log dirs: the folders of a broker, each with a folder for every partition in it.

`log_dir.py` is one log dir: its lock, identity, format and `checkpoints.py`. `inventory.py` tells
missing log dirs from new ones. `log_mover.py` moves logs from one to another: `log_move.py` is one
move, which copies by `segment_copy.py`; `move_recovery.py` sorts out what a crash interrupted.
"""
