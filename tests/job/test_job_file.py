"""Finding and reading the job: where it may stand, flags over files, and where a mistake is said to be."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oarlock.errors import JobError
from oarlock.job.job_file import JobFile, load
from oarlock.job.model import Claim, Kubernetes, Replicas
from oarlock.quantities import Size

Load = Callable[..., JobFile]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "My Project"
    folder.mkdir()
    (folder / "train.py").write_text("print('hello')\n")
    return folder


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def problem_with(folder: Path, target: str | None = None, **flags: Any) -> str:
    before = sorted(folder.rglob("*"))
    with pytest.raises(JobError) as refused:
        load(target, cwd=folder, **flags)
    assert sorted(folder.rglob("*")) == before  # whatever goes wrong, nothing is left behind
    message = str(refused.value)
    assert "\n" not in message
    return message.replace(str(folder), "HERE")


# Where a job may stand.


def test_a_folder_with_job_yaml_is_named_after_the_folder(here: Path) -> None:
    write(here, {"job.yaml": "program: ./train.py\nroles: {worker: 2..4}\n"})
    found = load(cwd=here)
    assert (found.folder, found.source) == (here, here / "job.yaml")
    assert (found.job.name, found.job.program) == ("my-project", "train.py")
    assert found.job.roles.worker is not None
    assert found.job.roles.worker.replicas == Replicas(2, 4)


@pytest.mark.parametrize("target", ["sub", "sub/", "./sub/job.yaml", "sub/../sub", "{here}/sub"])
def test_the_folder_of_the_job_file_is_what_travels(here: Path, target: str) -> None:
    write(here, {"sub/job.yaml": "name: x\nprogram: code/main.py\n", "sub/code/main.py": ""})
    found = load(target.format(here=here), cwd=here)
    assert (found.folder, found.source, found.job.program) == (
        here / "sub",
        here / "sub/job.yaml",
        "code/main.py",
    )


def test_job_yaml_comes_before_job_yml_before_pyproject_before_train_py(here: Path) -> None:
    names = []
    write(here, {"pyproject.toml": '[tool.oarlock]\nname = "third"\nprogram = "train.py"\n'})
    write(
        here, {"job.yml": "name: second\nprogram: train.py\n", "job.yaml": "name: first\nprogram: train.py\n"}
    )
    for removed in ("job.yaml", "job.yml", "pyproject.toml", "nothing"):
        names.append(load(cwd=here).job.name)
        (here / removed).unlink(missing_ok=True)
    assert names == ["first", "second", "third", "train"]


def test_a_pyproject_of_something_else_is_passed_over(here: Path) -> None:
    write(here, {"pyproject.toml": '[project]\nname = "other"\n'})
    assert load(cwd=here).job.program == "train.py"
    assert problem_with(here, "pyproject.toml") == "pyproject.toml: there is no [tool.oarlock] in it"
    write(here, {"pyproject.toml": "tool = 3\n"})
    assert problem_with(here, "pyproject.toml") == "pyproject.toml: there is no [tool.oarlock] in it"


def test_a_job_file_may_be_toml(here: Path) -> None:
    text = 'program = "train.py"\nargs = ["--lr", 1e-3, 1_000.5]\n[roles.worker]\ncpu = 0.5\n'
    write(here, {"big.toml": text})
    found = load("big.toml", cwd=here)
    assert found.job.args == ("--lr", "1e-3", "1_000.5")
    assert found.job.roles.worker is not None
    assert found.job.roles.worker.cpu == 0.5
    assert found.source == here / "big.toml"


SCRIPT = """\
#!/usr/bin/env python
# /// script
# requires-python = ">=3.10"
#
# [tool.oarlock]
# seed = 3
# [tool.oarlock.limits]
# restarts = {restarts}
# ///
print("hello")
"""


def test_a_program_may_hold_its_own_job_and_job_yaml_is_not_read_then(here: Path) -> None:
    write(here, {"main.py": SCRIPT.format(restarts=7), "job.yaml": "not: [read"})
    found = load("main.py", cwd=here)
    assert (found.job.seed, found.job.limits.restarts) == (3, 7)
    assert (found.job.program, found.job.name, found.source) == ("main.py", "main", here / "main.py")


def test_a_mistake_in_a_programs_block_has_its_line(here: Path) -> None:
    write(here, {"main.py": SCRIPT.format(restarts='"many"')})
    assert (
        problem_with(here, "main.py") == 'main.py:8: limits.restarts: expected a whole number, found "many"'
    )
    write(here, {"main.py": SCRIPT.format(restarts="[")})
    assert problem_with(here, "main.py").startswith("main.py:8: not valid TOML: ")
    write(here, {"main.py": SCRIPT.replace("seed", "program").format(restarts=1)})
    assert (
        problem_with(here, "main.py")
        == "main.py:6: program: not allowed in a program's own block: the block belongs to the program"
    )
    write(here, {"main.py": SCRIPT.format(restarts=1) * 2})
    assert problem_with(here, "main.py") == "main.py:12: a second script block; the first is on line 2"


DEPENDENCIES = """\
# /// script
# requires-python = ">=3.10"
# dependencies = [
#   "numpy>=2; python_version < '3.12'",
#   "torch",
# ]
# ///
"""


def test_the_packages_in_a_programs_block_are_what_pods_install(here: Path) -> None:
    packages = ("numpy>=2; python_version < '3.12'", "torch")
    write(here, {"train.py": DEPENDENCIES, "other.py": ""})
    assert load("train.py", cwd=here).job.pip == packages
    assert load(cwd=here).job.pip == packages
    assert load("train.py", cwd=here, sets=["pip=jax flax"]).job.pip == ("jax", "flax")
    write(here, {"job.yaml": "program: train.py\n"})
    assert load(cwd=here).job.pip == packages
    assert load(cwd=here, sets=["program=other.py"]).job.pip == ()
    assert load(cwd=here, sets=["module=train"]).job.pip == ()


@pytest.mark.parametrize(("written", "pip"), [("[]", ()), ("[jax==1.10]", ("jax==1.10",))])
def test_a_job_that_names_packages_itself_is_believed(here: Path, written: str, pip: Any) -> None:
    write(here, {"train.py": DEPENDENCIES, "job.yaml": f"program: train.py\npip: {written}\n"})
    assert load(cwd=here).job.pip == pip


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ('"numpy"', 'dependencies: expected a list of packages, found "numpy"'),
        ('["numpy", {}]', "dependencies: expected text or a number as word 2, found an empty mapping"),
        ('["numpy;"]', "dependencies: expected a package as pip takes it, such as numpy>=2, found "
         '"numpy;"; one with spaces is an item of a list'),
    ],
)  # fmt: skip
def test_packages_that_are_none_are_told_with_the_program_s_line(
    here: Path, written: str, message: str
) -> None:
    write(here, {"job.yaml": "program: sub/x.py\n"})
    write(here, {"sub/x.py": f"import os\n# /// script\n# dependencies = {written}\n# ///\n"})
    assert problem_with(here) == f"sub/x.py:3: {message}"


def test_a_program_alone_starts_where_the_user_stands(here: Path) -> None:
    write(here, {"sub/main.py": ""})
    inside, outside = (
        load("sub/main.py", cwd=here),
        load(str(here / "sub/main.py"), cwd=here.parent / "elsewhere"),
    )
    assert (inside.folder, inside.job.program, inside.source) == (here, "sub/main.py", None)
    assert (outside.folder, outside.job.program, outside.source) == (here / "sub", "main.py", None)


def test_a_folder_with_nothing_but_train_py_is_that_program(here: Path) -> None:
    write(here, {"sub/train.py": SCRIPT.format(restarts=9)})
    found = load("sub", cwd=here)
    assert (found.folder, found.job.program, found.job.limits.restarts) == (here / "sub", "train.py", 9)
    write(here, {"sub/train.py": SCRIPT.format(restarts=-1)})
    assert problem_with(here, "sub") == "sub/train.py:8: limits.restarts: expected 0 or more, found -1"


def test_a_program_that_is_no_utf8_or_no_python_is_python_s_business(here: Path) -> None:
    (here / "main.py").write_bytes(b"# -*- coding: latin-1 -*-\nname = '\xe9'\n(")
    assert load("main.py", cwd=here).job.program == "main.py"


def test_a_folder_without_a_job_is_told_what_was_looked_for(here: Path) -> None:
    (here / "train.py").unlink()
    looked_for = "job.yaml, job.yml, [tool.oarlock] in pyproject.toml and train.py"
    assert problem_with(here) == f"HERE: no job here; looked for {looked_for}"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("trian.py", "trian.py: no such program in HERE; did you mean train.py?"),
        ("zzz.py", "zzz.py: no such program in HERE"),
        ("no/where/x.py", "no/where/x.py: no such program in HERE/no/where"),
        ("jib.yaml", "jib.yaml: no such file or folder; did you mean job.yaml?"),
        ("nothing", "nothing: no such file or folder"),
        ("notes.txt", "notes.txt: expected a program (.py), a job file (.yaml, .yml, .toml) or a folder"),
        ("a\0b", "a\\x00b: no such file or folder"),
        ("x" * 5000, "x" * 200 + ": no such file or folder"),
        ("folder.yaml", "HERE/folder.yaml: no job here; looked for job.yaml, job.yml, [tool.oarlock] in "
         "pyproject.toml and train.py"),
    ],
)  # fmt: skip
def test_a_wrong_target(here: Path, target: str, message: str) -> None:
    write(here, {"job.yaml": "program: train.py", "notes.txt": "", "folder.yaml/x": ""})
    assert problem_with(here, target) == message


# What is wrong in a file, and on which line.

FILES: list[tuple[str, str]] = [
    ("program: train.py\nlimits:\n  stall: 5m\n  restarts: many\n",
     'job.yaml:4: limits.restarts: expected a whole number, found "many"'),
    ("program: train.py\nroles:\n  wroker: 2\n",
     "job.yaml:3: roles.wroker: no such field; did you mean worker?"),
    ("program: train.py\nroles: {worker: {cpu: 1,\n   memory: lots}}\n",
     'job.yaml:3: roles.worker.memory: expected a size such as 4Gi, 512Mi or 2G, found "lots"'),
    ("program: train.py\nroles:\n  worker: 0\n",
     "job.yaml:3: roles.worker.replicas: expected 1 or more, found 0"),
    ("program: train.py\nroles:\n  ps: 2\n",
     "job.yaml:3: roles.ps: parameter servers need at least one worker; add worker"),
    ("program: train.py\nenv:\n  A: 1\n  RANK: 0\n",
     "job.yaml:4: env.RANK: Oarlock sets it for each task; leave it out"),
    ("program: train.py\n\nmodule: train\n",
     "job.yaml:3: module: program is given too; give exactly one of them"),
    ("name: x\n", "job.yaml: there is nothing to run; give one of program, module and command"),
    ("name: x\nprogram: trian.py\n",
     "job.yaml:2: program: trian.py: no such program in HERE; did you mean train.py?"),
    ("program: ../train.py\n",
     "job.yaml:1: program: ../train.py is outside HERE, the folder that travels with the run"),
    ("program: /etc/passwd\n",
     "job.yaml:1: program: /etc/passwd is outside HERE, the folder that travels with the run"),
    ("program: .\n", "job.yaml:1: program: . is a folder, not a program"),
    (f"program: {'x' * 300}\n", "job.yaml:1: program: cannot be read: File name too long"),
    ("module: trian\n", "job.yaml:1: module: no module trian in HERE; did you mean train?"),
    ("module: package.trian\n", "job.yaml:1: module: no module trian in HERE/package; did you mean train?"),
    ("module: train.more\n", "job.yaml:1: module: no module more in HERE/train"),
    ("command: [./train.py]\n",
     'job.yaml:1: command: "./train.py": not executable; chmod +x it, or name its interpreter'),
    ("command: ./trian.py\n", 'job.yaml:1: command: "./trian.py": no such file in HERE'),
    ("command: no-such-command --x\n", 'job.yaml:1: command: "no-such-command": no such command on PATH'),
    ("command: train.py\n",
     'job.yaml:1: command: "train.py": no such command on PATH; did you mean ./train.py?'),
    ("program: train.py\nroles:\n  worker:\n    - gpu: 1\n    - gpu: 2\n      cpus: 1\n",
     "job.yaml:6: roles.worker.1.cpus: no such field; did you mean cpu?"),
    ("program: train.py\ningest:\n  program: train.py\n  image: busybox\n",
     "job.yaml:4: ingest.image: an ingest runs in the pods of the gang, in their image: set "
     "kubernetes.image, or add what it needs with ingest.pip"),
    ("program: train.py\ningest:\n  program: train.py\n  gpu: 1\n",
     "job.yaml:4: ingest.gpu: an ingest runs in the pods of the gang before their tasks, and sees the GPUs "
     "of those: set roles.worker.gpu"),
    ("program: train.py\nkubernetes:\n  volumes:\n    data:\n      path: data\n      size: 1Gi\n",
     'job.yaml:5: kubernetes.volumes.data.path: expected an absolute path such as /data, found "data"; '
     "did you mean /data?"),
    ("program: train.py\nkubernetes:\n  volumes:\n    data:\n      size: 1Gi\n",
     "job.yaml:4: kubernetes.volumes.data.path: expected an absolute path such as /data, found nothing"),
    ("program: train.py\nkubernetes:\n  tolerations:\n  - key: a\n    efect: NoSchedule\n",
     "job.yaml:5: kubernetes.tolerations.0.efect: no such field; did you mean effect?"),
    ("program: train.py\nkubernetes:\n  pull_secrets:\n  - a\n  - B\n",
     "job.yaml:5: kubernetes.pull_secrets.1: expected the name of a secret: lower-case letters, digits, "
     "'-' and '.', at most 253 characters, found \"B\"; try b"),
    # YAML itself
    ("name: a\nprogram: train.py\nname: b\n", "job.yaml:3: name: given twice, first on line 1"),
    ("program: train.py\nlimits: {grace: 1s, grace: 2s}\n",
     "job.yaml:2: limits.grace: given twice, first on line 2"),
    ("program: train.py\nlimits:\n\trestarts: 1\n", "job.yaml:3: a tab; YAML is indented with spaces"),
    ("program: train.py\nname: a: b\n",
     "job.yaml:2: a ':' out of place; check the indentation, or put the value in quotes"),
    ("program: train.py\nlimits:\n  restarts: 1\n seed: 2\n",
     "job.yaml:4: out of line with what is above it; check the indentation"),
    ("program: train.py\nprogram\n", "job.yaml:2: expected a name and ':'"),
    ('program: train.py\nname: "abc\n', "job.yaml:2: a quotation mark or a bracket is not closed"),
    ("program: train.py\nargs: [1, 2\n", "job.yaml:2: a quotation mark or a bracket is not closed"),
    ("program: train.py\n---\nprogram: train.py\n", "job.yaml:2: a second document; a job file holds one"),
    ("program: train.py\nargs: *more\n",
     "job.yaml:2: an alias (*) for which there is no anchor (&) above it"),
    ("program: train.py\nkubernetes: &a {b: *a}\n",
     "job.yaml:2: kubernetes.b: an alias that contains itself"),
    ("program: train.py\nname: !!python/name:os.system ''\n",
     "job.yaml:2: name: the tag !!python/name:os.system means nothing here"),
    ("program: train.py\nargs: !foo [1]\n", "job.yaml:2: args: the tag !foo means nothing here"),
    ("program: train.py\nlimits: !foo {a: 1}\n", "job.yaml:2: limits: the tag !foo means nothing here"),
    ("program: train.py\nseed: !!int x\n", 'job.yaml:2: seed: "x" is not a valid int'),
    ("program: train.py\n? [a]\n: 1\n", "job.yaml:2: expected a name before the ':'"),
    ("program: train.py\nroles:\n  <<: 3\n", "job.yaml:3: roles: << takes a mapping, such as *defaults"),
    ("program: train.py\nname: a\x07b\n", "job.yaml:2: a character that YAML does not allow (#x7)"),
    ('program: train.py\nname: "\\UFFFFFFFF"\n', "job.yaml: an escape in quotes is not a valid character"),
    ("", "job.yaml: empty; a job file has at least a program"),
    ("# nothing\n", "job.yaml: empty; a job file has at least a program"),
    ("- program\n", "job.yaml:1: expected fields such as program: train.py, found a list"),
    ("train.py\n", 'job.yaml:1: expected fields such as program: train.py, found "train.py"'),
    ("[" * 800, "job.yaml: nested too deeply"),
    ("program: train.py\nkubernetes: " + "[" * 60 + "]" * 60, "job.yaml:2: kubernetes"),
    ("program: train.py\nx: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
        f"{b}: &{b} [*{a},*{a},*{a},*{a},*{a},*{a},*{a},*{a},*{a},*{a}]\n"
        for a, b in zip("abcdefgh", "bcdefghi")
    ), "job.yaml:2: "),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), FILES, ids=[message[:60] for _, message in FILES])
def test_a_wrong_job_yaml_gets_file_line_and_field(here: Path, text: str, message: str) -> None:
    write(here, {"job.yaml": text, "package/train.py": ""})
    found = problem_with(here)
    if len(text) > 100 and "program: " in text and "x" * 300 not in text:  # nested or repeated beyond reason
        assert found.startswith(message)
        assert found.endswith(("nested too deeply", "more than 10000 values; a job is small"))
    else:
        assert found == message


TOML: list[tuple[str, str]] = [
    ('[tool.oarlock]\nprogram = "train.py"\n\n[tool.oarlock.limits]\nrestarts = "many"\n',
     'pyproject.toml:5: limits.restarts: expected a whole number, found "many"'),
    ('[tool.oarlock]\nprogram = "train.py"\nlimits.restarts = "many"\n',
     'pyproject.toml:3: limits.restarts: expected a whole number, found "many"'),
    ('[tool.oarlock]\nprogram = "train.py"\nlimits = { restarts = "many" }\n',
     'pyproject.toml:3: limits.restarts: expected a whole number, found "many"'),
    ('[tool.oarlock]\nprogram = """\nseed = 1\n[tool.oarlock.roles]\n"""\n"seed" = -1\n',
     "pyproject.toml:6: seed: expected 0 or more, found -1"),
    ('[tool.oarlock]\nprogram = "train.py"\n[tool."oarlock".roles]\nwroker = 2\n',
     "pyproject.toml:4: roles.wroker: no such field; did you mean worker?"),
    ('[tool.oarlock]\nprogram = "train.py"\n[tool.oarlock.roles.ps]\n',
     "pyproject.toml:3: roles.ps: parameter servers need at least one worker; add worker"),
    ('[tool.oarlock]\nprogram = "train.py"\nstorage.data = 2020-01-01\nseed = -1\n',
     "pyproject.toml:4: seed: expected 0 or more, found -1"),
    ('[tool.oarlock]\nprogram = "train.py\n', "pyproject.toml:2: not valid TOML: "),
    ('[tool.oarlock]\nseed = 1\nseed = 2\nwarm = true\n', "pyproject.toml:3: not valid TOML: "),
    ('[tool.oarlock]\nseed = ', "pyproject.toml:2: not valid TOML: "),
    ("[tool]\noarlock = 3\n", "pyproject.toml: [tool.oarlock] is not a table"),
    ('[tool.oarlock]\nprogram = "train.py"\nseed = 0x' + "f" * 9000,
     "pyproject.toml:3: seed: a number too large"),
    ('[tool.oarlock]\nprogram = "train.py"\nseed = ' + "9" * 9000, "pyproject.toml:3: not valid TOML: "),
    ("[tool.oarlock]\nargs = " + "[" * 9000, "pyproject.toml: nested too deeply"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), TOML, ids=[message[:60] for _, message in TOML])
def test_a_wrong_toml_gets_file_line_and_field(here: Path, text: str, message: str) -> None:
    write(here, {"pyproject.toml": text})
    found = problem_with(here, "pyproject.toml")
    assert found.startswith(message) if message.endswith(": ") else found == message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"program: train.py\nname: caf\xe9\n", "job.yaml:2: not UTF-8; save the file as UTF-8"),
        ("program: train.py\n".encode("utf-16"), "job.yaml:1: a NUL byte; a job file is text"),
        (b"program: train.py\nname: a\0b\n", "job.yaml:2: a NUL byte; a job file is text"),
        (b"#" * (1024 * 1024 + 1), "job.yaml: too large for a job file (1048577 bytes, at most 1048576)"),
    ],
)
def test_what_is_no_text_is_no_job_file(here: Path, content: bytes, message: str) -> None:
    (here / "job.yaml").write_bytes(content)
    assert problem_with(here) == message


def test_a_job_file_that_is_no_file(here: Path) -> None:
    (here / "job.yaml").mkdir()
    assert problem_with(here) == "job.yaml: a folder, not a file"
    os.mkfifo(here / "job.yml")
    assert problem_with(here, "job.yml") == "job.yml: not a regular file"
    os.mkfifo(here / "pipe.py")
    assert problem_with(here, "pipe.py") == "pipe.py: not a regular file"
    (here / "link.yaml").symlink_to("link.yaml")
    assert problem_with(here, "link.yaml").startswith("link.yaml: ")


def test_a_job_file_that_cannot_be_read(here: Path) -> None:
    (here / "job.yaml").symlink_to("/proc/self/mem")  # a regular file that no one can read from its start
    assert problem_with(here) == "job.yaml: cannot be read: Input/output error"


def test_a_windows_editor_is_forgiven(here: Path) -> None:
    (here / "job.yaml").write_bytes("\ufeffprogram: train.py\r\nseed: 4\r\n".encode())
    assert load(cwd=here).job.seed == 4


@pytest.mark.parametrize(
    ("written", "text"),
    [
        *(
            (word, word)
            for word in ("no", "on", "yes", "off", "1:30", "2020-01-01", "0x1F", "007", "1e-3", "1.10")
        ),
        *(("true", "true"), ("True", "True"), ("'5'", "5"), ("!!str 5", "5"), (".inf", ".inf"), ("+1", "+1")),
    ],
)
def test_a_variable_is_the_text_that_was_written(here: Path, written: str, text: str) -> None:
    write(here, {"job.yaml": f"program: train.py\nenv: {{A: {written}}}\nargs: [{written}]\n"})
    job = load(cwd=here).job
    assert (job.env["A"], job.args) == (text, (text,))


@pytest.mark.parametrize("word", ["no", "yes", "on", "off", "y"])
def test_only_true_and_false_are_booleans(here: Path, word: str) -> None:
    write(here, {"job.yaml": f"program: train.py\nwarm: {word}\n"})
    expected = "true, false or a duration such as 90s, 10m or 1h30m"
    assert problem_with(here) == f'job.yaml:2: warm: expected {expected}, found "{word}"'


def test_anchors_and_merges_share_what_is_the_same(here: Path) -> None:
    text = """
