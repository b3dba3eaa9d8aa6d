"""Ignore files mean what they mean to git, who is asked too; .oarlockignore has the last word."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.folders import ignore, packed, write


def git(folder: Path, *words: str) -> str:
    """Nobody's settings but the repository's own."""
    quiet = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "HOME": "/nowhere",
    }
    quiet.pop("XDG_CONFIG_HOME", None)
    return subprocess.run(
        ["git", *words], cwd=folder, env=quiet, capture_output=True, text=True, check=True
    ).stdout


def git_lists(folder: Path) -> set[str]:
    listed = git(folder, "ls-files", "-z", "-co", "--exclude-standard").split("\0")
    return {path for path in listed if path and not path.endswith("gitignore")}


# As git has it.


def test_ignore_files_of_the_repository_reach_into_the_programs_folder(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    ignore(tmp_path, "*.log", "/projects/mnist/runs", "/train.py")
    ignore(tmp_path / "projects", "mnist/*.tmp", "!keep.log")
    ignore(tmp_path, "secret", file=".git/info/exclude")
    folder = tmp_path / "projects" / "mnist"
    write(folder, "train.py", "a.log", "keep.log", "b.tmp", "deep/b.tmp", "runs/1", "deep/runs/1", "secret")
    assert packed(folder) == {"train.py", "keep.log", "deep/b.tmp", "deep/runs/1"} == git_lists(folder)


def test_nothing_above_a_repository_counts_and_nothing_above_a_folder_without_one(tmp_path: Path) -> None:
    ignore(tmp_path, "*.py")
    folder = tmp_path / "mine"
    write(folder, "train.py")
    assert packed(folder) == {"train.py"}
    git(folder, "init", "-q")
    assert packed(folder) == {"train.py"}
    shutil.rmtree(folder / ".git")
    git(tmp_path, "init", "-q")
    assert packed(folder) == set()


@pytest.mark.parametrize(
    "lines",
    [
        ["data/**", "!data/keep.txt"],
        ["*.txt", "!data"],  # says nothing of what is in data
        ["*.txt", "!/data"],
        ["data", "!data/", "*.csv"],
        ["data/", "!data/keep.txt"],  # too late: git does not look into data
        ["*", "!*/", "!*.txt"],
        ["keep.txt   ", "/data/a.csv\r", "other/\r"],
        ["\\#odd", "\\!odd", "#odd", "odd\\ "],
        ["**/deep", "a/**/b", "/**/x.txt"],
        ["[ab].csv", "[!k]eep.txt", "dat?"],
        ["!", "/", "//", "", "[z-a]", "[", "odd\\", "**", "!**"],
        ["*/", "!data/"],
        ["link/"],
        ["lin*"],
        ["\ufeffdata"],
    ],
)
def test_awkward_lines_mean_what_they_mean_to_git(lines: list[str], tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    write(
        tmp_path, "data/keep.txt", "data/a.csv", "data/deep/keep.txt", "other/b.csv", "other/data/c", "x.txt"
    )
    write(tmp_path, "#odd", "!odd", "odd ", "odd", "a/b", "a/1/2/b", "a/1/2/c", "data/x.txt")
    (tmp_path / "link").symlink_to("data")
    ignore(tmp_path, *lines)
    mine, wanted = packed(tmp_path), git_lists(tmp_path)
    if not [path for path in wanted if path.startswith("data/")]:
        wanted.discard("link")  # a link travels with its target
    assert mine == wanted


def test_git_does_not_follow_a_link_to_an_ignore_file(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    write(tmp_path, "rules", text="*.py")
    write(tmp_path, "train.py")
    (tmp_path / ".gitignore").symlink_to("rules")
    assert packed(tmp_path) == {"rules", "train.py"} == git_lists(tmp_path)


@pytest.mark.parametrize("seed", range(60))
def test_random_trees_travel_as_git_lists_them(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    names = ["a", "b", "ab", "a.py", "b.py", "data", "out", "x.txt"]
    places = [tmp_path]
    for _ in range(chance.randint(3, 15)):
        place = chance.choice(places) / chance.choice(names[:2] + names[5:7])
        place.mkdir(exist_ok=True)
        places.append(place)
    for place in places:
        for name in chance.sample(names, 4):
            if not (place / name).exists():
                (place / name).write_text("x")
    for place in chance.sample(places, min(len(places), 4)):
        ignore(place, *(_random_line(chance, names) for _ in range(chance.randint(1, 6))))
    git(tmp_path, "init", "-q")
    ignore(tmp_path, _random_line(chance, names), file=".git/info/exclude")
    for folder in (tmp_path, chance.choice(places)):
        if _is_ignored(folder, tmp_path):
            continue  # git would list nothing, but whoever runs a program there wants it
        assert packed(folder) == git_lists(folder)


def _random_line(chance: random.Random, names: list[str]) -> str:
    globs = [*names, "*", "*.py", "a*", "?", "[ab]", "[!a]*", "**", "*a*"]
    parts = [chance.choice(globs) for _ in range(chance.choice((1, 1, 1, 2, 2, 3)))]
    sign = "!" if chance.random() < 0.35 else ""
    return sign + chance.choice(("", "", "/")) + "/".join(parts) + chance.choice(("", "", "/"))


def _is_ignored(folder: Path, root: Path) -> bool:
    places = [place for place in (folder, *folder.parents) if place != root and place.is_relative_to(root)]
    asked = ["git", "check-ignore", "--no-index", *map(str, places)]
    return bool(places) and subprocess.run(asked, cwd=root, capture_output=True, check=False).returncode == 0


# .oarlockignore has the last word.


def test_oarlockignore_leaves_out_more_and_brings_back(tmp_path: Path) -> None:
    ignore(tmp_path, "*.npz", "build/")
    ignore(tmp_path / "deep", "!*.npz")
    ignore(tmp_path, "*.md", "!small.npz", "!build/", "/deep/c.npz", file=".oarlockignore")
    ignore(tmp_path / "deep", "!read.md", file=".oarlockignore")
    write(tmp_path, "train.py", "small.npz", "big.npz", "build/x.so", "read.md")
    write(tmp_path, "deep/read.md", "deep/more.md", "deep/b.npz", "deep/c.npz")
    assert packed(tmp_path) == {"train.py", "small.npz", "build/x.so", "deep/read.md", "deep/b.npz"}


def test_oarlockignore_fetches_a_file_out_of_a_folder_that_git_ignores(tmp_path: Path) -> None:
    ignore(tmp_path, "data/")
    ignore(tmp_path, "!data/eu/small.csv", "!/data/us/", "!**/lost.csv", file=".oarlockignore")
    write(
        tmp_path, "data/a", "data/eu/small.csv", "data/eu/big.csv", "data/us/1", "data/us/2", "data/lost.csv"
    )
    write(tmp_path, "other/data/lost.csv", "other/data/eu/small.csv")
    # `!**/lost.csv` is true of data/lost.csv, and data is being looked at anyway.
    assert packed(tmp_path) == {"data/eu/small.csv", "data/us/1", "data/us/2", "data/lost.csv"}


def test_a_folder_that_oarlockignore_leaves_out_itself_is_closed_as_git_would_close_it(
    tmp_path: Path,
) -> None:
    ignore(tmp_path, "data/", "!data/small.csv", file=".oarlockignore")
    write(tmp_path, "data/small.csv", "train.py")
    assert packed(tmp_path) == {"train.py"}


def test_oarlockignore_at_the_root_of_the_repository_counts(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    ignore(tmp_path, "*.md", file=".oarlockignore")
    write(tmp_path / "mine", "read.md", "train.py")
    assert packed(tmp_path / "mine") == {"train.py"}
