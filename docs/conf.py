"""Sphinx's settings for the documentation site: ./hvd dev docs --site.

The sources are the Markdown files of the whole repository, so that a link between two of them is
the same on a git host and on the site.
"""

import os
import pathlib
import subprocess
import sys

import yaml
from sphinx.search import SearchEnglish

ROOT = pathlib.Path(__file__).parents[1]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
COMMIT = ["git", "-C", ROOT, "log", "-1", "--format=%h of %cs"]

# for selector.py
sys.path.insert(0, str(ROOT / "docs"))

project = "hvd"
version = release = CITATION["version"]
extensions = ["myst_parser", "sphinx_copybutton", "sphinx_design", "selector"]
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/**.md",
    "examples/README.md",
    "benchmarks/README.md",
    "tests/*.md",
]
exclude_patterns = [".*", "ci", "environments", "packages", "spack_repo"]
templates_path = ["_templates"]
highlight_language = "text"
# quotes and -- are parts of options and names of modules
smartquotes = False
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
myst_html_meta = {"description": CITATION["abstract"]}
copybutton_prompt_text = "$ "
copybutton_line_continuation_character = "\\"

html_theme = "furo"
html_title = CITATION["title"]
html_favicon = "_static/icon.svg"
html_show_copyright = False
html_use_index = False
html_static_path = ["_static"]
html_js_files = ["filter.js", "search.js", "selector.js"]
html_css_files = ["site.css"]
html_additional_pages = {"index": "redirect.html"}
html_context = {
    "license": " or ".join(CITATION["license"]),
    # empty in a source tree without git
    "commit": subprocess.run(COMMIT, stdout=subprocess.PIPE, text=True).stdout.strip(),
    # known where GitLab or GitHub builds the site
    "repository": os.environ.get("CI_PROJECT_URL")
    or "/".join(filter(None, map(os.environ.get, ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY")))),
}
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/about.html",
        "sidebar/scroll-end.html",
    ]
}
html_theme_options = {"top_of_page_buttons": ["view"]}


class Words(SearchEnglish):
    """English, and numbers: people search for what a message says."""

    def word_filter(self, word):
        return word not in self.stopwords


def setup(app):
    app.add_search_language(Words)
