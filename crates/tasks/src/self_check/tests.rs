use super::*;
use hearken_formats::{Family, SpecialTokens};
use hearken_nn::config::ModelConfig;
use hearken_nn::layers::Head;
use hearken_nn::models::{Decoder, Encoder, PredictsTokens, build};
use hearken_nn::scope::Weights;
use hearken_nn::variants;
use hearken_tensor::{Param, Var};

fn open(model: Box<dyn Model>) -> OpenModel {
    let (family, _) = Family::expressing(&model.config());
    OpenModel { directory: "here".into(), model, family, special: SpecialTokens::default() }
}

fn found(model: Box<dyn Model>) -> Vec<Finding> {
    let scratch = tempfile::tempdir().unwrap();
    let found = check(&open(model), scratch.path(), &mut |_| true).unwrap();
    assert_eq!(found.iter().map(|finding| finding.check).collect::<Vec<_>>(), CHECKS);
    found
}

fn of(found: &[Finding], outcome: Outcome) -> Vec<&'static str> {
    found.iter().filter(|finding| finding.outcome == outcome).map(|f| f.check).collect()
}

#[test]
fn every_variant_passes_what_applies_to_it() {
    for (name, config) in variants::all() {
        let (chooses, hashed) = (config.stack.chooses(), config.stack.mechanism.recomputes());
        let found = found(Box::new(Decoder::drawn(config, 3)));
        let skipped = |check: &str| match check {
            "gradients" => chooses,
            "future" | "cache" => hashed,
            _ => false,
        };
        let all = CHECKS.into_iter().filter(|check| !skipped(check));
        assert_eq!(of(&found, Outcome::Passed), all.collect::<Vec<_>>(), "{name}: {found:#?}");
    }
    let of_seed = |config: ModelConfig| build(&config, Weights::Drawn { seed: 3 });
    let translators = variants::encoder_decoders().into_iter().step_by(4);
    let translators = translators.map(|(name, config)| (name, ModelConfig::from(config)));
    let rest =
        translators.chain(variants::recurrent_translators()).chain(variants::without_attention());
    for (name, config) in rest {
        let found = found(of_seed(config));
        assert_eq!(of(&found, Outcome::Failed), [""; 0], "{name}: {found:#?}");
        for check in ["weights", "future", "cache", "save"] {
            assert!(of(&found, Outcome::Passed).contains(&check), "{name}: {found:#?}");
        }
    }
    for (name, config) in variants::encoders() {
        let found = found(Box::new(Encoder::drawn(config, 3)));
        assert_eq!(of(&found, Outcome::Failed), [""; 0], "{name}: {found:#?}");
        let passed = of(&found, Outcome::Passed);
        for check in ["weights", "padding", "save"] {
            assert!(passed.contains(&check), "{name}: {found:#?}");
        }
    }
}

#[test]
fn weights_that_are_not_finite_are_named() {
    let model = Decoder::drawn(variants::base(), 3);
    let parameter = &model.parameters()[4];
    let mut value = parameter.value();
    value.data_mut()[1] = f32::NAN;
    parameter.set_value(value);
    let name = parameter.name().to_owned();
    let found = found(Box::new(model));
    assert_eq!(of(&found, Outcome::Failed), ["weights"]);
    assert!(found[0].detail.contains(&name), "{}", found[0].detail);
    assert_eq!(of(&found, Outcome::Skipped), CHECKS[1..]);
}

/// A decoder with something wrong.
#[derive(Debug)]
struct Faulty {
    inner: Decoder,
    fault: Fault,
}

#[derive(Debug, PartialEq)]
enum Fault {
    /// Every place sees the last token.
    SeesTheFuture,
    /// Half of the hidden state has no gradient.
    LosesGradient,
}

impl Model for Faulty {
    fn config(&self) -> ModelConfig {
        self.inner.config()
    }

    fn parameters(&self) -> &[Param] {
        self.inner.parameters()
    }

    fn set_checkpointing(&mut self, on: bool) {
        self.inner.set_checkpointing(on);
    }

    fn predicts_tokens(&self) -> Option<&dyn PredictsTokens> {
        Some(self)
    }

    fn generates(&self) -> Option<&dyn Generates> {
        Some(self)
    }
}

impl PredictsTokens for Faulty {
    fn hidden(&self, tokens: &Tokens<'_>, pass: &Pass) -> Var {
        let hidden = self.inner.hidden(tokens, pass); // (B, T, C)
        match self.fault {
            Fault::LosesGradient => {
                let half = hidden.detach();
                &hidden + &half
            }
            Fault::SeesTheFuture => {
                let shape = hidden.shape();
                let (length, width) = (shape.dims()[1], shape.width());
                let mut leak = hidden.value().clone();
                for row in leak.data_mut().chunks_mut(length * width) {
                    let last = row[(length - 1) * width..].to_vec();
                    row.chunks_mut(width).for_each(|place| place.copy_from_slice(&last));
                }
                &hidden + &Var::constant(leak)
            }
        }
    }

    fn head(&self) -> Head {
        self.inner.head()
    }
}

impl Generates for Faulty {
    fn vocabulary(&self) -> usize {
        self.inner.vocabulary()
    }

    fn context(&self) -> usize {
        self.inner.context()
    }

    fn slot(&self, kind: CacheKind) -> Slot {
        self.inner.slot(kind)
    }

    fn step_hidden(&self, feeds: &mut [Feed<'_>]) -> Tensor {
        self.inner.step_hidden(feeds)
    }
}

#[test]
fn faults_are_found() {
    let faulty = |fault| Box::new(Faulty { inner: Decoder::drawn(variants::base(), 3), fault });
    let seeing = found(faulty(Fault::SeesTheFuture));
    for check in ["future", "padding", "cache"] {
        assert!(of(&seeing, Outcome::Failed).contains(&check), "{seeing:#?}");
    }
    let losing = found(faulty(Fault::LosesGradient));
    assert!(of(&losing, Outcome::Failed).contains(&"gradients"), "{losing:#?}");
    assert!(of(&losing, Outcome::Passed).contains(&"future"), "{losing:#?}");
}

#[test]
fn checks_can_be_interrupted() {
    let scratch = tempfile::tempdir().unwrap();
    let model = open(Box::new(Decoder::drawn(variants::base(), 3)));
    let error = check(&model, scratch.path(), &mut |name| name != "padding").unwrap_err();
    assert!(matches!(error.kind(), Kind::Io(ErrorKind::Interrupted)));
}
