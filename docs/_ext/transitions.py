"""``.. transitions:: module.NAME`` shows a table of {(state, event): next state}, read from the code itself."""
import importlib

from docutils import nodes
from docutils.parsers.rst import Directive


class Transitions(Directive):
    required_arguments = 1

    def run(self):
        module, _, name = self.arguments[0].rpartition(".")
        table = getattr(importlib.import_module(module), name)
        rows = [(state, event, after) for (state, event), after in table.items()]
        return [_table(("in state", "on event", "goes to"), rows)]


def _table(header, rows):
    group = nodes.tgroup(cols=len(header))
    group += [nodes.colspec(colwidth=1) for _ in header]
    group += nodes.thead("", _row(header))
    group += nodes.tbody("", *[_row(row) for row in rows])
    return nodes.table("", group)


def _row(texts):
    return nodes.row("", *[nodes.entry("", nodes.paragraph(text=text)) for text in texts])


def setup(app):
    app.add_directive("transitions", Transitions)
    return {"parallel_read_safe": True, "version": "1"}
