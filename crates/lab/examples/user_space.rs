//! How much a foreground transfer keeps beside background transfers of the user-space carrier,
//! over an emulated bottleneck. One line of JSON for each cell of the sweep:
//!
//! ```text
//! user_space rate=10mbit rtt=20,50,200 buffer=1,4 flows=1,8,64 foreground=cubic,reno,bbr \
//!     seconds=15 warmup=5 order=background carrier=user
//! ```
//!
//! `rtt` in ms, `buffer` in multiples of the BDP; `order` says who begins; `carrier` is `user`,
//! or for comparison `kernel` or the name of a congestion control. Needs what the emulator needs.

use std::ffi::CString;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lull_cc::{NiceParameters, Rate};
use lull_lab::emulate::{
    Buffer, Emulator, Error, Host, Link, LinkRate, Topology, set_congestion_control,
};
use lull_transport::{Background, Carrier, Options};

/// What `carrier=kernel` registers the kernel's Nice as: runs in parallel don't meet.
fn kernel_name() -> String {
    format!("lull_{}", std::process::id())
}

/// One cell of the sweep.
#[derive(Clone, Debug)]
struct Cell {
    rate: Rate,
    rtt: Duration,
    buffer: f64,
    flows: usize,
    foreground: Option<CString>,
    carrier: String,
    background_first: bool,
    warmup: Duration,
    duration: Duration,
}

/// What came of it, in Mbit/s at the receivers.
#[derive(Clone, Copy, Debug)]
struct Goodput {
    foreground: f64,
    background: f64,
    queueing_ms: f64,
    overruns: u64,
}

/// A transfer's two threads.
struct Transfer {
    sender: JoinHandle<()>,
    receiver: JoinHandle<()>,
}

