//! Which instruction set a run is computed with: another one may round differently.

use crate::run_dir::RunDirectory;
use hearken_kernels::isa;

/// The name of the one that training runs on.
pub(super) fn of_run() -> &'static str {
    isa::for_batches(isa::current).name()
}

/// How the line in `config.toml` begins that says so.
const COMPUTED_WITH: &str = "# Computed with the instruction set ";

/// A configuration with that line.
pub(super) fn noted(config_text: &str) -> String {
    let set = of_run();
    format!("{COMPUTED_WITH}{set}; HEARKEN_SIMD={set} gives the same bits.\n{config_text}")
}

/// What to say if the run that is continued was computed with another.
pub(super) fn change(run: &RunDirectory) -> Option<String> {
    let config_text = RunDirectory::read_config(run.path()).ok()?;
    let (before, now) = (config_text.strip_prefix(COMPUTED_WITH)?.split(';').next()?, of_run());
    (before != now).then(|| {
        format!(
            "note: the run was computed with {before} and goes on with {now}: the last bits may differ \
             from those that {before} gives"
        )
    })
}
