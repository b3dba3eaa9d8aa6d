"""A run over TFRecord files, one worker killed, then one fewer: each step has the same examples."""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from oarlock.training.data import Shards
from oarlock.training.data.crc32c import masked_crc32c
from tests.support.commands import Command
from tests.support.gangs import Gang

PROGRAM = """
import json, sys, time, oarlock
me = oarlock.current()
shards = oarlock.data.Shards(f"{sys.argv[1]}/train-*", global_batch=12, seed=3, check=True)
state = oarlock.State(seen=0)
with open(f"{sys.argv[1]}/seen-{me.generation}-{me.rank}", "w", buffering=1) as seen:
    total = state.step + 20 if me.world == 2 else 10**6
    for step in state.steps(total, save=5, batches=shards.batches):
        records = [shards.read(*place).decode() for place in shards.mine(step)]
        seen.write(json.dumps([step, records]) + "\\n")
        time.sleep(0.02)
"""


def test_whoever_reads_them_a_step_has_the_same_examples(
    start: Callable[..., Gang], oarlock: Command, tmp_path: Path
) -> None:
    for shard in range(4):
        texts = [f"{shard}/{number}".encode() for number in range(50)]
        (tmp_path / f"train-{shard}").write_bytes(b"".join(map(framed, texts)))
    gang = start(PROGRAM, args=[str(tmp_path)], roles={"worker": 3})
    gang.until_step(12)
    gang.kill("worker-1")
    gang.until_step(20, generation=2)
    assert oarlock("scale", gang.run.name, "2").returncode == 0
    assert gang.end().code == 0, gang.told()
    shards = Shards(tmp_path / "train-*", 12, seed=3)
    found = groups(tmp_path)
    assert {len(ranks) for ranks in found.values()} >= {2, 3}
    for (step, _), ranks in found.items():
        records = [record for rank in sorted(ranks) for record in ranks[rank]]
        if len(records) == 12:  # the others were cut off
            assert records == [shards.read(*place).decode() for place in shards.all(step)]
    whole = {step for (step, _), ranks in found.items() if sum(map(len, ranks.values())) == 12}
    assert whole == set(range(max(whole) + 1))
    assert max(whole) >= 39


def framed(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    sums = [struct.pack("<I", masked_crc32c(part)) for part in (length, data)]
    return length + sums[0] + data + sums[1]


def groups(folder: Path) -> dict[tuple[int, int], dict[int, list[str]]]:
    """By step and generation: what each rank has read."""
    found: dict[tuple[int, int], dict[int, list[str]]] = defaultdict(dict)
    for path in folder.glob("seen-*"):
        _, generation, rank = path.name.split("-")
        for line in path.read_text().splitlines():
            step, records = json.loads(line)
            found[step, int(generation)][int(rank)] = records
    return found
