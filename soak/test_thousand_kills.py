"""A thousand kills of random tasks at random moments, over the three frameworks: all recovered, at once.

make soak
"""

from __future__ import annotations

import random
import statistics
from pathlib import Path

import pytest
from killing import kill_at_random, stepping_gang

KILLS = {"torch": 334, "tensorflow": 333, "jax": 333}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("framework", KILLS)
def test_a_thousand_kills(
    home: Path, tmp_path: Path, framework: str, capsys: pytest.CaptureFixture[str]
) -> None:
    gang = stepping_gang(tmp_path / "job", framework)
    times = sorted(kill_at_random(gang, KILLS[framework], random.Random(framework)))
    with capsys.disabled():
        worst = times[int(len(times) * 0.99)]
        print(
            f"\n{framework:>10}: {len(times)} of {KILLS[framework]} kills recovered on the first restart;"
            f" kill to next step median {statistics.median(times):.3f} s, p99 {worst:.3f} s"
        )
