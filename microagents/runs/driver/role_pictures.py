"""An actor graph as lines and as SVG, before a run or with the totals of one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from xml.sax.saxutils import escape

from microagents.journal.messages import Account
from microagents.runs.driver.graph import GraphRole, RoleGraph
from microagents.runs.words.summary import in_flight_text

WIDTH, HEIGHT = 168, 42
"""Size of a role's box, in pixels."""
ACROSS, DOWN = 330, 92
"""Distance between two columns, and between two rows."""
MARGIN = 28
LINE = 17
"""Height of a line of text."""
LETTER = 6.5
"""Greatest mean width of a letter of a small label, in pixels."""
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328; text-anchor: middle } .small { font-size: 11px; fill: #57606a }
  rect { fill: #ffffff; stroke: #57606a } .asks rect { stroke: #0969da; stroke-width: 2 } .driver rect { stroke-dasharray: 4 3 }
  path { fill: none; stroke: #8c959f } marker path { fill: #8c959f; stroke: none } .back { background: #ffffff }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #9ea7b3 } rect { fill: #161b22; stroke: #9ea7b3 } .asks rect { stroke: #58a6ff }
  }
"""
MARKER = """<defs><marker id="to" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">
<path d="M0 0 L8 4 L0 8 z"/></marker></defs>"""
"""The head of an arrow."""


def lines_of(graph: RoleGraph) -> Iterator[str]:
    """Describe each role, and the messages that it sends by their receivers."""
    yield f"{graph.strategy} for {graph.task}"
    for role in graph.roles:
        yield f"{_title(role)}: {role.subject}" if role.subject else _title(role)
        for receiver, names in _sent(graph, role.name).items():
            yield f"  -> {receiver}: {', '.join(names)}"
    for process, replicas in graph.placement.items():
        yield f"in {process}: {', '.join(replicas)}"


def totals_by_role(graph: RoleGraph, account: Account, unit: str) -> dict[str, str]:
    """List the facts of a run's account about each role: a line for its box and, while it works, one below."""
    found = {
        graph.roles[0].name: f"{account.steps:,} {unit}s",
        "Voter": f"{account.decided:,} decided",
        "RedFlagger": f"{sum(account.flagged.values()):,} flagged",
        "Keeper": f"{account.calls:,} calls",
        **{each.name: in_flight_text(account) for each in graph.roles if each.asks_models},
    }
    for role, count in account.deaths.items():
        found[role] = ", ".join(filter(None, (found.get(role), f"{count:,} died")))
    return found | {role: f"{found.get(role, '')}\n{load}" for role, load in account.load_by_role.items()}


def svg_of(graph: RoleGraph, totals: Mapping[str, str] | None = None) -> str:
    """Draw roles in columns by their distance from the conductor; those of the driver stand in the last row, and the processes below.

    Args:
        graph: the graph.
        totals: words about a run by the name of the role: the first line stands in its box, the others below.
    """
    places = _places(graph)
    width = max(x for x, _ in places.values()) + WIDTH + MARGIN
    below = max(y for _, y in places.values()) + HEIGHT + MARGIN
    arrows, boxes, labels = list[str](), list[str](), list[str]()
    driver = [role.name for role in graph.roles if role.in_driver]
    for role in graph.roles:
        for receiver, names in _sent(graph, role.name).items():
            if receiver in driver:
                continue
            path, (x, y) = _path(places[role.name], places[receiver])
            arrows.append(f'<path d="{path}" marker-end="url(#to)"/>')
            top = y - LINE * (len(names) - 1) / 2
            labels += _texts(x, top, names, "small")
        to_it = sorted({each.name for each in graph.messages if each.receiver == role.name})
        note, kind = "", ""
        if role.asks_models:
            note, kind = "asks a model", "asks"
        elif role.in_driver:
            note, kind = f"in the driver: {len(to_it)} messages", "driver"
        lines = (totals or {}).get(role.name, note).split("\n")
        tip = " ".join([role.subject, *to_it])
        boxes += _box(kind, places[role.name], (WIDTH, HEIGHT), [_title(role), *lines], tip)
    for process, replicas in graph.placement.items():
        lines = [process, *wrap(", ".join(replicas), int((width - 3 * MARGIN) / LETTER))]
        height = LINE * (len(lines) + 1)
        boxes += _box("process", (MARGIN, below), (width - 2 * MARGIN, height), lines, process)
        below += height + LINE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {below}" width="{width}" height="{below}" role="img">',
        f"<title>{escape(f'{graph.strategy} for {graph.task}')}</title><style>{STYLE}</style>",
        MARKER,
    ]
    return "\n".join([*parts, *arrows, *labels, *boxes, "</svg>"]) + "\n"


def _box(kind: str, place: tuple[int, int], size: tuple[int, int], lines: Sequence[str], tip: str) -> Iterator[str]:
    """Draw a box with lines of text, of which some may stand below it."""
    (x, y), (width, height) = place, size
    yield f'<g class="{kind}"><title>{escape(tip)}</title><rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>'
    first = 1.2 if any(lines[1:]) else 1.5
    yield from _texts(x + width / 2, y + first * LINE, lines[:1])
    yield from _texts(x + width / 2, y + 2.2 * LINE, lines[1:], "small")
    yield "</g>"


def _texts(x: float, y: float, lines: Sequence[str], kind: str = "") -> Iterator[str]:
    for number, line in enumerate(lines):
        yield f'<text class="{kind}" x="{x:.0f}" y="{y + LINE * number:.0f}">{escape(line)}</text>'


def _title(role: GraphRole) -> str:
    if role.replicas == 1:
        return role.name
    return f"{role.name} x {role.replicas}"


def _sent(graph: RoleGraph, sender: str) -> dict[str, list[str]]:
    """Name the messages of a role by receiver."""
    found = defaultdict[str, list[str]](list)
    for each in graph.messages:
        if each.sender == sender:
            found[each.receiver].append(each.name)
    return found


def _places(graph: RoleGraph) -> dict[str, tuple[int, int]]:
    """The left upper corner of each box."""
    lines = defaultdict[int | None, list[str]](list)
    for role in graph.roles:
        lines[None if role.in_driver else role.distance].append(role.name)
    driver = lines.pop(None, [])
    rows = max(map(len, lines.values()))
    places = {name: (MARGIN + number * ACROSS, 3 * MARGIN + rows * DOWN) for number, name in enumerate(driver)}
    for column, names in enumerate(lines.values()):  # the roles stand in the order of their distances
        top = (rows - len(names)) / 2
        for row, name in enumerate(names):
            places[name] = MARGIN + column * ACROSS, 3 * MARGIN + round((row + top) * DOWN)
    return places


def _path(sender: tuple[int, int], receiver: tuple[int, int]) -> tuple[str, tuple[float, float]]:
    """The curve of an edge, and the place of its label."""
    (x0, y0), (x1, y1) = sender, receiver
    if 0 < x1 - x0 <= ACROSS:  # from side to side
        left, right, middle = x0 + WIDTH, x1, (x0 + WIDTH + x1) / 2
        y0, y1 = y0 + HEIGHT // 2, y1 + HEIGHT // 2
        return f"M{left} {y0} C{middle} {y0} {middle} {y1} {right} {y1}", (middle, (y0 + y1) / 2 - 3)
    # Over the boxes: those between the two, or back, or to itself.
    left, right = x0 + 2 * WIDTH // 3, x1 + WIDTH // 3
    top = -MARGIN if x1 > x0 else min(y0, y1) - DOWN // 2
    return f"M{left} {y0} C{left} {top} {right} {top} {right} {y1}", ((left + right) / 2, (y0 + y1 + 6 * top) / 8)
