//! The NFS export of a replica, read by a client in user space.

use std::net::SocketAddr;
use std::time::Duration;

use lull_replication::origin::{Put, Transaction};
use lull_replication::path::Path;
use lull_replication::time::WallTime;
use lull_replication::types::{Kind, Metadata, Mode};
use lull_replication_daemon::http::Serving;
use lull_replication_daemon::nfs::ReplicaNfs;
use lull_testing::{command, needs};
use nfs3_client::tokio::{TokioConnector, TokioIo};
use nfs3_client::{Nfs3Client, Nfs3Connection, Nfs3ConnectionBuilder};
use nfs3_types::nfs3::{
    ACCESS3args, GETATTR3args, LOOKUP3args, Nfs3Option, Nfs3Result, READ3args, READDIR3args,
    READDIRPLUS3args, READLINK3args, REMOVE3args, cookieverf3, diropargs3, fattr3, ftype3, nfs_fh3,
    nfsstat3,
};
use nfs3_types::rpc::{auth_unix, opaque_auth};
use tokio::net::TcpStream;

use super::faces::listen;
use super::site::{Site, body, path, patient, runtime};

type Client = Nfs3Client<TokioIo<TcpStream>>;

/// A file of several pieces.
const LARGE: usize = 300_000;

async fn export(site: &Site, patience: Option<Duration>) -> (Serving, SocketAddr) {
    let (listener, address) = listen().await;
    (ReplicaNfs::open(listener, site.replica(0).clone(), patience), address)
}

async fn mount(address: SocketAddr, user: u32) -> Nfs3Connection<TokioIo<TcpStream>> {
    let auth = auth_unix { uid: user, gid: user, ..auth_unix::default() };
    let builder = Nfs3ConnectionBuilder::new(TokioConnector, "127.0.0.1", "/")
        .connect_from_privileged_port(false)
        .mount_port(address.port())
        .nfs3_port(address.port())
        .credential(opaque_auth::auth_unix(&auth));
    builder.mount().await.expect("mounted")
}

/// The value, or the status.
fn status<T, E>(result: Nfs3Result<T, E>) -> Result<T, nfsstat3> {
    match result {
        Nfs3Result::Ok(value) => Ok(value),
        Nfs3Result::Err((status, _)) => Err(status),
    }
}

async fn lookup(
    client: &mut Client,
    folder: &nfs_fh3,
    name: &[u8],
) -> Result<(nfs_fh3, fattr3), nfsstat3> {
    let what = diropargs3 { dir: folder.clone(), name: name.to_vec().into() };
    let found = status(client.lookup(&LOOKUP3args { what }).await.expect("a reply"))?;
    Ok((found.object, found.obj_attributes.unwrap()))
}

async fn attributes(client: &mut Client, object: &nfs_fh3) -> Result<fattr3, nfsstat3> {
    let args = GETATTR3args { object: object.clone() };
    status(client.getattr(&args).await.expect("a reply")).map(|found| found.obj_attributes)
}

async fn read(client: &mut Client, file: &nfs_fh3) -> Result<Vec<u8>, nfsstat3> {
    let mut bytes = Vec::new();
    loop {
        let (file, offset) = (file.clone(), bytes.len() as u64);
        let args = READ3args { file, offset, count: 100_000 };
        let part = status(client.read(&args).await.expect("a reply"))?;
        bytes.extend_from_slice(&part.data);
        if part.eof {
            return Ok(bytes);
        }
    }
}

/// The names of a folder, read in parts of `count` bytes; after the first part, `meanwhile` runs.
async fn names(
    client: &mut Client,
    dir: &nfs_fh3,
    count: u32,
    mut meanwhile: impl AsyncFnMut(),
) -> Result<Vec<Vec<u8>>, nfsstat3> {
    let (mut names, mut cookie, mut cookieverf) = (Vec::new(), 0, cookieverf3::default());
    loop {
        let args = READDIR3args { dir: dir.clone(), cookie, cookieverf, count };
        let part = status(client.readdir(&args).await.expect("a reply"))?;
        cookieverf = part.cookieverf;
        for entry in part.reply.entries.into_inner() {
            cookie = entry.cookie;
            names.push(entry.name.as_ref().to_vec());
        }
        if part.reply.eof {
            return Ok(names);
        }
        meanwhile().await;
    }
}

