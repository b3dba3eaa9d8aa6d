"""docs/job-file.md is what its generator writes from the fields' declarations."""

from __future__ import annotations

from types import ModuleType

import pytest
import yaml

from oarlock.job.model import parse
from tests.support import pages
from tests.support.loose_modules import loaded

PAGE = "docs/job-file.md"


@pytest.fixture
def generator() -> ModuleType:
    return loaded(pages.ROOT / "docs" / "job_file_reference.py")


def test_the_page_is_up_to_date(generator: ModuleType) -> None:
    assert pages.text(PAGE) == generator.page(), "renew it with `python docs/job_file_reference.py`"


def test_a_field_without_an_example_is_an_error(generator: ModuleType) -> None:
    del generator.EXAMPLES["Limits"][1]["stall"]
    with pytest.raises(ValueError, match="stall"):
        generator.page()


def test_an_example_that_is_refused_is_an_error(generator: ModuleType) -> None:
    generator.EXAMPLES["Limits"][1]["stall"] = "soon"
    with pytest.raises(ValueError, match="stall: expected a duration"):
        generator.page()


def test_the_example_at_the_top_is_valid() -> None:
    [example] = pages.blocks(PAGE, "yaml")
    parse(yaml.safe_load(example))