enum Stream {
    Plain(TcpStream),
    Background(Background<TcpStream>),
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.write(buffer),
            Stream::Background(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Sends from `from` to `to` until `end`; counts what arrives.
fn transfer(
    from: &Host,
    to: &Host,
    how: &str,
    end: &Arc<AtomicBool>,
    received: &Arc<AtomicU64>,
) -> Result<Transfer, Error> {
    let address = SocketAddr::from((to.v4(), 0));
    let listener = to.enter(|| TcpListener::bind(address))?.expect("a free port");
    let address = listener.local_addr().expect("a bound socket has an address");
    let (how, end, received) = (how.to_owned(), Arc::clone(end), Arc::clone(received));
    let ended = Arc::clone(&end);
    let sender = from.spawn(move || {
        let mut stream = if how == "user" {
            let options = Options::new().carrier(Carrier::UserSpace);
            Stream::Background(options.connect(address).expect("a connection"))
        } else {
            let stream = TcpStream::connect(address).expect("a connection");
            let how = if how == "kernel" { kernel_name() } else { how };
            let name = CString::new(how).expect("a name");
            set_congestion_control(&stream, &name).expect("a congestion control");
            Stream::Plain(stream)
        };
        match &stream {
            Stream::Plain(stream) => stream.set_write_timeout(Some(Duration::from_millis(100))),
            Stream::Background(stream) => {
                stream.set_write_timeout(Some(Duration::from_millis(100)))
            }
        }
        .expect("a timeout");
        let chunk = [0; 16_384];
        while !ended.load(Ordering::Relaxed) {
            match stream.write(&chunk) {
                Err(error) if error.kind() != ErrorKind::WouldBlock => return,
                _ => {}
            }
        }
        if let Stream::Background(stream) = &stream
            && std::env::var_os("LULL_TRACE").is_some()
        {
            let nice = stream.user_space_nice().expect("the user-space carrier");
            eprintln!(
                "W {} min {} max {} mean {} rounds {} congested {}",
                nice.window(),
                nice.nice().min_rtt_micros(),
                nice.nice().max_rtt_micros(),
                nice.mean_rtt_micros(),
                nice.nice().rounds(),
                nice.nice().rounds_congested(),
            );
        }
    })?;
    let receiver = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
        let mut buffer = [0; 65_536];
        while !end.load(Ordering::Relaxed) {
            match stream.read(&mut buffer) {
                Ok(0) => return,
                Ok(read) => drop(received.fetch_add(read as u64, Ordering::Relaxed)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    });
    Ok(Transfer { sender, receiver })
}

fn measure(cell: &Cell) -> Result<Goodput, Error> {
    let link = Link {
        rate: LinkRate::Fixed(cell.rate),
        delay: cell.rtt / 2,
        buffer: Buffer::Bdp(cell.buffer),
        ..Link::default()
    };
    let topology = Topology { left: 2, right: 2, ..Topology::symmetric(link) };
    let emulator = Emulator::start(&topology)?;
    let end = Arc::new(AtomicBool::new(false));
    let foreground = Arc::new(AtomicU64::new(0));
    let background = Arc::new(AtomicU64::new(0));
    let mut transfers = Vec::new();
    let begin = |transfers: &mut Vec<Transfer>, is_background: bool| -> Result<(), Error> {
        if is_background {
            for _ in 0..cell.flows {
                let (from, to) = (emulator.left(1), emulator.right(1));
                transfers.push(transfer(from, to, &cell.carrier, &end, &background)?);
            }
        } else if let Some(name) = &cell.foreground {
            let name = name.to_str().expect("ASCII");
            let (from, to) = (emulator.left(0), emulator.right(0));
            transfers.push(transfer(from, to, name, &end, &foreground)?);
        }
        Ok(())
    };
    begin(&mut transfers, cell.background_first)?;
    thread::sleep(cell.warmup);
    begin(&mut transfers, !cell.background_first)?;
    emulator.mark("measured")?;
    let before = (foreground.load(Ordering::Relaxed), background.load(Ordering::Relaxed));
    let start = Instant::now();
    let trace = std::env::var_os("LULL_TRACE").is_some();
    let mut last = before;
    while start.elapsed() < cell.duration {
        thread::sleep((cell.duration - start.elapsed()).min(Duration::from_secs(1)));
        if trace {
            let now = (foreground.load(Ordering::Relaxed), background.load(Ordering::Relaxed));
            let mbit = |now: u64, last: u64| (now - last) as f64 * 8e-6;
            eprintln!(
                "{:4.1} s: {:.2} {:.2}",
                start.elapsed().as_secs_f64(),
                mbit(now.0, last.0),
                mbit(now.1, last.1)
            );
            last = now;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let megabits = |count: &AtomicU64, before: u64| {
        (count.load(Ordering::Relaxed) - before) as f64 * 8e-6 / seconds
    };
    let rates = (megabits(&foreground, before.0), megabits(&background, before.1));
    let delay = emulator.statistics()?.forward.all.queueing_delay;
    end.store(true, Ordering::Relaxed);
    for transfer in transfers {
        transfer.sender.join().expect("a sender");
        transfer.receiver.join().expect("a receiver");
    }
    let record = emulator.finish()?;
    Ok(Goodput {
        foreground: rates.0,
        background: rates.1,
        queueing_ms: delay.map_or(0.0, |delay| delay.mean_ms),
        overruns: record.overruns,
    })
}

/// The values of `name=a,b,c` among the arguments, or of `default`.
fn values(arguments: &[String], name: &str, default: &str) -> Vec<String> {
    let given = arguments.iter().find_map(|argument| argument.strip_prefix(&format!("{name}=")));
    given.unwrap_or(default).split(',').map(str::to_owned).collect()
}

fn main() -> ExitCode {
    let words = std::env::args_os().skip(1);
    let arguments: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    match sweep(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("user_space: {error}");
            ExitCode::FAILURE
        }
    }
}

fn sweep(arguments: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let one = |name: &str, default: &str| values(arguments, name, default)[0].clone();
    let rate: Rate = one("rate", "10mbit").parse()?;
    let duration = Duration::from_secs_f64(one("seconds", "15").parse()?);
    let warmup = Duration::from_secs_f64(one("warmup", "5").parse()?);
    let background_first = one("order", "background") == "background";
    let carrier = one("carrier", "user");
    let _held = match &*carrier {
        "kernel" => Some(lull_kernel::hold(&kernel_name(), &NiceParameters::refined())?),
        _ => None,
    };
    for rtt in values(arguments, "rtt", "50") {
        for buffer in values(arguments, "buffer", "1") {
            for foreground in values(arguments, "foreground", "cubic") {
                let cell = Cell {
                    rate,
                    rtt: Duration::from_secs_f64(rtt.parse::<f64>()? / 1e3),
                    buffer: buffer.parse()?,
                    flows: 0,
                    foreground: (foreground != "none")
                        .then(|| CString::new(&*foreground))
                        .transpose()?,
                    carrier: carrier.clone(),
                    background_first,
                    warmup,
                    duration,
                };
                let alone = measure(&Cell { warmup: Duration::ZERO, ..cell.clone() })?;
                for flows in values(arguments, "flows", "8") {
                    let beside = measure(&Cell { flows: flows.parse()?, ..cell.clone() })?;
                    println!(
                        "{{\"rtt_ms\":{rtt},\"buffer_bdp\":{buffer},\"flows\":{flows},\
                         \"foreground\":\"{foreground}\",\"carrier\":\"{carrier}\",\
                         \"order\":\"{}\",\"alone\":{:.3},\"beside\":{:.3},\"kept\":{:.4},\
                         \"background\":{:.3},\"queueing_ms\":{:.1},\"queueing_alone_ms\":{:.1},\
                         \"overruns\":{}}}",
                        if background_first { "background" } else { "foreground" },
                        alone.foreground,
                        beside.foreground,
                        beside.foreground / alone.foreground,
                        beside.background,
                        beside.queueing_ms,
                        alone.queueing_ms,
                        alone.overruns + beside.overruns,
                    );
                }
            }
        }
    }
    Ok(())
}
