//! Slots for values in progress, so that events can name them by a number.

/// Values by number.
#[derive(Clone, Debug)]
pub(crate) struct Pool<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Pool { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Pool<T> {
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if let Some(place) = self.free.pop() {
            self.places[place as usize] = Some(value);
            return place;
        }
        self.places.push(Some(value));
        u32::try_from(self.places.len() - 1).expect("fewer values than 2³²")
    }

    pub(crate) fn take(&mut self, place: u32) -> Option<T> {
        let value = self.places.get_mut(place as usize)?.take()?;
        self.free.push(place);
        Some(value)
    }

    /// Takes all of them. Their slots stay taken until no event can name them any more.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        self.free.clear();
        self.places.drain(..).flatten().collect()
    }
}
