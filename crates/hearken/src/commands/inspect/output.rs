//! What the commands of `hearken inspect` write: a file of tensors, by its ending, or JSON.

use crate::commands::outputs::check_out;
use crate::failure::Failure;
use hearken::base::Error;
use hearken::show::number::significant;
use hearken::show::{Columns, Terminal};
use hearken::store;
use hearken::tensor::Tensor;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Where numbers go.
#[derive(clap::Args)]
pub(super) struct OutArguments {
    /// The file to write: .safetensors or .json (every tensor by name), or .npy (one tensor)
    #[arg(long, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,

    /// Write JSON: with --out names and shapes, without it all numbers
    #[arg(long)]
    pub(super) json: bool,
}

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Safetensors,
    Npy,
    Json,
}

/// Tensors by name.
pub(super) type Named<'a> = [(&'a str, &'a Tensor)];

impl OutArguments {
    /// Can the file be written, and would it replace nothing of the model?
    pub(super) fn check(&self, model: &Path) -> Result<(), Failure> {
        let Some(out) = &self.out else { return Ok(()) };
        check_out("--out", out, Some(model), &[])?;
        form(out).map(|_| ())
    }

    /// Writes the file, if one is wanted. A .npy file has the tensor `one`.
    pub(super) fn write(&self, tensors: &Named<'_>, one: Option<&Tensor>) -> Result<(), Failure> {
        let Some(path) = &self.out else { return Ok(()) };
        match (form(path)?, one) {
            (Form::Safetensors, _) => store::write(path, tensors.iter().copied())?,
            (Form::Npy, Some(one)) => store::write_npy(path, one)?,
            (Form::Npy, None) => {
                let message = format!(
                    "a .npy file holds one tensor, but {} are to be written",
                    tensors.len()
                );
                let hint = "choose one with --only NAME, or write .safetensors or .json";
                return Err(Failure::input(message, hint));
            }
            (Form::Json, _) => {
                let file = File::create(path).map_err(Error::io("write", path))?;
                let mut file = BufWriter::new(file);
                let written = json(&mut file, tensors).and_then(|()| file.flush());
                written.map_err(Error::io("write", path))?;
            }
        }
        Ok(())
    }

    /// Are all numbers wanted on standard output, as JSON?
    pub(super) fn all_as_json(&self) -> bool {
        self.json && self.out.is_none()
    }
}

fn form(path: &Path) -> Result<Form, Failure> {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("safetensors") => Ok(Form::Safetensors),
        Some("npy") => Ok(Form::Npy),
        Some("json") => Ok(Form::Json),
        _ => Err(Failure::input(
            format!("{} does not say its format", path.display()),
            "end its name in .safetensors, .npy or .json",
        )),
    }
}

/// An object with nested lists of numbers; those that JSON does not have (∞, NaN) become null.
pub(super) fn json(out: &mut impl Write, tensors: &Named<'_>) -> io::Result<()> {
    write!(out, "{{")?;
    for (i, (name, tensor)) in tensors.iter().enumerate() {
        let comma = if i > 0 { "," } else { "" };
        write!(out, "{comma}\n{}: ", serde_json::Value::from(*name))?;
        nested(out, tensor.shape().dims(), tensor.data())?;
    }
    writeln!(out, "\n}}")
}

fn nested(out: &mut impl Write, dims: &[usize], numbers: &[f32]) -> io::Result<()> {
    let Some((first, rest)) = dims.split_first() else {
        return match numbers.first() {
            Some(x) if x.is_finite() => write!(out, "{x:?}"),
            _ => write!(out, "null"),
        };
    };
    let each: usize = rest.iter().product();
    write!(out, "[")?;
    for i in 0..*first {
        if i > 0 {
            write!(out, ", ")?;
        }
        nested(out, rest, &numbers[i * each..(i + 1) * each])?;
    }
    write!(out, "]")
}

/// How wide a table may be: as the terminal, or, in a pipe, so wide that names stay whole.
pub(super) fn room() -> usize {
    /// Names of a few hundred characters; longer ones would pad every row.
    const WIDEST: usize = 2000;
    if io::stdout().is_terminal() { Terminal::stdout().width } else { WIDEST }
}

/// A line per tensor: name, shape, and how large its numbers are.
pub(super) fn summary(out: &mut impl Write, tensors: &Named<'_>) -> io::Result<()> {
    let rows: Vec<[String; 6]> = tensors.iter().map(|(name, tensor)| row(name, tensor)).collect();
    let headings = ["name", "shape", "mean", "rms", "smallest", "largest"];
    write_columns(out, headings, &["mean", "smallest", "largest", "shape"], &rows)
}

/// A table; where the terminal is narrow, without the columns of `dropped`, from the first on. The
/// first column and shapes are aligned left.
pub(super) fn write_columns<const N: usize>(
    out: &mut impl Write,
    headings: [&str; N],
    dropped: &[&str],
    rows: &[[String; N]],
) -> io::Result<()> {
    // Names of tensors differ in their ends.
    let headings_are_names = headings.first() == Some(&"name");
    let mut columns = Columns::new();
    for (i, heading) in headings.into_iter().enumerate() {
        let left = i == 0 || heading == "shape";
        columns = if left { columns.left(heading, 0) } else { columns.right(heading, 0) };
    }
    let columns = if headings_are_names { columns.keeping_ends() } else { columns };
    let columns = columns.holding(rows).fitting(room(), dropped);
    writeln!(out, "{}", Terminal::stdout().bold(&columns.head()))?;
    for row in rows {
        writeln!(out, "{}", columns.row(row))?;
    }
    Ok(())
}

/// `2 × 3`, or `scalar`.
pub(super) fn shape(dims: &[usize]) -> String {
    let dims: Vec<String> = dims.iter().map(ToString::to_string).collect();
    if dims.is_empty() { "scalar".to_owned() } else { dims.join(" × ") }
}

/// Mean, root mean square and range of the finite numbers; scores that are hidden are −∞.
fn row(name: &str, tensor: &Tensor) -> [String; 6] {
    let finite = || tensor.data().iter().copied().filter(|x| x.is_finite()).map(f64::from);
    let count = finite().count();
    let stat = |x: f64| if count == 0 { "–".to_owned() } else { significant(x) };
    let mean = finite().sum::<f64>() / count as f64;
    let rms = (finite().map(|x| x * x).sum::<f64>() / count as f64).sqrt();
    let nan = tensor.data().iter().any(|x| x.is_nan());
    let infinite = |sign: f32| tensor.data().iter().any(|x| x.is_infinite() && x.signum() == sign);
    let end = |x: f64, sign: f32| match () {
        () if nan => "NaN".to_owned(),
        () if infinite(sign) => if sign < 0.0 { "−∞" } else { "∞" }.to_owned(),
        () => stat(x),
    };
    [
        name.to_owned(),
        shape(tensor.shape().dims()),
        stat(mean),
        stat(rms),
        end(finite().fold(f64::INFINITY, f64::min), -1.0),
        end(finite().fold(f64::NEG_INFINITY, f64::max), 1.0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_nested_lists_and_null_for_what_json_does_not_have() {
        let (a, b) =
            (Tensor::new([2, 2], &[1.0, f32::NEG_INFINITY, 0.1, 1e30]), Tensor::scalar(2.0));
        let mut out = Vec::new();
        json(&mut out, &[("a", &a), ("b", &b)]).unwrap();
        let read: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(read["a"][0], serde_json::json!([1.0, null]));
        assert_eq!(read["a"][1][0].as_f64().unwrap() as f32, 0.1);
        assert_eq!(read["b"], 2.0);
    }
}
