//! How much each expert of a mixture is used: what the report shows, and what training warns of.

use crate::batch::tokens;
use hearken_data::batches::{Batch, IGNORED};
use hearken_nn::config::{ExpertsConfig, ModelConfig};
use hearken_nn::models::PredictsTokens;
use hearken_nn::pass::Pass;
use hearken_nn::taps::Taps;
use hearken_show::svg::escape;
use hearken_tensor::{Routes, Tensor, no_grad};
use hearken_train::LayerExperts;
use hearken_train::exhibit::Exhibit;
use std::fmt::Write as _;
use std::sync::Arc;

/// Tokens that the report looks at, at most.
const MOST_TOKENS: usize = 1 << 18;
/// An expert with less than this part of an even share is called out.
const LITTLE: f64 = 0.1;

/// How often each expert of each layer is chosen.
pub(crate) struct ExpertUse {
    /// By layer: the share of choices that each expert has; they sum to 1.
    layers: Vec<(String, Vec<f64>)>,
    /// Tokens that were looked at.
    tokens: usize,
    /// Experts per token.
    top: usize,
}

/// The experts of a model, if it has any.
fn experts_of(model: &dyn PredictsTokens) -> Option<ExpertsConfig> {
    match model.config() {
        ModelConfig::Decoder(config) => config.stack.experts,
        _ => None,
    }
}

impl ExpertUse {
    /// On some batches, up to some 260,000 tokens; nothing, if the model has no experts.
    pub(crate) fn measure(
        model: &dyn PredictsTokens,
        batches: impl Iterator<Item = Batch>,
    ) -> Option<Self> {
        let ExpertsConfig { count, top, .. } = experts_of(model)?;
        let mut seen = Self { layers: Vec::new(), tokens: 0, top };
        for batch in batches {
            let tokens = tokens(&batch, false);
            let real = tokens.layout.real(tokens.shape());
            let counted = real
                .as_ref()
                .map_or(batch.inputs.len(), |real| real.iter().filter(|real| **real).count());
            let shares = move |router: &Tensor| {
                let routes = Routes::new(router.data(), count, top, real.as_deref(), None);
                Tensor::new([count], &routes.shares())
            };
            let taps = Arc::new(Taps::new().measure("*.feed_forward.router", shares));
            no_grad(|| model.hidden(&tokens, &Pass::evaluate().watched(&taps)));
            for (i, (name, shares)) in taps.take().iter().enumerate() {
                let layer = name.trim_end_matches(".feed_forward.router");
                if seen.layers.len() <= i {
                    seen.layers.push((layer.to_owned(), vec![0.0; count]));
                }
                let sums = seen.layers.get_mut(i).map(|(_, sums)| sums).into_iter().flatten();
                for (sum, share) in sums.zip(shares.data()) {
                    *sum += f64::from(*share) * counted as f64;
                }
            }
            seen.tokens += counted;
            if seen.tokens >= MOST_TOKENS {
                break;
            }
        }
        let all = seen.tokens as f64;
        seen.layers.iter_mut().for_each(|(_, sums)| sums.iter_mut().for_each(|sum| *sum /= all));
        (seen.tokens > 0 && !seen.layers.is_empty()).then_some(seen)
    }

    /// For warnings while training.
    pub(crate) fn observed(&self) -> Vec<LayerExperts> {
        let layer = |(layer, shares): &(String, Vec<f64>)| LayerExperts {
            layer: layer.clone(),
            shares: shares.clone(),
            choices: self.tokens * self.top,
        };
        self.layers.iter().map(layer).collect()
    }

