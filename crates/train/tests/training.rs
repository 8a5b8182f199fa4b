//! The loop: it learns, it stops when it should, it says what is wrong.

mod common;

use common::{Network, bits, config, setup, untimed};
use hearken_base::settings::Settings;
use hearken_kernels::isa;
use hearken_kernels::threads::with_threads;
use hearken_store::TensorFile;
use hearken_tensor::{Param, Role, Tensor, Var, no_grad};
use hearken_train::early_stopping::{Best, EarlyStoppingConfig};
use hearken_train::ema::EmaConfig;
use hearken_train::files;
use hearken_train::{
    Better, DecayRule, Error, Evaluation, Kind, Metric, MicroLoss, Moment, OptimizerConfig,
    Outcome, Portion, Precision, Result, RunDirectory, ScheduleConfig, Summary, Task, TrainConfig,
    train,
};
use std::fs;
use std::path::Path;

/// Reads an optimiser from TOML.
fn optimizer(text: &str) -> OptimizerConfig {
    Settings::parse(text, "optimizer").unwrap().read().unwrap()
}

fn run(network: &mut Network, config: &TrainConfig, path: &Path) -> Summary {
    train(network, config, setup(path)).unwrap()
}

fn long() -> TrainConfig {
    TrainConfig {
        steps: 600,
        evaluate_every: 100,
        checkpoint_every: 200,
        sample_every: 200,
        observe_every: 20,
        ..config()
    }
}

const WHOLE: Portion = Portion { sample: 0, whole: true };

/// The validation loss of the network as it is.
fn loss_of(network: &mut Network, portion: Portion) -> f64 {
    let evaluation = network.evaluate(portion, &mut |_| {}).unwrap().unwrap();
    evaluation.metric(Metric::LOSS).unwrap().value
}

#[test]
fn every_optimiser_learns() {
    let adamw = OptimizerConfig::default();
    let muon: OptimizerConfig = optimizer("kind = \"muon\"");
    let lion: OptimizerConfig = optimizer("kind = \"lion\"");
    let adam: OptimizerConfig = optimizer("kind = \"adam\"\nl2 = 1e-4");
    let sgd: OptimizerConfig = optimizer("kind = \"sgd\"");
    let momentum: OptimizerConfig = optimizer("kind = \"sgd\"\nmomentum = 0.9");
    let first = loss_of(&mut Network::new(), WHOLE);
    for (optimizer, lr) in
        [(adamw, 0.02), (muon, 0.02), (lion, 3e-3), (adam, 0.02), (sgd, 0.02), (momentum, 2e-3)]
    {
        let dir = tempfile::tempdir().unwrap();
        let config = TrainConfig { optimizer, lr, ..long() };
        let summary = run(&mut Network::new(), &config, dir.path());
        let last = summary.metric("loss").unwrap();
        assert!(last < 0.2 * first, "{optimizer:?}: from {first} to {last}");
    }
}

#[test]
fn sixteen_bits_learn_as_well() {
    let full = run(&mut Network::new(), &long(), tempfile::tempdir().unwrap().path());
    for precision in [Precision::Bf16, Precision::F16] {
        let dir = tempfile::tempdir().unwrap();
        let config = TrainConfig { precision, ..long() };
        let summary = run(&mut Network::new(), &config, dir.path());
        let (full, half) = (full.metric("loss").unwrap(), summary.metric("loss").unwrap());
        // The loss is a small difference of rounded numbers: 8 bits of precision show in it.
        assert!(half < full + 0.1, "{precision:?}: {half} against {full}");
    }
}

