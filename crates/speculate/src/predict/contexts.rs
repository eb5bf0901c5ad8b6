//! How often each URL followed each context, in bounded memory.

use core::time::Duration;
use std::io::{self, Read, Write};

use lull_cc::{Bytes, Timestamp};

use crate::encoding::{AGED, ReadError, Sink, Source};
use crate::observe::{Decay, SCALE, UrlId};
use crate::table::{Entry, Table, grow_within, mix};

/// URLs in a block: with these a block is one cache line of 64 bytes.
pub(super) const PER_BLOCK: usize = 6;
/// No block.
const NONE: u32 = u32::MAX;
/// Attempts to find a context that gives its blocks away, eight contexts each.
const STEALING_TRIES: usize = 4;

/// Some of the URLs that followed a context. They are in approximate order of frequency, so that most
/// searches end in the first block.
#[derive(Clone, Debug)]
struct Block {
    urls: [Option<UrlId>; PER_BLOCK],
    /// The decayed counts: sums of [`added`].
    weights: [f32; PER_BLOCK],
    /// A bit for each of 16 classes of origins for which it followed.
    origins: [u16; PER_BLOCK],
    next: u32,
}

/// An entry of a block: a URL, its weight, and its classes of clients.
type BlockEntry = (Option<UrlId>, f32, u16);

impl Block {
    const EMPTY: Block = Block {
        urls: [None; PER_BLOCK],
        weights: [0.0; PER_BLOCK],
        origins: [0; PER_BLOCK],
        next: NONE,
    };

    fn get(&self, at: usize) -> BlockEntry {
        (self.urls[at], self.weights[at], self.origins[at])
    }

    fn set(&mut self, at: usize, entry: BlockEntry) {
        (self.urls[at], self.weights[at], self.origins[at]) = entry;
    }

    /// Whether this many client classes made it follow.
    fn is_known(&self, at: usize, clients: u32) -> bool {
        self.origins[at].count_ones() >= clients
    }
}

#[derive(Clone, Debug)]
struct Context {
    key: u64,
    /// How often it occurred, decayed. Above 2^24 an `f32` could not count a further time.
    weight: f64,
    first: u32,
    blocks: u8,
    /// How often it occurred, not decayed; at most the largest `u16`, which is enough evidence.
    times: u16,
}

impl Entry for Context {
    type Worth = f64;

    fn hash(&self) -> u64 {
        self.key
    }

    fn worth(&self) -> f64 {
        self.weight
    }
}

/// The limits of contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// Contexts, 24 bytes each.
    pub(super) contexts: usize,
    /// Blocks of six followers, 64 bytes each.
    pub(super) blocks: usize,
    /// Blocks that one context may have.
    pub(super) blocks_per_context: u8,
    /// Number of classes of clients from which on a follower counts as known.
    pub(super) clients: u32,
}

/// Contexts by key, each with those that followed it most.
#[derive(Clone, Debug)]
pub(super) struct Contexts {
    table: Table<Context>,
    blocks: Vec<Block>,
    free: Vec<u32>,
    room: Room,
    decay: Decay,
    /// How often a context gave its blocks away.
    given_up: u64,
    /// Kept only for its memory.
    searches: Vec<Search>,
    /// Draws so far.
    draws: u64,
}

/// The search for a URL among those that followed a context.
#[derive(Clone, Copy, Debug)]
struct Search {
    key: u64,
    /// The weight of the URL as a follower.
    counts: f32,
    /// The context's.
    number: u32,
    /// The searched block, and the one before it.
    block: u32,
    last: u32,
    /// The place of the URL in the block; its end if it is missing.
    at: usize,
}

/// A URL that followed a context.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Follower {
    pub(super) url: UrlId,
    pub(super) weight: f32,
    /// Classes of clients for which it followed: never more than there were clients.
    pub(super) clients: u32,
}

/// The pages of a context, the latest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pages([Option<UrlId>; Pages::MOST]);

impl Pages {
    /// Pages of the longest context.
    pub(crate) const MOST: usize = 4;

