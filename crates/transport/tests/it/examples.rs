//! The examples of docs/sockets.md, run unchanged against a variant of `nice`.
//!
//! Only the address, the port and the name are replaced. `ss` shows from outside whether the connection is in
//! the background.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lull_cc::NiceParameters;
use lull_kernel::{RegisteredControl, register_control};
use lull_testing::{bpf, command, free_port, needs};

/// Block number `index` of the section `heading` of docs/sockets.md.
fn block(heading: &str, index: usize) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sockets.md");
    let text = fs::read_to_string(path).unwrap();
    let section = text.split("\n## ").find(|section| section.starts_with(heading)).unwrap();
    let fenced = section.split("```").nth(2 * index + 1).unwrap();
    fenced.split_once('\n').unwrap().1.to_owned()
}

/// Lower effort, as ss(8) shows it.
const IPV4_MARK: &str = "tos:0x4";
const IPV6_MARK: &str = "tclass:0x4";

/// A child process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One example: a folder, a port, and its own congestion control.
struct Example {
    folder: tempfile::TempDir,
    name: String,
    _held: RegisteredControl,
}

impl Example {
    fn new(suffix: &str) -> Self {
        let name = format!("ltx{suffix}{}", std::process::id() % 1_000_000);
        let held = register_control(&name, &NiceParameters::refined()).unwrap();
        Example { folder: tempfile::tempdir().unwrap(), name, _held: held }
    }

    /// Writes a file of the example, with our values in place of the reader's.
    fn write(&self, file: &str, text: &str, port: u16) -> PathBuf {
        let text = text
            .replace("\"lull\"", &format!("\"{}\"", self.name))
            .replace("192.0.2.1", "127.0.0.1")
            .replace("873", &port.to_string())
            .replace("8080", &port.to_string());
        let path = self.folder.path().join(file);
        fs::write(&path, text).unwrap();
        path
    }

    /// Starts a program in the folder.
    fn start(&self, command: &mut Command) -> Running {
        let child = command.current_dir(self.folder.path()).stdin(Stdio::null());
        Running(child.spawn().unwrap())
    }

    /// The script that opens a listener on `port` as descriptor 9 for a program.
    fn with_listener(&self, port: u16) -> Command {
        let script = self.write("background.py", &block("A listener from outside", 0), port);
        let mut command = Command::new("python3");
        command.arg(script);
        command
    }

    /// Asserts that a connection that `filter` of ss(8) finds runs our congestion control, and has this mark.
    fn assert_background(&self, filter: &str, mark: &str) {
        let output =
            Command::new("ss").args(["-Htin", "--tos", "state", "established", filter]).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains(mark), "{filter}: {said:?}");
        assert!(said.contains(&format!("{} ", self.name)), "{filter}: {said:?}");
    }

    /// A client is in the background: it connects to us, and sends one byte.
    fn assert_client(&self, listener: &TcpListener, running: &mut Running) {
        listener.set_nonblocking(true).unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        let mut stream = loop {
            match listener.accept() {
                Ok((stream, _)) => break stream,
                Err(_) => assert!(Instant::now() < end, "no client connects"),
            }
            let ended = running.0.try_wait().unwrap();
            assert!(ended.is_none(), "it ended too early: {ended:?}");
            thread::sleep(Duration::from_millis(10));
        };
        let port = listener.local_addr().unwrap().port();
        self.assert_background(&format!("dport = :{port}"), IPV4_MARK);
        stream.set_nonblocking(false).unwrap();
        stream.write_all(b"x").unwrap();
    }

    /// A server's side is in the background: we connect, and get `expected` in answer.
    fn assert_server(&self, port: u16, expected: &str, running: &mut Running) {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        self.assert_server_at(address, expected, running);
    }

    fn assert_server_at(&self, address: SocketAddr, expected: &str, running: &mut Running) {
        let end = Instant::now() + Duration::from_secs(60);
        let mut stream = loop {
            match TcpStream::connect(address) {
                Ok(stream) => break stream,
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
            let ended = running.0.try_wait().unwrap();
            assert!(ended.is_none(), "it ended too early: {ended:?}");
            thread::sleep(Duration::from_millis(10));
        };
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = [0; 4096];
        let length = stream.read(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer[..length]);
        assert!(answer.contains(expected), "{answer}");
        let mark = if address.is_ipv4() { IPV4_MARK } else { IPV6_MARK };
        self.assert_background(&format!("sport = :{}", address.port()), mark);
    }
}

fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

#[test]
fn python_connection_runs_in_the_background() {
    needs!(bpf(), command("python3"), command("ss"));
    let example = Example::new("pc");
    let (listener, port) = listener();
    let text = format!("{}\ns.recv(1)\n", block("Python", 0));
    let script = example.write("client.py", &text, port);
    let mut running = example.start(Command::new("python3").arg(script));
    example.assert_client(&listener, &mut running);
    assert!(running.0.wait().unwrap().success());
}

