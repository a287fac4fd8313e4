//! Tests of the engines with shared data, through their public interfaces.

mod occ;
