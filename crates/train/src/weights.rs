//! Parameters in a safetensors file under their own names: what a [`Task`](crate::Task) that says
//! nothing else saves its model as.

// Files from strangers are read here: nothing may panic.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

use crate::run_dir::RunDirectory;
use hearken_base::{Error, Result};
use hearken_store::{TensorFile, Writer};
use hearken_tensor::Param;
use std::path::Path;

/// The name of the file in a model directory.
pub const FILE: &str = "model.safetensors";

/// Writes the parameters, in f32, under their names.
pub fn save(path: &Path, parameters: &[Param]) -> Result<()> {
    let listed: Vec<(String, Vec<usize>)> =
        parameters.iter().map(|p| (p.name().to_owned(), p.shape().dims().to_vec())).collect();
    let mut writer = Writer::create(path, &listed)?;
    for parameter in parameters {
        writer.write(parameter.value().data())?;
    }
    writer.finish()
}

/// Gives parameters the numbers of a file that [`save`] wrote. The file must hold exactly these
/// names and shapes; if it does not, no parameter is changed.
pub fn load(path: &Path, parameters: &[Param]) -> Result<()> {
    if let Some(folder) = path.parent()
        && !path.exists()
        && RunDirectory::holds_run(folder)
    {
        return Err(Error::new(
            format!("{} is a run, not a model", folder.display()),
            "its models are in checkpoints/best and checkpoints/last",
        ));
    }
    let file = TensorFile::open(path)?;
    let other = |message: String| {
        Error::new(message, "load what was saved by the same model").within(path.display())
    };
    for parameter in parameters {
        let (name, want) = (parameter.name(), parameter.shape());
        let got = file.shape(name)?;
        if got != want.dims() {
            return Err(other(format!("{name} has the shape {got:?}, expected {:?}", want.dims())));
        }
    }
    if file.entries().len() > parameters.len() {
        let known = |name: &str| parameters.iter().any(|parameter| parameter.name() == name);
        let names = file.entries().iter().map(|entry| entry.name.as_str());
        let extra: Vec<&str> = names.filter(|name| !known(name)).take(3).collect();
        return Err(other(format!("the model has no parameter {}", extra.join(", "))));
    }
    let values: Result<Vec<_>> = parameters.iter().map(|p| file.tensor(p.name())).collect();
    for (parameter, value) in parameters.iter().zip(values?) {
        parameter.set_value(value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearken_tensor::{Role, Tensor};

    fn parameters(first: f32) -> Vec<Param> {
        let matrix = Tensor::new([2, 3], &[first, 1.0, 2.0, -0.0, f32::MIN_POSITIVE, 5.0]);
        vec![
            Param::new("head.weight", Role::Head, matrix),
            Param::new("head.bias", Role::Vector, Tensor::full([2], first)),
        ]
    }

    fn numbers(parameters: &[Param]) -> Vec<u32> {
        let bits = |p: &Param| p.value().data().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        parameters.iter().flat_map(bits).collect()
    }

    #[test]
    fn every_bit_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let saved = parameters(0.1);
        save(&path, &saved).unwrap();
        let loaded = parameters(7.0);
        load(&path, &loaded).unwrap();
        assert_eq!(numbers(&loaded), numbers(&saved));
    }

    #[test]
    fn a_run_in_place_of_a_model_is_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let text = load(&dir.path().join(FILE), &[]).unwrap_err().to_string();
        assert!(!text.contains("is a run"), "{text}");
        std::fs::write(dir.path().join("config.toml"), "").unwrap();
        let text = load(&dir.path().join(FILE), &[]).unwrap_err().to_string();
        assert!(
            text.contains("is a run, not a model\nhint: its models are in checkpoints"),
            "{text}"
        );
    }

    #[test]
    fn another_model_is_refused_and_left_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        save(&path, &parameters(0.1)).unwrap();
        let before = numbers(&parameters(7.0));

        let missing = [parameters(7.0), vec![Param::new("more", Role::Vector, Tensor::zeros([1]))]];
        let missing = missing.concat();
        let text = load(&path, &missing).unwrap_err().to_string();
        assert!(text.contains("has no tensor more") && text.contains("hint: "), "{text}");
        assert_eq!(numbers(&missing[..2]), before);

        let text = load(&path, &parameters(7.0)[..1]).unwrap_err().to_string();
        assert!(text.contains("no parameter head.bias"), "{text}");

        let other = Param::new("head.weight", Role::Head, Tensor::zeros([3, 2]));
        let text = load(&path, &[other, parameters(7.0)[1].clone()]).unwrap_err().to_string();
        assert!(text.contains("head.weight has the shape [2, 3], expected [3, 2]"), "{text}");
    }
}
