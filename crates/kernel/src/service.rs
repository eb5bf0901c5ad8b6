//! Services that run programs or send data for the programs that connect to them.

use std::fs;

use crate::owners::process_with_socket;

/// A foreground service that a program in the background has connected to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Service {
    kind: Kind,
    name: String,
    process: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Containers,
    ServiceManager,
    Terminals,
    ControlMaster,
}

/// Sockets of container engines, by the end of their path.
const ENGINES: [&str; 5] =
    ["/docker.sock", "/podman.sock", "/containerd.sock", "/crio.sock", "/buildkitd.sock"];

impl Service {
    /// The service that listens at the path of a Unix socket, if it acts for others.
    pub(crate) fn behind(path: &str) -> Option<Self> {
        if let Some(service) = Self::by_path(path) {
            return Some(service);
        }
        // There is nothing else of these kinds, and it is requested often: the log, the names of users.
        let is_of_system = ["/run/", "/var/run/"].iter().any(|folder| path.starts_with(folder));
        if path.is_empty() || (is_of_system && !path.contains("/screen/")) {
            return None;
        }
        let process = listener(path)?;
        let name = fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
        Self::by_name(name.trim_end(), process)
    }

    fn by_path(path: &str) -> Option<Self> {
        let kind = if ENGINES.iter().any(|end| path.ends_with(end)) {
            Kind::Containers
        } else if path.ends_with("/systemd/private") {
            Kind::ServiceManager
        } else {
            return None;
        };
        Some(Service { kind, name: path.to_owned(), process: None })
    }

    fn by_name(name: &str, process: i32) -> Option<Self> {
        let kind = match name {
            "tmux: server" | "screen" | "SCREEN" => Kind::Terminals,
            "ssh" => Kind::ControlMaster,
            _ => return None,
        };
        Some(Service { kind, name: name.to_owned(), process: Some(process) })
    }

    /// The listening process, if known.
    pub(crate) fn process(&self) -> Option<i32> {
        self.process
    }

    /// One line that describes it, and how to move it into the background.
    pub(crate) fn description(&self) -> String {
        let name = &self.name;
        let process = self.process.unwrap_or_default();
        match self.kind {
            Kind::Containers => format!(
                "programs in containers of {name}: move it with 'lull exec --pid PID --children', \
                 with the PID of 'docker inspect -f {{{{.State.Pid}}}} NAME'"
            ),
            Kind::ServiceManager => {
                "programs that systemd starts for this one: put 'lull exec --' before the command \
                 that it starts"
                    .to_owned()
            }
            Kind::Terminals => format!(
                "programs in windows of '{name}' (process {process}): start 'lull exec' inside a \
                 window"
            ),
            Kind::ControlMaster => format!(
                "traffic of the shared connection of ssh (process {process}): use 'ssh -o \
                 ControlPath=none'"
            ),
        }
    }
}

/// The process that listens at a path.
fn listener(path: &str) -> Option<i32> {
    let table = fs::read_to_string("/proc/net/unix").ok()?;
    process_with_socket(listening_inode(&table, path)?)
}

/// The inode of the socket that listens at a path, from `/proc/net/unix`.
fn listening_inode(table: &str, path: &str) -> Option<u64> {
    /// __SO_ACCEPTCON of the kernel.
    const LISTEN_PID: u64 = 1 << 16;
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_whitespace();
        let flags = u64::from_str_radix(fields.nth(3)?, 16).ok()?;
        let inode = fields.nth(2)?.parse().ok()?;
        let is_it = flags & LISTEN_PID != 0 && fields.next() == Some(path);
        is_it.then_some(inode)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listener_is_found_in_the_table_of_unix_sockets() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000003 00000000 00000000 0001 03  11 /tmp/a\n\
            0000000000000000: 00000002 00000000 00010000 0001 01  12 /tmp/a\n\
            0000000000000000: 00000002 00000000 00010000 0001 01  13\n";
        assert_eq!(listening_inode(table, "/tmp/a"), Some(12));
        assert_eq!(listening_inode(table, "/tmp/b"), None);
    }

    #[test]
    fn services_are_known_by_path_or_name() {
        let description = |service: Option<Service>| service.map(|service| service.description());
        let docker = description(Service::behind("/var/run/docker.sock")).unwrap();
        assert!(docker.contains("docker inspect -f {{.State.Pid}} NAME"), "{docker}");
        assert!(description(Service::behind("/run/systemd/private")).is_some());
        assert!(
            description(Service::by_name("tmux: server", 12)).unwrap().contains("(process 12)")
        );
        assert!(description(Service::by_name("ssh", 12)).unwrap().contains("ControlPath=none"));
        assert_eq!(Service::by_name("nginx", 12), None);
        assert_eq!(Service::behind("/run/systemd/journal/socket"), None);
        assert_eq!(Service::behind(""), None);
    }
}
