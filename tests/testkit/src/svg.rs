//! Parts of SVG pictures. All pictures are on a white card, so that they are readable on a dark page.

use std::fmt::Write as _;

/// The colour of most texts and lines.
pub const DARK: &str = "#24292f";

/// The colour of explanations.
pub const LIGHT: &str = "#57606a";

/// A point: x and y.
pub type Point = (f64, f64);

/// The begin of a picture of this width and height. A screen reader reads `title` and `about`.
#[must_use]
pub fn begin((width, height): Point, font_size: f64, title: &str, about: &str) -> String {
    let (title, about) = (escaped(title), escaped(about));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height:.0}\" role=\"img\" font-family=\"sans-serif\" \
         font-size=\"{font_size}\">\n<title>{title}</title>\n<desc>{about}</desc>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"#ffffff\"/>\n"
    )
}

/// A text at `(x, y)`; `anchor` is the part of it that lies there: `start`, `middle` or `end`.
pub fn text(svg: &mut String, (x, y): Point, anchor: &str, color: &str, text: &str) {
    let text = escaped(text);
    let _infallible = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{color}\">{text}</text>"
    );
}

/// A filled rectangle with its upper left corner at `(x, y)`. It is wide enough to be visible.
pub fn rect(svg: &mut String, (x, y): Point, (width, height): Point, color: &str) {
    let _infallible = writeln!(
        svg,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"{color}\"/>",
        width.max(0.5)
    );
}

/// A vertical line.
pub fn line(svg: &mut String, x: f64, from: f64, to: f64, color: &str) {
    let _infallible =
        writeln!(svg, "<path d=\"M{x:.1} {from:.1}V{to:.1}\" stroke=\"{color}\" stroke-width=\"1\"/>");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