program: train.py
roles:
  worker: &big
    replicas: 4
    memory: 8Gi
  ps:
    replicas: 2
    <<: *big
  chief:
    <<: [{replicas: 1, cpu: 3}, *big]
"""
    write(here, {"job.yaml": text})
    roles = load(cwd=here).job.roles
    assert roles.ps is not None
    assert roles.chief is not None
    assert (str(roles.ps.replicas), str(roles.ps.memory)) == ("2", "8Gi")
    assert (str(roles.chief.replicas), roles.chief.cpu, str(roles.chief.memory)) == ("1", 3, "8Gi")


# Flags.

JOB = "name: x\nprogram: train.py\nargs: [--a]\nroles:\n  worker: 2..8\nlimits:\n  restarts: 1\n"


def test_flags_win_over_the_file(here: Path) -> None:
    write(here, {"job.yaml": JOB})
    overrides = {
        "roles.worker.replicas": 4,
        "args": ["--b"],
        "name": None,
        "limits.stall": "none",
        "seed": "7",
    }
    sets = [
        "limits.restarts=5",
        "env.VERSION=1.10",
        "roles.worker.cpu=2",
        "kubernetes.image=a",
        "warm=false",
    ]
    job = load(cwd=here, overrides=overrides, sets=sets).job
    assert job.roles.worker is not None
    assert (str(job.roles.worker.replicas), job.roles.worker.cpu) == ("4", 2)
    assert (job.args, job.name, job.seed, job.warm) == (("--b",), "x", 7, False)
    assert (job.limits.restarts, job.limits.stall) == (5, None)
    assert (job.env, job.kubernetes) == ({"VERSION": "1.10"}, Kubernetes(image="a"))


def test_a_flag_changes_nothing_but_its_field(here: Path) -> None:
    write(here, {"job.yaml": JOB + "kubernetes: {image: plain, user: image}\n"})
    sets = ["roles.worker.cpu=2", "limits.grace=1m", "kubernetes.image=a", "kubernetes.pod.dns.policy=b"]
    job = load(cwd=here, sets=sets).job
    assert job.roles.worker is not None
    assert (str(job.roles.worker.replicas), job.roles.worker.cpu) == ("2..8", 2)
    assert (job.limits.restarts, str(job.limits.grace)) == (1, "1m")
    assert job.kubernetes == Kubernetes(image="a", user="image", pod={"dns": {"policy": "b"}})


@pytest.mark.parametrize("text", ["1.10", "a: b", "[a", "", "null", " x", "true", "*a"])
def test_a_variable_that_is_set_is_the_text_itself(here: Path, text: str) -> None:
    assert load("train.py", cwd=here, sets=[f"env.A={text}"]).job.env == {"A": text}


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        (["image=x"], {"image": "x"}),
        (["labels.team=a"], {"labels": {"old": "1", "team": "a"}}),
        (["labels.example.com/v=1.10"], {"labels": {"old": "1", "example.com/v": "1.10"}}),
        (["node_selector.kubernetes.io/arch=arm64"], {"node_selector": {"kubernetes.io/arch": "arm64"}}),
        (["claim=none"], {"claim": None}),
        (["claim=mine"], {"claim": Claim(name="mine", existing=True)}),
        (["claim.size=5Gi"], {"claim": Claim(size=Size(5 << 30))}),
        (["claim=none", "claim.size=5Gi"], {"claim": Claim(size=Size(5 << 30))}),
        (["claim=mine", "claim.shared=true"], {"claim": Claim(name="mine", existing=True, shared=True)}),
        (["volumes.d.path=/d", "volumes.d.size=1Gi"], {"volumes": {"d": {"path": "/d", "size": "1Gi"}}}),
        (["volumes.d={path: /d, claim: c}"], {"volumes": {"d": {"path": "/d", "claim": "c"}}}),
        (["secrets.s=/s"], {"secrets": {"s": "/s"}}),
        (["secrets.s=/s", "secrets.s.env.A=1"], {"secrets": {"s": {"path": "/s", "env": {"A": "1"}}}}),
        (["user=image"], {"user": "image"}),
        (["tolerations=[{key: a}]"], {"tolerations": [{"key": "a"}]}),
        (["pull_secrets=a"], {"pull_secrets": ["a"]}),
    ],
)
def test_what_only_kubernetes_has_is_set_like_the_rest(
    here: Path, sets: list[str], expected: dict[str, Any]
) -> None:
    write(here, {"job.yaml": JOB + "kubernetes:\n  labels: {old: 1}\n"})
    job = load(cwd=here, sets=[f"kubernetes.{one}" for one in sets]).job
    assert job.kubernetes == Kubernetes(**{"labels": {"old": "1"}, **expected})


def test_a_label_is_the_text_that_was_written(here: Path) -> None:
    text = """
