//! Listings: an open folder has the names of one state.

use std::sync::Arc;

use lull_replication::path::{Path, prefix_of};
use lull_replication::replica::{Entry, Outcome, ReadTarget};
use lull_replication::types::Mode;
use nix::errno::Errno;

use super::abi::{Answer, Kind, READ, Range};
use super::files::Files;
use super::handles::{Listed, Open};
use super::nodes::{NodePath, number_of};

impl Files {
    pub(super) fn open_folder(self: &Arc<Self>, unique: u64, node: u64, caller: (u32, u32)) {
        let node_path = match self.folder(node, READ, caller) {
            Ok((node_path, _)) => node_path,
            Err(error) => return self.reply_error(unique, error),
        };
        match &node_path {
            NodePath::Now(path) => {
                let target = ReadTarget::Names(path.clone());
                self.ask(unique, target, move |this, answer| {
                    this.listed(unique, &node_path, answer.outcome);
                });
            }
            NodePath::States => {
                let states = self.replica.states();
                let states =
                    states.iter().map(|(at, _)| (at.to_string().into_bytes(), Entry::Folder(None)));
                self.listed(unique, &node_path, Outcome::Names(states.collect()));
            }
            NodePath::Then(at, path) => match self.replica.names_at(*at, path.as_ref()) {
                Some(outcome) => self.listed(unique, &node_path, outcome),
                None => self.reply_error(unique, Errno::ESTALE),
            },
        }
    }

    /// Answers with the entries of the opened folder.
    fn listed(&self, unique: u64, node_path: &NodePath, outcome: Outcome) {
        let Outcome::Names(names) = outcome else {
            return self.reply_error(unique, Errno::ENOENT);
        };
        let own = node_path.name();
        let whole = |within: &[u8], name: &[u8]| [&prefix_of(within), name].concat();
        let folder = |name: &[u8], whole: &[u8]| Listed {
            name: name.to_owned(),
            number: number_of(whole, None),
            kind: Kind::Folder(Mode::IMPLIED),
        };
        let slash = own.iter().rposition(|byte| *byte == b'/');
        let above = slash.map_or(&b""[..], |end| &own[..end]);
        let mut list = vec![folder(b".", &own), folder(b"..", above)];
        for (name, entry) in names {
            list.push(match entry {
                Entry::Folder(_) => folder(&name, &whole(&own, &name)),
                Entry::File(version) => {
                    let path = match node_path {
                        NodePath::Now(path) | NodePath::Then(_, path) => path.as_ref(),
                        NodePath::States => None,
                    };
                    let path = whole(path.map_or(&b""[..], Path::as_bytes), &name);
                    let number = number_of(&path, Some(version.sequence));
                    let kind = Kind::of(&version.content.metadata);
                    Listed { name, number, kind }
                }
            });
        }
        self.opened(unique, Open::Folder(list.into()), Answer::opened_folder);
    }

    pub(super) fn read_folder(&self, unique: u64, range: Range) {
        let Some(Open::Folder(list)) = self.handle(range.handle) else {
            return self.reply_error(unique, Errno::EBADF);
        };
        let mut said = Answer::default();
        let first = usize::try_from(range.offset).unwrap_or(usize::MAX);
        for (at, one) in list.iter().enumerate().skip(first) {
            let kind = (one.number, one.kind);
            if !said.add_name(kind, &one.name, at as u64 + 1, range.size as usize) {
                break;
            }
        }
        self.reply(unique, &said);
    }
}
