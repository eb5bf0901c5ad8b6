//! The loaded controls, kept in the BPF file system so that they outlive the command.
//!
//! `<bpffs>/lull/NAME/` contains three to seven pins. `link` keeps the congestion control registered, `sockets`
//! is the map with the state of each socket, and `record` has the parameters. If connections share a state,
//! `paths` is the table of paths, `foreground` keeps the foreground in that, `foreground_received` keeps what the
//! foreground receives in the table of downloads, and `weights` is the map with the weights of sockets. `link`
//! comes last: a directory without one was left by a killed command, and is removed by the next one. A lock on `<bpffs>/lull` lets one command at a time make changes.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, libbpf_sys};
use lull_cc::Window;

use crate::cgroup::lock_existing;
use crate::constants::PathTable;
use crate::error::{Error, Result};
use crate::machine;
use crate::mounts::Bpffs;
use crate::parameters::{Algorithm, Parameters};

pub(crate) const DIRECTORY: &str = "lull";
const LINK: &str = "link";
const SOCKETS: &str = "sockets";
const PATHS: &str = "paths";
const FOREGROUND: &str = "foreground";
const FOREGROUND_RECEIVED: &str = "foreground_received";
const WEIGHTS: &str = "weights";
const RECORD: &str = "record";
/// The name of the map with the record.
pub(crate) const RECORD_NAME: &str = "lull_record";

/// The directory of everything that is loaded, locked.
#[derive(Debug)]
pub(crate) struct State<'bpffs> {
    directory: PathBuf,
    _lock: File,
    /// The path uses its descriptor.
    _bpffs: &'bpffs Bpffs,
}

/// The folder of one name's pins.
#[derive(Clone, Debug)]
pub(crate) struct PinFolder(PathBuf);

impl<'bpffs> State<'bpffs> {
    /// Opens the state, and makes it if it does not exist.
    pub(crate) fn open(bpffs: &'bpffs Bpffs) -> Result<Self> {
        loop {
            match fs::create_dir(bpffs.path().join(DIRECTORY)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(Error::io("make 'lull' in the BPF file system")(error));
                }
                _ => {}
            }
            if let Some(state) = Self::open_existing(bpffs)? {
                return Ok(state);
            }
        }
    }

    /// Opens the state if there is any.
    pub(crate) fn open_existing(bpffs: &'bpffs Bpffs) -> Result<Option<Self>> {
        let directory = bpffs.path().join(DIRECTORY);
        let lock =
            lock_existing(&directory).map_err(Error::io("open 'lull' in the BPF file system"))?;
        let Some(lock) = lock else { return Ok(None) };
        let state = State { directory, _lock: lock, _bpffs: bpffs };
        state.remove_half_made();
        Ok(Some(state))
    }

    fn remove_half_made(&self) {
        for name in self.names() {
            let folder = self.folder(&name);
            if !folder.link().exists() {
                folder.remove();
            }
        }
    }

    /// The names of the loaded controls, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    pub(crate) fn folder(&self, name: &str) -> PinFolder {
        PinFolder(self.directory.join(name))
    }

    /// The folder of a name, if it is loaded.
    pub(crate) fn find(&self, name: &str) -> Option<PinFolder> {
        // Names of other congestion controls may lead out of the directory.
        machine::check_name(name).ok()?;
        let folder = self.folder(name);
        folder.link().exists().then_some(folder)
    }
}

impl Drop for State<'_> {
    fn drop(&mut self) {
        // Fails while anything is loaded; otherwise nothing is left.
        let _ = fs::remove_dir(&self.directory);
    }
}

impl PinFolder {
    /// The folder at this path.
    pub(crate) fn at(path: &Path) -> Self {
        PinFolder(path.to_owned())
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.0
    }

    pub(crate) fn link(&self) -> PathBuf {
        self.0.join(LINK)
    }

    pub(crate) fn sockets(&self) -> PathBuf {
        self.0.join(SOCKETS)
    }

    /// The kernel's id of the map with the state of each socket.
    pub(crate) fn sockets_id(&self) -> Option<u32> {
        id_at(&self.sockets())
    }

    pub(crate) fn paths(&self) -> PathBuf {
        self.0.join(PATHS)
    }

    pub(crate) fn foreground(&self) -> PathBuf {
        self.0.join(FOREGROUND)
    }

    pub(crate) fn foreground_received(&self) -> PathBuf {
        self.0.join(FOREGROUND_RECEIVED)
    }

    pub(crate) fn weights(&self) -> PathBuf {
        self.0.join(WEIGHTS)
    }

    pub(crate) fn record(&self) -> PathBuf {
        self.0.join(RECORD)
    }

