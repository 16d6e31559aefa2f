"""Sphinx's settings for the documentation site: ./hvd docs --site."""

import re

from hvd.docs import which_spec

project = "hvd"
extensions = ["myst_parser"]
html_theme = "furo"
highlight_language = "text"
html_title = "hvd: Horovod for HPC"
html_show_copyright = False
html_static_path = ["_static"]
html_js_files = ["filter.js"]
html_css_files = ["site.css"]
exclude_patterns = ["matrix"]
myst_heading_anchors = 3
# Markdown outside this directory is no page of the site: offer the file
_OUTSIDE = re.compile(r"\]\(((?:\.\./)+(?:environments|examples)/[^)#]*\.md)\)")


def _complete_page(app, name, source):
    source[0] = _OUTSIDE.sub(r"](<path:\1>)", source[0])
    if name == "which-spec":
        source[0] += f"\n```{{raw}} html\n{which_spec.form()}\n```\n"


def setup(app):
    app.connect("source-read", _complete_page)