#[test]
fn a_run_leaves_all_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut network = Network::new();
    let summary = run(&mut network, &config(), dir.path());
    assert_eq!((summary.outcome, summary.step, summary.tokens), (Outcome::Finished, 40, 480));
    for name in ["config.toml", "loss.svg", "report.html", "samples.txt", "diagnostics.jsonl"] {
        assert!(fs::metadata(dir.path().join(name)).unwrap().len() > 0, "{name}");
    }
    let rows = untimed(&dir.path().join("metrics.jsonl"));
    assert_eq!(rows.len(), 40);
    let steps: Vec<u64> = rows.iter().map(|row| row["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, (1..=40).collect::<Vec<_>>());
    let evaluated = |row: &&serde_json::Value| !row["val_loss"].is_null();
    let at: Vec<_> = rows.iter().filter(evaluated).map(|row| row["step"].clone()).collect();
    assert_eq!(at, [7, 14, 21, 28, 35, 40]);
    // Every metric has its key, and `val_loss` is there on every line.
    assert!(rows.iter().all(|row| row.get("val_loss").is_some()));
    assert!(rows[6]["val_score"].is_f64() && rows[5].get("val_score").is_none());
    let set = isa::for_batches(isa::current).name();
    let kept = fs::read_to_string(dir.path().join("config.toml")).unwrap();
    assert!(kept.contains(&format!("HEARKEN_SIMD={set} gives the same bits")), "{kept}");
    let report = fs::read_to_string(dir.path().join("report.html")).unwrap();
    assert!(report.contains("instruction set") && report.contains(set));
    assert!(report.contains("&lt;b&gt;") && report.contains("Attention entropy per layer"));
    assert!(report.contains("Validation score") && report.contains("best validation loss"));
    // `last` is the model that training ended with, and `best` the one of the lowest loss.
    let last = dir.path().join("checkpoints/last/model.safetensors");
    let file = TensorFile::open(&last).unwrap();
    for p in network.parameters() {
        let saved = files::tensor(&file, p.name(), p.shape()).unwrap();
        assert_eq!(saved.data(), p.value().data());
    }
    let best = fs::read_link(dir.path().join("checkpoints/best")).unwrap();
    assert_eq!(best.to_string_lossy(), format!("step-{:06}", summary.best.unwrap().step));
}

#[test]
fn only_the_newest_and_the_best_checkpoints_stay() {
    let dir = tempfile::tempdir().unwrap();
    let config = TrainConfig { keep: 2, checkpoint_every: 1, evaluate_every: 0, ..config() };
    run(&mut Network::new(), &config, dir.path());
    let entries = fs::read_dir(dir.path().join("checkpoints")).unwrap();
    let mut names: Vec<_> =
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["best", "last", "step-000039", "step-000040"]);
}

/// The gradient of the mean over 12 rows is a sum over rows; in three or four parts it is the same
/// sum in another order, whether they come one after the other or in parallel.
#[test]
fn accumulating_four_times_three_is_a_batch_of_twelve() {
    let weights = |accumulate, parallel_parts| {
        let dir = tempfile::tempdir().unwrap();
        let mut network = Network::new();
        let optimizer =
            OptimizerConfig::Sgd { momentum: 0.9, nesterov: false, averaged: false, l2: 0.0 };
        let config = TrainConfig { accumulate, parallel_parts, optimizer, lr: 1e-3, ..config() };
        run(&mut network, &config, dir.path());
        let values: Vec<f32> =
            network.parameters.iter().flat_map(|p| p.value().data().to_vec()).collect();
        values
    };
    let whole = weights(1, 1);
    for (accumulate, parallel_parts) in [(2, 1), (3, 1), (4, 1), (12, 1), (1, 2), (1, 4), (3, 2)] {
        for (a, b) in whole.iter().zip(weights(accumulate, parallel_parts)) {
            // 40 steps of a few roundings each of numbers below 1 (6e-8), mostly cancelling.
            assert!((a - b).abs() < 1e-6, "{accumulate} × {parallel_parts} parts: {b}, not {a}");
        }
    }
}