/// A tree of all kinds, at its replica.
async fn tree(site: &Site, large: &[u8]) {
    let stored = |bytes: &[u8]| {
        let mut stager = site.origin().bodies().stage();
        stager.write(bytes).expect("a disk").expect("room");
        stager.finish().expect("a disk").expect("room")
    };
    let file = |mode| Metadata { modified: time(), mode: Mode::new(mode), ..Metadata::default() };
    let link = Metadata { kind: Kind::Link, mode: Mode::LINK, modified: time() };
    let folder = |mode| {
        let metadata = Metadata { kind: Kind::Folder, modified: time(), mode: Mode::new(mode) };
        Put::Body(stored(b""), metadata)
    };
    let odd = Path::from_bytes(b"odd \xff").expect("a path");
    let changes = [
        (path("docs/large"), Put::Body(stored(large), file(0o755))),
        (path("docs/secret"), Put::Body(stored(b"secret"), file(0o600))),
        (path("docs"), folder(0o711)),
        (path("link"), Put::Body(stored(b"docs/large"), link)),
        (odd, Put::Body(stored(b"odd"), file(0o644))),
        (path("empty"), folder(0o755)),
    ];
    let sequence = site.origin().write(Transaction { changes: changes.into() }).await;
    site.reach(sequence.expect("written")).await;
}

/// Some time with nanoseconds.
fn time() -> WallTime {
    WallTime::from_nanos(1_700_000_000_123_456_789)
}

#[test]
fn nfs_client_sees_files_links_modes_and_times() {
    runtime().block_on(async {
        let site = Site::new(1).await;
        let large = body(1, LARGE);
        tree(&site, &large).await;
        let (serving, address) = export(&site, None).await;
        let mount = mount(address, 1_000).await;
        let (root, mut client) = (mount.root_nfs_fh3(), mount.into_nfs3_client());
        let all = names(&mut client, &root, 8_000, async || {}).await.expect("a listing");
        assert_eq!(all, [&b"."[..], b"..", b"docs", b"empty", b"link", b"odd \xff"]);
        let (docs, shown) = lookup(&mut client, &root, b"docs").await.expect("a folder");
        assert_eq!((shown.type_, shown.mode), (ftype3::NF3DIR, 0o711));
        assert_eq!((shown.mtime.seconds, shown.mtime.nseconds), (1_700_000_000, 123_456_789));
        let (file, shown) = lookup(&mut client, &docs, b"large").await.expect("a file");
        assert_eq!((shown.type_, shown.mode, shown.size), (ftype3::NF3REG, 0o755, LARGE as u64));
        assert_eq!(read(&mut client, &file).await.expect("its bytes"), large);
        let (link, shown) = lookup(&mut client, &root, b"link").await.expect("a link");
        assert_eq!((shown.type_, shown.size), (ftype3::NF3LNK, 10));
        let target = client.readlink(&READLINK3args { symlink: link }).await.expect("a reply");
        assert_eq!(status(target).expect("a target").data.as_ref(), b"docs/large");
        let (odd, _) = lookup(&mut client, &root, b"odd \xff").await.expect("a file");
        assert_eq!(read(&mut client, &odd).await.expect("its bytes"), b"odd");
        let (up, _) = lookup(&mut client, &docs, b"..").await.expect("the root");
        assert_eq!(up, root);
        for (folder, name, expected) in [
            (&root, &b"none"[..], nfsstat3::NFS3ERR_NOENT),
            (&root, &b".lull"[..], nfsstat3::NFS3ERR_NOENT),
            (&root, &b"docs/large"[..], nfsstat3::NFS3ERR_NOENT),
            (&root, &[b'x'; 256][..], nfsstat3::NFS3ERR_NAMETOOLONG),
            (&odd, &b"x"[..], nfsstat3::NFS3ERR_NOTDIR),
        ] {
            let found = lookup(&mut client, folder, name).await.err();
            assert_eq!(found, Some(expected), "{name:?}");
        }
        serving.close().await;
        site.stop().await;
    });
}