    /// The first ones of these.
    pub(crate) fn new(pages: impl Iterator<Item = UrlId>) -> Self {
        let mut all = Pages([None; Pages::MOST]);
        all.0.iter_mut().zip(pages).for_each(|(one, page)| *one = Some(page));
        all
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = UrlId> {
        self.0.iter().copied().flatten()
    }

    /// The key of the context. Pages are mixed one by one, so that their order and their number matter.
    pub(super) fn key(&self) -> u64 {
        self.iter().fold(0x9e37_79b9_7f4a_7c15, |key, page| mix(key ^ u64::from(page.raw())))
    }
}

/// From this ratio on an added number is represented in an `f32` as well as possible.
const COARSE: f32 = 1.0 / 65_536.0;

/// A weight plus an addition. If an `f32` is too coarse for that, it becomes the number below or above by
/// chance, so that it is correct on average; beyond 2^24 an addition of one would change nothing. With
/// numbers of twice the size a block would not be one cache line. The draws are the same each time.
fn added(weight: f32, counts: f32, draws: &mut u64) -> f32 {
    let sum = weight + counts;
    if counts >= weight * COARSE {
        return sum;
    }
    let exact = f64::from(weight) + f64::from(counts);
    let below = if f64::from(sum) > exact { sum.next_down() } else { sum };
    let above = below.next_up();
    let part = (exact - f64::from(below)) / (f64::from(above) - f64::from(below));
    *draws = draws.wrapping_add(1);
    let drawn = mix(draws.wrapping_mul(0x9e37_79b9_7f4a_7c15)) as f64 / u64::MAX as f64;
    if drawn < part { above } else { below }
}

impl Contexts {
    pub(super) fn new(room: Room, half_life: Duration) -> Self {
        Contexts {
            table: Table::new(room.contexts),
            blocks: Vec::new(),
            free: Vec::new(),
            room,
            decay: Decay::new(half_life),
            given_up: 0,
            searches: Vec::new(),
            draws: 0,
        }
    }

    /// The weight of an event at a time, once the counts are prepared for it.
    pub(super) fn event(&mut self, at: Timestamp) -> f32 {
        let (counts, scale) = self.decay.event(at);
        if scale {
            self.table.entries_mut().for_each(|context| context.weight *= f64::from(SCALE));
            for block in &mut self.blocks {
                block.weights.iter_mut().for_each(|weight| *weight *= SCALE);
            }
        }
        counts
    }

    /// The weight of an event now: counts divided by it are in present events.
    pub(super) fn now(&self, at: Timestamp) -> f32 {
        self.decay.at(at)
    }

    /// A context occurs.
    pub(super) fn occur(&mut self, key: u64, counts: f32) {
        self.occur_times(key, f64::from(counts), 1);
    }

    /// A context occurred a number of times, with this weight together.
    pub(super) fn occur_times(&mut self, key: u64, weight: f64, times: u16) {
        if let Some(number) = self.find(key) {
            let context = self.table.get_mut(number);
            context.weight += weight;
            context.times = context.times.saturating_add(times);
            return;
        }
        let context = Context { key, weight, first: NONE, blocks: 0, times };
        if let (_, Some(evicted)) = self.table.insert(context) {
            self.release(evicted.first);
        }
    }

    /// A URL follows contexts; the known ones are updated. With each comes the weight of the event.
    ///
    /// Contexts and their blocks are spread all over the memory. A processor waits for ten places about as
    /// long as for one, if it knows all of them before it needs the first. So each step of the search is
    /// taken for all contexts before the next step. The result is that of one context after the other.
    pub(super) fn follow(&mut self, contexts: &[(Pages, f32)], url: UrlId, class: u16) {
        let mut searches = core::mem::take(&mut self.searches);
        searches.clear();
        searches.extend(contexts.iter().map(|&(pages, counts)| {
            let key = pages.key();
            let number = self.table.prefetch(key);
            Search { key, counts, number, block: NONE, last: NONE, at: PER_BLOCK }
        }));
        searches.retain_mut(|search| self.find_context(search));
        // A context has 255 blocks at most.
        let mut left = true;
        while left {
            left = false;
            for search in &mut searches {
                left |= self.step(search, url);
            }
        }
        let given_up = self.given_up;
        for search in &searches {
            self.end(search, url, class, given_up == self.given_up);
        }
        self.searches = searches;
    }