program: train.py
roles:
  worker:
    - node_selector: {gpu: true}
kubernetes:
  labels: {version: 1.10, on: true}
  annotations: {when: 2020-01-01}
"""
    write(here, {"job.yaml": text})
    job = load(cwd=here).job
    assert (job.kubernetes.labels, job.kubernetes.annotations) == (
        {"version": "1.10", "on": "true"},
        {"when": "2020-01-01"},
    )
    assert job.roles.worker is not None
    assert job.roles.worker.parts[0].node_selector == {"gpu": "true"}


def test_flags_alone_are_enough(here: Path) -> None:
    found = load("train.py", overrides={"roles.worker.replicas": 4}, cwd=here)
    assert found.job.roles.worker is not None
    assert (found.job.roles.worker.replicas, found.job.name) == (Replicas(4), "train")


@pytest.mark.parametrize(
    ("written", "args"),
    [
        ("args=5", ("5",)),
        ("args=--lr 1e-3", ("--lr", "1e-3")),
        ("args=[--lr, 1e-3, 'a b']", ("--lr", "1e-3", "a b")),
        ("args=[a", ("[a",)),
        ("args=", ()),
    ],
)
def test_set_takes_yaml_or_the_text_itself(here: Path, written: str, args: tuple[str, ...]) -> None:
    write(here, {"job.yaml": "program: train.py\nargs: [x]"})
    assert load(cwd=here, sets=[written]).job.args == args


def test_flags_that_say_what_to_run_need_no_job_in_the_folder(here: Path) -> None:
    (here / "train.py").unlink()
    write(here, {"package/main.py": ""})
    found = load(cwd=here, overrides={"module": "package.main"})
    assert (found.folder, found.source, found.job.module) == (here, None, "package.main")


def test_a_flag_for_what_to_run_replaces_what_the_file_runs(here: Path) -> None:
    write(here, {"job.yaml": JOB, "other.py": ""})
    assert load(cwd=here, sets=["module=train"]).job.program is None
    assert load(cwd=here, sets=["program=./other.py"]).job.program == "other.py"
    assert load("train.py", cwd=here, sets=["command=true"]).job.command == ("true",)


FLAGS: list[tuple[dict[str, Any], str]] = [
    ({"sets": ["limits.restart=5"]},
     "--set limits.restart=5: no such field limits.restart; did you mean limits.restarts?"),
    ({"sets": ["restarts=5"]}, "--set restarts=5: no such field restarts; did you mean limits.restarts?"),
    ({"sets": ["roles.master.cpu=5"]},
     "--set roles.master.cpu=5: no such field roles.master.cpu; there is chief, worker, ps and evaluator"),
    ({"sets": ["ingest.gpu=1"]},
     "--set ingest.gpu=1: an ingest runs in the pods of the gang before their tasks, and sees the GPUs of "
     "those: set roles.worker.gpu"),
    ({"sets": ["seed.x=5"]}, "--set seed.x=5: no such field seed.x; seed has no fields"),
    ({"sets": ["args.0=5"]}, "--set args.0=5: no such field args.0; args has no fields"),
    ({"sets": ["limits.restarts=many"]}, '--set limits.restarts=many: expected a whole number, found "many"'),
    ({"sets": ["limits.restarts=[1"]},
     "--set limits.restarts=[1: a quotation mark or a bracket is not closed"),
    ({"sets": ["roles.worker=0"]},
     "--set roles.worker=0: roles.worker.replicas: expected 1 or more, found 0"),
    ({"sets": ["roles={ps: 1}"]},
     "--set roles={ps: 1}: roles.ps: parameter servers need at least one worker; add worker"),
    ({"sets": ["limits=5"]},
     "--set limits=5: expected restarts, stall, runtime, rendezvous, grace, evaluate and logs, found 5"),
    ({"sets": ["seed"]}, "--set seed: expected a field and a value, such as limits.restarts=5"),
    ({"sets": ["=5"]}, "--set =5: expected a field and a value, such as limits.restarts=5"),
    ({"sets": ["a..b=5"]}, "--set a..b=5: expected a field and a value, such as limits.restarts=5"),
    ({"sets": ["env.RANK=5"]}, "--set env.RANK=5: Oarlock sets it for each task; leave it out"),
    ({"sets": ["name=a\nb"]},
     "--set name=a\\nb: expected lower-case letters, digits and '-', starting with a letter, at most 35 "
     'characters, found "a b"; try a-b'),
    ({"sets": ["program=trian.py"]},
     "--set program=trian.py: trian.py: no such program in HERE; did you mean train.py?"),
    ({"sets": ["roles.worker=[2, 1]", "roles.worker.replicas=4"]},
     "--set roles.worker.replicas=4: the role is a list of groups; give it in each group"),
    ({"sets": ["roles.worker.groups.0.cpu=4"]},
     "--set roles.worker.groups.0.cpu=4: no such field roles.worker.groups.0.cpu; roles.worker.groups has no "
     "fields"),
    ({"sets": ["kubernetes.imag=a"]},
     "--set kubernetes.imag=a: no such field kubernetes.imag; did you mean kubernetes.image?"),
    ({"sets": ["kubernetes.image.tag=a"]},
     "--set kubernetes.image.tag=a: no such field kubernetes.image.tag; kubernetes.image has no fields"),
    ({"sets": ["kubernetes.volumes.d.pth=/d"]},
     "--set kubernetes.volumes.d.pth=/d: no such field kubernetes.volumes.d.pth; did you mean "
     "kubernetes.volumes.d.path?"),
    ({"sets": ["kubernetes.labels.oarlock.dev/run=a"]},
     "--set kubernetes.labels.oarlock.dev/run=a: Oarlock or Kubernetes sets it; leave it out"),
    ({"overrides": {"roles.worker.replicas": 0}}, "--workers: expected 1 or more, found 0"),
    ({"overrides": {"roles.worker.replicas": "8..2"}}, "--workers: min is larger than max in 8..2"),
    ({"overrides": {"name": "My Job"}},
     "--name: expected lower-case letters, digits and '-', starting with a letter, at most 35 characters, "
     'found "My Job"; try my-job'),
    ({"overrides": {"seed": "x"}}, '--seed: expected a whole number, found "x"'),
]  # fmt: skip


@pytest.mark.parametrize(("flags", "message"), FLAGS, ids=[message[:60] for _, message in FLAGS])
def test_a_wrong_flag_is_called_by_its_name(here: Path, flags: dict[str, Any], message: str) -> None:
    write(here, {"job.yaml": JOB})
    assert problem_with(here, **flags) == message


def test_a_mistake_in_the_file_is_the_file_s_even_with_flags(here: Path) -> None:
    write(here, {"job.yaml": "program: train.py\nlimits: 3\n"})
    found = problem_with(here, sets=["limits.restarts=5"])
    expected = "expected restarts, stall, runtime, rendezvous, grace, evaluate and logs, found 3"
    assert found == f"job.yaml:2: limits: {expected}"


def test_storage_stays_as_it_is_written(here: Path) -> None:
    write(here, {"job.yaml": "program: train.py\nstorage: {data: ./data, model: s3://b/m}\n"})
    storage = load(cwd=here).job.storage
    assert (storage.data, storage.model) == ("./data", "s3://b/m")


@pytest.mark.parametrize("module", ["train", "package.train", "json.tool", "only_in_the_image.train"])
def test_a_module_may_be_the_folder_s_or_somebody_else_s(here: Path, module: str) -> None:
    write(here, {"job.yaml": f"module: {module}\n", "package/train.py": "", "jsom.py": ""})
    assert load(cwd=here).job.module == module


def test_an_executable_of_the_folder_or_of_oarlocks_own_environment_is_a_command(here: Path) -> None:
    write(here, {"run.sh": "#!/bin/sh\n"})
    (here / "run.sh").chmod(0o755)
    for command in ("./run.sh", "python x.py", "sh"):
        write(here, {"job.yaml": f"command: {command}\nenv: {{PATH: /bin}}\n"})
        assert load(cwd=here).job.command == tuple(command.split())


# Nothing but a JobError, whatever the file.

YAML_JOB = """\
name: mnist
program: train.py
args: [--epochs, 3]
env: {LR: 1e-3, "TEXT": 'a b'}
framework: torch
roles:
  chief: 1
  worker: &w
    replicas: 2..8
    memory: 4Gi
  ps: {<<: *w, replicas: 2}