#[test]
fn nfs_permissions_apply_and_nothing_can_be_written() {
    runtime().block_on(async {
        let site = Site::new(1).await;
        tree(&site, b"large").await;
        let (serving, address) = export(&site, None).await;
        for (user, is_root) in [(0, true), (1_000, false)] {
            let mount = mount(address, user).await;
            let (root, mut client) = (mount.root_nfs_fh3(), mount.into_nfs3_client());
            let (docs, _) = lookup(&mut client, &root, b"docs").await.expect("a folder");
            let listed = names(&mut client, &docs, 8_000, async || {}).await;
            assert_eq!(listed.is_ok(), is_root, "{listed:?}");
            let (secret, shown) = lookup(&mut client, &docs, b"secret").await.expect("a file");
            assert_eq!((shown.uid, shown.mode), (0, 0o600));
            let args = ACCESS3args { object: secret.clone(), access: 0x3f };
            let rights = status(client.access(&args).await.expect("a reply")).expect("rights");
            assert_eq!(rights.access != 0, is_root);
            let secret = read(&mut client, &secret).await;
            let expected =
                if is_root { Ok(b"secret".to_vec()) } else { Err(nfsstat3::NFS3ERR_ACCES) };
            assert_eq!(secret, expected);
            let object = diropargs3 { dir: docs, name: b"secret".to_vec().into() };
            let removed = client.remove(&REMOVE3args { object }).await.expect("a reply");
            assert_eq!(status(removed).err(), Some(nfsstat3::NFS3ERR_ROFS));
        }
        serving.close().await;
        site.stop().await;
    });
}

/// A handle is one version: a client that has opened it never mixes two, and learns that there is a newer one.
#[test]
fn nfs_handle_is_one_version_of_a_file() {
    runtime().block_on(async {
        let mut site = Site::new(1).await;
        let (old, new) = (body(1, LARGE), body(2, LARGE));
        let sequence = site.write(&[("docs/a", Some(&old)), ("b", Some(b"first"))]).await;
        site.reach(sequence).await;
        let (serving, address) = export(&site, None).await;
        let mount = mount(address, 0).await;
        let (root, mut client) = (mount.root_nfs_fh3(), mount.into_nfs3_client());
        let (docs, before) = lookup(&mut client, &root, b"docs").await.expect("a folder");
        let (opened, _) = lookup(&mut client, &docs, b"a").await.expect("a file");
        let args = READ3args { file: opened.clone(), offset: 0, count: 10 };
        status(client.read(&args).await.expect("a reply")).expect("bytes");
        let sequence = site.write(&[("docs/a", Some(&new)), ("b", Some(b"second"))]).await;
        site.reach(sequence).await;
        // Who opens it now looks the name up again.
        let gone = attributes(&mut client, &opened).await.err();
        assert_eq!(gone, Some(nfsstat3::NFS3ERR_STALE));
        let after = attributes(&mut client, &docs).await.expect("a folder");
        assert_ne!(
            (before.ctime.seconds, before.ctime.nseconds),
            (after.ctime.seconds, after.ctime.nseconds),
            "clients drop the names of the folder"
        );
        assert_eq!(read(&mut client, &opened).await.expect("what was opened"), old);
        let (newer, _) = lookup(&mut client, &docs, b"a").await.expect("a file");
        assert_ne!(newer, opened);
        assert_eq!(read(&mut client, &newer).await.expect("its bytes"), new);
        let (other, _) = lookup(&mut client, &root, b"b").await.expect("a file");
        assert_eq!(read(&mut client, &other).await.expect("its bytes"), b"second");
        serving.close().await;
        site.stop().await;
    });
}

#[test]
fn nfs_listing_in_parts_shows_one_state() {
    runtime().block_on(async {
        let mut site = Site::new(1).await;
        let all: Vec<String> = (0..500).map(|number| format!("docs/{number:03}")).collect();
        let put: Vec<(&str, Option<&[u8]>)> =
            all.iter().map(|name| (&**name, Some(&b"x"[..]))).collect();
        let sequence = site.write(&put).await;
        site.reach(sequence).await;
        let (serving, address) = export(&site, None).await;
        let mount = mount(address, 0).await;
        let (root, mut client) = (mount.root_nfs_fh3(), mount.into_nfs3_client());
        let (docs, _) = lookup(&mut client, &root, b"docs").await.expect("a folder");
        let mut changes = 0;
        let listed = names(&mut client, &docs, 4_096, async || {
            changes += 1;
            let (gone, new) = (format!("docs/{:03}", 500 - changes), format!("docs/new{changes}"));
            let sequence = site.write(&[(&gone, None), (&new, Some(b"y"))]).await;
            site.reach(sequence).await;
        });
        let listed = listed.await.expect("a listing");
        assert!(changes > 2, "it came in {changes} parts");
        let expected: Vec<_> = all.iter().map(|name| name.as_bytes()[5..].to_vec()).collect();
        assert_eq!(listed[2..], expected);
        // Handles and attributes in a listing are those of its files.
        let (dircount, maxcount) = (4_096, 4_096);
        let (cookie, cookieverf) = (0, cookieverf3::default());
        let args = READDIRPLUS3args { dir: docs, cookie, cookieverf, dircount, maxcount };
        let part = status(client.readdirplus(&args).await.expect("a reply")).expect("a part");
        let entries = part.reply.entries.into_inner();
        let entry = entries.into_iter().nth(2).expect("a file");
        let (Nfs3Option::Some(handle), Nfs3Option::Some(shown)) =
            (entry.name_handle, entry.name_attributes)
        else {
            panic!("without a handle")
        };
        assert_eq!(attributes(&mut client, &handle).await.expect("a file").fileid, shown.fileid);
        assert_eq!(read(&mut client, &handle).await.expect("its bytes"), b"x");
        // A listing of a state that is unknown begins again.
        let (dir, cookieverf) = (args.dir.clone(), cookieverf3([9; 8]));
        let args = READDIR3args { dir, cookie: 7, cookieverf, count: 4_096 };
        let part = status(client.readdir(&args).await.expect("a reply"));
        assert_eq!(part.err(), Some(nfsstat3::NFS3ERR_BAD_COOKIE));
        serving.close().await;
        site.stop().await;
    });
}

