//! What a task shows of its model at the end of a run, in the report.

/// Figures and pictures of a model.
#[derive(Clone, Debug, Default)]
pub struct Exhibits {
    /// Numbers for the top of the page: name and value.
    pub facts: Vec<(String, String)>,
    /// Sections of the page.
    pub sections: Vec<Exhibit>,
}

/// A section of the report.
#[derive(Clone, Debug)]
pub struct Exhibit {
    /// Above it.
    pub title: String,
    /// What it shows, and what is healthy.
    pub about: String,
    /// Its content as HTML, in which all text is [escaped](hearken_show::svg::escape).
    pub body: String,
}
