"""HTML and SVG as a tree of elements: whatever is put into it is text, and is escaped when it is written."""

import re
from xml.etree import ElementTree

Element = ElementTree.Element
Child = Element | str | int | None
# What no page may hold, however it is written.
_CONTROL = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def tag(name: str, /, *children: Child, **attributes: object) -> Element:
    """An element. `class_` stands for `class`, `stroke_width` for `stroke-width`; None is left out."""
    element = Element(name)
    for attribute, value in attributes.items():
        if value is not None:
            element.set(attribute.rstrip("_").replace("_", "-"), clean(_written(value)))
    for child in children:
        if isinstance(child, Element):
            element.append(child)
        elif child is not None:
            _append_text(element, clean(str(child)))
    return element


def clean(text: str) -> str:
    """The text with a mark in place of every character that no page may hold."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def html(root: Element) -> str:
    """The page of an element `html`."""
    ElementTree.indent(root, " ")
    return f"<!doctype html>\n{ElementTree.tostring(root, encoding='unicode', method='html')}\n"


def _written(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _append_text(element: Element, text: str) -> None:
    if len(element):
        element[-1].tail = (element[-1].tail or "") + text
    else:
        element.text = (element.text or "") + text
