"""Which package brings a module: from a table, and from what is installed here."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata

# Modules whose package has another name. A dotted name is of a package in a shared namespace.
_PACKAGES = {
    "Crypto": "pycryptodome",
    "PIL": "pillow",
    "absl": "absl-py",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "git": "GitPython",
    "google.cloud.aiplatform": "google-cloud-aiplatform",
    "google.cloud.bigquery": "google-cloud-bigquery",
    "google.cloud.storage": "google-cloud-storage",
    "google.protobuf": "protobuf",
    "grpc": "grpcio",
    "haiku": "dm-haiku",
    "hydra": "hydra-core",
    "jwt": "PyJWT",
    "lightning_fabric": "lightning-fabric",
    "mpl_toolkits": "matplotlib",
    "orbax": "orbax-checkpoint",
    "orbax.export": "orbax-export",
    "pkg_resources": "setuptools",
    "psycopg2": "psycopg2-binary",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "torch.utils.tensorboard": "tensorboard",  # imports it itself
    "tree": "dm-tree",
    "umap": "umap-learn",
    "yaml": "PyYAML",
    "zmq": "pyzmq",
}
# What else a package that is not installed here brings: others that programs import beside it.
_BRINGS = {
    "accelerate": ("huggingface-hub", "numpy", "psutil", "pyyaml", "safetensors", "torch"),
    "datasets": ("huggingface-hub", "numpy", "pandas", "pyarrow", "pyyaml", "requests", "tqdm"),
    "dm-haiku": ("absl-py", "jmp", "numpy"),
    "equinox": ("jax", "jaxtyping"),
    "flax": ("jax", "msgpack", "numpy", "optax", "orbax-checkpoint", "pyyaml", "rich", "tensorstore"),
    "keras": ("absl-py", "h5py", "ml-dtypes", "numpy", "optree", "packaging", "rich"),
    "lightning": ("fsspec", "numpy", "pytorch-lightning", "pyyaml", "torch", "torchmetrics", "tqdm"),
    "matplotlib": ("numpy", "pillow", "python-dateutil"),
    "opencv-python": ("numpy",),
    "optax": ("absl-py", "chex", "jax", "numpy"),
    "orbax-checkpoint": ("absl-py", "etils", "jax", "msgpack", "numpy", "pyyaml", "tensorstore"),
    "pandas": ("numpy", "python-dateutil"),
    "pytorch-lightning": ("fsspec", "numpy", "pyyaml", "torch", "torchmetrics", "tqdm"),
    "scikit-learn": ("joblib", "numpy", "scipy"),
    "tensorflow-datasets": ("absl-py", "numpy", "protobuf", "requests", "tqdm"),
    "timm": ("huggingface-hub", "pyyaml", "safetensors", "torch", "torchvision"),
    "transformers": ("huggingface-hub", "numpy", "pyyaml", "safetensors", "tokenizers", "tqdm"),
}
_NAME = re.compile(r"\s*([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:$|[\[(<>=!~;])")


def missing(modules: Iterable[str], brought: Iterable[str], requirements: Iterable[str]) -> list[str] | None:
    """The packages of these modules that neither `brought` (packages) nor pip's `requirements` bring.

    None if that is unknown.
    """
    there = closure([*brought, *requirements])
    if there is None:
        return None
    wanted = [names for module in modules if (names := packages_of(module))]
    return list(dict.fromkeys(names[0] for names in wanted if there.isdisjoint(map(normal, names))))


def packages_of(module: str) -> tuple[str, ...]:
    """The packages that may bring a module, the likeliest first; none for Python's own and Oarlock."""
    parts = module.split(".")
    if parts[0] in sys.stdlib_module_names or parts[0] == "oarlock":
        return ()
    for length in range(len(parts), 1, -1):
        if found := _PACKAGES.get(".".join(parts[:length])):
            return (found,)
    listed = _PACKAGES.get(parts[0], parts[0].replace("_", "-"))
    return (*_installed().get(parts[0], ()), listed)


def closure(requirements: Iterable[str]) -> set[str] | None:
    """The packages that pip installs for these, by their normal names, as far as it is known here.

    None if one of them is a file or an address: what it brings is not known.
    """
    names = [_NAME.match(one) for one in requirements]
    if not all(names):
        return None
    waiting = [normal(found[1]) for found in names if found]
    known: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in known:
            known.add(name)
            waiting += _requires(name)
    return known


def pinned(package: str) -> str:
    """The package in the version installed here, for `pip:`; without a version if it is not installed."""
    try:
        return f"{package}=={metadata.version(package).partition('+')[0]}"
    except metadata.PackageNotFoundError:
        return package


def is_from_folder(package: str) -> bool:
    """Whether the package is installed here from a folder or an address, so that no index may have it."""
    try:
        return metadata.distribution(package).read_text("direct_url.json") is not None
    except metadata.PackageNotFoundError:
        return False


def normal(package: str) -> str:
    """The name as indexes compare it: `PyYAML` is `pyyaml`, `a_b.c` is `a-b-c`."""
    return re.sub(r"[-_.]+", "-", package).lower()


def _requires(package: str) -> Iterable[str]:
    try:
        lines = metadata.requires(package) or []
    except metadata.PackageNotFoundError:
        return _BRINGS.get(package, ())
    found = (_NAME.match(line.partition(" ")[0]) for line in lines if "extra ==" not in line)
    return [normal(one[1]) for one in found if one]


@cache
def _installed() -> Mapping[str, list[str]]:
    """Packages by the modules that they bring; reading them takes 0.2 s."""
    return metadata.packages_distributions()
