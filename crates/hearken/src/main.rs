//! The `hearken` binary.
fn main() {}