    /// Whether the context is known: then its first block is checked next.
    fn find_context(&self, search: &mut Search) -> bool {
        let known = self.table.get(search.number).filter(|context| context.key == search.key);
        let number = if known.is_some() { Some(search.number) } else { self.find(search.key) };
        let Some((number, context)) = number.and_then(|at| Some((at, self.table.get(at)?))) else {
            return false;
        };
        (search.number, search.block) = (number, context.first);
        true
    }

    /// Looks for the URL in the next block. Returns whether there is another one to check.
    fn step(&self, search: &mut Search, url: UrlId) -> bool {
        if search.at < PER_BLOCK {
            return false;
        }
        let Some(here) = self.blocks.get(search.block as usize) else { return false };
        search.at = here.urls.iter().position(|other| *other == Some(url)).unwrap_or(PER_BLOCK);
        if search.at < PER_BLOCK {
            return false;
        }
        (search.last, search.block) = (search.block, here.next);
        here.next != NONE
    }

    /// Counts the URL where it was found, if all blocks still have the same owners. If the same context was
    /// counted before, it may have moved, and the search is repeated.
    fn end(&mut self, search: &Search, url: UrlId, class: u16, is_as_found: bool) {
        let Search { key, counts, number, block, last, at } = *search;
        match self.blocks.get_mut(block as usize) {
            Some(here) if is_as_found && here.urls.get(at) == Some(&Some(url)) => {
                here.weights[at] = added(here.weights[at], counts, &mut self.draws);
                here.origins[at] |= class;
                self.move_up(block, at, last);
            }
            _ => self.follow_one(number, key, (Some(url), counts, class)),
        }
    }

    /// A URL followed a context for these classes of clients, with this weight together. Nothing happens if
    /// the context is not known.
    pub(super) fn follow_classes(&mut self, key: u64, url: UrlId, weight: f32, classes: u16) {
        if let Some(number) = self.find(key) {
            self.follow_one(number, key, (Some(url), weight, classes));
        }
    }

    /// A URL follows the context with this number.
    fn follow_one(&mut self, number: u32, key: u64, new: BlockEntry) {
        let Context { first, blocks, weight, .. } = *self.table.get_mut(number);
        let (mut block, mut last) = (first, NONE);
        while block != NONE {
            let here = &mut self.blocks[block as usize];
            if let Some(at) = here.urls.iter().position(|other| *other == new.0) {
                here.weights[at] = added(here.weights[at], new.1, &mut self.draws);
                here.origins[at] |= new.2;
                self.move_up(block, at, last);
                return;
            }
            (last, block) = (block, here.next);
        }
        // There is space at the end of the last block, or in a new one after it.
        if let Some(here) = self.blocks.get_mut(last as usize)
            && let Some(at) = here.urls.iter().position(Option::is_none)
        {
            here.set(at, new);
            return;
        }
        if blocks < self.room.blocks_per_context
            && let Some(added) = self.block(key, weight)
        {
            self.blocks[added as usize].set(0, new);
            let context = self.table.get_mut(number);
            context.blocks += 1;
            match self.blocks.get_mut(last as usize) {
                Some(last) => last.next = added,
                None => context.first = added,
            }
            return;
        }
        self.displace(first, new);
    }

    /// Space-saving (Metwally, Agrawal and El Abbadi, 2005): a newcomer takes the place of the smallest with
    /// its count, and so is overestimated by that at most. Its client classes are counted from zero.
    ///
    /// Entries with few clients go first. So a single client displaces at most one entry of others, with any
    /// requests.
    fn displace(&mut self, first: u32, (url, counts, class): BlockEntry) {
        let mut least = ((true, f32::INFINITY), NONE, 0);
        let mut block = first;
        while let Some(here) = self.blocks.get(block as usize) {
            for at in 0..PER_BLOCK {
                let worth = (here.is_known(at, self.room.clients), here.weights[at]);
                if worth < least.0 {
                    least = (worth, block, at);
                }
            }
            block = here.next;
        }
        let ((_, weight), block, at) = least;
        if let Some(here) = self.blocks.get_mut(block as usize) {
            here.set(at, (url, weight + counts, class));
        }
    }

