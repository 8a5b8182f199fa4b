//! What is checked, view by view.

use crate::machine::Result;
use crate::visitor::Visitor;
use serde_json::Value;
use std::path::Path;

#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+).into());
        }
    };
}

pub const VIEWS: [&str; 12] = [
    "map",
    "tokens",
    "numbers",
    "attention",
    "stream",
    "sampling",
    "cache",
    "backward",
    "update",
    "changes",
    "geometry",
    "neurons",
];

/// All of them. `engine` is what `hearken explain --json` says of the same prompt, block 1.
pub async fn all(visitor: &Visitor, address: &str, file: &Path, engine: &Value) -> Result<()> {
    visitor.client.set_window_size(1280, 900).await?;
    visitor.client.goto(address).await?;
    visitor.notice().await?;
    visitor.settled("map").await?;
    macro_rules! step {
        ($name:expr, $future:expr) => {
            $future.await.map_err(|error| format!("{}: {error}", $name))?;
            let problems = visitor.problems().await?;
            ensure!(problems.is_empty(), "{}: the browser noticed {problems:?}", $name);
            println!("ok   {}", $name);
        };
    }
    step!("every view draws without an error", every_view(visitor));
    step!("numbers on the page are the engine's", numbers(visitor, engine));
    step!("attention weights and roles", attention(visitor, engine));
    step!("a slider changes the chances", sampling(visitor, engine));
    step!("a token branches, and back", branch(visitor));
    step!("a typed prompt is run, a bad one is refused", typed(visitor));
    step!("gradients appear, and differences agree", gradients(visitor));
    step!("a step lowers the loss, and back", update(visitor));
    step!("a head is switched off", ablate(visitor));
    step!("neurons and what excites them", neurons(visitor));
    step!("the address holds the view", shared(visitor));
    step!("keys, dark and narrow", looks(visitor));
    step!("the exported file", exported(visitor, file, engine));
    println!("the page does what it should");
    Ok(())
}

pub fn number(text: &str) -> Result<f64> {
    let plain = text.trim().replace('−', "-").replace(" %", "").replace('∞', "inf");
    plain.parse().map_err(|_| format!("'{text}' is no number").into())
}

async fn every_view(visitor: &Visitor) -> Result<()> {
    for view in VIEWS {
        visitor.view(view).await?;
        let shown = visitor.js("return document.querySelector('main h1').textContent").await?;
        ensure!(shown.as_str().is_some_and(|text| text.len() > 2), "{view}: {shown}");
        let problem =
            visitor.js("return document.querySelector('main .problem')?.textContent").await?;
        ensure!(problem.is_null(), "{view}: {problem}");
        overflow(visitor, view).await?;
    }
    Ok(())
}

/// Nothing is wider than the window.
pub async fn overflow(visitor: &Visitor, view: &str) -> Result<()> {
    let script = "return document.documentElement.scrollWidth - window.innerWidth";
    let over = visitor.js(script).await?.as_f64().unwrap_or(0.0);
    ensure!(over <= 1.0, "{view}: the page is {over} pixels wider than the window");
    Ok(())
}

pub fn stage<'v>(engine: &'v Value, name: &str) -> Result<&'v Value> {
    let stages = engine["stages"].as_array().ok_or("no stages")?;
    stages.iter().find(|s| s["name"] == name).ok_or_else(|| format!("no {name}").into())
}

/// The digits on the page are those of an f32 that the engine computed.
pub fn same(text: &str, want: &Value, what: &str) -> Result<()> {
    let (got, want) = (number(text)?, want.as_f64().ok_or("no number")?);
    ensure!(got as f32 == want as f32, "{what}: the page says {text}, the engine {want}");
    Ok(())
}

