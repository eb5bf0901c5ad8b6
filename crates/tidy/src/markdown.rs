//! The text of a Markdown page: blocks of prose, headings and links.

use std::ops::Range;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// A block of text that a reader sees: a paragraph, a list item, or a cell of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The line on which it begins, from 1.
    pub(crate) line: usize,
    /// Its text. Inline code is one word.
    pub(crate) text: String,
    /// Whether it is a heading.
    pub(crate) is_heading: bool,
}

/// A link or an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) line: usize,
    pub(crate) to: String,
}

/// The contents of a page.
#[derive(Clone, Debug, Default)]
pub(crate) struct Page {
    pub(crate) blocks: Vec<Block>,
    pub(crate) links: Vec<Link>,
    /// Inline code, with its line.
    pub(crate) code: Vec<(usize, String)>,
    /// The anchors of its headings, as mdBook and code hosts name them.
    pub(crate) anchors: Vec<String>,
}

impl Page {
    /// Reads a page. Code blocks are left out.
    pub(crate) fn parse(text: &str) -> Page {
        let mut page = Page::default();
        let ends = text.match_indices('\n').map(|(at, _)| at).collect();
        let mut reader = Reader { ends, block: None, code: false, page: &mut page };
        let parser = Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH);
        for (event, place) in parser.into_offset_iter() {
            reader.read(event, place);
        }
        reader.end();
        page
    }
}

struct Reader<'a> {
    /// The ends of lines.
    ends: Vec<usize>,
    block: Option<Block>,
    code: bool,
    page: &'a mut Page,
}

impl Reader<'_> {
    fn line(&self, place: &Range<usize>) -> usize {
        self.ends.partition_point(|end| *end < place.start) + 1
    }

    fn begin(&mut self, place: &Range<usize>, is_heading: bool) {
        self.end();
        let line = self.line(place);
        self.block = Some(Block { line, text: String::new(), is_heading });
    }

    fn end(&mut self) {
        if let Some(block) = self.block.take() {
            if block.is_heading {
                self.add_anchor(&block.text);
            }
            if !block.text.trim().is_empty() {
                self.page.blocks.push(block);
            }
        }
    }

    /// A heading that has the name of an earlier one gets a number.
    fn add_anchor(&mut self, heading: &str) {
        let name = anchor(heading);
        let mut unique = name.clone();
        let mut count = 0;
        while self.page.anchors.contains(&unique) {
            count += 1;
            unique = format!("{name}-{count}");
        }
        self.page.anchors.push(unique);
    }

    fn push(&mut self, text: &str, place: &Range<usize>) {
        if self.code {
            return;
        }
        if self.block.is_none() {
            self.begin(place, false);
        }
        if let Some(block) = &mut self.block {
            block.text.push_str(text);
        }
    }

    fn read(&mut self, event: Event<'_>, place: Range<usize>) {
        if let Event::Code(code) = &event {
            self.page.code.push((self.line(&place), code.to_string()));
        }
        match event {
            Event::Start(Tag::Heading { .. }) => self.begin(&place, true),
            Event::Start(Tag::Paragraph | Tag::Item | Tag::TableCell) => self.begin(&place, false),
            Event::Start(Tag::CodeBlock(_)) => {
                self.end();
                self.code = true;
            }
            Event::End(TagEnd::CodeBlock) => self.code = false,
            Event::End(
                TagEnd::Heading(_) | TagEnd::Paragraph | TagEnd::Item | TagEnd::TableCell,
            ) => self.end(),
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                let line = self.line(&place);
                self.page.links.push(Link { line, to: dest_url.into_string() });
            }
            Event::Text(text) => self.push(&text, &place),
            Event::Code(code) if self.block.as_ref().is_some_and(|block| block.is_heading) => {
                self.push(&code, &place);
            }
            // Code counts as one word of a sentence.
            Event::Code(_) => self.push("code", &place),
            Event::SoftBreak | Event::HardBreak => self.push(" ", &place),
            _ => {}
        }
    }
}

/// The anchor of a heading: lower case, without punctuation, spaces as hyphens.
pub(crate) fn anchor(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || "-_ ".contains(*c);
    heading.trim().to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_paragraphs_items_and_cells() {
        let page = Page::parse(
            "# A title\n\nTwo\nlines.\n\n- one `x y`\n- two\n\n| a | b |\n|---|---|\n| c | d |\n\n```sh\ncode\n```\n",
        );
        let texts: Vec<_> = page.blocks.iter().map(|block| block.text.as_str()).collect();
        assert_eq!(texts, ["A title", "Two lines.", "one code", "two", "a", "b", "c", "d"]);
        assert_eq!(page.blocks[1].line, 3);
    }

    #[test]
    fn anchors_are_those_of_mdbook() {
        assert_eq!(anchor("What `lull web` does, and why"), "what-lull-web-does-and-why");
        let page = Page::parse("## Read\n\n## Read\n\n## `lull web` beside nginx\n");
        assert_eq!(page.anchors, ["read", "read-1", "lull-web-beside-nginx"]);
    }

    #[test]
    fn links_have_their_line() {
        let page = Page::parse("a\n\n[b](c.md#d) ![e](f.svg)\n");
        let found: Vec<_> = page.links.iter().map(|link| (link.line, link.to.as_str())).collect();
        assert_eq!(found, [(3, "c.md#d"), (3, "f.svg")]);
    }
}