/// Fewer threads than parts, as many, and more: parts on threads of their own, or one after the
/// other.
#[test]
fn parts_parallel_parts_give_the_same_bits_on_any_number_of_threads() {
    let weights = |threads| {
        let dir = tempfile::tempdir().unwrap();
        let mut network = Network::new();
        let config = TrainConfig {
            accumulate: 2,
            parallel_parts: 3,
            precision: Precision::Bf16,
            ..config()
        };
        with_threads(threads, || run(&mut network, &config, dir.path()));
        bits(&network)
    };
    let one = weights(1);
    for threads in [2, 3, 4] {
        assert_eq!(weights(threads), one, "{threads} threads");
    }
}

/// On the way a part is looked at, and at the end everything, whether it comes early or not.
#[test]
fn the_last_evaluation_is_of_everything() {
    let stopping = EarlyStoppingConfig { patience: 1, least_improvement: 1e9 };
    for early_stopping in [None, Some(stopping)] {
        let dir = tempfile::tempdir().unwrap();
        let mut network = Network::new();
        let config = TrainConfig { evaluate_tokens: 1, early_stopping, ..config() };
        let summary = run(&mut network, &config, dir.path());
        let whole = loss_of(&mut network, WHOLE);
        assert_eq!(summary.metric("loss"), Some(whole));
        let sampled = loss_of(&mut network, Portion { sample: 1, whole: false });
        assert_ne!(sampled, whole);
        // It was still learning: the last is the best.
        assert_eq!(summary.step < config.steps, early_stopping.is_some());
        let metrics = vec![
            Metric::loss(whole).with_sample(sampled),
            Metric::new("score", Better::Higher, 1.0 / (1.0 + whole))
                .with_sample(1.0 / (1.0 + sampled)),
        ];
        assert_eq!(summary.best, Some(Best { step: summary.step, metrics, whole: true }));
    }
}

