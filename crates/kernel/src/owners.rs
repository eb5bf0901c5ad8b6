//! The processes that hold sockets.

use std::collections::HashMap;
use std::fs;

/// A process that holds a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its number.
    pub pid: i32,
    /// Its short name.
    pub command: String,
}

/// The holder of every visible socket.
pub(crate) fn owners() -> HashMap<u64, Owner> {
    let mut owners = HashMap::new();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let mut command = None;
        for descriptor in fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten() {
            let Some(inode) =
                fs::read_link(descriptor.path()).ok().as_deref().and_then(socket_inode)
            else {
                continue;
            };
            let command = command.get_or_insert_with(|| {
                let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
                name.trim_end().to_owned()
            });
            owners.entry(inode).or_insert_with(|| Owner { pid, command: command.clone() });
        }
    }
    owners
}

/// A process that holds the socket with this inode, if one is found.
pub(crate) fn process_with_socket(inode: u64) -> Option<i32> {
    owners().get(&inode).map(|owner| owner.pid)
}

/// The inode in `socket:[123]`.
pub(crate) fn socket_inode(link: &std::path::Path) -> Option<u64> {
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_have_a_socket_inode() {
        assert_eq!(socket_inode("socket:[12]".as_ref()), Some(12));
        assert_eq!(socket_inode("pipe:[12]".as_ref()), None);
        assert_eq!(socket_inode("/dev/null".as_ref()), None);
    }
}
