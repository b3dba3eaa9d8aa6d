"""Commands of pages that a test elsewhere runs, most of them on a cluster, and the proof that it does.

A test stands for a line if it calls the same verb with all options that the line has, in the same place
(`--on`), and names a run or an input where the line does. It may give more: a name, `--json`.
"""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cache

import click

from oarlock.cli.group import VERBS
from tests.support import pages
from tests.support.pages import ROOT

KUBERNETES = "docs/kubernetes.md"
# Each of its lines is run on a cluster, in the page's order.
KUBERNETES_TEST = "tests/kubernetes/test_docs.py::test_every_command_does_what_the_page_says_in_its_order"
# Tests that take lines from a page, by patterns of their own.
TAKEN: dict[str, list[str]] = {
    "docs/snapshots.md": [
        "tests/agent/snapshots/test_snapshots.py::test_the_commands_of_its_page_work",
        "tests/agent/snapshots/test_exported_versions.py::test_the_commands_of_its_page_work",
    ]
}
_BOARD = "tests/cli/verbs/test_tensorboard.py::test_several_runs_are_shown_until_it_is_interrupted"
_SERVER = "tests/kubernetes/test_serve.py"
_SCALED = f"{_SERVER}::test_it_is_scaled_and_a_pod_that_is_killed_is_replaced"
_EVALUATED = (
    "tests/kubernetes/test_evaluation.py::test_an_evaluator_without_the_volume_scores_every_checkpoint"
)
_PREDICTED = "tests/kubernetes/test_predict.py::test_pods_share_the_examples_and_answer_as_this_machine_does"
# Lines that a test elsewhere runs with names of its own; KUBERNETES: one of that page's.
CALLED = {
    "oarlock doctor": "tests/cli/verbs/test_doctor.py::test_it_tells_what_works_and_why_not",
    "oarlock tensorboard": _BOARD,
    "oarlock tensorboard mnist-abcd mnist-efgh": _BOARD,
    "oarlock tensorboard --deploy mnist-abcd": (
        "tests/kubernetes/test_tensorboard.py::test_one_that_is_deployed_stands_until_it_is_deleted"
    ),
    "oarlock serve --on kubernetes mnist-keras-abcd": f"{_SERVER}::test_a_folder_is_handed_over_and_answers",
    "oarlock status mnist-keras-serve": f"{_SERVER}::test_a_folder_is_handed_over_and_answers",
    "oarlock logs -f mnist-keras-serve": KUBERNETES,
    "oarlock scale mnist-keras-serve 3": _SCALED,
    "oarlock stop mnist-keras-serve": KUBERNETES,  # of a run; that of a server is left to the soak
    "oarlock delete --force mnist-keras-serve": f"{_SERVER}::test_deleting_it_leaves_nothing",
    "oarlock evaluate mnist-abcd --on kubernetes": _EVALUATED,
    "oarlock evaluate --on kubernetes digits-abcd --all": _EVALUATED,
    "oarlock evaluate --on kubernetes image-classifier-abcd --all": _EVALUATED,
    "oarlock ingest --on kubernetes": (
        "tests/kubernetes/test_ingest.py::test_its_failure_ends_the_run_with_its_own_words"
    ),
    "oarlock predict -m mnist-abcd -n 4 --on kubernetes -o answers.jsonl pictures": _PREDICTED,
    "oarlock predict -m mnist-keras-abcd -o answers.jsonl -n 4 --on kubernetes rows.jsonl": _PREDICTED,
    "oarlock pull mnist-keras-abcd": KUBERNETES,
    "oarlock pull mnist-abcd": KUBERNETES,
    "oarlock logs -f": KUBERNETES,
    "oarlock delete --volumes mnist-abcd": KUBERNETES,
    "oarlock delete image-classifier-abcd": KUBERNETES,
    "oarlock delete issues-abcd": KUBERNETES,
}

UNKNOWN = "?"  # a word that only the running test knows


def calls(line: str) -> list[list[str]]:
    """The words after each `oarlock` of a shell line, without redirections."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    for word in lexer:
        if re.fullmatch(r"[|&;<>]+", word):
            found.append([])
        else:
            found[-1].append(word)
    return [words[1:] for words in found if words[0] == "oarlock"]


def command(verb: str) -> click.Command:
    assert verb in VERBS, verb
    found: click.Command = importlib.import_module(f"oarlock.cli.verbs.{verb}").verb
    return found


def is_called(line: str, where: str) -> bool:
    """Whether the test, or the page KUBERNETES, stands for a line."""
    [words] = calls(line)
    if where == KUBERNETES:
        others = [call for one in pages.commands(KUBERNETES) for call in calls(one.line)]
    else:
        others = list(_calls_of(where))
    return any(_covers(other, words) for other in others)


def taken(page: str) -> set[str]:
    """Lines that tests take from a page: whatever their patterns for `oarlock` find there."""
    found: set[str] = set()
    for where in TAKEN[page]:
        test = _test(where)
        assert page.rpartition("/")[2] in ast.unparse(test)
        for node in ast.walk(test):
            pattern = node.value if isinstance(node, ast.Constant) else None
            if isinstance(pattern, str) and pattern.startswith("^") and "oarlock" in pattern:
                lines = re.findall(pattern, pages.text(page), re.MULTILINE)
                found |= {f"oarlock {one}" for one in lines}
    return found


def _covers(other: Sequence[str], words: Sequence[str]) -> bool:
    if other[:1] != words[:1]:
        return False
    theirs, ours = _given(other), _given(words)
    return ours.keys() <= theirs.keys() and ours.get("on") == theirs.get("on")


def _given(words: Sequence[str]) -> dict[str, object]:
    """Options and arguments by name, without defaults."""
    verb = command(words[0])
    context = click.Context(verb, **verb.context_settings)
    found, _, order = verb.make_parser(context).parse_args(list(words[1:]))
    names = {param.name for param in order}
    return {name: value for name, value in found.items() if name in names and value not in (None, ())}


def _calls_of(where: str) -> Iterator[list[str]]:
    """All that a test passes to a function or lists, where that begins with a verb."""
    constants = _constants(where.partition("::")[0])
    for node in ast.walk(_test(where)):
        if isinstance(node, ast.Call):
            parts = node.args
        elif isinstance(node, (ast.List, ast.Tuple)):
            parts = node.elts
        else:
            continue
        words = list(_words(parts, constants))
        if words and words[0] == UNKNOWN:  # the console script
            words = words[1:]
        if words and words[0] in VERBS:
            yield words


def _words(parts: Sequence[ast.expr], constants: dict[str, ast.expr]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, ast.Starred):
            value = part.value
            named = constants.get(value.id) if isinstance(value, ast.Name) else value
            if isinstance(named, (ast.List, ast.Tuple)):
                yield from _words(named.elts, constants)
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value
        else:
            yield UNKNOWN


def _test(where: str) -> ast.FunctionDef:
    file, _, name = where.partition("::")
    functions = [node for node in _tree(file).body if isinstance(node, ast.FunctionDef)]
    found = next((node for node in functions if node.name == name), None)
    assert found is not None, f"there is no {where}"
    assert not any("soak" in ast.unparse(one) for one in found.decorator_list), f"only the soak has {where}"
    return found


def _constants(file: str) -> dict[str, ast.expr]:
    assigned = [node for node in _tree(file).body if isinstance(node, ast.Assign)]
    return {one.targets[0].id: one.value for one in assigned if isinstance(one.targets[0], ast.Name)}


@cache
def _tree(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text())
