//! Indexes that are created and dropped while transactions change their tables.