    /// The smallest share, and whose it is.
    fn least(&self) -> Option<(f64, &str, usize)> {
        let each = self.layers.iter().flat_map(|(layer, shares)| {
            shares.iter().enumerate().map(move |(e, share)| (*share, layer.as_str(), e))
        });
        each.min_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// For the top of the report.
    pub(crate) fn fact(&self) -> Option<(String, String)> {
        let (share, layer, expert) = self.least()?;
        let value = format!("{:.1} % of the choices ({layer}, expert {expert})", 100.0 * share);
        Some(("least used expert".to_owned(), value))
    }

    /// A table of all shares.
    pub(crate) fn exhibit(&self) -> Exhibit {
        let count = self.layers.first().map_or(0, |(_, shares)| shares.len());
        let even = 1.0 / count.max(1) as f64;
        let mut body = String::from("<table>\n<thead><tr><th>layer</th>");
        for e in 0..count {
            let _ = write!(body, "<th>expert {e}</th>");
        }
        body.push_str("</tr></thead>\n<tbody>\n");
        for (layer, shares) in &self.layers {
            let _ = write!(body, "<tr><td>{}</td>", escape(layer));
            for share in shares {
                // As blue as it is used, up to twice an even share.
                let blue = (share / (2.0 * even)).min(1.0) * 0.6;
                let warning = if *share < LITTLE * even { " ⚠" } else { "" };
                let _ = write!(
                    body,
                    "<td style=\"background: rgba(38, 98, 181, {blue:.2})\">{:.1} %{warning}</td>",
                    100.0 * share
                );
            }
            body.push_str("</tr>\n");
        }
        body.push_str("</tbody>\n</table>\n");
        let unused = self.layers.iter().flat_map(|(_, shares)| shares);
        let unused = unused.filter(|share| **share < LITTLE * even).count();
        let warning = match unused {
            0 => String::new(),
            n => format!(
                " {n} of them (⚠) have less than a tenth of that: they cost memory and learn next to \
                 nothing; raise model.experts.balance."
            ),
        };
        Exhibit {
            title: "Use of experts".to_owned(),
            about: format!(
                "The share of choices that each expert has, on {} tokens that are held out; every token \
                 chooses {} in each layer. Even use would be {:.1} % for each.{warning}",
                self.tokens,
                self.top,
                100.0 * even
            ),
            body,
        }
    }
}

/// Do any targets of a batch count? Batches of padding say nothing of experts.
pub(crate) fn counts(batch: &Batch) -> bool {
    batch.targets.iter().any(|target| *target != IGNORED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearken_nn::models::Decoder;
    use hearken_nn::variants;

    fn batch() -> Batch {
        let ids: Vec<u32> = (0..48).map(|i| i * i % 13).collect();
        Batch { lengths: Some(vec![12, 5, 12, 1]), ..Batch::new(4, 12, ids.clone(), ids) }
    }

    #[test]
    fn shares_of_real_tokens_sum_to_one_in_every_layer() {
        let (_, config) = variants::all().into_iter().find(|(name, _)| name == "mixtral").unwrap();
        let model = Decoder::drawn(config, 1);
        let seen = ExpertUse::measure(&model, [batch(), batch()].into_iter()).unwrap();
        assert_eq!((seen.tokens, seen.layers.len()), (60, 2));
        for (layer, shares) in &seen.layers {
            assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-6, "{layer}: {shares:?}");
        }
        assert_eq!(seen.observed()[1].layer, "blocks.1");
        let exhibit = seen.exhibit();
        assert_eq!(exhibit.body.matches("<td style").count(), 2 * 4);
        assert!(
            ExpertUse::measure(&Decoder::drawn(variants::base(), 1), [batch()].into_iter())
                .is_none()
        );
    }

    #[test]
    fn an_expert_that_gets_nothing_is_called_out() {
        let layers = vec![("blocks.0".to_owned(), vec![0.5, 0.49, 0.01])];
        let seen = ExpertUse { layers, tokens: 100, top: 2 };
        assert!(seen.exhibit().about.contains("1 of them"), "{}", seen.exhibit().about);
        let (_, value) = seen.fact().unwrap();
        assert_eq!(value, "1.0 % of the choices (blocks.0, expert 2)");
    }
}
