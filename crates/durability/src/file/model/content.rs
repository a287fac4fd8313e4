//! The two states of a file of the model: the bytes that a process sees, and those that are durable.

/// Unit of which a power cut keeps all or nothing.
const SECTOR_BYTES: usize = 512;

/// The bytes of a file: those that were written, and zeros up to `len`.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    pub(super) bytes: Vec<u8>,
    pub(super) len: u64,
}

impl Content {
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let from = usize::try_from(offset).expect("model files fit in memory");
        let to = from + bytes.len();
        if self.bytes.len() < to {
            self.bytes.resize(to, 0);
        }
        self.bytes[from..to].copy_from_slice(bytes);
        self.len = self.len.max(to as u64);
    }

    pub(super) fn set_len(&mut self, len: u64) {
        if let Ok(short) = usize::try_from(len)
            && short < self.bytes.len()
        {
            self.bytes.truncate(short);
        }
        self.len = len;
    }

    pub(super) fn read(&self, offset: u64, out: &mut [u8]) -> usize {
        let rest = self.len.saturating_sub(offset);
        let count = usize::try_from(rest).map_or(out.len(), |rest| rest.min(out.len()));
        let out = &mut out[..count];
        out.fill(0);
        if let Some(bytes) = usize::try_from(offset).ok().and_then(|from| self.bytes.get(from..)) {
            let known = bytes.len().min(count);
            out[..known].copy_from_slice(&bytes[..known]);
        }
        count
    }
}

/// A change of a file that is not durable yet.
#[derive(Clone, Debug)]
pub(super) enum Pending {
    Write { offset: u64, bytes: Vec<u8> },
    Length(u64),
}

impl Pending {
    /// The part of a write that lies between two offsets, if there is one. Changes of the length have no parts.
    fn part(&self, from: u64, to: u64) -> Option<Pending> {
        let Pending::Write { offset, bytes } = self else { return Some(self.clone()) };
        let (first, last) = (from.max(*offset), to.min(offset + bytes.len() as u64));
        let place = |at: u64| usize::try_from(at - offset).expect("model files fit in memory");
        (first < last)
            .then(|| Pending::Write { offset: first, bytes: bytes[place(first)..place(last)].to_vec() })
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct FileState {
    pub(super) current: Content,
    pub(super) synced: Content,
    pub(super) pending: Vec<Pending>,
}

impl FileState {
    /// Makes some of the pending changes durable, sector by sector as the coin falls, and forgets the others.
    pub(super) fn settle_by(&mut self, coin: &mut SplitMix) {
        for change in std::mem::take(&mut self.pending) {
            match change {
                Pending::Length(len) => {
                    if coin.toss() {
                        self.synced.set_len(len);
                    }
                }
                Pending::Write { offset, bytes } => {
                    let mut at = 0;
                    while at < bytes.len() {
                        let place = offset + at as u64;
                        let in_sector = SECTOR_BYTES - (place % SECTOR_BYTES as u64) as usize;
                        let to = bytes.len().min(at + in_sector);
                        if coin.toss() {
                            self.synced.write(place, &bytes[at..to]);
                        }
                        at = to;
                    }
                }
            }
        }
    }

    /// Forgets the unsynced end of what was written last, so that a failed sync always loses something.
    pub(super) fn lose_last_sector(&mut self) {
        if let Some(Pending::Write { offset, bytes }) = self.pending.last_mut() {
            let end = *offset + bytes.len() as u64;
            let sector = (end - 1) / SECTOR_BYTES as u64 * SECTOR_BYTES as u64;
            bytes.truncate(usize::try_from(sector.saturating_sub(*offset)).unwrap_or(0));
        }
    }

    /// Makes `bytes`, written at `offset` last, durable with the length that it takes to find them, and nothing else.
    pub(super) fn sync_written(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        for change in std::mem::take(&mut self.pending) {
            match change {
                Pending::Length(len) if len < end => {
                    self.synced.set_len(len);
                    let before = std::mem::take(&mut self.pending);
                    self.pending = before.into_iter().filter_map(|change| change.part(0, len)).collect();
                }
                Pending::Length(_) => self.pending.push(change),
                Pending::Write { .. } => {
                    self.pending.extend(change.part(0, offset));
                    self.pending.extend(change.part(end, u64::MAX));
                }
            }
        }
        self.synced.write(offset, bytes);
    }

    pub(super) fn sync(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            match change {
                Pending::Length(len) => self.synced.set_len(len),
                Pending::Write { offset, bytes } => self.synced.write(offset, &bytes),
            }
        }
    }
}

/// A small generator: the model must give the same answers for ever.
#[derive(Clone, Debug)]
pub(super) struct SplitMix(pub(super) u64);

impl SplitMix {
    pub(super) fn toss(&mut self) -> bool {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) >> 63 == 1
    }
}
