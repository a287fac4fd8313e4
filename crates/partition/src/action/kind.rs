//! The kind of an operation, for those who record what a procedure does.

/// Kind of access to rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// Reads one row.
    Read,
    /// Reads a range of rows.
    Scan,
    /// Changes a row.
    Update,
    /// Adds a row.
    Insert,
    /// Removes a row.
    Delete,
}

/// Kind of an operation, with what it sends to the data and brings back.
#[derive(Clone, Copy, Debug)]
pub struct OperationKind {
    /// Kind of access.
    pub kind: AccessKind,
    /// True when it follows from a write instead of being asked for.
    pub follows: bool,
    /// Bytes of the values that go to the data or come back, besides keys and rows.
    pub values: usize,
    /// Part of the data that it brings back.
    pub brings: ResultShape,
}

/// Part of the data that an operation brings back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultShape {
    /// None of it.
    Nothing,
    /// The rows that it finds.
    Rows,
    /// The rows that it finds, and their keys.
    KeysAndRows,
}

impl OperationKind {
    /// Kind of an operation that carries so many bytes of values and brings back rows as it says.
    pub fn new(kind: AccessKind, values: usize, brings: ResultShape) -> OperationKind {
        OperationKind { kind, follows: false, values, brings }
    }

    /// Kind of an operation that must follow a write.
    pub fn following(kind: AccessKind, values: usize) -> OperationKind {
        OperationKind { kind, follows: true, values, brings: ResultShape::Nothing }
    }
}
