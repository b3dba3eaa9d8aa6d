"""What holds for every page: width, links that the site checks, commands that exist, English.

The English of messages, too."""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from oarlock.cli.group import VERBS
from tests.support import messages, pages
from tests.support.pages import PAGES, ROOT

WIDTH = 120
# Calls in running text that stand for many: VERB, [OPTIONS], ...
PATTERN = re.compile(r"[\[…<]|\.\.\.|VERB| \| ")
# British spellings, and phrases that read translated.
FOREIGN = re.compile(
    r"(?i)\b(anew|afresh|manieth|colours?|neighbours?|behaviour|so many|goes on|somebody|nobody|everybody"
    r"|in spite of|cannot be had|(?<!there )(is|are) (?-i:none)|left standing|stands already|to begin with)\b"
)


@pytest.mark.parametrize("page", PAGES)
def test_lines_are_wrapped(page: str) -> None:
    """Tables and blocks apart: a diff should show which sentence has changed."""
    lines = pages.prose(page).splitlines()
    assert [line for line in lines if len(line) > WIDTH and not line.startswith("|")] == []


@pytest.mark.parametrize("page", PAGES)
def test_commands_are_in_blocks_that_say_so(page: str) -> None:
    """Only those are found and run by tests."""
    hidden = r"^    (\$ )?(oarlock|kubectl|make|pip|python|docker) .*$"
    assert re.findall(hidden, pages.prose(page), re.MULTILINE) == []
    for block in pages.blocks(page, ""):
        assert not re.search(r"^\$ ", block, re.MULTILINE), "a transcript with a command is ```console"


@pytest.mark.parametrize("page", PAGES)
def test_calls_in_running_text_exist(page: str) -> None:
    for call in pages.quoted(page):
        if call.startswith("oarlock ") and not PATTERN.search(call):
            _check_call(call)


def _check_call(written: str) -> None:
    _, verb, *words = shlex.split(written)
    if verb.startswith("-"):
        return
    assert verb in VERBS, written
    command: click.Command = importlib.import_module(f"oarlock.cli.verbs.{verb}").verb
    command.make_parser(click.Context(command, **command.context_settings)).parse_args(words)


@pytest.mark.parametrize("page", [page for page in PAGES if page != "docs/job-file.md"])  # generated
def test_words_that_are_no_american_english(page: str) -> None:
    text = re.sub(r"`[^`\n]*`", "", pages.prose(page))
    assert [found[0] for found in FOREIGN.finditer(text)] == []


def test_messages_are_in_american_english() -> None:
    assert [(module, text) for module, text in messages.texts() if FOREIGN.search(text)] == []


def test_files_that_pages_name_exist() -> None:
    named = re.compile(r"(?:tests|bench|soak|docs|examples|requirements)/[\w./-]*\w")
    for page in PAGES:
        for path in named.findall(pages.text(page)):
            assert (ROOT / path).exists(), f"{page}: {path}"


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """Broken links and anchors are warnings; `make docs` builds it in the same way."""
    [recipe] = re.findall(r"^\t\$\(BIN\)/sphinx-build (.+) build/site$", pages.text("Makefile"), re.MULTILINE)
    words = [sys.executable, "-m", "sphinx", *recipe.split(), "-d", tmp_path / "trees", tmp_path / "site"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for page in PAGES:
        assert (tmp_path / "site" / page).with_suffix(".html").exists(), f"{page} is not part of the site"
    assert (tmp_path / "site" / "index.html").exists()