    /// The algorithm; None if another version of Lull wrote the record.
    pub(crate) fn algorithm(&self) -> Option<Algorithm> {
        let (record, _) = Record::read_all(&self.record()).ok()??;
        Some(record.parameters.algorithm)
    }

    /// Whether this version of Lull knows the state of its sockets.
    pub(crate) fn knows_sockets(&self) -> bool {
        Record::read_all(&self.record()).is_ok_and(|record| record.is_some_and(|(_, is)| is))
    }

    /// When it was loaded.
    pub(crate) fn since(&self) -> Option<SystemTime> {
        let record = MapHandle::from_pinned_path(self.record()).ok()?;
        let location = Location::read(&record)?;
        Some(UNIX_EPOCH + Duration::from_secs(location.since))
    }

    /// Removes every pin; the link first, so that an interruption leaves no half.
    pub(crate) fn remove(&self) {
        let maps = [self.sockets(), self.paths(), self.weights(), self.record()];
        let links = [self.link(), self.foreground(), self.foreground_received()];
        for path in links.into_iter().chain(maps) {
            let _ = fs::remove_file(path);
        }
        let _ = fs::remove_dir(&self.0);
    }
}

/// The kernel's id of the map that is pinned at a path.
fn id_at(path: &Path) -> Option<u32> {
    Some(MapHandle::from_pinned_path(path).ok()?.info().ok()?.info.id)
}

/// Which congestion control a record belongs to, for those that see no pins of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    /// Its name.
    pub(crate) name: String,
    /// The kernel's ids of its maps; 0 if it has none.
    pub(crate) sockets: u32,
    pub(crate) paths: u32,
    pub(crate) weights: u32,
    /// When it was loaded, in seconds since the Unix epoch.
    pub(crate) since: u64,
}

impl Location {
    const WORDS: usize = 6;
    /// Bytes of the name.
    const NAME: usize = 16;

    /// That of the maps that are pinned in a folder.
    fn of(folder: &PinFolder, name: &str) -> Self {
        #[expect(clippy::disallowed_methods, reason = "the time of loading, read once")]
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Location {
            name: name.to_owned(),
            sockets: id_at(&folder.sockets()).unwrap_or(0),
            paths: id_at(&folder.paths()).unwrap_or(0),
            weights: id_at(&folder.weights()).unwrap_or(0),
            since: now.as_secs(),
        }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.name.clone().into_bytes();
        bytes.resize(Self::NAME, 0);
        let words = [self.sockets.into(), self.paths.into(), self.weights.into(), self.since];
        bytes.extend(words.iter().flat_map(|word: &u64| word.to_ne_bytes()));
        bytes
    }

    /// The one in a map; none if another version of Lull made the map.
    pub(crate) fn read(map: &MapHandle) -> Option<Self> {
        let bytes = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok()??;
        Record::from_bytes(&bytes)?;
        let bytes = &bytes[Record::WORDS * 8..];
        let (name, numbers) = bytes.split_at_checked(Self::NAME)?;
        let name = name.split(|&byte| byte == 0).next()?;
        let word = |at: usize| {
            let bytes = numbers.get(at * 8..at * 8 + 8)?;
            Some(u64::from_ne_bytes(bytes.try_into().ok()?))
        };
        let id = |at: usize| u32::try_from(word(at)?).ok();
        let name = String::from_utf8(name.to_vec()).ok()?;
        machine::check_name(&name).ok()?;
        Some(Location { name, sockets: id(0)?, paths: id(1)?, weights: id(2)?, since: word(3)? })
    }
}

/// The contents of the map `record` about a loaded congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) parameters: Parameters,
    /// Loaded by `lull exec` for the time of its use.
    pub(crate) automatic: bool,
}

impl Record {
    /// The version of the record's words.
    const VERSION: u64 = 4;
    const WORDS: usize = 10;
    /// The version of each socket's state: another one may have the same size and another meaning. It follows
    /// from the text of `bpf/*_types.h`, so it need not be raised by hand.
    const STATE: u64 = match u64::from_str_radix(env!("LULL_STATE"), 10) {
        Ok(state) => state,
        Err(_) => panic!("build.rs writes a number"),
    };

