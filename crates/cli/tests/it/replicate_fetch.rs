//! `lull fetch`: one-off receivers of an origin and of a relay.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use serde_json::Value;

use crate::gate::{Gate, free_address};
use crate::site::Site;
use crate::support::{Kept, eventually, finish, lull};

const LARGE: usize = 12_000_000;

/// A site with a folder of files, a large one among them, and a ticket for receivers.
struct Published {
    site: Site,
    source: PathBuf,
    ticket: String,
    large: Vec<u8>,
}

impl Published {
    fn new() -> Self {
        let site = Site::new(&[], &[]);
        let source = site.folder.path().join("source");
        fs::create_dir_all(source.join("docs/a")).unwrap();
        let large: Vec<u8> = (0..LARGE as u64 / 8).flat_map(|at| (at * at).to_le_bytes()).collect();
        fs::write(source.join("large.iso"), &large).unwrap();
        fs::write(source.join("docs/index.html"), "index").unwrap();
        fs::write(source.join("docs/a/empty"), "").unwrap();
        fs::write(source.join("docs/a/tool"), "#!/bin/sh").unwrap();
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(source.join("docs/a/tool"), executable).unwrap();
        symlink("a/tool", source.join("docs/link")).unwrap();
        site.publish(&source, &[]);
        let text =
            finish(&mut lull(&["origin", "ticket", &site.path("origin"), "guests", "--fetch"]));
        let ticket = site.path("guests.ticket");
        fs::write(&ticket, text.ok()).unwrap();
        Published { site, source, ticket, large }
    }

    fn fetch(&self, address: &str, names: &[&str], arguments: &[&str]) -> Command {
        let mut command = lull(&["fetch", address]);
        command.args(names).args(["--ticket", &self.ticket]).args(arguments);
        command.current_dir(self.site.folder.path());
        command
    }

    /// Names of replicas at the origin.
    fn replicas(&self) -> usize {
        self.site.status("origin")["replicas"].as_array().unwrap().len()
    }
}

