//! Which machine serves which.

/// Machines by number: the origin is 0, then come the relays level by level, and then the receivers.
#[derive(Debug)]
pub(super) struct Tree {
    /// The parent of each machine but the origin, which is first.
    pub(super) parents: Vec<u32>,
    /// How many of them are relays.
    pub(super) relays: u32,
}

impl Tree {
    /// Each machine serves about as many as any other one on the levels above the receivers.
    pub(super) fn new(receivers: u32, levels: u32) -> Self {
        let fan_out = fan_out(receivers, levels);
        let mut parents = vec![0];
        let (mut above, mut width, mut relays) = (0, 1, 0);
        for level in 1..=levels.max(1) {
            let is_last = level >= levels;
            let count = if is_last { receivers } else { (width * fan_out).min(receivers) };
            let first = parents.len() as u32;
            parents.extend((0..count).map(|at| above + at % width));
            relays += if is_last { 0 } else { count };
            (above, width) = (first, count);
        }
        Tree { parents, relays }
    }

    /// The machines below each one.
    pub(super) fn children(&self) -> Vec<Vec<u32>> {
        let mut children = vec![Vec::new(); self.parents.len()];
        for (child, parent) in (0..).zip(&self.parents).skip(1) {
            children[*parent as usize].push(child);
        }
        children
    }
}

/// The least number whose power by the levels reaches the receivers.
fn fan_out(receivers: u32, levels: u32) -> u32 {
    let reaches = |number: u32| {
        let product = (0..levels).try_fold(1u32, |product, _| product.checked_mul(number));
        product.is_none_or(|product| product >= receivers)
    };
    (1..=receivers).find(|number| reaches(*number)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_spread_evenly_over_levels() {
        let spread = |receivers, levels| {
            let tree = Tree::new(receivers, levels);
            let below: Vec<usize> = tree.children().iter().map(Vec::len).collect();
            let served = &below[..=tree.relays as usize];
            let least = served.iter().min().copied().unwrap_or_default();
            (tree.relays, below[0], least, served.iter().max().copied().unwrap_or_default())
        };
        assert_eq!(spread(10, 1), (0, 10, 10, 10));
        assert_eq!(spread(100, 2), (10, 10, 10, 10));
        assert_eq!(spread(1_000, 3), (110, 10, 10, 10));
        assert_eq!(spread(10_000, 3), (22 + 484, 22, 20, 22));
        assert_eq!(spread(1, 3), (2, 1, 1, 1));
    }
}
