//! Bulk transfers from one emulated host to another, counted at the receiver.

use std::ffi::CStr;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use lull_emulator::{Host, set_congestion_control, set_dscp};

/// One transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bulk {
    pub(crate) congestion_control: &'static CStr,
    pub(crate) dscp: u8,
    pub(crate) ipv6: bool,
    /// The duration of sending.
    pub(crate) duration: Duration,
    /// The part at the beginning that is not counted.
    pub(crate) warm_up: Duration,
}

impl Bulk {
    pub(crate) fn new(congestion_control: &'static CStr) -> Self {
        Bulk {
            congestion_control,
            dscp: 0,
            ipv6: false,
            duration: Duration::from_secs(5),
            warm_up: Duration::from_millis(2000),
        }
    }

    /// Sends from `from` to `to`; bytes per second at the receiver, after the warm-up.
    pub(crate) fn run(self, from: &Host, to: &Host) -> f64 {
        let address: SocketAddr = if self.ipv6 { (to.v6(), 0).into() } else { (to.v4(), 0).into() };
        let listener = to.enter(|| TcpListener::bind(address)).unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        let receiver = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            self.receive(stream)
        });
        let mut stream = from
            .enter(|| TcpStream::connect_timeout(&address, Duration::from_secs(5)))
            .unwrap()
            .unwrap();
        set_congestion_control(&stream, self.congestion_control).unwrap();
        if !self.ipv6 {
            set_dscp(&stream, self.dscp).unwrap();
        }
        stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        let end = Instant::now() + self.duration;
        let chunk = [0; 16_384];
        while Instant::now() < end {
            match stream.write(&chunk) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The receiver counts by its own clock, and may have ended earlier.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
                    ) =>
                {
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
        receiver.join().unwrap()
    }

    /// Bytes per second between the warm-up and the end.
    fn receive(self, mut stream: TcpStream) -> f64 {
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let start = Instant::now();
        let mut counted = 0u64;
        let mut buffer = [0; 65_536];
        loop {
            let elapsed = start.elapsed();
            if elapsed >= self.duration {
                return counted as f64 / (elapsed - self.warm_up).as_secs_f64();
            }
            match stream.read(&mut buffer) {
                Ok(0) => panic!("the sender stopped too early"),
                Ok(read) if elapsed >= self.warm_up => counted += read as u64,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}
