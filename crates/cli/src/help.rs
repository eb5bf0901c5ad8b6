//! Checks of help texts, for the tests of both programs.

use clap::Command;

/// A command with its words, such as `lull kernel load`.
pub type Named = (String, Command);

/// The commands in the help, each with its words.
pub fn commands(root: &Command) -> Vec<Named> {
    fn below(command: &Command, before: &str, all: &mut Vec<Named>) {
        let path = format!("{before} {}", command.get_name()).trim_start().to_owned();
        all.push((path.clone(), command.clone()));
        for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
            below(inner, &path, all);
        }
    }
    let mut all = Vec::new();
    below(root, "", &mut all);
    all
}

/// The words of a line of shell, up to a pipe.
fn words_of(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), _) if c == open => quote = None,
            (None, '|') => break,
            (None, ' ') => words.push(String::new()),
            _ => words.last_mut().expect("there is one").push(c),
        }
    }
    // A number replaces the output of a command.
    let word = |word: String| if word.starts_with("$(") { "1".to_owned() } else { word };
    words.into_iter().filter(|word| !word.is_empty()).map(word).collect()
}

/// Checks that the help of each command has examples, and that the program understands them. Each error is one line.
pub fn errors_in_examples(root: &Command) -> Vec<String> {
    let name = root.get_name().to_owned();
    let mut errors = Vec::new();
    for (path, mut command) in commands(root) {
        let help = command.render_long_help().to_string();
        let Some((_, examples)) = help.split_once("\nExamples:\n") else {
            errors.push(format!("{path}: no examples"));
            continue;
        };
        // As in a shell: a line that ends with a backslash continues on the next one.
        let examples = examples.replace(" \\\n     ", "");
        let lines = examples.lines().filter_map(|line| line.strip_prefix("  "));
        let calls: Vec<&str> = lines
            .map(|line| line.strip_prefix("sudo ").unwrap_or(line))
            .filter(|line| line.starts_with("lull "))
            .collect();
        if calls.is_empty() {
            errors.push(format!("{path}: no example runs it"));
        }
        for call in calls {
            let Some(arguments) = call.strip_prefix(&name).filter(|_| call.starts_with(&path))
            else {
                errors.push(format!("{path}: an example of another command: {call}"));
                continue;
            };
            let words = [name.clone()].into_iter().chain(words_of(arguments));
            if let Err(error) = root.clone().try_get_matches_from(words) {
                errors.push(format!("{path}: {call}: {error}"));
            }
        }
    }
    errors
}