storage:
  data: data
limits:
  restarts: 5
  stall: 10m
warm: false
"""
TOML_JOB = """\
name = "mnist"
program = "train.py"
args = ["--epochs", 3, 1e-3]
env = { LR = 1e-3, "TEXT" = 'a b' }
warm = false
[roles]
chief = 1
worker = { replicas = "2..8", memory = "4Gi" }
[roles.ps]
cpu = 2.5
[limits]
restarts = 5
stall = "10m"
[kubernetes.pod]
when = 2020-01-01
text = \"\"\"
more = 1
\"\"\"
"""
PIECES = ["{", "}", "[", "]", ":", ": ", "- ", "\t", "\n", "&a ", "*w", "*a", "!!int ", "<<: ", "'", '"', "#"]
PIECES += ["---\n", "null", "~", "0x", "..", "\x07", "\ud800", "\u2028", "é", "%", "@", "? ", "  ", "9" * 400]
PIECES += ["=", " = 1\n", ".nan", "nan", "\\", "|\n", '"""', "[[x]]\n", "[roles]\n", ".", ",", "\r"]


@pytest.mark.parametrize(("name", "job"), [("job.yaml", YAML_JOB), ("job.toml", TOML_JOB)])
def test_whatever_is_changed_in_a_job_file_only_a_job_error_comes_of_it(
    here: Path, name: str, job: str
) -> None:
    draw = random.Random(11)
    counts = {"read": 0, "refused": 0}
    for _ in range(1500):
        text = _mutated(job, draw)
        (here / name).write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            load(name, cwd=here)
            counts["read"] += 1
        except JobError as problem:
            counts["refused"] += 1
            told = str(problem)
            if "\n" in told or not told.startswith(name) or "$" in told:
                pytest.fail(f"{told!r} about\n{text}")
    assert min(counts.values()) > 150, counts


def _mutated(text: str, draw: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    for _ in range(draw.randrange(1, 3)):
        number = draw.randrange(len(lines))
        line = lines[number]
        place = draw.randrange(len(line) + 1)
        kind = draw.randrange(6)
        if kind == 0:
            lines[number] = line[:place] + draw.choice(PIECES) + line[place:]
        elif kind == 1:
            lines[number] = line[:place] + line[place + draw.randrange(1, 5) :]
        elif kind == 2:
            lines[number] = ""
        elif kind == 3:
            lines.insert(draw.randrange(len(lines)), line)
        elif kind == 4:
            lines[number] = " " * draw.randrange(1, 4) + line
        else:
            other = draw.randrange(len(lines))
            lines[number], lines[other] = lines[other], line
    return "".join(lines)
