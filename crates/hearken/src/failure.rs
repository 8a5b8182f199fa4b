//! How a command ends when it does not end well.

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

/// Why a command stopped. Messages are in lower case, without a full stop, and may end in a line
/// `hint: …`.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The input was wrong: exit code 2.
    Input(String),
    /// The input was right, and what it asked to check is not: exit code 1.
    Check(String),
    /// A result could not be written.
    Output(io::Error),
    /// The user stopped it, and was told how to go on: exit code 130.
    Interrupted,
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<hearken::formats::FormatError> for Failure {
    fn from(error: hearken::formats::FormatError) -> Self {
        Self::Input(error.to_string())
    }
}

impl From<hearken::infer::generate::PromptError> for Failure {
    fn from(error: hearken::infer::generate::PromptError) -> Self {
        Self::Input(error.to_string())
    }
}

impl From<hearken::nn::config::ConfigError> for Failure {
    fn from(error: hearken::nn::config::ConfigError) -> Self {
        Self::Input(error.to_string())
    }
}

impl From<hearken::data::Error> for Failure {
    fn from(error: hearken::data::Error) -> Self {
        Self::Input(error.to_string())
    }
}

impl Failure {
    /// Tells the user, and gives the exit code.
    pub(crate) fn report(self) -> ExitCode {
        let (code, message) = match self {
            Self::Input(message) => (2, message),
            Self::Check(message) => (1, message),
            Self::Interrupted => return ExitCode::from(130),
            // The reader has seen enough, as in `hearken doctor | head -1`.
            Self::Output(error) if error.kind() == ErrorKind::BrokenPipe => {
                return ExitCode::SUCCESS;
            }
            Self::Output(error) => (1, format!("cannot write the result: {error}")),
        };
        // If stderr is gone too, the exit code still speaks.
        let _ = writeln!(io::stderr(), "error: {message}");
        ExitCode::from(code)
    }
}
