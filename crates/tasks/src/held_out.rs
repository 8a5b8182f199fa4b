//! Labelled rows of a run: which are learned from, and which are held out.

use crate::config::RunConfig;
use crate::data::Workplace;
use hearken_base::{Error, Result};
use hearken_data::Digest;
use hearken_data::labelled::{Dataset, Row};

/// What the rows were when a run began.
pub(crate) const DIGEST: &str = "data.digest";

/// Which part of the data is held out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldOut {
    /// What the configuration says.
    Share,
    /// All of it: nothing is learned from.
    Everything,
}

/// What is learned from, and what is held out. `own` are the rows of files that the configuration holds
/// out by name; without them, a share of `all` is held out.
pub(crate) fn parted(
    all: Dataset,
    own: Option<Dataset>,
    hold_out: HoldOut,
    config: &RunConfig,
) -> [Dataset; 2] {
    match (hold_out, own) {
        (HoldOut::Everything, _) => {
            [Dataset { labels: all.labels.clone(), ..Dataset::default() }, all]
        }
        (HoldOut::Share, Some(own)) => [all, own],
        (HoldOut::Share, None) => {
            let split = all.split(config.data.validation, config.train.seed);
            [split.train, split.validation].map(|chosen| {
                let rows = chosen.iter().filter_map(|row| all.rows.get(*row)).cloned();
                let rows: Vec<Row> = rows.collect();
                let (labels, files) = (all.labels.clone(), all.files.clone());
                Dataset { rows, labels, files, notes: Vec::new() }
            })
        }
    }
}

/// Refuses to go on with other rows than those that a run began with.
pub(crate) fn check_unchanged(data: &Dataset, place: &Workplace<'_>) -> Result<()> {
    let mut digest = Digest::default();
    for row in &data.rows {
        digest.update(format!("{:?} {:?} {:?}\n", row.text, row.second, row.answer).as_bytes());
    }
    let now = format!("{:016x}\n", digest.value());
    let file = place.path.join(DIGEST);
    if place.resumed && file.exists() {
        if hearken_store::files::read_text(&file, 64)? != now {
            return Err(Error::new(
                "the labelled data has changed since this run began",
                "put it back as it was to go on, or start a new run with --out",
            ));
        }
        return Ok(());
    }
    std::fs::write(&file, now).map_err(Error::io("write", &file))
}
