//! A run that is continued and has no steps left: it is told what it came to, and nothing is changed.

use super::{Outcome, Setup, Summary, state};
use crate::checkpoint::Checkpoints;
use crate::config::TrainConfig;
use crate::metrics::{Log, Row};
use crate::progress::Progress;
use crate::run_dir::RunDirectory;
use crate::task::Task;
use hearken_base::Result;
use std::path::Path;

/// What the run came to, if it is continued and finished, with its records written to the end.
/// Loads its model into `task`.
pub(super) fn summary(
    task: &mut dyn Task,
    config: &TrainConfig,
    setup: &Setup,
) -> Result<Option<Summary>> {
    let run = &setup.run;
    if !run.is_resumed() {
        return Ok(None);
    }
    let checkpoints = Checkpoints::open(&run.checkpoints())?;
    // Damaged ones are named by the usual way, which goes back to one that is whole.
    let (Some(last), damaged) = checkpoints.newest()? else { return Ok(None) };
    let stopped_early = last.state.evaluations.should_stop(config.early_stopping);
    let done = last.state.step == config.steps || stopped_early;
    if !done || !damaged.is_empty() || !is_recorded(run, &last.path) {
        return Ok(None);
    }
    // What would be refused otherwise is refused here.
    state::check(&last, config)?;
    task.load_model(&last.path)?;
    let rows = Log::<Row>::read(&run.file("metrics.jsonl"))?;
    let evaluated = rows.iter().rev().find(|row| !row.validation.is_empty());
    Progress::new(setup.progress).message(&format!(
        "all {} steps are done: nothing is changed (--steps with more would go on)",
        last.state.step
    ));
    let state = last.state;
    Ok(Some(Summary {
        outcome: if stopped_early { Outcome::StoppedEarly } else { Outcome::Finished },
        step: state.step,
        train_loss: rows.last().and_then(|row| row.train_loss),
        validation: evaluated.map_or(Vec::new(), |row| row.validation.clone()),
        best: state.evaluations.best,
        tokens: state.tokens,
        elapsed_seconds: state.elapsed_seconds,
        checkpoint: Some(last.path),
    }))
}

/// Was the report written after the last checkpoint? If not, the run was killed in between.
fn is_recorded(run: &RunDirectory, checkpoint: &Path) -> bool {
    let changed = |path: &Path| std::fs::metadata(path).and_then(|data| data.modified()).ok();
    match (changed(&run.file("report.html")), changed(&checkpoint.join("trainer_state.json"))) {
        (Some(report), Some(checkpoint)) => report >= checkpoint,
        _ => false,
    }
}
