"""What soaks share with the tests."""

from tests.conftest import *  # noqa: F403