#[test]
fn nfs_handles_survive_a_restart_and_wait_for_a_lease() {
    runtime().block_on(async {
        let mut site = Site::new(1).await;
        let sequence = site.write(&[("docs/a", Some(b"bytes"))]).await;
        site.reach(sequence).await;
        let (serving, address) = export(&site, None).await;
        let connection = mount(address, 0).await;
        let (root, mut client) = (connection.root_nfs_fh3(), connection.into_nfs3_client());
        let (docs, _) = lookup(&mut client, &root, b"docs").await.expect("a folder");
        let (file, _) = lookup(&mut client, &docs, b"a").await.expect("a file");
        serving.close().await;
        site.crash_origin();
        site.crash_replica(0);
        site.start_replica(0).await;
        let (serving, address) = export(&site, Some(Duration::from_millis(50))).await;
        // It has heard nothing from its origin so far.
        let stream = TcpStream::connect(address).await.expect("a port");
        let auth = opaque_auth::auth_unix(&auth_unix::default());
        let mut client = Client::new_with_auth(TokioIo::new(stream), auth, opaque_auth::default());
        for handle in [&root, &docs, &file] {
            let waits = attributes(&mut client, handle).await.err();
            assert_eq!(waits, Some(nfsstat3::NFS3ERR_JUKEBOX));
        }
        site.start_origin().await;
        let replica = site.replica(0).clone();
        patient("a lease", || replica.status().connected).await;
        let mut shown = attributes(&mut client, &file).await;
        while shown.as_ref().err() == Some(&nfsstat3::NFS3ERR_JUKEBOX) {
            shown = attributes(&mut client, &file).await;
        }
        assert_eq!(shown.expect("the same file").size, 5);
        assert_eq!(read(&mut client, &file).await.expect("its bytes"), b"bytes");
        assert!(attributes(&mut client, &docs).await.is_ok());
        serving.close().await;
        site.stop().await;
    });
}

/// The programs of libnfs, which read without a mount.
#[test]
fn nfs_programs_list_and_copy_files() {
    needs!(command("nfs-ls"), command("nfs-cat"), command("nfs-cp"));
    runtime().block_on(async {
        let site = Site::new(1).await;
        let large = body(1, LARGE);
        tree(&site, &large).await;
        let (serving, address) = export(&site, None).await;
        let port = address.port();
        let url = |path: &str| format!("nfs://127.0.0.1/{path}?nfsport={port}&mountport={port}");
        let run = async |program: &str, arguments: &[&str]| {
            let mut command = std::process::Command::new(program);
            command.args(arguments);
            tokio::task::spawn_blocking(move || command.output()).await.unwrap().expect("it runs")
        };
        let output = run("nfs-ls", &[&url("")]).await;
        assert!(output.status.success(), "{output:?}");
        let listed = String::from_utf8_lossy(&output.stdout).into_owned();
        let names: Vec<_> = listed.lines().filter_map(|line| line.rsplit(' ').next()).collect();
        assert!(["docs", "empty", "link"].iter().all(|name| names.contains(name)), "{listed}");
        assert_eq!(run("nfs-cat", &[&url("docs/large")]).await.stdout, large);
        let copy = site.folder().join("copy");
        let copied = run("nfs-cp", &[&url("docs/large"), copy.to_str().expect("text")]).await;
        assert!(copied.status.success(), "{copied:?}");
        assert_eq!(std::fs::read(&copy).expect("a copy"), large);
        let written = run("nfs-cp", &[copy.to_str().expect("text"), &url("new")]).await;
        assert!(!written.status.success(), "{written:?}");
        serving.close().await;
        site.stop().await;
    });
}
