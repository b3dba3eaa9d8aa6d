"""Every shell command of every page is run, in the page's order, or is listed here with the reason why not.

The programs are stand-ins that train for a moment. Those for the examples take the examples' own arguments;
tests/examples has what the real ones learn.
"""

from __future__ import annotations

import importlib
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oarlock.job.model import Job
from oarlock.job.parsing.overrides import kind_at, path_of
from oarlock.records import runs
from oarlock.records.run_folder import RunFolder
from tests.support import page_commands_elsewhere as elsewhere
from tests.support import pages, recipes, stores
from tests.support.commands import SCRIPT
from tests.support.page_commands_elsewhere import CALLED, KUBERNETES, TAKEN, calls
from tests.support.page_programs import ARGUMENTS, WITH_WEIGHTS, training, write_tool
from tests.support.page_reader import SHORTER, Reader, reading
from tests.support.pages import PAGES
from tests.support.terminals import Terminal

# Commands that no test runs as they stand, and why.
NOT_RUN = {
    # They install from the package index. These tests run in what `make install` made, test_wheel.py installs
    # the package into an environment of its own, and test_requirements.py checks what `constraints` writes.
    "make install": "installs",
    "make demo": "installs, then does the first command of this page that is run",
    "make constraints": "asks the package index",
    "pip install .": "installs",
    # They are, or contain, the tests that run now.
    "make test": "this is part of it",
    "make check": "the first parts of make test",
    "make docs": "test_pages.py builds the site in the same way",
    "make bench": "takes an hour",
    "make soak": "takes hours",
}
# Commands that take seconds, and that are run on another page.
REPEATED = [
    ("docs/cli.md", "oarlock predict digit.png"),
    ("docs/cli.md", "oarlock serve"),
    ("docs/cli.md", "oarlock serve --ab 1=90,2=10 ./model"),
]
TRANSLATOR = "examples/transformer"
FURTHER = (
    'oarlock run --from transformer-abcd --set "ingest.args=--source $PWD/pairs.tsv --vocabulary FILE"'
    f" {TRANSLATOR}"
)


def _have_a_stopped_run(reader: Reader) -> None:
    """`mnist-abcd`, with a model, weights, and checkpoints of the steps 100, 200 and 1000 among others."""
    program = training(1000, state=WITH_WEIGHTS)
    stops = "assert step < 250 or oarlock.current().generation > 1; state.report"
    (reader.folder / "mnist.py").write_text(program.replace("state.report(loss", f"{stops}(loss"))
    reader.do("oarlock run --set limits.restarts=0 --name mnist-abcd mnist.py || test $? = 1")
    _add_model(reader, runs.find("mnist-abcd"))
    (reader.folder / "train.py").write_text(ARGUMENTS + training(20, state=WITH_WEIGHTS))


def _have_a_lasting_run(reader: Reader) -> None:
    """The page's own is a stand-in that may have ended by now."""
    reader.start("lasting")


def _have_it_running(reader: Reader) -> None:
    """`mnist-abcd` again, under way."""
    reader.do("oarlock delete mnist-abcd")
    reader.start("mnist-abcd", workers=2)
    _add_model(reader, runs.find("mnist-abcd"))


def _add_model(reader: Reader, run: RunFolder) -> None:
    shutil.copytree(reader.models / "image" / "1", run.path / "model" / "1")


def _have_models(reader: Reader) -> None:
    """`mnist-abcd` with one, and two versions in `./model`."""
    reader.do("oarlock run --name mnist-abcd train.py")
    _add_model(reader, runs.find("mnist-abcd"))
    for version in ("1", "2"):
        shutil.copytree(reader.models / "image" / "1", reader.folder / "model" / version)


def _have_a_run_in_a_bucket(reader: Reader) -> None:
    reader.do("oarlock run --name mnist-one train.py")
    _add_model(reader, runs.find("mnist-one"))


def _serve_texts(reader: Reader) -> None:
    reader.do(f"oarlock serve {reader.models / 'text'}")


def _be_at(recipe: str) -> Callable[[Reader], object]:
    def prepare(reader: Reader) -> None:
        reader.folder = reader.top / recipes.PROGRAMS[recipe]
        recipes.place(recipe, reader.folder)
        (reader.folder / "key.json").touch()

    return prepare


def _have_a_translator(reader: Reader) -> None:
    """A run with weights."""
    for program in ("train.py", "evaluate.py"):
        file = reader.folder / TRANSLATOR / program
        file.write_text(file.read_text().replace("sum=0", WITH_WEIGHTS))
    reader.do(f"oarlock run {TRANSLATOR}")


