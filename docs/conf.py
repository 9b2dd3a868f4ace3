import kiel

project = "kiel"
copyright = "kiel's authors"
version = release = kiel.__version__
extensions = ["sphinx.ext.autodoc"]
html_theme = "alabaster"
exclude_patterns = ["_build"]
