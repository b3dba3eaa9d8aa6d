"""`oarlock logs`, on finished runs and along a living one."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from oarlock.records import runs
from tests.support.commands import SCRIPT
from tests.support.small_programs import has_said, write
from tests.support.waiting import eventually


def test_all_tasks_of_the_latest_generation_by_time(oarlock: Any, records: Path) -> None:
    done = oarlock("logs", "again-run")
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == [
        "worker-0 | fine now",
        "worker-0 | generation 2",
        "worker-1 | fine now",
        "worker-1 | generation 2",
    ]
    stamped = oarlock("logs", "again-run", "--timestamps").stdout.splitlines()
    assert datetime.fromisoformat(stamped[0].split(" ")[0].replace("Z", "+00:00"))


def test_lines_of_all_tasks_are_merged_by_time(oarlock: Any, home: Path) -> None:
    made = home / "runs" / "made"
    (made / "logs" / "1").mkdir(parents=True)
    (made / "job.yaml").touch()
    (made / "events.jsonl").write_text('{"t": 1, "kind": "run", "tasks": ["worker-0", "worker-1"]}\n')
    for task, seconds in ((0, (1, 4, 5)), (1, (2, 3, 6))):
        lines = [f"2025-11-15T10:00:0{second}.000000Z {second}\n" for second in seconds]
        (made / "logs" / "1" / f"worker-{task}.log").write_text("".join(lines))
    expected = [f"worker-{task} | {second}" for second, task in enumerate((0, 1, 1, 0, 0, 1), 1)]
    assert oarlock("logs").stdout.splitlines() == expected
    assert oarlock("logs", "-f").stdout.splitlines() == expected
    assert oarlock("logs", "--since", "2025-11-15T10:00:05Z").stdout.splitlines() == expected[4:]


def test_a_served_model_that_went_back_to_an_earlier_generation(oarlock: Any, home: Path) -> None:
    made = home / "runs" / "made"
    made.mkdir(parents=True)
    (made / "job.yaml").touch()
    begun = "".join(f'{{"t": 1, "kind": "generation", "generation": {one}}}\n' for one in (1, 2, 1))
    (made / "events.jsonl").write_text(f'{{"t": 1, "kind": "run", "tasks": []}}\n{begun}')
    for generation in (1, 2):
        log = made / "logs" / str(generation) / f"pod-{generation}.log"
        log.parent.mkdir(parents=True)
        log.write_text(f"2025-11-15T10:00:0{generation}.000000Z said\n")
    assert oarlock("logs").stdout.splitlines() == ["pod-1 | said", "pod-2 | said"]
    assert oarlock("logs", "--generation", "2").stdout == "pod-2 | said\n"


def test_bars_and_control_sequences_are_resolved_for_a_pipe(oarlock: Any, records: Path) -> None:
    lines = oarlock("logs", "good-run", "--task", "worker-0").stdout.splitlines()
    assert lines == ["worker-0 | progress 100%", "worker-0 | red plain", "worker-0 | done by worker-0"]


def test_json_lines_hold_the_text_as_it_came(oarlock: Any, records: Path) -> None:
    done = oarlock("logs", "good-run", "--json", "--task", "worker-1")
    first, second, _ = map(json.loads, done.stdout.splitlines())
    assert set(first) == {"time", "generation", "task", "text"}
    assert (first["generation"], first["task"]) == (1, "worker-1")
    assert first["text"] == "progress   0%\rprogress 100%"
    assert second["text"] == "\x1b[31mred\x1b[0m \x1b]0;title\x07plain"


def test_earlier_generations(oarlock: Any, records: Path) -> None:
    before = oarlock("logs", "again-run", "--previous")
    assert "worker-1 | generation 1" in before.stdout
    assert "generation 2" not in before.stdout
    assert oarlock("logs", "again-run", "--generation", "1").stdout == before.stdout
    refused = oarlock("logs", "again-run", "--generation", "3")
    assert (refused.returncode, refused.stderr) == (
        1,
        "oarlock: again-run has no generation 3; the latest is 2\n",
    )


def test_only_the_task_that_failed(oarlock: Any, records: Path) -> None:
    lines = oarlock("logs", "bad-run", "--failed").stdout.splitlines()
    assert {line.partition(" |")[0] for line in lines} == {"worker-1"}
    assert "worker-1 | ValueError: no such thing" in lines
    # The one that recovered failed in the generation before.
    assert "worker-1 | RuntimeError: only once" in oarlock("logs", "again-run", "--failed").stdout
    refused = oarlock("logs", "good-run", "--failed")
    assert (refused.returncode, refused.stderr) == (1, "oarlock: no task of good-run has failed\n")


def test_from_the_first_error_on(oarlock: Any, records: Path) -> None:
    lines = oarlock("logs", "again-run", "--first-error").stdout.splitlines()
    assert lines[0] == "worker-1 | Traceback (most recent call last):"
    assert lines[-1] == "worker-1 | RuntimeError: only once"


def test_tail(oarlock: Any, records: Path) -> None:
    everything = oarlock("logs", "good-run").stdout.splitlines()
    assert oarlock("logs", "good-run", "--tail", "2").stdout.splitlines() == everything[-2:]
    assert oarlock("logs", "good-run", "--tail", "0").stdout == ""
    assert oarlock("logs", "good-run", "--tail", "2", "-f").stdout.splitlines() == everything[-2:]


def test_since(oarlock: Any, records: Path) -> None:
    everything = oarlock("logs", "good-run").stdout
    assert oarlock("logs", "good-run", "--since", "24h").stdout == everything
    later = datetime.now(timezone.utc).isoformat()
    assert oarlock("logs", "good-run", "--since", later).stdout == ""
    assert oarlock("logs", "good-run", "--since", "2020-01-01T00:00Z").stdout == everything
    refused = oarlock("logs", "good-run", "--since", "yesterday")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--task", "worker-9"], "good-run has no task worker-9; it has worker-0, worker-1"),
        (["--previous", "--generation", "1"], "--generation and --previous cannot be combined"),
        (["--failed", "--task", "worker-0"], "--task and --failed cannot be combined"),
        (["--first-error", "-f"], "--follow and --first-error cannot be combined"),
    ],
)
def test_mistakes(oarlock: Any, records: Path, words: list[str], said: str) -> None:
    done = oarlock("logs", "good-run", *words)
    assert done.returncode == 2
    assert said in done.stderr.splitlines()[0]


def test_no_name_means_the_latest_run_and_no_run_is_said(oarlock: Any, tmp_path: Path) -> None:
    none = oarlock("logs")
    assert (none.returncode, none.stderr.count("\n")) == (2, 1)
    for word in ("first", "second"):
        write(tmp_path / f"{word}.py", f"print('{word}')")
        assert oarlock("run", f"{word}.py").returncode == 0
    assert oarlock("logs").stdout == "worker-0 | second\n"
    assert oarlock("logs", "fi").stdout == "worker-0 | first\n"
    assert "no run called third" in oarlock("logs", "third").stderr


def test_following_shows_what_comes_until_the_end(oarlock: Any, tmp_path: Path) -> None:
    write(
        tmp_path / "train.py",
        """
        import pathlib, time
        print("waiting", flush=True)
        while not pathlib.Path("go").exists():
            time.sleep(0.02)
        print("gone", "and more", sep="\\n")
        """,
    )
    oarlock("run", "-d", "--name", "slow", "train.py")
    reader = subprocess.Popen(
        [SCRIPT, "logs", "-f", "--tail", "1", "slow"],
        env=os.environ,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    assert reader.stdout is not None
    assert reader.stdout.readline() == "worker-0 | waiting\n"
    assert has_said(runs.find("slow"), "waiting")
    (tmp_path / "go").touch()
    assert reader.communicate(timeout=300)[0] == "worker-0 | gone\nworker-0 | and more\n"
    assert reader.returncode == 0
    eventually(lambda: not runs.find("slow").is_held(), "end")


def test_only_the_newest_output_is_kept_and_what_is_gone_is_said(
    oarlock: Any, home: Path, tmp_path: Path
) -> None:
    write(tmp_path / "train.py", "for number in range(5000): print('line', number)")
    done = oarlock("run", "--name", "wordy", "--set", "limits.logs=64Ki", "train.py")
    assert "worker-0 wrote more than limits.logs: its oldest lines are dropped" in done.stdout
    run = runs.find("wordy")
    assert sum(path.stat().st_size for path in (run.path / "logs").rglob("*.log")) <= 64 * 1024 + 4096
    shown = oarlock("logs", "wordy")
    numbers = [int(line.split()[-1]) for line in shown.stdout.splitlines()]
    assert numbers == list(range(5000 - len(numbers), 5000))
    assert 1000 < len(numbers) < 2000
    assert "of worker-0 were dropped: limits.logs keeps the newest lines" in shown.stderr
    last = oarlock("logs", "wordy", "--tail", "2")
    assert (last.stdout, last.stderr) == ("worker-0 | line 4998\nworker-0 | line 4999\n", "")