#[test]
fn files_are_fetched_without_becoming_a_replica() {
    let published = Published::new();
    let (site, origin) = (&published.site, published.site.listen.clone());
    let text = finish(&mut published.fetch(
        &origin,
        &["docs", "large.iso"],
        &["--output", "out", "--json"],
    ));
    let told: Value = serde_json::from_str(&text.ok()).unwrap();
    let out = site.folder.path().join("out");
    assert!(fs::read(out.join("large.iso")).unwrap() == published.large);
    finish(
        Command::new("diff")
            .args(["-r", "--no-dereference"])
            .args([published.source.join("docs"), out.join("docs")]),
    )
    .ok();
    let mode = fs::metadata(out.join("docs/a/tool")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
    assert_eq!(told["objects"].as_array().unwrap().len(), 7, "{told}");
    assert!(told["bytes"].as_u64() > Some(LARGE as u64));
    // Writers wait for replicas, and there is none.
    assert_eq!(published.replicas(), 0);
    let all = ["publish", published.source.to_str().unwrap(), "--origin", &site.path("origin")];
    finish(lull(&all).args(["--to", "*"])).fails(1, "no replica matches");

    // Only the missing file is sent again.
    fs::remove_file(out.join("docs/index.html")).unwrap();
    let text = finish(&mut published.fetch(
        &origin,
        &["docs", "large.iso"],
        &["--output", "out", "--json"],
    ));
    let told: Value = serde_json::from_str(&text.ok()).unwrap();
    // That of the link comes each time.
    assert_eq!(told["received_bytes"], "index".len() + "a/tool".len(), "{told}");
    let text = finish(&mut published.fetch(&origin, &["docs/index.html"], &["--output", "-"])).ok();
    assert_eq!(text, "index");
}

#[test]
fn killed_fetch_continues_behind_its_last_piece() {
    let published = Published::new();
    let gate = Gate::open(&published.site.listen, LARGE as u64 / 2);
    let mut command = published.fetch(&gate.address, &["large.iso"], &[]);
    let fetching = Kept::spawn(command.stderr(Stdio::null()).stdout(Stdio::null()));
    let folder = published.site.folder.path();
    let part = || {
        let mut all = fs::read_dir(folder).unwrap().flatten();
        let part = all.find(|one| one.file_name().to_string_lossy().ends_with(".lull-part"));
        part.map_or(0, |part| part.metadata().unwrap().len())
    };
    eventually("a part", || part() > LARGE as u64 / 2 - 200_000);
    // SIGKILL.
    drop(fetching);
    let kept = part();
    gate.each.store(u64::MAX, std::sync::atomic::Ordering::Relaxed);
    let text = finish(&mut published.fetch(&gate.address, &["large.iso"], &["--json"])).ok();
    let told: Value = serde_json::from_str(&text).unwrap();
    assert!(fs::read(folder.join("large.iso")).unwrap() == published.large);
    assert_eq!(part(), 0, "no part is left");
    assert_eq!(told["objects"][0]["resumed_bytes"], kept / 65_536 * 65_536, "{told}");
    assert_eq!(told["received_bytes"], LARGE as u64 - kept / 65_536 * 65_536, "{told}");
}

#[test]
fn relay_serves_receivers_until_their_ticket_expires() {
    let mut published = Published::new();
    let relay = free_address();
    published.site.add_relay("relay", &["--relay", &relay, "--only", "docs/**"]);
    eventually("a connection", || published.site.status("relay")["connected"] == true);
    published.site.publish(&published.source, &["--wait", "relay"]);
    // The relay gets the body that it does not take for this receiver.
    finish(&mut published.fetch(&relay, &["large.iso", "docs"], &["--output", "out"])).ok();
    let out = published.site.folder.path().join("out");
    assert!(fs::read(out.join("large.iso")).unwrap() == published.large);
    assert_eq!(fs::read(out.join("docs/index.html")).unwrap(), b"index");
    assert_eq!(published.replicas(), 1, "the relay");

    let origin = published.site.path("origin");
    finish(&mut lull(&["origin", "revoke", &origin, "guests"])).ok();
    let refused = finish(&mut published.fetch(&relay, &["docs"], &["--output", "again"]));
    refused.fails(1, "ask for a new one");
}

#[test]
fn errors_of_a_fetch_name_the_remedy() {
    let published = Published::new();
    let origin = published.site.listen.clone();
    let of = |address: &str, names: &[&str], arguments: &[&str]| {
        finish(&mut published.fetch(address, names, arguments))
    };
    of(&origin, &["lareg.iso"], &[]).fails(3, "did you mean `large.iso`?");
    of(&origin, &["index.html"], &[]).fails(3, "did you mean `docs/index.html`?");
    of(&origin, &["zzz"], &[]).fails(3, "gets all files");
    of(&origin, &["."], &[]).fails(2, "--output FOLDER");
    of(&origin, &["docs"], &["--output", "-"]).fails(1, "is not a single file");
    of(&origin, &["docs", "large.iso"], &["--output", "-"]).fails(2, "takes one name");
    of(&free_address(), &["docs"], &[]).fails(1, "Connection refused");
    of("origin", &["docs"], &[]).fails(1, "write HOST:PORT");
    // The ticket of a replica is not used up, and is of no use for a receiver; and the other way round.
    let ticket = ["origin", "ticket", &published.site.path("origin"), "paris"];
    let ticket = finish(&mut lull(&ticket)).ok();
    let file = published.site.path("paris.ticket");
    fs::write(&file, &ticket).unwrap();
    finish(&mut lull(&["fetch", &origin, "docs", "--ticket", &file]))
        .fails(1, "lull origin ticket DIR NAME --fetch");
    let guests = fs::read_to_string(&published.ticket).unwrap();
    let join = ["replica", "join", guests.trim(), &published.site.path("guest")];
    finish(&mut lull(&join)).fails(1, "this ticket is for `lull fetch`");
    finish(&mut lull(&["replica", "join", ticket.trim(), &published.site.path("paris")])).ok();
    let ticket = ["origin", "ticket", &published.site.path("origin"), "paris", "--fetch"];
    finish(&mut lull(&ticket)).fails(1, "use another name");
}

/// Open files of a process, and its resident memory in kB.
fn footprint(process: &Kept) -> (usize, u64) {
    let folder = PathBuf::from("/proc").join(process.pid());
    let status = fs::read_to_string(folder.join("status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.unwrap().trim().trim_end_matches(" kB").parse().unwrap();
    (fs::read_dir(folder.join("fd")).unwrap().count(), kilobytes)
}

/// Every other one is killed in the middle of a file.
#[test]
fn receivers_that_come_and_go_leave_nothing_behind() {
    /// As many as come before the first look, because memory is kept for reuse.
    const EACH: usize = 15;
    let mut published = Published::new();
    let relay = free_address();
    published.site.add_relay("relay", &["--relay", &relay]);
    eventually("the file at the relay", || published.site.get("relay", "/large.iso").status == 200);
    let gates = [&published.site.listen, &relay].map(|to| Gate::open(to, LARGE as u64 / 2));
    let visit = |number: usize| {
        let address = [&published.site.listen, &relay][number % 2];
        let files = &["docs/index.html"][..];
        assert_eq!(finish(&mut published.fetch(address, files, &["--output", "-"])).ok(), "index");
        let gate = &gates[number % 2];
        let before = gate.carried.load(Ordering::Relaxed);
        let mut command = published.fetch(&gate.address, &["large.iso"], &["--output", "-"]);
        let fetching = Kept::spawn(command.stderr(Stdio::null()).stdout(Stdio::null()));
        eventually("half of it", || gate.carried.load(Ordering::Relaxed) > before + 4_000_000);
        drop(fetching);
    };
    (0..EACH).for_each(visit);
    let (origin, relay) =
        (published.site.origin.as_ref().unwrap(), &published.site.replicas["relay"]);
    let before = [origin, relay].map(footprint);
    (0..EACH).for_each(visit);
    for (process, (files, kilobytes)) in [origin, relay].into_iter().zip(before) {
        eventually("open files as before", || footprint(process).0 <= files);
        let now = footprint(process).1;
        assert!(now < kilobytes + 16_000, "{kilobytes} kB, and then {now}");
    }
}
