#!/usr/bin/env python3
"""Runs a command and turns what it prints into a moving SVG, each line at its time.

usage: scripts/record.py OUT.svg TITLE COMMAND...

The picture loops and needs no script: every line is a text element that CSS
lets appear. Escape sequences for bold are kept, all others are dropped.
"""

import html
import re
import subprocess
import sys
import time

WIDTH, LINE, LEFT, TOP = 100, 17, 14, 46  # columns; pixels
PAUSE = 4.0  # seconds at the end before it starts anew


def record(command):
    """Yields (seconds since the start, line) as the command prints."""
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    for line in process.stdout:
        yield time.monotonic() - began, line.rstrip("\n")
    if process.wait() != 0:
        sys.exit("record: error: the command failed with code %d" % process.returncode)


def draw(title, lines):
    length = lines[-1][0] + PAUSE
    height = TOP + LINE * len(lines) + 14
    width = LEFT * 2 + int(WIDTH * 7.85)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        "<style>",
        "text { font: 13px ui-monospace, Menlo, Consolas, monospace; fill: #d7dae0; white-space: pre }",
        ".b { font-weight: bold; fill: #8ec07c } .t { fill: #8a919e }",
    ]
    for i, (at, _) in enumerate(lines):
        percent = 100 * at / length
        out.append(
            f"@keyframes k{i} {{ 0%, {percent:.2f}% {{ opacity: 0 }} {min(percent + 0.01, 100):.2f}%, 100% {{ opacity: 1 }} }}"
            f" #l{i} {{ animation: k{i} {length:.1f}s infinite }}"
        )
    out += [
        "</style>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#1d2026"/>',
        "".join(f'<circle cx="{20 + 18 * i}" cy="19" r="6" fill="{c}"/>' for i, c in enumerate(("#ec6a5e", "#f4bf4f", "#61c554"))),
        f'<text x="{width / 2:.0f}" y="24" text-anchor="middle" class="t">{html.escape(title)}</text>',
    ]
    for i, (_, line) in enumerate(lines):
        bold = "\x1b[1m" in line
        text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line)[:WIDTH]
        mark = ' class="b"' if bold else ""
        out.append(f'<text id="l{i}" x="{LEFT}" y="{TOP + LINE * (i + 1) - 5}"{mark}>{html.escape(text)}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    target, title, *command = sys.argv[1:]
    lines = []
    for at, line in record(command):
        print(line, flush=True)
        if line.strip():
            lines.append((at, line))
    with open(target, "w") as f:
        f.write(draw(title, lines))


main()
