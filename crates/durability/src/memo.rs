//! Memos: text files of a database directory that belong to no transaction, for what a database has learnt and can do without.
//!
//! Owns: their names, the checksum in the last line, and that they are replaced as a whole. Never: knows what they say.
//!
//! Invariants: a memo that is read is one that was written; the manifest does not name them, and nothing else depends on them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

use crate::file::FileSystem;

/// The name of the memo on costs of synchronization.
pub const COSTS: &str = "COSTS";
/// The name of the memo on the scheme.
pub const SCHEME: &str = "SCHEME";

/// A longer file is none of these.
const BYTES_MAX: u64 = 1 << 28;

/// The first word of the last line.
const CHECKSUM: &str = "checksum ";

/// A memo of a database directory, whether or not it is there.
#[derive(Clone, Debug)]
pub struct Memo {
    fs: Arc<dyn FileSystem>,
    path: PathBuf,
}

/// Reasons for which a memo cannot be used, as the end of a sentence.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MemoError {
    /// Its checksum does not fit, or it has none.
    #[error("it is damaged")]
    Damaged,
    /// The operating system refuses.
    #[error("it cannot be read ({0})")]
    Io(#[from] io::Error),
}

impl Memo {
    /// Returns the memo of this name in a directory.
    #[must_use]
    pub fn new(fs: &Arc<dyn FileSystem>, dir: &Path, name: &str) -> Memo {
        Memo { fs: Arc::clone(fs), path: dir.join(name) }
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the text, without the line of the checksum; `None` if there is no such memo.
    ///
    /// # Errors
    /// [`MemoError`].
    pub fn read(&self) -> Result<Option<String>, MemoError> {
        let file = match self.fs.open(&self.path, false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let bytes = file.len()?;
        if bytes > BYTES_MAX {
            return Err(MemoError::Damaged);
        }
        let mut text = vec![0; bytes as usize];
        let read = file.read_at(0, &mut text)?;
        text.truncate(read);
        let text = String::from_utf8(text).map_err(|_| MemoError::Damaged)?;
        checked(&text).map(|text| Some(text.to_owned())).ok_or(MemoError::Damaged)
    }

    /// Replaces the memo by lines of text, the last of which ends, too.
    ///
    /// # Errors
    /// As the operating system says; the memo is the old one then.
    pub fn write(&self, text: &str) -> io::Result<()> {
        let new = self.path.with_extension("new");
        match self.fs.remove(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let checksum = format!("{CHECKSUM}{:08x}\n", crc32fast::hash(text.as_bytes()));
        let mut file = self.fs.create(&new)?;
        file.write_and_sync(0, &[text.as_bytes(), checksum.as_bytes()])?;
        drop(file);
        self.fs.rename(&new, &self.path)?;
        self.path.parent().map_or(Ok(()), |dir| self.fs.sync_dir(dir))
    }
}

/// Returns the lines before that of the checksum; `None` if it does not fit them.
fn checked(text: &str) -> Option<&str> {
    let (body, checksum) = text.strip_suffix('\n')?.rsplit_once(CHECKSUM)?;
    let is_whole = checksum == format!("{:08x}", crc32fast::hash(body.as_bytes()));
    is_whole.then_some(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::ModelFiles;

    #[test]
    fn every_damaged_byte_is_noticed() {
        let fs: Arc<dyn FileSystem> = Arc::new(ModelFiles::new());
        let memo = Memo::new(&fs, Path::new("/"), COSTS);
        assert!(memo.read().expect("there is none").is_none());
        for text in ["", "one\n", "other words\nfor checksum 12345678\n"] {
            memo.write(text).expect("written");
            assert_eq!(memo.read().expect("whole").as_deref(), Some(text));
        }
        let mut whole = vec![0; 1000];
        let read = fs.open(memo.path(), false).and_then(|file| file.read_at(0, &mut whole)).expect("read");
        whole.truncate(read);
        let put = |bytes: &[u8]| {
            fs.remove(memo.path()).expect("removed");
            fs.create(memo.path()).and_then(|mut file| file.write_at(0, bytes)).expect("written");
        };
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            put(&bytes);
            assert!(matches!(memo.read(), Err(MemoError::Damaged)), "byte {at}");
            put(&whole[..at]);
            assert!(matches!(memo.read(), Err(MemoError::Damaged)), "cut to {at}");
        }
    }
}
