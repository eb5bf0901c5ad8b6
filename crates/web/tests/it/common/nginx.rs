//! A real nginx behind the proxy.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::LIMIT;

/// nginx on a free port, which serves a folder and writes a log there.
pub(crate) struct Nginx {
    child: Child,
    pub(crate) address: SocketAddr,
    folder: TempDir,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Nginx {
    /// Starts it, with `http` and `server` in these blocks.
    pub(crate) fn start(http: &str, server: &str) -> Self {
        let mut log = String::new();
        for _ in 0..5 {
            match Self::at_a_free_port(http, server) {
                Ok(nginx) => return nginx,
                // Another process may have taken the port by then.
                Err(errors) => log = errors,
            }
        }
        panic!("nginx does not start: {log}");
    }

    /// Returns its output, if it ends.
    fn at_a_free_port(http: &str, server: &str) -> Result<Self, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let config = format!(
            "daemon off; master_process off; pid {path}/pid; error_log {path}/error.log;
             events {{ worker_connections 64; }}
             http {{
                 log_format seen '$request_method $uri $status $http_sec_purpose $http_user_agent';
                 access_log {path}/access.log seen;
                 client_body_temp_path {path}/body; proxy_temp_path {path}/proxy;
                 fastcgi_temp_path {path}/fastcgi; uwsgi_temp_path {path}/uwsgi;
                 scgi_temp_path {path}/scgi; gzip on; gzip_min_length 100; {http}
                 server {{ listen {address}; root {path}; {server} }}
             }}"
        );
        let file = folder.path().join("nginx.conf");
        fs::write(&file, config).unwrap();
        let child = Command::new("nginx")
            .args([Path::new("-e"), &folder.path().join("error.log"), Path::new("-c"), &file])
            .args(["-p".as_ref(), folder.path().as_os_str()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut nginx = Nginx { child, address, folder };
        let (started, log) = (Instant::now(), nginx.folder().join("error.log"));
        // It writes this file when it has the port: before, another program may answer there.
        while !nginx.folder().join("pid").exists() || TcpStream::connect(address).is_err() {
            if nginx.child.try_wait().unwrap().is_some() {
                return Err(fs::read_to_string(log).unwrap_or_default());
            }
            assert!(started.elapsed() < LIMIT, "nginx does not start");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(nginx)
    }

    /// Puts a file into its folder.
    pub(crate) fn put(&self, name: &str, contents: impl AsRef<[u8]>) {
        fs::write(self.folder.path().join(name), contents).unwrap();
    }

    /// Its process, which is one.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The folder of its files.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The lines of its log.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("access.log")).unwrap()
    }
}
