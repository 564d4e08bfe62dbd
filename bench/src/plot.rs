//! The plot of the ratios: one bar per ratio on a logarithmic axis, with the goal as a tick.

use std::fmt::Write as _;

use crate::report::{Findings, short};

const BARS: &[(&str, &str, f64)] = &[
    ("x_fastmcp", "FastMCP, Streamable HTTP", 75.0),
    ("x_sdk", "official mcp SDK, Streamable HTTP", 45.0),
    ("x_grpcio", "grpcio asyncio", 9.0),
    ("x_null", "null ceiling (no Python, no guards)", 0.65),
];

/// The SVG, or nothing when none of the ratios was measured.
pub(crate) fn ratios(findings: &Findings) -> Option<String> {
    let bars: Vec<(&str, f64, f64)> = BARS
        .iter()
        .filter_map(|(id, label, goal)| {
            let measure = findings.measures.iter().find(|m| m.id == *id)?;
            (measure.value > 0.0).then_some((*label, measure.value, *goal))
        })
        .collect();
    if bars.is_empty() {
        return None;
    }
    let (left, width, row) = (250.0, 400.0, 34.0);
    let x = |value: f64| left + (value.log10() + 1.0) / 3.3 * width;
    #[expect(clippy::cast_precision_loss, reason = "four bars")]
    let height = 70.0 + row * bars.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <title>Calls per second of the worker against each peer</title>\n\
         <rect width=\"720\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"10\" y=\"22\" font-size=\"15\">Calls/s of a Ramen worker, as a multiple of each peer (64 in flight, all guards on)</text>\n"
    );
    for tick in [0.1, 1.0, 10.0, 100.0] {
        let _ = writeln!(
            svg,
            "<path d=\"M{0:.1} 36V{1:.1}\" stroke=\"#ddd\"/><text x=\"{0:.1}\" y=\"{2:.1}\" text-anchor=\"middle\" fill=\"#666\">{tick}×</text>",
            x(tick),
            height - 26.0,
            height - 10.0
        );
    }
    for (index, (label, value, goal)) in bars.iter().enumerate() {
        #[expect(clippy::cast_precision_loss, reason = "four bars")]
        let y = 44.0 + row * index as f64;
        let (from, to) = (x(0.1).min(x(*value)), x(*value));
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>\
             <rect x=\"{from:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"20\" fill=\"#3b7dd8\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}×</text>\
             <path d=\"M{:.1} {:.1}v26\" stroke=\"#c33\" stroke-width=\"2\"/>",
            left - 10.0,
            y + 15.0,
            to - from,
            to.max(x(*goal)) + 8.0,
            y + 15.0,
            short(*value),
            x(*goal),
            y - 3.0,
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"560\" y=\"{:.1}\" fill=\"#c33\">| goal</text>\n</svg>",
        height - 10.0
    );
    Some(svg)
}
