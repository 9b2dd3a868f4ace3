import six

# Files of what only Python 3 has: native coroutines, or confluent-kafka.
collect_ignore_glob = ["*_py3.py"] if six.PY2 else []
