//! Parts of SVG pictures.

use std::fmt::Write as _;

/// The colour of most texts.
pub(crate) const DARK: &str = "#24292f";

/// A text at `(x, y)`; `anchor` is the part of it that lies there: `start`, `middle` or `end`.
pub(crate) fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, color: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let _infallible = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{color}\">{text}</text>"
    );
}

/// A filled rectangle with its upper left corner at `(x, y)`. It is wide enough to be visible.
pub(crate) fn rect(svg: &mut String, (x, y): (f64, f64), (width, height): (f64, f64), color: &str) {
    let _infallible = writeln!(
        svg,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"{color}\"/>",
        width.max(0.5)
    );
}
