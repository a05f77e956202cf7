"""The whole page: the template filled with sections, figures, style and scripts."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from sonde.core.figure import Kind
from sonde.core.room import rooms
from sonde.core.section import Section
from sonde.report import page, prepare, scale
from sonde.report.page import Report
from sonde.report.render_html.drawing import draw
from sonde.report.render_html.texts import embed, options, script, shown
from sonde.report.render_html.theme import css_tokens, tokens

TEMPLATE = Path(__file__).parents[1] / "template"


def render(report: Report) -> str:
    """The whole report as one HTML text.

    Raises
    ------
    DataError  report.figure_data: a figure's data does not fit its kind.
    """
    names = page.anchors(report.sections)
    sections = [
        {
            "section": section,
            "anchor": anchor,
            "figures": _figures(section, anchor),
            "findings": [
                {"finding": f, "evidence": page.evidence(f), "cell": _cell_of(section, anchor, f.evidence)}
                for f in section.findings
            ],
        }
        for section, anchor in zip(report.sections, names)
    ]
    theme_js, theme_hash = script((TEMPLATE / "theme.js").read_text(encoding="utf-8"))
    drawn_any = any(section["figures"] for section in sections)
    library, library_hash = script(plotly_js()) if drawn_any else (Markup(""), "")
    page_js, page_hash = script((TEMPLATE / "page.js").read_text(encoding="utf-8"))
    policy = (
        f"default-src 'none'; script-src {theme_hash} {library_hash} {page_hash}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    common, differing = page.split_runs(report.runs)
    return _template().render(
        report=report,
        warnings=page.group_warnings(report),
        common=common,
        differing=differing,
        sections=sections,
        rooms={room.name: room.title for room in rooms()},
        policy=policy,
        css=Markup(css_tokens() + (TEMPLATE / "page.css").read_text(encoding="utf-8")),
        theme_js=theme_js,
        library=library,
        page_js=page_js,
        tokens=embed(tokens()),
    )


def _figures(section: Section, anchor: str) -> list[dict[str, Any]]:
    """The figures of a section in the form for the template, each with its own id."""
    figures: list[dict[str, Any]] = []
    for figure in section.figures:
        drawn = draw(figure)
        ident = f"{anchor}-{page.slug(figure.id)}"
        while any(ident == f["id"] for f in figures):
            ident += "-b"
        figures.append(
            {
                "id": ident,
                "title": figure.title,
                "caption": figure.caption,
                "notes": drawn.notes,
                "spec": embed(drawn.spec),
                "controls": drawn.spec["controls"],
                "legend": drawn.spec.get("legend") or [],
                "hues": drawn.spec.get("hues") or [],
                "cells": bool(drawn.spec.get("cells")),
                "nodes": bool(drawn.spec.get("nodes")),
                "fixed": bool(drawn.spec.get("fixed")),
                "focus": drawn.spec.get("focus"),
                "left_out": f"{1 - prepare.BULK:.0%}".replace("%", "\u00a0%"),
                "start": drawn.spec["start"],
                "kind": figure.kind.value,
                "numbers": prepare.numbers(figure),
            }
        )
    return figures


def _template() -> Template:
    environment = Environment(
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["number"] = scale.number
    environment.filters["options"] = options
    return environment.from_string((TEMPLATE / "page.html.j2").read_text(encoding="utf-8"))


def _cell_of(section: Section, anchor: str, evidence: Mapping[str, Any]) -> dict[str, Any] | None:
    """The cell of a finding about a pair: in the first matrix of its section that contains the pair."""
    if not {"src", "dst"} <= set(evidence):
        return None
    for figure in section.figures:
        if figure.kind is not Kind.MATRIX:
            continue
        data = figure.data
        try:
            row = [str(v) for v in data["row"].values].index(str(evidence["src"]))
            col = [str(v) for v in data["col"].values].index(str(evidence["dst"]))
        except (KeyError, ValueError):
            continue
        place: dict[str, Any] = {
            "figure": f"{anchor}-{page.slug(figure.id)}",
            "row": row,
            "col": col,
            "at": "",
        }
        for slider in figure.controls[:1]:
            wanted = evidence.get(slider.dim, evidence.get(f"{slider.dim}_b"))
            if wanted is not None and slider.dim in data.coords:
                values = [str(v) for v in data[slider.dim].values.tolist()]
                place["at"] = values.index(str(wanted)) if str(wanted) in values else ""
        return place
    return None


def plotly_js() -> str:
    """The plotly.js of the plotly package."""
    return (files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
