"""NumPy arrays, numbers and containers."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, defaultdict
from typing import NamedTuple

import numpy as np
from round_trip import go_through, refused, through, unkeepable

TYPES = "float64 float32 float16 complex128 complex64 int64 int32 int16 int8 uint64 uint32 uint16 uint8 bool"


class Pair(NamedTuple):
    left: object
    right: object


def same(one, other):
    assert isinstance(one, np.ndarray), type(one)
    assert (one.dtype, one.shape) == (other.dtype, other.shape)
    assert one.tobytes() == other.tobytes()


def case_arrays_of_every_type_and_shape():
    random = np.random.default_rng(1)
    before = {
        f"{name} {shape}": np.frombuffer(random.bytes(math.prod(shape) * 16), "uint8")[
            : math.prod(shape) * np.dtype(name).itemsize
        ]
        .view(name)
        .reshape(shape)
        for name in TYPES.split()
        if name != "bool"
        for shape in ((), (0,), (3, 0), (1,), (5, 7))
    }
    before["bool"] = np.array([True, False])
    after = through({"all": before}, {"all": {}})["all"]
    assert list(after) == list(before)
    for name, array in before.items():
        same(after[name], array)


class Average:
    """An object with a state of its own, in a program without torch."""

    def __init__(self, size):
        self.sum, self.count = np.zeros(size), 0

    def state_dict(self):
        return {"sum": self.sum, "count": self.count}

    def load_state_dict(self, state):
        self.sum, self.count = state["sum"], state["count"]


def case_objects_with_a_state_of_their_own():
    before, after = Average(3), Average(3)
    before.sum += (1.5, 2.5, 3.5)
    before.count = 2
    through({"average": before}, {"average": after})
    same(after.sum, before.sum)
    assert after.count == 2


def case_arrays_that_do_not_lie_in_a_row():
    whole = np.arange(60.0).reshape(3, 4, 5)
    before = {
        "transposed": whole.T,
        "every other": whole[::2, ::-1],
        "column": whole[:, 1, :],
        "big": whole.astype(">f8"),
    }
    after = through({"x": before}, {"x": {}})["x"]
    for name, array in before.items():
        assert (after[name] == array).all(), name


def case_values():
    before = {
        "nan": math.nan, "inf": -math.inf, "zero": -0.0, "tiny": 5e-324, "third": 1 / 3,
        "large": 2**63 + 1, "beyond": -(2**53) - 1, "text": 'so "so" \n ü 😀 \0',
        "none": None, "yes": True, 3: [1, (2.5, [], {})], "set": {1, 2}, "": "empty",
        "numpy": np.float64(0.1),
    }  # fmt: skip
    after = through({"x": before}, {"x": None})["x"]
    assert math.isnan(after.pop("nan"))
    assert math.copysign(1, after["zero"]) == -1
    del before["nan"]
    assert after == before
    assert list(map(type, after)) == list(map(type, before))
    assert type(after[3][1]) is tuple
    assert type(after["yes"]) is bool


def case_only_a_number():
    assert through({"count": 3}, {"count": 0}) == {"count": 3}


def case_the_programs_own_arrays_and_dicts_have_it_too():
    """The State is one name for them, and the program has others."""
    array, counts, seen = np.zeros(3), defaultdict(int), [0]
    fresh = {"x": {"array": array, "counts": counts}, "seen": seen}
    after = through({"x": {"array": np.arange(3.0), "counts": {"a": 2}}, "seen": [1, 2]}, fresh)
    assert array.tolist() == [0, 1, 2]
    assert after["x"]["array"] is array
    assert counts == {"a": 2}
    assert counts["new"] == 0
    assert seen == [1, 2]


def case_containers_keep_their_types():
    before = {"pair": Pair(np.ones(2), 5), "counter": Counter("aab"), "ordered": OrderedDict(a=1)}
    fresh = {"pair": Pair(np.zeros(2), 0), "counter": Counter(), "ordered": OrderedDict(b=2)}
    after = through({"x": before}, {"x": fresh})["x"]
    assert type(after["pair"]) is Pair
    assert after["pair"].left.tolist() == [1, 1]
    assert after["pair"].right == 5
    assert after["counter"].most_common(1) == [("a", 2)]
    assert after["ordered"] == OrderedDict(a=1)


def case_a_scalar_of_numpy_stays_one():
    after = through({"x": np.int64(2**62 + 1)}, {"x": np.int64(0)})["x"]
    assert type(after) is np.int64
    assert after == 2**62 + 1


def case_an_array_of_another_size_replaces_the_one_there_was():
    small = np.zeros(2)
    after = through({"x": np.arange(5)}, {"x": small})["x"]
    assert after.tolist() == [0, 1, 2, 3, 4]
    after[0] = 9  # its own memory


def case_names_that_look_alike():
    before = {"a.b": np.ones(1), "a": {"b": np.zeros(1), 1: np.full(1, 2.0), "1": np.full(1, 3.0)}}
    after = through({"x": before}, {"x": {}})["x"]
    assert after["a.b"] == 1
    assert [after["a"]["b"], after["a"][1], after["a"]["1"]] == [0, 2, 3]


def case_what_cannot_be_kept_is_named():
    records = np.zeros(2, [("x", "f4"), ("y", "i4")])
    assert (
        unkeepable({"a": records})
        == "thing.a is a numpy.ndarray of [('x', '<f4'), ('y', '<i4')], which cannot be saved"
    )
    assert unkeepable([np.array(["text"])]) == "thing.0 is a numpy.ndarray of <U4, which cannot be saved"
    assert (
        unkeepable(np.zeros(1, "datetime64[s]"))
        == "thing is a numpy.ndarray of datetime64[s], which cannot be saved"
    )
    assert unkeepable(b"bytes") == "thing is a builtins.bytes, which cannot be saved"
    assert unkeepable({(1, 2): 3}) == "thing has the key (1, 2): keys must be strings or integers"


def case_a_thing_that_was_not_saved():
    assert refused({"a": 1}, {"a": 1, "b": 2, "c": 3}) == "it has no b, c"


def case_a_thing_that_is_no_longer_kept():
    assert through({"a": 1, "b": np.ones(3)}, {"a": 0}) == {"a": 1}


if __name__ == "__main__":
    go_through(globals())
