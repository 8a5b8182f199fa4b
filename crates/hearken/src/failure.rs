//! How a command ends when it does not end well.

use crate::invocation::runnable;
use hearken::base::{Error, Kind};
use hearken::show::say;
use std::io::{self, ErrorKind};
use std::process::ExitCode;

/// Why a command stopped.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The input was wrong: exit code 2.
    Error(Error),
    /// The input was right, and what it asked to check is not: exit code 1.
    Check(Error),
    /// A result could not be written.
    Output(io::Error),
    /// The user stopped it, and was told how to go on: exit code 130.
    Interrupted,
}

impl Failure {
    /// Bad input: what was wrong and expected; what to do.
    pub(crate) fn input(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Error(Error::new(message, hint))
    }

    /// Something that was asked to be checked is not right, and what to do.
    pub(crate) fn check(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Check(Error::new(message, hint))
    }

    /// Tells the user, and gives the exit code.
    pub(crate) fn report(self) -> ExitCode {
        // If stderr is gone too, the exit code still speaks.
        let code = match self {
            Self::Error(error) => {
                say!("error: {}", runnable(&error.to_string()));
                2
            }
            Self::Check(error) => {
                say!("error: {}", runnable(&error.to_string()));
                1
            }
            Self::Interrupted => 130,
            // The reader has seen enough, as in `hearken doctor | head -1`.
            Self::Output(error) if error.kind() == ErrorKind::BrokenPipe => 0,
            Self::Output(error) => {
                say!("error: cannot write the result: {error}");
                1
            }
        };
        ExitCode::from(code)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<Error> for Failure {
    /// Training that went wrong is a failed check; everything else is bad input.
    fn from(error: Error) -> Self {
        match error.kind() {
            Kind::Diverged => Self::Check(error),
            // Who asked for it was answered then.
            Kind::Io(ErrorKind::Interrupted) => Self::Interrupted,
            _ => Self::Error(error),
        }
    }
}
