//! Runs the binary as a person would.

use std::process::{Command, Output, Stdio};

/// The binary with these arguments and none of the variables that change what it does.
pub(crate) fn hearken(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hearken"));
    command.args(arguments).stdin(Stdio::null());
    for variable in ["HEARKEN_SIMD", "HEARKEN_THREADS", "NO_COLOR", "CARGO_MANIFEST_DIR"] {
        command.env_remove(variable);
    }
    command
}

/// What a run has left behind.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs to the end.
pub(crate) fn run(command: &mut Command) -> Ran {
    ran(command.output().expect("the binary starts"))
}

/// As text.
pub(crate) fn ran(output: Output) -> Ran {
    let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
    Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

impl Ran {
    /// It went well.
    pub(crate) fn succeeded(self) -> Self {
        assert_eq!(self.code, Some(0), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// It was refused: exit code 2, nothing on stdout, a message that says `what` and helps.
    pub(crate) fn refused(self, what: &str) {
        assert_eq!(self.code, Some(2), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        assert_eq!(self.stdout, "");
        assert!(self.stderr.starts_with("error: "), "{}", self.stderr);
        assert!(self.stderr.contains(what), "'{what}' is not in: {}", self.stderr);
        let helps = ["hint: ", "tip: ", "--help"].iter().any(|help| self.stderr.contains(help));
        assert!(helps, "{}", self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
    }
}
