//! Rust source as words and paths, without comments and the contents of strings.

use std::str::FromStr;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A token, or the border of a bracketed group.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Ident(String),
    Punct(char),
    Open(Delimiter),
    Close(Delimiter),
    Literal,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// Its name, without that of a type.
    pub(crate) name: String,
    /// The line of `fn`, from 1.
    pub(crate) line: usize,
    /// From there to the closing brace, both included.
    pub(crate) lines: usize,
}

/// The names in a module.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Scope {
    /// Its own declarations, including modules.
    pub(crate) items: Vec<String>,
    /// Its imports and re-exports: the name here, and its path.
    pub(crate) names: Vec<(String, String)>,
    /// Modules of which it imports everything.
    pub(crate) globs: Vec<String>,
}

/// Words before the name of an item.
const DECLARES: &[&str] =
    &["const", "enum", "fn", "macro_rules", "mod", "static", "struct", "trait", "type", "union"];

/// The tokens of a file, each with its line.
pub(crate) struct Source {
    tokens: Vec<(Token, usize)>,
}

impl Source {
    /// The tokens of `text`, or `None` if it is not Rust.
    pub(crate) fn parse(text: &str) -> Option<Source> {
        let mut tokens = Vec::new();
        flatten(TokenStream::from_str(text).ok()?, &mut tokens);
        Some(Source { tokens })
    }

    /// The same without the bodies of modules under `#[cfg(test)]`.
    pub(crate) fn without_tests(self) -> Source {
        let mut kept = Vec::new();
        let mut at = 0;
        while at < self.tokens.len() {
            match self.test_module(at) {
                Some(end) => at = end,
                None => {
                    kept.push(self.tokens[at].clone());
                    at += 1;
                }
            }
        }
        Source { tokens: kept }
    }

    /// If a `#[cfg(test)] mod name { … }` begins at `at`, its end.
    fn test_module(&self, at: usize) -> Option<usize> {
        let mut next = self.shape(at, "#[cfg(test)]")?;
        while self.is_punct(next, '#') {
            next = self.closing(next + 1)?;
        }
        if self.ident(next) == Some("pub") {
            next += 1;
            if self.token(next) == Some(&Token::Open(Delimiter::Parenthesis)) {
                next = self.closing(next)?;
            }
        }
        (self.ident(next) == Some("mod")).then_some(())?;
        self.closing(next + 2)
    }

    /// The position after the group that opens at `at`.
    fn closing(&self, at: usize) -> Option<usize> {
        matches!(self.token(at), Some(Token::Open(_))).then_some(())?;
        let mut depth = 0;
        for (offset, (token, _)) in self.tokens[at..].iter().enumerate() {
            match token {
                Token::Open(_) => depth += 1,
                Token::Close(_) => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Some(at + offset + 1);
            }
        }
        None
    }

    /// The position after the tokens of `pattern`, if they are at `at`.
    fn shape(&self, at: usize, pattern: &str) -> Option<usize> {
        let pattern = Source::parse(pattern)?;
        let end = at + pattern.tokens.len();
        let here = self.tokens.get(at..end)?;
        here.iter().zip(&pattern.tokens).all(|(a, b)| a.0 == b.0).then_some(end)
    }

    /// Whether the tokens of `pattern` occur anywhere.
    pub(crate) fn has(&self, pattern: &str) -> bool {
        (0..self.tokens.len()).any(|at| self.shape(at, pattern).is_some())
    }

    /// The lines on which the tokens of `pattern` begin.
    pub(crate) fn lines_of(&self, pattern: &str) -> Vec<usize> {
        (0..self.tokens.len())
            .filter(|&at| self.shape(at, pattern).is_some())
            .map(|at| self.tokens[at].1)
            .collect()
    }

    /// All paths, `use` trees written out: `use std::{fs, net::*}` gives `std::fs` and
    /// `std::net::*`. A single name is a path of one part.
    pub(crate) fn paths(&self) -> Vec<(String, usize)> {
        let mut found = Vec::new();
        let mut at = 0;
        while at < self.tokens.len() {
            at = self.path(at, "", &mut found);
        }
        found
    }

