//! Several feed-forward layers in the place of one, of which each token uses a few.

use hearken_base::Result;
use hearken_base::settings::{Setting, Value};
use serde::Serialize;

/// A mixture of experts: `experts = 8`, or a table (`{ count = 8, top = 2, capacity = 1.25 }`). Every
/// expert is a feed-forward layer as the configuration describes it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ExpertsConfig {
    /// E
    pub count: usize,
    /// How many of them compute a token; default 2.
    pub top: usize,
    /// Are the weights of the chosen ones divided by their sum, as Mixtral does? With one expert per
    /// token that would be 1 always, and the router would learn from its own losses alone; so the
    /// default is true for two experts per token and more.
    pub normalised: bool,
    /// In training, an expert computes at most so many times its even share of a micro-batch, and
    /// drops the rest; none: as many as come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<f32>,
    /// The factor of the load-balance loss.
    pub balance: f32,
    /// The factor of the router's z-loss.
    pub z_loss: f32,
}

impl Setting for ExpertsConfig {
    fn read(value: &Value<'_>) -> Result<Self> {
        if !value.is_table() {
            return usize::read(value).map(Self::new);
        }
        value.table(|t| {
            let usual = Self::new(t.required("count")?);
            let top = t.or("top", usual.top)?;
            Ok(Self {
                top,
                normalised: t.or("normalised", top > 1)?,
                capacity: t.optional("capacity")?,
                balance: t.or("balance", usual.balance)?,
                z_loss: t.or("z_loss", usual.z_loss)?,
                ..usual
            })
        })
    }
}

impl ExpertsConfig {
    /// So many experts, two for each token, and the usual losses.
    pub fn new(count: usize) -> Self {
        let top = count.min(2);
        let (balance, z_loss) = (0.01, 0.001);
        Self { count, top, normalised: top > 1, capacity: None, balance, z_loss }
    }
}
