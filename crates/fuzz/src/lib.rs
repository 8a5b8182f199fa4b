//! Files from strangers, against every reader.
//!
//! A [`Subject`](subjects::Subject) is a reader with a directory of good files, one of which is the
//! target. [`mutate`] damages the target: bytes, numbers, pieces of JSON. A worker process reads the
//! result, and [`supervise`] watches it: a case that panics, dies, takes too long or too much memory
//! is a finding. The same number gives the same case, on any machine.
//!
//! A new format starts here: an entry in [`subjects::all`] is enough.

pub mod dice;
pub mod mutate;
pub mod past;
pub mod subjects;
pub mod supervise;
pub mod worker;