async fn numbers(visitor: &Visitor, engine: &Value) -> Result<()> {
    visitor.view("map").await?;
    visitor.click(".block-row:nth-child(3)").await?;
    visitor.settled("map").await?;
    visitor.js("location.hash").await?;
    visitor.view("numbers").await?;
    for (name, row, column) in
        [("blocks.1.residual_after", 4, 7), ("blocks.1.norm1", 2, 3), ("norm", 10, 63)]
    {
        let script = format!(
            "const select = document.querySelector('main select'); select.value = '{name}'; \
             select.dispatchEvent(new Event('change'))"
        );
        visitor.js(&script).await?;
        let shown =
            format!("return document.querySelector('main h2 code')?.textContent === '{name}'");
        visitor.until(name, &shown).await?;
        visitor.settled("numbers").await?;
        visitor.click_cell(row, column).await?;
        let place = format!("row={row}&column={column}");
        let there = format!(
            "return new URLSearchParams(location.hash.slice(1)).get('column') === '{column}' \
             && new URLSearchParams(location.hash.slice(1)).get('row') === '{row}'"
        );
        visitor.until(&place, &there).await?;
        visitor.settled("numbers").await?;
        let own = stage(engine, name)?;
        let width = own["shape"][1].as_u64().ok_or("no width")? as usize;
        same(&visitor.text("#value").await?, &own["values"][row * width + column], name)?;
        let sum = visitor.text("#sum").await?;
        ensure!(sum.contains('='), "{name}: {sum}");
    }
    Ok(())
}

async fn attention(visitor: &Visitor, engine: &Value) -> Result<()> {
    visitor.view("attention").await?;
    let heads = visitor.js("return document.querySelectorAll('main .head-cell').length").await?;
    ensure!(heads == 8, "{heads} heads are drawn, expected 8");
    visitor.click("[data-head='blocks.1.attention[2]']").await?;
    visitor.settled("attention").await?;
    visitor.click("#strip [data-place='9']").await?;
    visitor.settled("attention").await?;
    let own = &stage(engine, "blocks.1.attention.weights")?["values"];
    let tokens = engine["tokens"].as_array().ok_or("no tokens")?.len();
    let row: Vec<f64> =
        (0..tokens).filter_map(|key| own[(2 * tokens + 9) * tokens + key].as_f64()).collect();
    let most = row.iter().copied().fold(0.0, f64::max);
    let shown = visitor.text("main td.weight").await?;
    same(&shown, &Value::from(most), "the largest weight of head 1.2, token 9")?;
    let roles =
        visitor.js("return document.querySelector('main').innerText.includes('induction')").await?;
    ensure!(roles == true, "no scores of roles");
    Ok(())
}

async fn sampling(visitor: &Visitor, engine: &Value) -> Result<()> {
    visitor.view("sampling").await?;
    let best = &engine["candidates"]["first"][0];
    let row = format!("tr[data-id='{}']", best["id"]);
    same(&visitor.text(&format!("{row} .logit")).await?, &best["logit"], "the largest logit")?;
    let chance = || async { number(&visitor.text(&format!("{row} .probability")).await?) };
    let before = chance().await?;
    let want = best["probability"].as_f64().ok_or("no probability")? * 100.0;
    ensure!((before - want).abs() < 0.06, "{before} % on the page, {want} % in the engine");
    let shown = visitor.text(&format!("{row} .probability")).await?;
    let move_to = "const slider = document.getElementById('slider-temperature'); \
        slider.value = 0.3; slider.dispatchEvent(new Event('input'))";
    visitor.js(move_to).await?;
    let script =
        format!("return document.querySelector(\"{row} .probability\")?.textContent !== '{shown}'");
    visitor.until("the chance after the slider", &script).await?;
    let after = chance().await?;
    ensure!(after > before, "colder, but {before} % became {after} %");
    Ok(())
}

async fn branch(visitor: &Visitor) -> Result<()> {
    let count = "return document.querySelectorAll('#strip .token').length";
    let before = visitor.js(count).await?.as_u64().unwrap_or(0);
    visitor.click("#append").await?;
    visitor.until("another token", &format!("{count} === {}", before + 1)).await?;
    visitor.settled("sampling").await?;
    visitor.js("history.back()").await?;
    visitor.until("the prompt as before", &format!("{count} === {before}")).await?;
    Ok(())
}

