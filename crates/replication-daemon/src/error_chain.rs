//! Errors with their causes.

/// An error and its causes on one line. A cause whose text is part of the line already is left out.
pub(crate) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let said = next.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Outer {
        text: &'static str,
        source: io::Error,
    }

    #[test]
    fn causes_are_shown_once() {
        let chain = |text| error_chain(&Outer { text, source: io::Error::other("no room") });
        assert_eq!(chain("cannot write"), "cannot write: no room");
        assert_eq!(chain("cannot write: no room"), "cannot write: no room");
    }
}