/// A part that fails ends the run, whatever the others did.
#[test]
fn a_part_that_fails_is_an_error() {
    struct Failing(Network);
    impl Task for Failing {
        fn parameters(&self) -> Vec<Param> {
            self.0.parameters()
        }
        fn loss(&self, at: Moment) -> Result<MicroLoss> {
            if at.micro_batch == 1 {
                return Err(Error::new("part 1 has no rows", "give it some"));
            }
            self.0.loss(at)
        }
        fn evaluate(&mut self, _: Portion, _: &mut dyn FnMut(f64)) -> Result<Option<Evaluation>> {
            Ok(None)
        }
        fn save_model(&self, dir: &Path) -> Result<()> {
            self.0.save_model(dir)
        }
        fn load_model(&mut self, dir: &Path) -> Result<()> {
            self.0.load_model(dir)
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let config = TrainConfig { parallel_parts: 3, ..config() };
    let error = train(&mut Failing(Network::new()), &config, setup(dir.path())).unwrap_err();
    assert!(error.to_string().contains("part 1 has no rows"), "{error}");
}

#[test]
fn a_loss_that_teaches_nothing_is_an_error() {
    struct Given(Param, fn(&Param) -> Var);
    impl Task for Given {
        fn parameters(&self) -> Vec<Param> {
            vec![self.0.clone()]
        }
        fn loss(&self, _: Moment) -> Result<MicroLoss> {
            Ok(MicroLoss::new((self.1)(&self.0), 1.0, 1))
        }
    }
    let outcome = |loss| {
        let dir = tempfile::tempdir().unwrap();
        let mut task = Given(Param::new("w", Role::Vector, Tensor::full([2], 1.0)), loss);
        let trained = train(&mut task, &config(), setup(dir.path()));
        trained.map_or_else(|error| error.to_string(), |_| String::new())
    };
    assert_eq!(outcome(|w| w.var().sum()), "");
    let text = outcome(|w| no_grad(|| w.var().sum()));
    assert!(
        text.starts_with("the loss does not depend on a parameter that learns\nhint: "),
        "{text}"
    );
    let text = outcome(Param::var);
    assert!(text.starts_with("the loss has the shape (2), expected one number\nhint: "), "{text}");
}

#[test]
fn averages_are_judged_and_saved() {
    let dir = tempfile::tempdir().unwrap();
    let mut network = Network::new();
    let config = TrainConfig { ema: Some(EmaConfig { decay: 0.95 }), ..config() };
    let summary = run(&mut network, &config, dir.path());
    let own = loss_of(&mut network, WHOLE);
    let mut averaged = Network::new();
    averaged.load_model(&dir.path().join("checkpoints/last")).unwrap();
    assert_ne!(bits(&averaged), bits(&network));
    let loss = loss_of(&mut averaged, WHOLE);
    assert_eq!(Some(loss), summary.metric("loss"));
    assert_ne!(loss, own);
}

#[test]
fn early_stopping_stops_and_stays_stopped() {
    let dir = tempfile::tempdir().unwrap();
    // With a rate of 0 nothing improves after the first evaluation.
    let config = TrainConfig {
        lr: 0.0,
        early_stopping: Some(EarlyStoppingConfig { patience: 2, least_improvement: 0.0 }),
        ..config()
    };
    for _ in 0..2 {
        let summary = run(&mut Network::new(), &config, dir.path());
        assert_eq!((summary.outcome, summary.step), (Outcome::StoppedEarly, 21));
        assert_eq!(summary.best.unwrap().step, 7);
    }
}

#[test]
fn decay_touches_its_group_only() {
    for (decay, vector_decays) in [(DecayRule::Hidden, false), (DecayRule::All, true)] {
        let dir = tempfile::tempdir().unwrap();
        let mut network = Network::new();
        network.parameters[1].set_value(hearken_tensor::Tensor::full([16], 1.0));
        // Without noise from gradients: clipped to next to nothing.
        let optimizer =
            OptimizerConfig::Sgd { momentum: 0.0, nesterov: false, averaged: false, l2: 0.5 };
        let schedule = ScheduleConfig::Constant { warmup: 0 };
        let config =
            TrainConfig { optimizer, schedule, decay, lr: 0.1, clip: 1e-12, steps: 1, ..config() };
        let matrix = network.parameters[0].value().data()[0];
        run(&mut network, &config, dir.path());
        assert_eq!(network.parameters[0].value().data()[0], matrix * 0.95);
        let bias = network.parameters[1].value().data()[0];
        assert_eq!(bias, if vector_decays { 0.95 } else { 1.0 });
    }
}

#[test]
fn a_nan_skips_steps_and_then_ends_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let mut network = Network::new();
    network.nan_from = 12;
    let error = train(&mut network, &config(), setup(dir.path())).unwrap_err();
    let text = error.to_string();
    assert_eq!(error.kind(), Kind::Diverged, "{text}");
    assert!(text.contains("hint: lower train.lr (now 1.0e-2)"), "{text}");
    assert!(network.parameters.iter().all(|p| p.value().data().iter().all(|x| x.is_finite())));
    let rows = untimed(&dir.path().join("metrics.jsonl"));
    assert!(rows.last().unwrap()["train_loss"].is_null());
    assert!(dir.path().join("report.html").exists());
    let log = fs::read_to_string(dir.path().join("diagnostics.jsonl")).unwrap();
    assert!(log.contains("\"about\":\"not-finite\"") && log.contains("the loss is NaN"), "{log}");
}

#[test]
fn skipped_steps_save_nothing_and_the_good_checkpoint_stays() {
    let dir = tempfile::tempdir().unwrap();
    let often = TrainConfig { checkpoint_every: 1, evaluate_every: 1, keep: 1, ..config() };
    let mut network = Network { nan_from: 12, ..Network::new() };
    let error = train(&mut network, &often, setup(dir.path())).unwrap_err().to_string();
    assert!(error.contains("step-000012 is from before"), "{error}");
    let last = dir.path().join("checkpoints/last");
    assert_eq!(fs::read_link(&last).unwrap().to_str(), Some("step-000012"));
    // Once the cause is gone, it goes on from there to the end.
    let summary = run(&mut Network::new(), &often, dir.path());
    assert_eq!((summary.outcome, summary.step), (Outcome::Finished, 40));
}

#[test]
fn what_is_due_while_steps_are_skipped_is_done_after_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut network = Network { nan_in: Some(18..22), ..Network::new() };
    let config = TrainConfig { keep: 10, ..config() };
    let summary = run(&mut network, &config, dir.path());
    assert_eq!(summary.outcome, Outcome::Finished);
    // Steps 19 to 22 are skipped: the evaluation of step 21 and the checkpoint of 20 come at 23.
    let rows = untimed(&dir.path().join("metrics.jsonl"));
    let evaluated: Vec<u64> = rows
        .iter()
        .filter(|row| row["val_loss"].is_number())
        .map(|row| row["step"].as_u64().unwrap())
        .collect();
    assert_eq!(evaluated, [7, 14, 23, 28, 35, 40]);
    let checkpoints = dir.path().join("checkpoints");
    assert!(checkpoints.join("step-000023").exists() && !checkpoints.join("step-000020").exists());
}

