//! A picture of every view: light and dark, wide and narrow.

use crate::checks::VIEWS;
use crate::machine::Result;
use crate::visitor::Visitor;
use std::path::Path;

pub async fn take(visitor: &Visitor, address: &str, into: &Path) -> Result<()> {
    std::fs::create_dir_all(into)?;
    for (size, width, height) in [("wide", 1280, 900), ("narrow", 390, 844)] {
        visitor.client.set_window_size(width, height).await?;
        for theme in ["light", "dark"] {
            visitor.client.goto(address).await?;
            visitor.js(&format!("localStorage.setItem('hearken-theme', '{theme}')")).await?;
            visitor.client.refresh().await?;
            visitor.settled("map").await?;
            for view in VIEWS {
                visitor.view(view).await?;
                match view {
                    "backward" => {
                        visitor.click("#check").await?;
                        let done = "return document.getElementById('verdict')?.textContent";
                        visitor.until("a verdict", done).await?;
                    }
                    "update" => {
                        visitor.click("#step").await?;
                        let done = "return document.getElementById('change')?.textContent";
                        visitor.until("a step", done).await?;
                        visitor.settled("update").await?;
                    }
                    "changes" => {
                        visitor.click("main .head-cell").await?;
                        visitor.settled("changes").await?;
                        visitor.click("#measure").await?;
                        visitor.settled("changes").await?;
                    }
                    _ => {}
                }
                // The whole page, so that nothing below the fold escapes the eye.
                let tall = visitor.js("return document.documentElement.scrollHeight").await?;
                let tall = tall.as_u64().unwrap_or(900).clamp(600, 4000) as u32;
                visitor.client.set_window_size(width, tall.max(height) + 140).await?;
                visitor.js("window.scrollTo(0, 0)").await?;
                tokio::time::sleep(std::time::Duration::from_millis(200)).await;
                let picture = visitor.client.screenshot().await?;
                std::fs::write(into.join(format!("{view}-{size}-{theme}.png")), picture)?;
                visitor.client.set_window_size(width, height).await?;
                if view == "update" {
                    visitor.click("#reset").await?;
                    visitor.settled("update").await?;
                }
            }
            println!("{size}, {theme}");
        }
    }
    Ok(())
}
