//! A line chart as SVG, of any numbers with names.

use super::axis::Axis;
use super::escape;

/// Lines over a common pair of axes.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    pub(super) title: &'static str,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) lines: Vec<Line>,
    /// Moments with a name, drawn upright.
    pub(super) marks: Vec<(f64, String)>,
}

#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 18.0;
const BOTTOM: f64 = 24.0;

/// About as wide as one is.
const LETTER: f64 = 6.5;

/// As many as the style has colours.
const COLOURS: usize = 4;

impl Chart {
    pub(super) fn draw(&self) -> String {
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n",
            escape(self.title)
        );
        for (value, label) in self.y.ticks() {
            let y = self.down(value);
            svg.push_str(&rule("grid", (LEFT, y), (WIDTH - RIGHT, y)));
            svg.push_str(&text("end", (LEFT - 6.0, y + 4.0), &label));
        }
        for (value, label) in self.x.ticks() {
            svg.push_str(&text("middle", (self.across(value), HEIGHT - 6.0), &label));
        }
        // Names that would lie on each other are left out, and lines are not.
        let mut free = 0.0;
        for (value, name) in &self.marks {
            let x = self.across(*value);
            svg.push_str(&rule("mark", (x, TOP), (x, HEIGHT - BOTTOM)));
            if x >= free {
                svg.push_str(&text("start", (x + 3.0, TOP - 6.0), name));
                free = x + 3.0 + LETTER * name.chars().count() as f64;
            }
        }
        for (number, line) in self.lines.iter().enumerate() {
            svg.push_str(&self.line(number % COLOURS, line));
        }
        svg.push_str("</svg>\n");
        format!(
            "<figure>\n<figcaption>{}{}</figcaption>\n{svg}</figure>\n",
            self.title,
            self.keys()
        )
    }

    fn line(&self, colour: usize, line: &Line) -> String {
        let points = line.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite());
        let points: Vec<_> =
            points.map(|(x, y)| format!("{:.1},{:.1}", self.across(*x), self.down(*y))).collect();
        format!(
            "<polyline class=\"line line-{colour}\" points=\"{}\"><title>{}</title></polyline>\n",
            points.join(" "),
            escape(&line.name)
        )
    }

    /// Which colour is which; one line needs none.
    fn keys(&self) -> String {
        let lines = self.lines.iter().enumerate().filter(|_| self.lines.len() > 1);
        let key = |(number, line): (usize, &Line)| {
            format!(" <span class=\"key-{}\">● {}</span>", number % COLOURS, escape(&line.name))
        };
        lines.map(key).collect()
    }

    fn across(&self, x: f64) -> f64 {
        LEFT + self.x.position(x) * (WIDTH - LEFT - RIGHT)
    }

    fn down(&self, y: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.position(y) * (HEIGHT - TOP - BOTTOM)
    }
}

fn rule(class: &str, from: (f64, f64), to: (f64, f64)) -> String {
    format!(
        "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>\n",
        from.0, from.1, to.0, to.1
    )
}

fn text(anchor: &str, at: (f64, f64), text: &str) -> String {
    format!(
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>\n",
        at.0,
        at.1,
        escape(text)
    )
}
