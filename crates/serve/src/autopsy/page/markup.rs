//! HTML that is safe by how it is made: tags and attributes are this program's own words, all other text passes
//! [`Markup::text`].
use super::payload::clean;

/// A piece of HTML.
pub(super) struct Markup(String);

impl Markup {
    /// Text from anywhere, as text.
    pub(super) fn text(text: &str) -> Markup {
        Markup(escape(&clean(text)))
    }

    /// An element around others; `tag` is its name with its attributes, e.g. `ul class="because"`.
    pub(super) fn node(tag: &'static str, inner: impl IntoIterator<Item = Markup>) -> Markup {
        Markup::written(tag, "", inner)
    }

    /// The same with a title from anywhere.
    pub(super) fn titled(tag: &'static str, title: &str, inner: impl IntoIterator<Item = Markup>) -> Markup {
        Markup::written(tag, &format!(" title=\"{}\"", escape(&clean(title))), inner)
    }

    /// An element that holds text from anywhere.
    pub(super) fn told(tag: &'static str, text: &str) -> Markup {
        Markup::node(tag, [Markup::text(text)])
    }

    /// A bar that is full to so many percent. A picture: the page's policy refuses styles of single elements.
    pub(super) fn bar(percent: u8) -> Markup {
        let (width, full) = (56, 56 * u32::from(percent.min(100)) / 100);
        Markup(format!(
            "<svg class=\"bar\" viewBox=\"0 0 {width} 6\" width=\"{width}\" height=\"6\" aria-hidden=\"true\">\
             <rect width=\"{full}\" height=\"6\"></rect></svg>"
        ))
    }

    fn written(tag: &'static str, attribute: &str, inner: impl IntoIterator<Item = Markup>) -> Markup {
        let name = tag.split(' ').next().unwrap_or(tag);
        let inner: String = inner.into_iter().map(|piece| piece.0).collect();
        Markup(format!("<{tag}{attribute}>{inner}</{name}>"))
    }

    /// As it is written to a file.
    pub(super) fn into_html(self) -> String {
        self.0
    }
}

/// Text as HTML.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_anywhere_stays_text() {
        let attack = "\"><script>x</script>'&\u{202e}";
        let html = Markup::titled("p class=\"a\"", attack, [Markup::text(attack)]).into_html();
        let told = "&quot;&gt;&lt;script&gt;x&lt;/script&gt;&#39;&amp;\\u{202e}";
        assert_eq!(html, format!("<p class=\"a\" title=\"{told}\">{told}</p>"));
    }
}
