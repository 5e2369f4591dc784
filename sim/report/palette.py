"""Colours of all figures, on pages and in pictures: light ones first, and what they are on a dark page."""

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
INK, MUTED, GRID, LOSS = "#1b1f24", "#5b6470", "#e4e7eb", "#f7e3da"

#: arms: Okabe-Ito colours in an order that stays apart for colour-blind readers; the baseline is grey
LIGHT = ("#555c66", "#0072b2", "#d55e00", "#007f5f", "#a3478a", "#8a6d00", "#3f8fc4", "#7a4a2b")
DARK = ("#b4bcc8", "#56b4e9", "#ff9a52", "#2fc79b", "#e59bc4", "#e8cf4a", "#9cd3f5", "#cfa183")