    /// Reads one path at `at`, including its braces; returns its end.
    fn path(&self, at: usize, prefix: &str, found: &mut Vec<(String, usize)>) -> usize {
        let Some(first) = self.ident(at) else {
            return at + 1;
        };
        let mut path = format!("{prefix}{first}");
        let mut next = at + 1;
        while self.is_punct(next, ':') && self.is_punct(next + 1, ':') {
            next += 2;
            if let Some(part) = self.ident(next) {
                path = format!("{path}::{part}");
                next += 1;
            } else if self.is_punct(next, '*') {
                path.push_str("::*");
                next += 1;
            } else if self.token(next) == Some(&Token::Open(Delimiter::Brace)) {
                let end = self.closing(next).unwrap_or(self.tokens.len());
                let prefix = format!("{path}::");
                let mut inner = next + 1;
                while inner < end {
                    if self.is_punct(inner, '*') {
                        found.push((format!("{path}::*"), self.tokens[inner].1));
                    }
                    inner = self.path(inner, &prefix, found);
                }
                return end;
            } else {
                break;
            }
        }
        found.push((path, self.tokens[at].1));
        next
    }

    /// All functions with a body, including nested ones.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let is_fn = |at: usize| self.ident(at) == Some("fn");
        (0..self.tokens.len()).filter(|&at| is_fn(at)).filter_map(|at| self.function(at)).collect()
    }

    fn function(&self, at: usize) -> Option<Function> {
        let name = self.ident(at + 1)?.to_owned();
        let mut next = at + 2;
        loop {
            match self.token(next)? {
                Token::Open(Delimiter::Brace) => break,
                Token::Open(_) => next = self.closing(next)?,
                // A declaration, as in a trait, has no body.
                Token::Punct(';') | Token::Close(_) => return None,
                _ => next += 1,
            }
        }
        let (line, last) = (self.tokens[at].1, self.tokens[self.closing(next)? - 1].1);
        Some(Function { name, line, lines: last - line + 1 })
    }

    /// The module's declarations and imports in the file, outside of functions.
    pub(crate) fn scope(&self) -> Scope {
        let mut scope = Scope::default();
        let mut at = 0;
        while at < self.tokens.len() {
            match self.token(at) {
                Some(Token::Open(_)) => at = self.closing(at).unwrap_or(self.tokens.len()),
                Some(Token::Ident(word)) if word == "use" => {
                    at = self.use_tree(at + 1, "", &mut scope);
                }
                Some(Token::Ident(word)) if DECLARES.contains(&word.as_str()) => {
                    scope.items.extend(self.ident(at + 1).map(str::to_owned));
                    at += 2;
                }
                _ => at += 1,
            }
        }
        scope
    }

    /// Reads one branch of a `use` at `at`; returns its end.
    fn use_tree(&self, mut at: usize, prefix: &str, scope: &mut Scope) -> usize {
        let mut path = prefix.to_owned();
        loop {
            match self.token(at) {
                Some(Token::Ident(word)) if word == "as" => {
                    let name = self.ident(at + 1).unwrap_or("_").to_owned();
                    scope.names.push((name, path));
                    return at + 2;
                }
                Some(Token::Ident(word)) => {
                    if !path.is_empty() {
                        path.push_str("::");
                    }
                    path.push_str(word);
                    at += 1;
                }
                Some(Token::Punct(':')) => at += 1,
                Some(Token::Punct('*')) => {
                    scope.globs.push(path);
                    return at + 1;
                }
                Some(Token::Open(Delimiter::Brace)) => {
                    let end = self.closing(at).unwrap_or(self.tokens.len());
                    let mut inner = at + 1;
                    while inner + 1 < end {
                        inner = self.use_tree(inner, &path, scope).max(inner + 1);
                    }
                    return end;
                }
                _ => break,
            }
        }
        if path == prefix {
            return at;
        }
        if let Some((_, name)) = path.rsplit_once("::") {
            if name == "self" {
                let path = path.trim_end_matches("::self");
                let name = path.rsplit("::").next().unwrap_or(path);
                scope.names.push((name.to_owned(), path.to_owned()));
            } else {
                scope.names.push((name.to_owned(), path.clone()));
            }
        }
        at
    }

    fn token(&self, at: usize) -> Option<&Token> {
        self.tokens.get(at).map(|(token, _)| token)
    }

    fn ident(&self, at: usize) -> Option<&str> {
        match self.token(at) {
            Some(Token::Ident(name)) => Some(name),
            _ => None,
        }
    }

    fn is_punct(&self, at: usize, c: char) -> bool {
        self.token(at) == Some(&Token::Punct(c))
    }
}