    fn to_bytes(self) -> Vec<u8> {
        let p = self.parameters;
        let words: [u64; Self::WORDS] = [
            Self::VERSION,
            u64::from(self.automatic),
            match p.algorithm {
                Algorithm::Nice => 0,
                Algorithm::Vegas => 1,
                Algorithm::Background => 2,
                Algorithm::Lull => 3,
            },
            u64::from(p.threshold),
            u64::from(p.fraction),
            p.min_window.raw(),
            u64::from(p.restricted),
            u64::from(p.table.paths),
            u64::from(p.table.kept_seconds),
            Self::STATE,
        ];
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// The record, and whether the state of sockets is in the known form. None if another version of Lull
    /// wrote it.
    fn from_bytes(bytes: &[u8]) -> Option<(Self, bool)> {
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .take(Self::WORDS)
            .map(|chunk| u64::from_ne_bytes(chunk.try_into().expect("chunks have eight bytes")))
            .collect();
        let [
            Self::VERSION,
            automatic,
            algorithm,
            threshold,
            fraction,
            min_window,
            restricted,
            paths,
            kept_seconds,
            state,
        ] = words[..]
        else {
            return None;
        };
        let record = Record {
            automatic: automatic != 0,
            parameters: Parameters {
                algorithm: match algorithm {
                    0 => Algorithm::Nice,
                    1 => Algorithm::Vegas,
                    2 => Algorithm::Background,
                    3 => Algorithm::Lull,
                    _ => return None,
                },
                threshold: u32::try_from(threshold).ok()?,
                fraction: u32::try_from(fraction).ok()?,
                min_window: Window::from_raw(min_window),
                restricted: restricted != 0,
                table: PathTable {
                    paths: u32::try_from(paths).ok()?,
                    kept_seconds: u32::try_from(kept_seconds).ok()?,
                },
            },
        };
        Some((record, state == Self::STATE))
    }

    /// Pins a new map that contains the record, in a folder that has all other maps.
    pub(crate) fn pin(self, folder: &PinFolder, name: &str) -> Result<()> {
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            ..Default::default()
        };
        let size = ((Self::WORDS + Location::WORDS) * 8) as u32;
        let mut map = MapHandle::create(MapType::Array, Some(RECORD_NAME), 4, size, 1, &options)
            .map_err(Error::bpf("make a map"))?;
        self.write(&map, &Location::of(folder, name))?;
        map.pin(folder.record()).map_err(Error::bpf("pin a map"))
    }

    /// Replaces the pinned one, as a version with another socket state would.
    #[cfg(test)]
    pub(crate) fn replace_by_another_version(self, path: &Path) -> Result<()> {
        let map =
            MapHandle::from_pinned_path(path).map_err(Error::bpf("open the parameters' map"))?;
        let mut bytes = self.to_bytes();
        *bytes.last_mut().expect("a record has words") ^= 1;
        bytes.extend(Location::read(&map).expect("it has a location").to_bytes());
        map.update(&0u32.to_ne_bytes(), &bytes, MapFlags::ANY)
            .map_err(Error::bpf("store the parameters"))
    }

    fn write(self, map: &MapHandle, location: &Location) -> Result<()> {
        let bytes = [self.to_bytes(), location.to_bytes()].concat();
        map.update(&0u32.to_ne_bytes(), &bytes, MapFlags::ANY)
            .map_err(Error::bpf("store the parameters"))
    }

    /// Writes it over the pinned one.
    pub(crate) fn replace(self, path: &Path) -> Result<()> {
        let map =
            MapHandle::from_pinned_path(path).map_err(Error::bpf("open the parameters' map"))?;
        let what = "read the parameters";
        let unknown = || Error::io(what)(io::ErrorKind::InvalidData.into());
        self.write(&map, &Location::read(&map).ok_or_else(unknown)?)
    }

    /// Reads the pinned record; None if another version of Lull wrote it.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>> {
        Ok(Self::read_all(path)?.map(|(record, _)| record))
    }

    fn read_all(path: &Path) -> Result<Option<(Self, bool)>> {
        let map =
            MapHandle::from_pinned_path(path).map_err(Error::bpf("open the parameters' map"))?;
        let bytes = map
            .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(Error::bpf("read the parameters"))?;
        Ok(bytes.as_deref().and_then(Self::from_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_survives_the_map() {
        let table = PathTable { paths: 5, kept_seconds: 6 };
        for algorithm in [Algorithm::Nice, Algorithm::Vegas, Algorithm::Background, Algorithm::Lull]
        {
            let parameters =
                Parameters { algorithm, restricted: true, table, ..Parameters::default() };
            let record = Record { parameters, automatic: true };
            assert_eq!(Record::from_bytes(&record.to_bytes()), Some((record, true)));
        }
    }

    #[test]
    fn record_of_another_version_is_recognised() {
        let record = Record { parameters: Parameters::default(), automatic: false };
        let mut other = record.to_bytes();
        other[0] ^= 0xff;
        assert_eq!(Record::from_bytes(&other), None);
        let mut other = record.to_bytes();
        *other.last_mut().unwrap() ^= 1;
        assert_eq!(Record::from_bytes(&other), Some((record, false)));
    }
}