    /// Swaps a follower with the one before it, in the same block or at the end of the one above, if it has
    /// more weight.
    fn move_up(&mut self, block: u32, at: usize, above: u32) {
        let (block_over, over) = match at.checked_sub(1) {
            Some(over) => (block, over),
            None if above != NONE => (above, PER_BLOCK - 1),
            None => return,
        };
        let one = self.blocks[block as usize].get(at);
        let other = self.blocks[block_over as usize].get(over);
        if one.1 > other.1 {
            self.blocks[block as usize].set(at, other);
            self.blocks[block_over as usize].set(over, one);
        }
    }

    /// An empty block for the context with this key and weight. If all are in use, a context that occurred
    /// less gives its block away. None if there is no such context.
    fn block(&mut self, key: u64, weight: f64) -> Option<u32> {
        if self.free.is_empty() && self.blocks.len() < self.room.blocks {
            grow_within(&mut self.blocks, self.room.blocks);
            self.blocks.push(Block::EMPTY);
            return Some(self.blocks.len() as u32 - 1);
        }
        // Only from contexts that occurred less than this one: new contexts do not displace known ones until
        // they are better known. Bounded, because there may be none.
        for _ in 0..STEALING_TRIES {
            if !self.free.is_empty() {
                break;
            }
            let keeps = |one: &Context| one.first == NONE || one.key == key || one.weight > weight;
            let least = self.table.least_by(|one| if keeps(one) { f64::MAX } else { one.weight });
            let context = self.table.get_mut(least);
            if keeps(context) {
                continue;
            }
            let first = core::mem::replace(&mut context.first, NONE);
            self.given_up += 1;
            context.blocks = 0;
            context.weight = 0.0;
            context.times = 0;
            self.release(first);
        }
        let block = self.free.pop()?;
        self.blocks[block as usize] = Block::EMPTY;
        Some(block)
    }

    fn release(&mut self, first: u32) {
        let mut block = first;
        while block != NONE {
            grow_within(&mut self.free, self.room.blocks);
            self.free.push(block);
            block = self.blocks[block as usize].next;
        }
    }

    fn find(&self, key: u64) -> Option<u32> {
        self.table.find(key, |context| context.key == key)
    }

    /// How often a context occurred, decayed and not, and its followers; none if it is not known.
    pub(super) fn followers(&self, key: u64) -> Option<(f64, u16, impl Iterator<Item = Follower>)> {
        let context = self.table.get(self.find(key)?)?;
        let followers = self.block_entries(context).filter_map(|(url, weight, origins)| {
            Some(Follower { url: url?, weight, clients: origins.count_ones() })
        });
        Some((context.weight, context.times, followers))
    }

    /// The entries of a context's followers.
    fn block_entries(&self, context: &Context) -> impl Iterator<Item = BlockEntry> {
        let mut at = (context.first, 0);
        core::iter::from_fn(move || {
            if at.1 == PER_BLOCK {
                at = (self.blocks[at.0 as usize].next, 0);
            }
            let entry = self.blocks.get(at.0 as usize)?.get(at.1);
            at.1 += 1;
            entry.0.map(|_| entry)
        })
    }

    /// How many contexts are known, and how many followers they have room for.
    pub(super) fn len(&self) -> (usize, usize) {
        (self.table.len(), (self.blocks.len() - self.free.len()) * PER_BLOCK)
    }

    /// Forgets the client classes of followers that have too few.
    pub(super) fn restart_counts(&mut self) {
        for block in &mut self.blocks {
            for at in 0..PER_BLOCK {
                if !block.is_known(at, self.room.clients) {
                    block.origins[at] = 0;
                }
            }
        }
    }

    pub(super) fn resident(&self) -> Bytes {
        let blocks = self.blocks.capacity() * size_of::<Block>();
        let free = self.free.capacity() * size_of::<u32>();
        let searches = self.searches.capacity() * size_of::<Search>();
        Bytes(self.table.resident() + (blocks + free + searches) as u64)
    }

    /// The same once all room is taken.
    pub(super) fn most_resident(room: &Room) -> u64 {
        let block = (size_of::<Block>() + size_of::<u32>()) as u64;
        Table::<Context>::most_resident(room.contexts) + room.blocks as u64 * block
    }