async fn typed(visitor: &Visitor) -> Result<()> {
    visitor.write("#prompt", "abcabcab").await?;
    visitor.click("#run").await?;
    let script = "return document.querySelectorAll('#strip .token').length === 8";
    visitor.until("eight tokens", script).await?;
    visitor.write("#prompt", &"abc".repeat(100)).await?;
    visitor.click("#run").await?;
    let script = "return !document.getElementById('prompt-problem').hidden";
    visitor.until("a refusal of a prompt that is too long", script).await?;
    visitor.write("#prompt", crate::PROMPT).await?;
    visitor.click("#run").await?;
    let script = "return document.querySelectorAll('#strip .token').length === 11";
    visitor.until("eleven tokens", script).await?;
    Ok(())
}

async fn gradients(visitor: &Visitor) -> Result<()> {
    visitor.view("numbers").await?;
    visitor.click(".switch").await?;
    visitor.until("a gradient", "return document.getElementById('gradient')?.textContent").await?;
    visitor.view("backward").await?;
    let loss = number(&visitor.text("#loss").await?)?;
    ensure!(loss > 0.0, "a loss of {loss}");
    visitor.click("#check").await?;
    visitor.until("a verdict", "return document.getElementById('verdict')?.textContent").await?;
    let verdict = visitor.text("#verdict").await?;
    ensure!(
        verdict.contains("agree") || verdict.contains("rounding"),
        "gradient and differences: {verdict}"
    );
    Ok(())
}

async fn update(visitor: &Visitor) -> Result<()> {
    visitor.view("update").await?;
    let weight = visitor.text("#weight").await?;
    for step in 1..=3 {
        visitor.click("#step").await?;
        let script = format!("return document.getElementById('steps')?.dataset.steps === '{step}'");
        visitor.until("a step", &script).await?;
        visitor.settled("update").await?;
    }
    let told = visitor.text("#last-step").await?;
    let mut losses = told.split("loss ").nth(1).unwrap_or_default().split([' ', ',']);
    let before = number(losses.next().unwrap_or_default())?;
    let after = number(losses.nth(1).unwrap_or_default())?;
    ensure!(after < before, "the loss did not fall: {told}");
    ensure!(visitor.text("#change").await?.contains("second moment"), "no arithmetic of the step");
    ensure!(visitor.text("#weight").await? != weight, "the weight did not change");
    for step in (0..3).rev() {
        visitor.click("#back").await?;
        let script = format!("return document.getElementById('steps')?.dataset.steps === '{step}'");
        visitor.until("a step back", &script).await?;
        visitor.settled("update").await?;
    }
    let back = visitor.text("#weight").await?;
    ensure!(back == weight, "{weight} became {back} after steps forth and back");
    Ok(())
}

async fn ablate(visitor: &Visitor) -> Result<()> {
    visitor.view("changes").await?;
    let before = number(&visitor.text("#loss-before").await?)?;
    let same = number(&visitor.text("#loss-after").await?)?;
    ensure!(before == same, "nothing was changed, but {before} became {same}");
    for head in 0..4 {
        visitor.click(&format!("[data-head='blocks.1.attention[{head}]']")).await?;
        visitor.settled("changes").await?;
    }
    let script = "return document.querySelectorAll('main .head-cell.off').length === 4";
    visitor.until("four heads that are off", script).await?;
    visitor.settled("changes").await?;
    let after = number(&visitor.text("#loss-after").await?)?;
    ensure!(after != before, "without the heads of a block the loss is the same, {before}");
    visitor.click("#measure").await?;
    let script = "return document.querySelectorAll('#effects circle').length === 8";
    visitor.until("the effect of eight heads", script).await?;
    Ok(())
}

