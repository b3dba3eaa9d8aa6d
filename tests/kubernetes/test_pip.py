"""What a job asks for with `pip:`, or its program in its own block, is installed in every pod.

The packages are wheels that this machine serves; pods reach it where they reach the API server.
"""

from __future__ import annotations

import functools
import socket
import threading
import zipfile
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from oarlock.engines.kubernetes.api.client import Api
from tests.support.clusters import Cluster
from tests.support.kubernetes.driving import MEET, Driver, Named, all_complete, driving, pods_of
from tests.support.kubernetes.small import SMALL
from tests.support.soaking import only_in_soak
from tests.support.waiting import eventually

PAIR = {"worker": {"replicas": 2, **SMALL}}
BLOCK = """\
# /// script
# dependencies = ["oarlock-tiny", "packaging==99.0", "numpy"]
# ///
import numpy, oarlock_tiny, packaging
print(oarlock_tiny.VALUE, packaging.VALUE, numpy.__file__.startswith("/oarlock"))
"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: what is asked for is in `asked`."""

    def do_GET(self) -> None:
        asked.append(self.path)
        super().do_GET()


asked: list[str] = []


@pytest.fixture(scope="module")
def driver(cluster: Cluster, api: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with driving(tmp_path_factory.mktemp("pip"), cluster.user, api) as found:
        yield found


@pytest.fixture(scope="module")
def index(api: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """pip's variables for a page of two wheels: one that nobody has, one that every image has in another
    version."""
    folder = tmp_path_factory.mktemp("wheels")
    write_wheel(folder, "oarlock_tiny", "1.0", requires="packaging")
    write_wheel(folder, "packaging", "99.0")
    host = urlsplit(api.server).hostname or ""
    with ThreadingHTTPServer((host, 0), functools.partial(Quiet, directory=str(folder))) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield {
            "PIP_FIND_LINKS": f"http://{host}:{server.server_port}/",
            "PIP_NO_INDEX": "1",
            "PIP_TRUSTED_HOST": host,
        }
        server.shutdown()
        serving.join()


def write_wheel(folder: Path, name: str, version: str, requires: str = "") -> None:
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    about += f"Requires-Dist: {requires}\n" if requires else ""
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", f"VALUE = '{name} {version}'\n")
        info = f"{name}-{version}.dist-info"
        wheel.writestr(f"{info}/METADATA", about)
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def logs_of(api: Api, run: str) -> str:
    return "\n".join(
        line.decode() for pod in pods_of(api, run).values() for line in api.log(pod["metadata"]["name"])
    )


def test_packages_are_in_every_pod_before_the_start(driver: Driver, api: Api, index: dict[str, str]) -> None:
    """A newer one covers the image's, which belongs to root; what the image has and fits stays as it is."""
    words = [word for name, value in index.items() for word in ("--env", f"{name}={value}")]
    program = driver.start(driver.job(BLOCK + MEET, roles=PAIR), *words)
    told = "import oarlock_tiny; print(oarlock_tiny.VALUE)"
    job = driver.start(driver.job(told + MEET, roles=PAIR, pip=["oarlock-tiny", "packaging>=1"]), *words)

    said = ["oarlock_tiny 1.0 packaging 99.0 False"]
    assert program.succeed().lines == {"worker-0": said, "worker-1": said}
    said = ["oarlock_tiny 1.0"]
    assert job.succeed().lines == {"worker-0": said, "worker-1": said}
    assert logs_of(api, program.name).count("Requirement already satisfied: numpy") == 2
    assert logs_of(api, job.name).count("Requirement already satisfied: packaging") >= 2
    assert len([path for path in asked if "packaging-99.0" in path]) == 2, "only for the first run's two pods"


@only_in_soak
def test_a_package_that_does_not_exist_ends_the_run_with_the_words_of_pip(
    driver: Driver, api: Api, index: dict[str, str]
) -> None:
    folder = driver.job("print('never')", roles=PAIR, pip=["no-such-package"], env=index)
    run = driver.start(folder).end()
    assert run.code == 1, run.told
    why = "pip could not install no-such-package: No matching distribution found for no-such-package"
    assert why in run.err, run.told
    assert "never" not in run.out
    all_complete(api, run.name)


@only_in_soak
def test_a_package_that_one_group_cannot_install_ends_the_run_too(
    driver: Driver, api: Api, index: dict[str, str]
) -> None:
    """The leader has it, the other pod has not; alone it would fail again and again, unheard."""
    here = {"containers": [{"name": "main", "env": [{"name": "PIP_NO_INDEX", "value": "1"}]}]}
    folder = driver.job(
        "print('never')",
        roles={"chief": SMALL, "worker": SMALL},
        pip=["oarlock-tiny"],
        kubernetes={"secrets": {driver.secret(index): {"variables": True, "roles": ["chief"]}}, "pod": here},
    )
    run = driver.start(folder).end()
    assert run.code == 1, run.told
    assert "worker-0: pip could not install oarlock-tiny: No matching distribution found" in run.err
    all_complete(api, run.name)


def test_a_pod_that_is_still_installing_leaves_when_asked(driver: Driver, api: Api) -> None:
    """A container's first process hears only the signals that it listens to."""
    host = urlsplit(api.server).hostname or ""
    with socket.create_server((host, 0)) as silent:  # an index that never answers
        silent.settimeout(300)
        index = {"PIP_INDEX_URL": f"http://{host}:{silent.getsockname()[1]}/simple", "PIP_TRUSTED_HOST": host}
        fields: dict[str, Any] = {"roles": {"worker": SMALL}, "pip": ["tiny"], "limits": {"grace": "10m"}}
        folder = driver.job("print('never')", env={**index, "PIP_TIMEOUT": "600"}, **fields)
        run = driver.start(folder, "-d").succeed()
        with silent.accept()[0]:
            done = driver.call("stop", run.name)
            assert (done.returncode, done.stdout) == (0, f"{run.name} stopped\n"), done.stderr
    # Its container has ended; the node removes the pod a moment later.
    eventually(lambda: not api.all("Pod", Named(run.name).members), f"end of the pods of {run.name}", 120)