    /// Writes each context with its followers. Their blocks are irrelevant, and left out.
    pub(super) fn write<W: Write>(&self, to: &mut Sink<W>) -> io::Result<()> {
        self.decay.write(to)?;
        to.count(self.table.eviction_hand())?;
        to.count(self.table.len())?;
        for context in self.table.entries() {
            to.u64(context.key)?;
            to.f64(context.weight)?;
            to.u16(context.times)?;
            to.u16(u16::try_from(self.block_entries(context).count()).map_err(io::Error::other)?)?;
            for (url, weight, origins) in self.block_entries(context) {
                to.u32(url.map_or(0, UrlId::raw))?;
                to.f32(weight)?;
                to.u16(origins)?;
            }
        }
        Ok(())
    }

    pub(super) fn read<R: Read>(
        room: Room,
        half_life: Duration,
        from: &mut Source<R>,
    ) -> Result<Self, ReadError> {
        let invalid = || ReadError::Invalid("table of contexts");
        let mut all = Contexts::new(room, half_life);
        all.decay = Decay::read(half_life, from)?;
        let now = f64::from(all.decay.at(all.decay.latest()));
        let hand = from.count()?;
        let mut urls = Vec::new();
        for _ in 0..from.count()? {
            urls.clear();
            let (key, weight) = (from.u64()?, from.large_weight()?);
            // Older models have only the decayed count, which is the lower bound of this one.
            let times = if from.version() >= AGED { from.u16()? } else { (weight / now) as u16 };
            let mut context = Context { key, weight, first: NONE, blocks: 0, times };
            for follower in 0..usize::from(from.u16()?) {
                let url = UrlId::from_raw(from.u32()?).ok_or_else(invalid)?;
                let entry = (Some(url), from.weight()?, from.u16()?);
                if follower % PER_BLOCK == 0 {
                    all.append(&mut context).ok_or_else(invalid)?;
                }
                let last = all.blocks.last_mut().ok_or_else(invalid)?;
                last.set(follower % PER_BLOCK, entry);
                urls.push(url.raw());
            }
            // Each may occur once, otherwise its share would be counted twice.
            urls.sort_unstable();
            if urls.windows(2).any(|two| two[0] == two[1]) {
                return Err(invalid());
            }
            all.table.restore(context, |one, other| one.key == other.key).ok_or_else(invalid)?;
        }
        all.table.set_eviction_hand(hand).ok_or_else(invalid)?;
        Ok(all)
    }

    /// Gives a context that is being read one more block, after the last one, which is its own if it has any.
    fn append(&mut self, context: &mut Context) -> Option<()> {
        let added = u32::try_from(self.blocks.len()).ok()?;
        if self.blocks.len() >= self.room.blocks || context.blocks >= self.room.blocks_per_context {
            return None;
        }
        if context.blocks == 0 {
            context.first = added;
        } else {
            self.blocks.last_mut()?.next = added;
        }
        context.blocks += 1;
        grow_within(&mut self.blocks, self.room.blocks);
        self.blocks.push(Block::EMPTY);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_context_counts_every_occurrence() {
        let room = Room { contexts: 4, blocks: 4, blocks_per_context: 1, clients: 1 };
        let mut contexts = Contexts::new(room, Duration::from_secs(1));
        assert_eq!(size_of::<Context>(), 24, "what the limits say");
        contexts.occur(7, (1 << 25) as f32);
        (0..1_000).for_each(|_| contexts.occur(7, 1.0));
        let weight = contexts.followers(7).map(|(weight, ..)| weight);
        assert_eq!(weight, Some(f64::from((1 << 25) + 1_000)));
    }

    #[test]
    fn frequent_follower_counts_correctly_on_average() {
        const MOST: f32 = (1 << 26) as f32;
        for (counts, times) in [(1.0, 400_000), (0.3, 400_000), (7.0, 100_000)] {
            let (mut weight, mut draws) = (MOST, 0);
            (0..times).for_each(|_| weight = added(weight, counts, &mut draws));
            let (grown, expected) =
                (f64::from(weight - MOST), f64::from(counts) * f64::from(times));
            assert!((grown / expected - 1.0).abs() < 0.05, "{counts}: {grown} of {expected}");
        }
        // If it is fine enough, nothing is drawn.
        let mut draws = 0;
        assert_eq!((added(3.0, 1.0, &mut draws), draws), (4.0, 0));
    }
}