#[test]
fn python_server_runs_in_the_background() {
    needs!(bpf(), command("python3"), command("ss"));
    let example = Example::new("ps");
    let port = free_port();
    let answer = "connection.recv(1000)\nconnection.send(b'hi')\nconnection.recv(1)\n";
    let text = format!("{}\n{answer}", block("Python", 1));
    let script = example.write("server.py", &text, port);
    let mut running = example.start(Command::new("python3").arg(script));
    example.assert_server(port, "hi", &mut running);
}

/// A Go program around the examples.
fn go(body: &str, imports: &[&str]) -> String {
    let imports: String = imports.iter().map(|one| format!("\t\"{one}\"\n")).collect();
    let body = body.replace('\n', "\n\t");
    format!("package main\n\nimport (\n{imports})\n\nfunc main() {{\n\t{body}\n}}\n")
}

#[test]
fn go_program_connects_and_listens() {
    needs!(bpf(), command("go"), command("ss"));
    let example = Example::new("go");
    let (client_listener, client_port) = listener();
    let server_port = free_port();
    let control = block("Go", 0);
    let wait = "if err != nil {\n\tpanic(err)\n}\nconn.Read(make([]byte, 1))\n";
    let text = go(&format!("{control}{wait}"), &["net", "syscall"]);
    let client = example.write("client.go", &text, client_port);
    let (control, _) = control.split_once("conn, err").unwrap();
    let accept = "if err != nil {\n\tpanic(err)\n}\nfor {\n\tconn, _ := listener.Accept()\n\
                  \tconn.Read(make([]byte, 1000))\n\tconn.Write([]byte(\"hi\"))\n\
                  \tconn.Read(make([]byte, 1))\n}\n";
    let text = format!("{control}{}{accept}", block("Go", 1));
    let server =
        example.write("server.go", &go(&text, &["context", "net", "syscall"]), server_port);
    for (source, is_client) in [(client, true), (server, false)] {
        let program = source.with_extension("");
        let build = Command::new("go")
            .args(["build", "-o"])
            .args([&program, &source])
            .env("CGO_ENABLED", "0")
            .output()
            .unwrap();
        assert!(build.status.success(), "{}", String::from_utf8_lossy(&build.stderr));
        let mut running = example.start(&mut Command::new(&program));
        if is_client {
            example.assert_client(&client_listener, &mut running);
        } else {
            example.assert_server(server_port, "hi", &mut running);
            let address = SocketAddr::from((Ipv6Addr::LOCALHOST, server_port));
            if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
                return lull_testing::skip("go_program_connects_and_listens", "no IPv6");
            }
            example.assert_server_at(address, "hi", &mut running);
        }
    }
}

#[test]
fn node_accepts_a_listener() {
    needs!(bpf(), command("python3"), command("node"), command("ss"));
    let example = Example::new("no");
    let port = free_port();
    let script = example.write("server.js", &block("Node", 0), port);
    let mut running = example.start(example.with_listener(port).arg("node").arg(script));
    example.assert_server(port, "hi", &mut running);
}

#[test]
fn nginx_accepts_a_listener() {
    needs!(bpf(), command("python3"), command("nginx"), command("ss"));
    let example = Example::new("ng");
    let port = free_port();
    let configuration = "pid nginx.pid;\nerror_log stderr;\nevents {}\nhttp {\n\
                         access_log off;\nclient_body_temp_path body;\nproxy_temp_path proxy;\n\
                         fastcgi_temp_path fastcgi;\nuwsgi_temp_path uwsgi;\nscgi_temp_path scgi;\n\
                         server { listen 8080; location / { return 200 hi; } }\n}\n";
    example.write("nginx.conf", configuration, port);
    let line = block("nginx", 0);
    assert_eq!(line, "NGINX=\"9;\" python3 background.py nginx -g \"daemon off;\"\n");
    let mut command = example.with_listener(port);
    command.env("NGINX", "9;").args(["nginx", "-e", "stderr", "-p"]).arg(example.folder.path());
    let mut running = example.start(command.args(["-c", "nginx.conf", "-g", "daemon off;"]));
    example.assert_server(port, "hi", &mut running);
    // So that its worker ends, too.
    let pid = nix::unistd::Pid::from_raw(running.0.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    running.0.wait().unwrap();
}

#[test]
fn haproxy_accepts_a_listener() {
    needs!(bpf(), command("python3"), command("haproxy"), command("ss"));
    let example = Example::new("ha");
    let port = free_port();
    let configuration = format!(
        "defaults\n    mode http\n    timeout client 9s\n    timeout server 9s\n    \
         timeout connect 9s\nfrontend lazy\n    {}    \
         http-request return status 200 content-type text/plain string hi\n",
        block("HAProxy", 1)
    );
    let path = example.write("haproxy.cfg", &configuration, port);
    let mut command = example.with_listener(port);
    let mut running = example.start(command.args(["haproxy", "-db", "-f"]).arg(path));
    example.assert_server(port, "hi", &mut running);
}