# What has to be there before a command of a page.
BEFORE: dict[tuple[str, str], Callable[[Reader], object]] = {
    ("README.md", "oarlock chaos --faults 5 --yes"): _have_a_lasting_run,
    ("docs/fault-tolerance.md", "oarlock chaos --faults 5 --every 10s --yes"): _have_a_lasting_run,
    ("examples/mnist_keras/README.md", "oarlock chaos --faults 2 --every 3s --yes"): _have_a_lasting_run,
    ("docs/cli.md", "oarlock run --resume mnist-abcd"): _have_a_stopped_run,
    (f"{TRANSLATOR}/README.md", FURTHER): _have_a_translator,
    # The newest run is to be one that trained.
    ("docs/cli.md", "oarlock evaluate"): lambda reader: reader.do("oarlock run --skip-ingest"),
    ("docs/cli.md", 'echo "it crashes when I save" | oarlock predict -m http://127.0.0.1:8000'): _serve_texts,
    ("docs/cli.md", "oarlock checkpoints ./checkpoints"): lambda reader: reader.do("python train.py"),
    ("docs/cli.md", "oarlock chaos"): _have_it_running,
    ("docs/cli.md", "oarlock exec --task worker-1 -- nvidia-smi"): lambda reader: write_tool(
        reader.tools / "nvidia-smi", "#!/bin/sh\n"
    ),
    ("docs/serving.md", "oarlock serve mnist-abcd"): _have_models,
    (
        "docs/serving.md",
        "oarlock scale mnist-serve-abcd 4",
    ): lambda reader: reader.do("oarlock serve -d --name mnist-serve-abcd ./model"),
    ("docs/snapshots.md", "oarlock serve mnist-one"): _have_a_run_in_a_bucket,
    ("docs/from-the-recipes.md", "oarlock run --on kubernetes"): _be_at(recipes.JINJA),
    ("docs/from-the-recipes.md", "oarlock render --ps 8 -n 16"): _be_at(recipes.HELM),
    (
        "docs/from-the-recipes.md",
        "kubectl create secret generic gcp-key --from-file=key.json",
    ): _be_at(recipes.STATEFUL_SET),
    ("docs/from-the-recipes.md", "oarlock plan"): _be_at(recipes.TFJOB),
    ("docs/troubleshooting.md", "oarlock status"): lambda reader: reader.start("broken", program="1 / 0"),
    ("docs/troubleshooting.md", "oarlock logs --first-error"): lambda reader: reader.do(
        "oarlock attach || test $? = 1"
    ),
}


def to_run(page: str) -> list[str]:
    """Those that are run here."""
    if page == KUBERNETES:
        return []
    others = {*NOT_RUN, *CALLED, *(elsewhere.taken(page) if page in TAKEN else ())}
    lines = [command.line for command in pages.commands(page)]
    return [line for line in lines if line not in others and (page, line) not in REPEATED]


RUN_HERE = [page for page in PAGES if to_run(page)]


@pytest.fixture
def reader(home: Path, tmp_path: Path) -> Iterator[Reader]:
    with reading(tmp_path) as found:
        yield found


@pytest.fixture
def buckets(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Those that pages name, with a model in each."""
    with stores.serving(reader.top / "store", monkeypatch) as store:
        for place in ("bucket/models/mnist", "my-bucket/runs/mnist-one/model"):
            shutil.copytree(reader.models / "image", store.folder / place)
        yield


@pytest.mark.parametrize("page", RUN_HERE)
def test_the_commands_of_a_page_work_in_its_order(
    page: str, reader: Reader, request: pytest.FixtureRequest
) -> None:
    lines = to_run(page)
    if any("s3://" in line for line in lines):
        if stores.needs_store.args[0]:
            lines = [line for line in lines if "s3://" not in line]
        else:
            request.getfixturevalue("buckets")
    prepared = set()
    for line in lines:
        prepare = BEFORE.get((page, line))
        if prepare is not None and line not in prepared:
            prepare(reader)
            prepared.add(line)
        if line == "oarlock chaos":
            _decline(reader, line)
        else:
            reader.do(line)


def _decline(reader: Reader, line: str) -> None:
    """It asks on a terminal."""
    terminal = Terminal([str(SCRIPT), *line.split()[1:]], reader.folder)
    try:
        terminal.until("[y/N]")
        terminal.type("n\n")
        assert terminal.end() == 1, terminal.shown
    finally:
        terminal.close()


@pytest.mark.parametrize("page", [page for page in PAGES if list(pages.commands(page))])
def test_every_option_and_argument_of_a_command_exists(page: str) -> None:
    """Of all of them, also of those that are not run here: the command line takes them as they stand."""
    for line in (command.line for command in pages.commands(page)):
        for verb, *words in calls(line):
            context = elsewhere.command(verb).make_context(verb, words)  # raises, and says what is wrong
            for field in context.params.get("sets", ()):
                kind_at(Job, path_of(Job, field.partition("=")[0]))
        if line.startswith("make "):
            assert re.search(rf"^{line.split()[1]}:", pages.text("Makefile"), re.MULTILINE), line


def test_pages_have_commands() -> None:
    assert {"README.md", "docs/cli.md", "examples/mnist_keras/README.md"} <= set(RUN_HERE)
    assert sum(len(to_run(page)) for page in RUN_HERE) > 130


@pytest.mark.parametrize("line", CALLED)
def test_a_command_that_is_run_elsewhere_is(line: str) -> None:
    assert elsewhere.is_called(line, CALLED[line]), f"no call in {CALLED[line]} has all of {line}"


def test_a_page_that_is_run_on_a_cluster_is_run_as_a_whole() -> None:
    file, _, name = elsewhere.KUBERNETES_TEST.partition(".py::")
    test = importlib.import_module(file.replace("/", "."))
    assert callable(getattr(test, name))
    lines = [command.line for command in pages.commands(KUBERNETES)]
    assert [command.line for command in test.commands()] == lines


@pytest.mark.parametrize("page", TAKEN)
def test_what_tests_take_from_a_page_are_commands_of_it(page: str) -> None:
    taken = elsewhere.taken(page)
    assert len(taken) > 3
    assert taken <= {command.line for command in pages.commands(page)}


def test_no_exception_is_left_over() -> None:
    written = {command.line for page in PAGES for command in pages.commands(page)}
    assert NOT_RUN.keys() | CALLED.keys() <= written
    run = {line for page in RUN_HERE for line in to_run(page)}
    assert all(line in run for _, line in REPEATED)
    assert all(line in to_run(page) for page, line in BEFORE)
    for short in SHORTER:
        assert any(short in line for line in written)
