"""`oarlock.data`: which examples a step trains on, and how a data folder is made.

The order of examples is a pure function of seed, epoch and step, the same on every machine and for any number
of workers; a worker takes its slice of the *global* batch. So there is no iterator state to save, a run can
resume at any step, and the loss curve does not depend on the number of workers. `Batches` loads nothing: the
program does, by index. `Shards` is the same for examples in files, and reads TFRecords. `once` fills a
folder. Imports `run` and `system`; of `training`: `task`.
"""

from __future__ import annotations

from oarlock.training.data.batches import Batches
from oarlock.training.data.once import once
from oarlock.training.data.shards import Shards

__all__ = ["Batches", "Shards", "once"]