/// The largest value of the first neuron stands at the head of its places, and the text around it.
async fn neurons(visitor: &Visitor) -> Result<()> {
    visitor.view("neurons").await?;
    let first = visitor.text("#neuron").await?;
    let rows =
        visitor.js("return document.querySelectorAll('main tr[data-neuron]').length").await?;
    ensure!(rows.as_u64().is_some_and(|rows| rows >= 20), "{rows} neurons are listed");
    let told = visitor.text("main").await?;
    ensure!(told.contains("held out"), "the page does not say what was read: {told}");
    visitor.click("main tr[data-neuron]:nth-child(3)").await?;
    let script = format!("return document.getElementById('neuron')?.textContent !== '{first}'");
    visitor.until("another neuron", &script).await?;
    visitor.settled("neurons").await?;
    let places = "const all = [...document.querySelectorAll('#places .place')]; \
        return all.map((place) => [place.querySelector('b').textContent, \
            place.querySelector('.at').title, place.querySelectorAll('.excited').length])";
    let places = visitor.js(places).await?;
    let places = places.as_array().filter(|all| all.len() >= 4).ok_or("too few places")?;
    let mut before = f64::INFINITY;
    for place in places {
        let [value, title] = [0, 1].map(|i| place[i].as_str().unwrap_or_default());
        let value = number(value)?;
        let exact = number(title.rsplit(": ").next().unwrap_or_default())?;
        ensure!((value - exact).abs() <= 1e-3 * exact.abs().max(1e-3), "{value} and {exact}");
        ensure!(exact <= before, "places are not in order: {exact} after {before}");
        ensure!(place[2].as_u64().is_some_and(|n| n > 1), "a place without a text around it");
        before = exact;
    }
    visitor.click("#silence").await?;
    let effect = "return document.querySelector('#neuron-effect b')?.textContent";
    visitor.until("the effect of a neuron", effect).await?;
    Ok(())
}

async fn shared(visitor: &Visitor) -> Result<()> {
    visitor.view("attention").await?;
    visitor.click("[data-head='blocks.1.attention[3]']").await?;
    visitor.settled("attention").await?;
    let address = visitor.client.current_url().await?;
    visitor.client.goto("about:blank").await?;
    visitor.client.goto(address.as_str()).await?;
    visitor.notice().await?;
    visitor.settled("attention").await?;
    let chosen = visitor
        .js("return document.querySelector('.head-cell[aria-pressed=true]').dataset.head")
        .await?;
    ensure!(chosen == "blocks.1.attention[3]", "the address leads to {chosen}");
    Ok(())
}

async fn looks(visitor: &Visitor) -> Result<()> {
    visitor.press("5").await?;
    visitor.settled("stream").await?;
    let before = visitor.js("return getComputedStyle(document.body).backgroundColor").await?;
    visitor.click("#theme").await?;
    visitor.settled("stream").await?;
    let after = visitor.js("return getComputedStyle(document.body).backgroundColor").await?;
    ensure!(before != after, "the theme did not change: {before}");
    visitor.client.set_window_size(400, 800).await?;
    for view in VIEWS {
        visitor.view(view).await?;
        overflow(visitor, view).await?;
    }
    visitor.client.set_window_size(1280, 900).await?;
    Ok(())
}

async fn exported(visitor: &Visitor, file: &Path, engine: &Value) -> Result<()> {
    let size = std::fs::metadata(file)?.len();
    ensure!(size < 5_000_000, "the file has {size} bytes");
    visitor.client.goto(&format!("file://{}", file.display())).await?;
    visitor.notice().await?;
    visitor.settled("map").await?;
    for view in VIEWS {
        visitor.view(view).await?;
        let problem =
            visitor.js("return document.querySelector('main .problem')?.textContent").await?;
        ensure!(problem.is_null() || view == "update", "{view} of the file: {problem}");
    }
    visitor.view("sampling").await?;
    let best = &engine["candidates"]["first"][0];
    let row = format!("tr[data-id='{}']", best["id"]);
    same(&visitor.text(&format!("{row} .logit")).await?, &best["logit"], "a recorded logit")?;
    let chance = number(&visitor.text(&format!("{row} .probability")).await?)?;
    let want = best["probability"].as_f64().ok_or("no probability")? * 100.0;
    ensure!((chance - want).abs() < 0.06, "{chance} % in the file, {want} % in the engine");
    visitor.view("update").await?;
    let told = visitor.text("main").await?;
    ensure!(told.contains("needs the engine"), "what needs the engine does not say so: {told}");
    println!("     the file has {size} bytes");
    Ok(())
}
