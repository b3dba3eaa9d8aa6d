"""The site that `make docs` builds from the Markdown that GitHub shows, with every link and anchor checked.

Sphinx with MyST: both are released regularly, and they read pages from the whole repository, so that links
between README.md, docs/ and examples/ are the same here and on GitHub.
"""

from __future__ import annotations

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

project = "Oarlock"
author = "the Oarlock authors"
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "examples/*/README.md"]
exclude_patterns = ["build", ".venv"]

myst_heading_anchors = 4  # as GitHub makes them
nitpicky = True

html_theme = "furo"
html_title = "Oarlock"
html_copy_source = False
html_additional_pages = {"index": "to_readme.html"}
templates_path = ["templates"]

# What the sidebar shows. GitHub has no use for it, so that it is not in README.md itself.
SIDEBAR = {
    "Start": ["docs/concepts", "docs/job-file", "docs/cli", "docs/python", "docs/troubleshooting"],
    "Train": [
        "docs/data",
        "docs/fault-tolerance",
        "docs/evaluation",
        "docs/snapshots",
        "docs/keras",
        "docs/parameter-servers",
        "docs/gpu",
        "docs/tensorboard",
    ],
    "Serve": ["docs/serving"],
    "On a cluster": ["docs/kubernetes", "docs/from-the-recipes"],
    "Examples": [
        "examples/mnist_keras/README",
        "examples/mnist_custom_loop/README",
        "examples/image_classifier/README",
        "examples/issue_summarizer/README",
        "examples/transformer/README",
        "examples/gpt_torch/README",
        "examples/gpt_jax/README",
    ],
    "Inside": ["docs/agent", "docs/security", "docs/measurements", "CONTRIBUTING", "SECURITY"],
}


def setup(app: Sphinx) -> None:
    for language in ("order", "tests"):  # blocks that tests read
        app.add_lexer(language, TextLexer)
    app.connect("source-read", _add_sidebar)


def _add_sidebar(app: Sphinx, name: str, source: list[str]) -> None:
    if name == root_doc:
        for caption, pages in SIDEBAR.items():
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(pages) + "\n```\n"
