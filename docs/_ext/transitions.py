"""``.. transitions:: module.NAME`` shows a table of {(state, event): next state}, read from the code itself.

With ``:picture:`` it is drawn as well, where the output is HTML: the states from top to bottom, as the table has
them; ways down on the right, ways up on the left, each with its events as a hint. Events that leave the state as it is
aren't drawn.
"""
import importlib
import xml.sax.saxutils as xml

from docutils import nodes
from docutils.parsers.rst import Directive, directives

WIDTH, BOX, ROW = 760, 170, 46  # pixels: of the picture, of a state's box, from one state to the next
COLORS = ("#4477aa", "#ee6677", "#228833", "#aa7700", "#0099aa", "#aa3377", "#777777")


class Transitions(Directive):
    required_arguments = 1
    option_spec = {"picture": directives.flag}

    def run(self):
        module, _, name = self.arguments[0].rpartition(".")
        table = getattr(importlib.import_module(module), name)
        rows = [(state, event, after) for (state, event), after in table.items()]
        shown = [_table(("in state", "on event", "goes to"), rows)]
        if "picture" in self.options:
            shown.insert(0, nodes.raw("", picture(table), format="html"))
        return shown


def picture(table):
    """The SVG of a table of transitions."""
    states, ways = [], {}
    for (state, event), after in table.items():
        states.extend(each for each in (state,) if each not in states)
        if state != after:
            ways.setdefault((state, after), []).append(event)
    states.extend(sorted(set(table.values()) - set(states)))
    rows = {state: ROW // 2 + number * ROW for number, state in enumerate(states)}
    drawn = [_way(rows[state], rows[after], state, after, events) for (state, after), events in ways.items()]
    drawn += [_box(state, row) for state, row in rows.items()]
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" style="max-width: %dpx" font-family="sans-serif"'
        ' font-size="13">\n<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7"'
        ' orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#555"/></marker></defs>\n%s\n</svg>'
        % (WIDTH, ROW * len(states), WIDTH, "\n".join(drawn))
    )


def _way(start, end, state, after, events):
    """A curve, further out the further it goes; it begins and ends off the middle, on the side of the other box."""
    down = 1 if end > start else -1
    edge = WIDTH / 2 + down * BOX / 2
    out = edge + down * min(WIDTH / 2 - BOX / 2, 30 + abs(end - start) * 0.55)
    color = COLORS[start // ROW % len(COLORS)]
    hint = xml.escape("%s → %s: %s" % (state, after, ", ".join(events)))
    return (
        '<path d="M%d,%d C%d,%d %d,%d %d,%d" fill="none" stroke="%s" stroke-width="1.5" marker-end="url(#head)">'
        "<title>%s</title></path>"
        % (edge, start + 6 * down, out, start + 6 * down, out, end - 6 * down, edge, end - 6 * down, color, hint)
    )


def _box(state, row):
    left = (WIDTH - BOX) / 2
    return (
        '<rect x="%d" y="%d" width="%d" height="30" rx="6" fill="#f4f4f4" stroke="%s"/>'
        '<text x="%d" y="%d" text-anchor="middle">%s</text>'
        % (left, row - 15, BOX, COLORS[row // ROW % len(COLORS)], WIDTH / 2, row + 5, xml.escape(state))
    )


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
