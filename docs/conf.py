"""Sphinx's settings for the documentation site: ./hvd dev docs --site."""

import re

project = "hvd"
extensions = ["myst_parser"]
html_theme = "furo"
highlight_language = "text"
html_title = "hvd: Horovod for HPC"
html_show_copyright = False
html_static_path = ["_static"]
html_js_files = ["filter.js"]
html_css_files = ["site.css"]
myst_heading_anchors = 3
# Markdown outside this directory is no page of the site: offer the file
_OUTSIDE = re.compile(r"\]\(((?:\.\./)+(?:environments|examples|benchmarks)/[^)#]*\.md)\)")


def _offer_files(app, name, source):
    source[0] = _OUTSIDE.sub(r"](<path:\1>)", source[0])


def setup(app):
    app.connect("source-read", _offer_files)