fn flatten(stream: TokenStream, into: &mut Vec<(Token, usize)>) {
    for tree in stream {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Ident(ident) => into.push((Token::Ident(ident.to_string()), line)),
            TokenTree::Punct(punct) => into.push((Token::Punct(punct.as_char()), line)),
            TokenTree::Literal(_) => into.push((Token::Literal, line)),
            TokenTree::Group(group) => {
                into.push((Token::Open(group.delimiter()), line));
                flatten(group.stream(), into);
                into.push((Token::Close(group.delimiter()), group.span_close().start().line));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        Source::parse(text).unwrap().paths().into_iter().map(|(path, _)| path).collect()
    }

    #[test]
    fn use_trees_are_expanded() {
        let found = paths("use std::{fs, net::{self, TcpStream}, io::*};");
        for path in ["std::fs", "std::net::self", "std::net::TcpStream", "std::io::*"] {
            assert!(found.contains(&path.to_owned()), "{path} in {found:?}");
        }
    }

    #[test]
    fn comments_and_strings_are_not_code() {
        let text = "//! std::fs\n/* std::net */ const A: &str = \"std::thread\";";
        assert!(paths(text).iter().all(|path| !path.starts_with("std")));
    }

    #[test]
    fn lines_are_those_of_the_file() {
        let source = Source::parse("fn f() {\n    unsafe { g() }\n}\n").unwrap();
        assert_eq!(source.lines_of("unsafe"), [2]);
    }

    #[test]
    fn test_modules_are_left_out() {
        let text = "#[cfg(test)]\n#[allow(x)]\npub(crate) mod tests { use std::fs; }\nfn f() {}";
        let source = Source::parse(text).unwrap().without_tests();
        assert!(!source.has("fs"));
        assert!(source.has("fn f()"));
        assert!(Source::parse("#[cfg(test)] use std::fs;").unwrap().without_tests().has("fs"));
    }

    #[test]
    fn functions_have_lines_from_fn_to_brace() {
        let text = "trait T { fn declared(&self); fn given(&self) {} }\n\
                    #[inline]\npub fn f<T>(a: [u8; 2])\nwhere\n    T: Fn(),\n{\n    fn inner() {}\n}\n";
        let found = Source::parse(text).unwrap().functions();
        let found: Vec<_> = found.iter().map(|f| (f.name.as_str(), f.line, f.lines)).collect();
        assert_eq!(found, [("given", 1, 1), ("f", 3, 6), ("inner", 7, 1)]);
    }

    #[test]
    fn scope_has_items_and_imports_outside_of_functions() {
        let text = "use a::{self, b as c, d::*, e::{F, G}}; pub mod m; struct S; \
                    fn f() -> impl Iterator + use<> { use x::y; struct Local; }";
        let scope = Source::parse(text).unwrap().scope();
        assert_eq!(scope.items, ["m", "S", "f"]);
        let names: Vec<_> = scope.names.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(names, [("a", "a"), ("c", "a::b"), ("F", "a::e::F"), ("G", "a::e::G")]);
        assert_eq!(scope.globs, ["a::d"]);
    }

    #[test]
    fn invalid_rust_is_reported() {
        assert!(Source::parse("fn f( {").is_none());
    }
}
