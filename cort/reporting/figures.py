"""Panels drawn as SVG: the same data give the same bytes, readable in print, without colours and in dark mode."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from math import log2
from typing import Any

from markupsafe import Markup, escape

from cort.reporting.panels import Line, Panel

INK, PAPER, GRID, SOFT = "#1b1b1b", "#ffffff", "#dcdcdc", "#5c5c5c"
# After Okabe and Ito, darkened where needed for a contrast of 3:1 with white; the page has a lighter set for dark mode.
COLOURS = (INK, "#0072b2", "#d55e00", "#00805c", "#a8478c", "#96690a", "#3a8fc4", "#7a1f4b", "#6b6b6b")
VARIABLES = {colour: f"var(--line-{number})" for number, colour in enumerate(COLOURS)} | {
    INK: "var(--ink)",
    SOFT: "var(--soft)",
    GRID: "var(--rule)",
    PAPER: "var(--paper)",
}
MARKERS = ("s", "o", "^", "D", "v", "P", "X", "<", ">", "p", "h")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))

# Inches of one panel; the legend below adds to its height.
WIDTH, HEIGHT = 4.2, 2.75
# Inches of one row of a legend, and from the axes down to the first row.
LEGEND_ROW, LEGEND_OFFSET = 0.185, 0.53
# Points: the mean width of a letter in a legend, and of its handle with gaps.
LETTER, HANDLE = 4.8, 40.0
FONT_SIZE = 9.0
STYLE = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    **dict.fromkeys(("font.size", "axes.labelsize"), FONT_SIZE),
    **dict.fromkeys(("legend.fontsize", "xtick.labelsize", "ytick.labelsize"), FONT_SIZE - 0.5),
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), INK),
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), SOFT),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    **dict.fromkeys(("axes.grid", "axes.axisbelow"), True),
    "axes.titlesize": FONT_SIZE + 0.5,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.linewidth": 0.8,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.5,
}


def draw(panels: Sequence[Panel], salt: str, nothing: str) -> str:
    """Draw panels, two per row, as one SVG file on white, which says `nothing` without panels; `salt` seeds its ids."""
    if not panels:
        return missing(nothing)
    svg = re.sub(r"<!DOCTYPE[^>]*>\n", "", _draw(panels, salt, PAPER))
    titles, summaries = zip(*((panel.title, panel.summary) for panel in panels), strict=True)
    return _describe(svg, "; ".join(titles), " ".join(summaries), salt)


def draw_inline(panels: Sequence[Panel], salt: str) -> list[Markup]:
    """Draw each panel for embedding in a page, with the colours and the font of the page."""
    return [_draw_inline(panel, f"{salt}-{number}") for number, panel in enumerate(panels, start=1)]


def _draw_inline(panel: Panel, salt: str) -> Markup:
    svg = _draw([panel], salt, "none")
    svg = svg[svg.index("<svg ") :]
    svg = re.sub(r" *<defs>\s*<style.*?</style>\s*</defs>\n", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r'width="([\d.]+)pt" height="[\d.]+pt" ', "", svg, count=1)
    svg = re.sub(r"font-family: [^;\"]*;? ?", "", svg)
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, variable)
    # Ids must not clash with those of other figures on the page.
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{salt}-", svg)
    return Markup(_describe(svg, panel.title, panel.summary, salt))  # noqa: S704  # all text in it was escaped


def missing(reason: str) -> str:
    """Return an SVG file that says why there is no figure."""
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="480pt" height="60pt" viewBox="0 0 480 60" role="img">\n'
        f" <title>{escape(reason)}</title>\n"
        f' <rect width="480" height="60" fill="{PAPER}"/>\n'
        f' <text x="240" y="34" font-size="11" font-family="sans-serif" text-anchor="middle" fill="{SOFT}">'
        f"{escape(reason)}</text>\n</svg>\n"
    )


def _describe(svg: str, title: str, text: str, salt: str) -> str:
    """Give an SVG a title and a description for screen readers."""
    names = f'<title id="{salt}-title">{escape(title)}</title>\n <desc id="{salt}-desc">{escape(text)}</desc>'
    opened = f'<svg role="img" aria-labelledby="{salt}-title {salt}-desc" '
    return re.sub(r"<svg ([^>]*>)", lambda match: f"{opened}{match.group(1)}\n {names}", svg, count=1)


def _draw(panels: Sequence[Panel], salt: str, background: str) -> str:
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    heights = [HEIGHT + LEGEND_OFFSET + LEGEND_ROW * max(map(_legend_rows, panels)) for _ in range(rows)]
    with matplotlib.rc_context():
        # The user's matplotlib settings must not change the figures.
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({**STYLE, "svg.hashsalt": salt})
        layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08, wspace=0.04, hspace=0.04)
        figure = Figure(figsize=(WIDTH * columns, sum(heights)), layout=layout, facecolor=background)
        FigureCanvasSVG(figure)
        for position, panel in enumerate(panels, start=1):
            _draw_panel(figure.add_subplot(rows, columns, position, facecolor="none"), panel)
        text = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(text, format="svg", metadata=nothing, facecolor=background)
    return text.getvalue()


def _draw_panel(axes: Any, panel: Panel) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
    from matplotlib.transforms import ScaledTranslation

    handles = [_draw_line(axes, line) for line in panel.lines]
    named = [(handle, line.label) for handle, line in zip(handles, panel.lines, strict=True) if line.label]
    axes.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
    if panel.ticks:
        axes.set_xscale("log", base=2)
        left, right = axes.get_xlim()
        axes.set_xlim(min(left, panel.ticks[0]), max(right, panel.ticks[-1]))
        axes.xaxis.set_major_locator(FixedLocator(spread(panel.ticks)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}" if value >= 1 else f"{value:g}"))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    _draw_drops(axes, panel.lines)
    axes.legend(
        *zip(*named, strict=True),
        loc="upper left",
        # A fixed distance below the axes, which leaves room for the tick labels and the axis label.
        bbox_to_anchor=(0, 0),
        bbox_transform=axes.transAxes + ScaledTranslation(0, -LEGEND_OFFSET, axes.figure.dpi_scale_trans),
        borderaxespad=0,
        borderpad=0,
        labelspacing=0.35,
        columnspacing=1.6,
        handlelength=3.2,
        ncols=_legend_columns(panel),
    )


def _draw_line(axes: Any, line: Line) -> Any:
    colour, marker, dashes = style_of(line.look)
    # Like NaN, None leaves a gap.
    style: dict[str, dict[str, Any]] = {
        "faint": {"linewidth": 0.6, "alpha": 0.35},
        "line": {"linestyle": "-"},
        "points": {"marker": marker, "linestyle": dashes, "markeredgewidth": 0},
    }
    return axes.plot(line.x, line.y, color=colour, **style[line.kind])[0]


def _draw_drops(axes: Any, lines: Sequence[Line]) -> None:
    """Drop a dashed line from each saturation point to the x axis."""
    bottom, top = axes.get_ylim()
    for line in lines:
        if line.drop is not None and (height := line.y[line.x.index(line.drop)]) is not None:
            # Each look has its own phase, so that two lines at the same x show both colours.
            phase = (line.look * 3.5, (3.5, 3.5))
            colour = style_of(line.look)[0]
            axes.plot([line.drop, line.drop], [bottom, height], color=colour, linewidth=1.0, linestyle=phase)
    axes.set_ylim(bottom, top)


def style_of(look: int) -> tuple[str, str, Any]:
    """Return colour, marker and dashes of a look: 0 is black and solid, others repeat only after 32."""
    if look == 0:
        return COLOURS[0], MARKERS[0], DASHES[0]
    turn, colour = divmod(look - 1, len(COLOURS) - 1)
    # Each cycle through the colours shifts the dashes, so that combinations do not repeat soon.
    return COLOURS[1 + colour], MARKERS[look % len(MARKERS)], DASHES[(colour + turn) % len(DASHES)]


def spread(ticks: Sequence[float]) -> list[float]:
    """Pick the ticks of a logarithmic axis whose labels do not touch: drop one too close to its right neighbour."""
    least = (log2(ticks[-1]) - log2(ticks[0])) / 13
    kept = [ticks[-1]]
    for tick in reversed(ticks[:-1]):
        if log2(kept[-1]) - log2(tick) >= least:
            kept.append(tick)
    return kept[::-1]


def _legend_columns(panel: Panel) -> int:
    longest = max((len(line.label) for line in panel.lines), default=0)
    return max(1, min(3, int((WIDTH - 0.5) * 72 // (longest * LETTER + HANDLE))))


def _legend_rows(panel: Panel) -> int:
    return -(-sum(bool(line.label) for line in panel.lines) // _legend_columns(panel))
