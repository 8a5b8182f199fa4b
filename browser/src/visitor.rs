//! A visitor of the page: waits, clicks, types, reads.

use crate::machine::Result;
use fantoccini::actions::{InputSource, MOUSE_BUTTON_LEFT, MouseActions, PointerAction};
use fantoccini::elements::Element;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long anything on the page may take.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Visitor {
    pub client: Client,
}

impl Visitor {
    /// Opens a browser that starts with nothing and asks nobody.
    pub async fn open(driver: &str, profile: &Path) -> Result<Self> {
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            &format!("--user-data-dir={}", profile.display()),
        ];
        let mut capabilities = Map::new();
        capabilities.insert("goog:chromeOptions".to_owned(), json!({ "args": arguments }));
        capabilities.insert("goog:loggingPrefs".to_owned(), json!({ "browser": "ALL" }));
        let mut builder = ClientBuilder::new(HttpConnector::new());
        let client = builder.capabilities(capabilities).connect(driver).await?;
        Ok(Self { client })
    }

    pub async fn js(&self, script: &str) -> Result<Value> {
        Ok(self.client.execute(script, Vec::new()).await?)
    }

    /// Waits until a script gives something that is neither false nor null.
    pub async fn until(&self, what: &str, script: &str) -> Result<Value> {
        let start = Instant::now();
        loop {
            let found = self.js(script).await?;
            if !found.is_null() && found != json!(false) {
                return Ok(found);
            }
            if start.elapsed() > PATIENCE {
                let shown = self.js("return document.body.innerText.slice(0, 1500)").await?;
                return Err(format!("{what} did not happen; the page shows: {shown}").into());
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    /// Goes to a view, and waits until it is drawn and nothing is asked any more.
    pub async fn view(&self, name: &str) -> Result<()> {
        self.click(&format!("#nav-{name}")).await?;
        self.settled(name).await
    }

    pub async fn settled(&self, view: &str) -> Result<()> {
        let script = format!(
            "return document.getElementById('main').dataset.view === '{view}' \
             && document.getElementById('busy').hidden"
        );
        self.until(&format!("the view {view}"), &script).await?;
        tokio::time::sleep(Duration::from_millis(120)).await;
        self.until(&format!("the view {view}"), &script).await?;
        Ok(())
    }

    pub async fn element(&self, css: &str) -> Result<Element> {
        let wait = self.client.wait().at_most(PATIENCE);
        Ok(wait.for_element(Locator::Css(css)).await.map_err(|e| format!("{css}: {e}"))?)
    }

    pub async fn click(&self, css: &str) -> Result<()> {
        let element = self.element(css).await?;
        let arguments = vec![serde_json::to_value(&element)?];
        let script = "arguments[0].scrollIntoView({ block: 'center', inline: 'center' })";
        self.client.execute(script, arguments).await?;
        Ok(element.click().await.map_err(|e| format!("{css}: {e}"))?)
    }

    pub async fn text(&self, css: &str) -> Result<String> {
        Ok(self.element(css).await?.text().await?)
    }

    /// Types into a field, over what stands there.
    pub async fn write(&self, css: &str, text: &str) -> Result<()> {
        let field = self.element(css).await?;
        field.clear().await?;
        field.send_keys(text).await?;
        Ok(())
    }

    pub async fn press(&self, key: &str) -> Result<()> {
        self.client.find(Locator::Css("body")).await?.send_keys(key).await?;
        Ok(())
    }

    /// Clicks the cell of the first heat map at a row and a column.
    pub async fn click_cell(&self, row: usize, column: usize) -> Result<()> {
        let canvas = self.element("main .map-canvas").await?;
        let script = format!(
            "const map = document.querySelector('main .map-canvas'); \
             map.scrollIntoView({{ block: 'center' }}); \
             const cell = map.cellAt({row}, {column}); const box = map.getBoundingClientRect(); \
             return [Math.round(cell.x - box.width / 2), Math.round(cell.y - box.height / 2)]"
        );
        let place = self.js(&script).await?;
        let [x, y] = [0, 1].map(|i| place[i].as_f64().unwrap_or(0.0));
        let mouse = MouseActions::new("mouse".to_owned())
            .then(PointerAction::MoveToElement { element: canvas, duration: None, x, y })
            .then(PointerAction::Down { button: MOUSE_BUTTON_LEFT })
            .then(PointerAction::Up { button: MOUSE_BUTTON_LEFT });
        Ok(self.client.perform_actions(mouse).await?)
    }

    /// Errors that the browser has noticed since the last time.
    pub async fn problems(&self) -> Result<Vec<String>> {
        let found = self
            .js("const found = globalThis.NOTICED ?? []; globalThis.NOTICED = []; return found")
            .await?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Ok(found.as_array().into_iter().flatten().filter_map(text).collect())
    }

    /// From now on errors are noticed.
    pub async fn notice(&self) -> Result<()> {
        self.js(
            "globalThis.NOTICED = []; \
             const note = (text) => globalThis.NOTICED.push(String(text)); \
             addEventListener('error', (event) => note(event.message)); \
             addEventListener('unhandledrejection', (event) => note(event.reason)); \
             const old = console.error; console.error = (...all) => { note(all.join(' ')); old(...all); }",
        )
        .await?;
        Ok(())
    }
}