#[test]
fn a_run_that_ends_while_it_is_skipping_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let mut network = Network { nan_from: 37, ..Network::new() };
    let error = train(&mut network, &config(), setup(dir.path())).unwrap_err();
    assert_eq!(error.kind(), Kind::Diverged, "{error}");
    let text = error.to_string();
    assert!(text.contains("ends at step 40 with 3 steps without a finite gradient"), "{text}");
    assert!(!dir.path().join("checkpoints/step-000040").exists());

    // Asked to stop, it does not save either.
    let dir = tempfile::tempdir().unwrap();
    let mut network = Network { nan_from: 20, ..Network::new() };
    let setup = setup(dir.path());
    network.stop_in = Some((22, setup.stop.clone()));
    let error = train(&mut network, &config(), setup).unwrap_err().to_string();
    assert!(error.contains("ends at step 22 with 2 steps"), "{error}");
    assert!(error.contains("step-000020 is from before"), "{error}");
}

#[test]
fn weights_that_are_not_finite_are_not_saved() {
    let dir = tempfile::tempdir().unwrap();
    let sgd = TrainConfig { optimizer: optimizer("kind = \"sgd\""), lr: 1e6, ..config() };
    let sgd = TrainConfig { checkpoint_every: 1, clip: 1e30, ..sgd };
    let error = train(&mut Network::new(), &sgd, setup(dir.path())).unwrap_err();
    assert_eq!(error.kind(), Kind::Diverged, "{error}");
    let mut saved = fs::read_dir(dir.path().join("checkpoints")).unwrap().flatten();
    assert!(saved.all(|entry| {
        let file = hearken_store::TensorFile::open(&entry.path().join("model.safetensors"));
        let file = file.unwrap();
        let names: Vec<&str> = file.entries().iter().map(|e| e.name.as_str()).collect();
        names.iter().all(|n| file.tensor(n).unwrap().data().iter().all(|x| x.is_finite()))
    }));
}

#[test]
fn a_spike_is_written_down_and_a_healthy_run_has_no_warnings() {
    let warnings = |spike_at| {
        let dir = tempfile::tempdir().unwrap();
        let mut network = Network { spike_at, ..Network::new() };
        run(&mut network, &long(), dir.path());
        let entries = untimed(&dir.path().join("diagnostics.jsonl"));
        entries.into_iter().filter(|entry| entry["kind"] == "warning").collect::<Vec<_>>()
    };
    assert_eq!(warnings(u64::MAX), [] as [serde_json::Value; 0]);
    let seen = warnings(300);
    let about: Vec<_> = seen.iter().map(|warning| warning["about"].as_str().unwrap()).collect();
    assert_eq!(about, ["gradient-exploded", "loss-spike"]);
    assert_eq!((&seen[0]["step"], &seen[1]["step"]), (&301.into(), &303.into()));
}

#[test]
fn a_run_in_use_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let first = setup(dir.path());
    first.run.write("config.toml", "").unwrap();
    let Err(error) = RunDirectory::open(dir.path()) else { panic!("used twice") };
    assert_eq!(error.kind(), Kind::InUse, "{error}");
}
