"""What a frozen dataclass does, ours does: each check runs on the standard one too."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import field, replace
from typing import Any

import pytest

from oarlock.run import quick_dataclass
from oarlock.run.quick_dataclass import dataclass


@dataclasses.dataclass(frozen=True)
class Standard:
    name: str
    counts: tuple[int, ...] = ()
    extra: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Quick:
    name: str
    counts: tuple[int, ...] = ()
    extra: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Twin:
    name: str
    counts: tuple[int, ...] = ()
    extra: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Longer(Quick):
    last: str = "z"

    def __repr__(self) -> str:
        return "its own"


BOTH = pytest.mark.parametrize("kind", [Standard, Quick])


def test_the_quick_one_is_ours() -> None:
    assert vars(Quick)["__eq__"] is vars(Twin)["__eq__"]
    assert vars(Standard)["__eq__"] is not vars(Quick)["__eq__"]
    assert Quick.__eq__.__module__ == quick_dataclass.__name__


@BOTH
def test_values_are_given_by_place_and_name(kind: type[Any]) -> None:
    one = kind("a", counts=(1, 2))
    assert (one.name, one.counts, one.extra) == ("a", (1, 2), {})
    assert repr(one) == f"{kind.__name__}(name='a', counts=(1, 2), extra={{}})"
    with pytest.raises(TypeError, match="name"):
        kind()
    with pytest.raises(TypeError, match="other"):
        kind("a", other=1)


@BOTH
def test_it_never_changes(kind: type[Any]) -> None:
    one = kind("a")
    for name in ("name", "counts", "other"):
        with pytest.raises(dataclasses.FrozenInstanceError, match=name):
            setattr(one, name, 1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="name"):
        del one.name
    assert one == kind("a")


@BOTH
def test_equal_ones_have_equal_values_and_the_same_class(kind: type[Any]) -> None:
    assert kind("a", (1,)) == kind("a", (1,))
    assert kind("a", (1,)) != kind("a", (2,))
    assert kind("a") != Twin("a")
    assert kind("a") != "a"


@BOTH
def test_it_can_be_hashed_if_its_values_can(kind: type[Any]) -> None:
    assert hash(kind("a", extra=())) == hash(kind("a", extra=()))
    assert len({kind("a", extra=()), kind("a", extra=()), kind("b", extra=())}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(kind("a"))


@BOTH
def test_it_is_replaced_copied_and_pickled(kind: type[Any]) -> None:
    one = kind("a", (1,), {"x": 1})
    assert replace(one, name="b") == kind("b", (1,), {"x": 1})
    assert dataclasses.asdict(one) == {"name": "a", "counts": (1,), "extra": {"x": 1}}
    assert copy.deepcopy(one) == one
    assert pickle.loads(pickle.dumps(one)) == one


def test_one_that_inherits_has_all_fields_and_its_own_methods() -> None:
    one = Longer("a", last="b")
    assert one == Longer("a", (), {}, "b")
    assert one != Longer("a", (), {}, "c")
    assert one != Quick("a")
    assert repr(one) == "its own"
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.last = "c"  # type: ignore[misc]
