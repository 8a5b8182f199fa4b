//! Writes every case of the registry as JSON, for `tests/fixtures/make.py`, which computes the
//! same in PyTorch:
//!
//! ```json
//! [{"id": "add/bias", "fingerprint": "…", "torch": "a + b",
//!   "inputs": [{"name": "a", "shape": [7, 17], "data": [0.25, …]}, …],
//!   "extras": [], "dout": {"name": "dout", "shape": [7, 17], "data": […]}}, …]
//! ```
//!
//! JSON has no infinity and no NaN: they are the strings `"inf"`, `"-inf"` and `"NaN"`.

use hearken_tensor::ops;
use hearken_tensor::reference::Array;
use serde_json::{Value, json};

fn main() {
    let cases: Vec<Value> = ops::registry()
        .iter()
        .map(|case| {
            let dout = case.dout(case.run_reference().shape);
            json!({
                "id": case.id(),
                "fingerprint": case.fingerprint(),
                "torch": case.torch,
                "inputs": case.inputs.iter()
                    .map(|(name, x)| array(name, &Array::from(x))).collect::<Vec<_>>(),
                "extras": case.extras.iter()
                    .map(|(name, x)| array(name, x)).collect::<Vec<_>>(),
                "dout": array("dout", &Array::from(&dout)),
            })
        })
        .collect();
    println!("{}", Value::Array(cases));
}

fn array(name: &str, array: &Array) -> Value {
    let number = |x: &f64| if x.is_finite() { json!(x) } else { json!(x.to_string()) };
    let data: Vec<Value> = array.data.iter().map(number).collect();
    json!({ "name": name, "shape": array.shape.dims(), "data": data })
}
