import six

# Files of coroutines that Python 2 can't even parse.
collect_ignore_glob = ["*_py3.py"] if six.PY2 else []
