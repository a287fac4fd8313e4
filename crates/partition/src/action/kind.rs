//! Kinds of operations, for recordings of procedures.

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

/// Kind of an operation, with the sizes of what it sends to the data and brings back.
#[derive(Clone, Copy, Debug)]
pub struct OperationKind {
    /// Kind of access.
    pub kind: AccessKind,
    /// True if it follows from a write instead of being requested by the procedure.
    pub follows: bool,
    /// Bytes of the values that go to the data or come back, besides keys and rows.
    pub values: usize,
    /// Part of the data that it brings back.
    pub brings: ResultShape,
}

/// Part of the data that an operation brings back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultShape {
    /// No rows.
    Nothing,
    /// The rows that it finds.
    Rows,
    /// The rows that it finds, and their keys.
    KeysAndRows,
}

impl OperationKind {
    /// Creates the kind of an operation that carries `values` bytes of values and brings back rows in this shape.
    pub fn new(kind: AccessKind, values: usize, brings: ResultShape) -> OperationKind {
        OperationKind { kind, follows: false, values, brings }
    }

    /// Creates the kind of an operation that follows from a write.
    pub fn following(kind: AccessKind, values: usize) -> OperationKind {
        OperationKind { kind, follows: true, values, brings: ResultShape::Nothing }
    }
}
