//! The report of the drill as one page that needs nothing else.

use std::fmt::Write as _;

use super::{Asked, Report};

/// The page.
pub(super) fn page(report: &Report) -> String {
    let mut out = String::from(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Release test</title><style>\
         body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
         table{border-collapse:collapse;width:100%}td,th{border:1px solid #ccc;padding:.4rem;\
         text-align:left;vertical-align:top}pre{white-space:pre-wrap;margin:0}.bad{background:#fdd}</style>",
    );
    let verdict = if report.stale == 0 { "Nothing stale was served." } else { "Something stale was served." };
    let (url, source) = (escaped(&report.url), escaped(&report.source));
    let _ = write!(out, "<h1>Release test</h1><p>{verdict}</p><p>Service {url}, source {source}.</p>");
    for step in &report.steps {
        let (name, state) = (escaped(step.name), escaped(&step.source_state));
        let _ = write!(
            out,
            "<h2>{name}</h2><p>Source: {state}. Passages in the index: {}.</p>\
             <table><tr><th>Conversation<th>User<th>Question<th>Expected<th>Answer<th>Citations<th>Cache",
            step.index_passages
        );
        step.asked.iter().for_each(|asked| row(&mut out, asked));
        out.push_str("</table>");
    }
    out.push_str("</html>\n");
    out
}

fn row(out: &mut String, asked: &Asked) {
    let class = if asked.stale { " class=\"bad\"" } else { "" };
    let citations: Vec<String> = asked.citations.iter().map(ToString::to_string).collect();
    let _ = write!(
        out,
        "<tr{class}><td>{}<td>{}<td>{}<td>{}<td><pre>{}</pre><td><pre>{}</pre><td><pre>{}</pre>",
        escaped(asked.conversation),
        escaped(&asked.user),
        escaped(asked.question),
        escaped(asked.expected.unwrap_or("nothing")),
        escaped(&asked.answer),
        escaped(&citations.join("\n")),
        escaped(&asked.cached.to_string()),
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
