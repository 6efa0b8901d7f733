//! Which elements are open, which of them hide their content, and which a tag closes without saying so. This
//! is the part of the HTML standard that decides where a paragraph or a hidden element ends; the rest of tree
//! construction does not change which words are seen.

use html5gum::StartTag;

/// Why the content of an element is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Skip {
    /// It is no text of the page: script, style, navigation, form controls.
    Apart,
    /// A reader does not see it.
    Hidden,
}

impl Skip {
    pub(super) fn of(name: &str, tag: &StartTag<()>) -> Option<Self> {
        match name {
            "script" | "style" | "head" | "title" | "template" | "noscript" | "nav" | "svg" | "math"
            | "iframe" | "object" | "audio" | "video" | "canvas" | "select" | "textarea" | "button"
            | "noembed" | "noframes" | "datalist" | "dialog" => Some(Self::Apart),
            _ if is_hidden(tag) => Some(Self::Hidden),
            _ => None,
        }
    }
}

fn is_hidden(tag: &StartTag<()>) -> bool {
    let value = |name: &str| {
        let value = tag.attributes.get(name.as_bytes());
        value.map(|value| String::from_utf8_lossy(&value.value).to_ascii_lowercase())
    };
    if value("hidden").is_some() || value("aria-hidden").is_some_and(|value| value.trim() == "true") {
        return true;
    }
    let style: String = value("style").unwrap_or_default().chars().filter(|c| !c.is_whitespace()).collect();
    style.split(';').any(|rule| {
        let (name, value) = rule.split_once(':').unwrap_or_default();
        let value = value.trim_end_matches("!important");
        let zero =
            || value.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '%').parse() == Ok(0.0);
        match name {
            "display" => value == "none",
            "visibility" => matches!(value, "hidden" | "collapse"),
            "opacity" | "font-size" => zero(),
            _ => false,
        }
    })
}

/// An element that was closed.
#[derive(Debug)]
pub(super) struct Closed {
    pub(super) name: String,
    pub(super) was_visible: bool,
}

#[derive(Debug, Default)]
pub(super) struct Open {
    elements: Vec<(String, Option<Skip>)>,
    n_skips: usize,
}

impl Open {
    pub(super) fn skips(&self) -> bool {
        self.n_skips > 0
    }

    pub(super) fn depth(&self) -> usize {
        self.elements.len()
    }

    pub(super) fn push(&mut self, name: String, skip: Option<Skip>) {
        self.n_skips += usize::from(skip.is_some());
        self.elements.push((name, skip));
    }

    /// Whether the innermost element is the title of the page, not of a drawing in it.
    pub(super) fn is_page_title(&self) -> bool {
        !self.elements.iter().any(|(name, _)| name == "svg")
    }

    /// Closes the innermost element of that name and all in it. Without one, the tag means nothing.
    pub(super) fn close(&mut self, name: &str) -> Vec<Closed> {
        match self.elements.iter().rposition(|(open, _)| open == name) {
            Some(at) => self.pop_to(at),
            None => Vec::new(),
        }
    }

    /// What a start tag closes by itself.
    pub(super) fn implied_by(&mut self, name: &str) -> Vec<Closed> {
        let (closes, within): (&[&str], &[&str]) = match name {
            "li" => (&["li"], &["ul", "ol", "menu"]),
            "dt" | "dd" => (&["dt", "dd"], &["dl"]),
            "td" | "th" => (&["td", "th"], &["tr", "table"]),
            "tr" => (&["tr", "td", "th"], &["table"]),
            "tbody" | "thead" | "tfoot" => (&["tbody", "thead", "tfoot", "caption"], &["table"]),
            "option" => (&["option"], &["select"]),
            "body" => (&["head"], &[]),
            _ if is_block(name) || is_heading(name) => {
                // A head that was never closed ends where the page begins.
                if let Some(at) = self.elements.iter().position(|(open, _)| open == "head") {
                    return self.pop_to(at);
                }
                (&["p"], &["td", "th", "table", "button"])
            }
            _ => return Vec::new(),
        };
        let mut found = None;
        for (at, (open, _)) in self.elements.iter().enumerate().rev() {
            if within.contains(&open.as_str()) {
                break;
            }
            if closes.contains(&open.as_str()) {
                found = Some(at);
            }
        }
        found.map(|at| self.pop_to(at)).unwrap_or_default()
    }

    fn pop_to(&mut self, at: usize) -> Vec<Closed> {
        let mut closed = Vec::new();
        while self.elements.len() > at
            && let Some((name, skip)) = self.elements.pop()
        {
            closed.push(Closed { name, was_visible: !self.skips() });
            self.n_skips -= usize::from(skip.is_some());
        }
        closed
    }
}

pub(super) fn is_void(name: &str) -> bool {
    matches!(
        name,
        "area"
            | "base"
            | "br"
            | "col"
            | "embed"
            | "hr"
            | "img"
            | "input"
            | "link"
            | "meta"
            | "param"
            | "source"
            | "track"
            | "wbr"
    )
}

/// Elements of drawings and formulas, the only ones whose tag may close itself.
pub(super) fn is_foreign(name: &str) -> bool {
    matches!(name, "svg" | "math")
}

fn is_heading(name: &str) -> bool {
    matches!(name, "h1" | "h2" | "h3" | "h4" | "h5" | "h6")
}

pub(super) fn is_block(name: &str) -> bool {
    matches!(
        name,
        "address"
            | "article"
            | "aside"
            | "blockquote"
            | "body"
            | "caption"
            | "center"
            | "dd"
            | "details"
            | "div"
            | "dl"
            | "dt"
            | "fieldset"
            | "figcaption"
            | "figure"
            | "footer"
            | "form"
            | "header"
            | "hgroup"
            | "html"
            | "legend"
            | "main"
            | "ol"
            | "p"
            | "pre"
            | "search"
            | "section"
            | "summary"
            | "table"
            | "tbody"
            | "tfoot"
            | "thead"
            | "ul"
            | "menu"
    )
}
