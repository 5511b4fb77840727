//! The web page on the admin port. Owns its three files, which are built in; must never hold a figure: the page asks the
//! same paths as everybody else.

use crate::answer::Answer;
use crate::gateway::Gateway;
use crate::routes::{Answered, Call, Route};

/// Where it is served; `/` means it too.
pub const PATH: &str = "/netlox/v1/page";

/// Its rows.
pub const ROUTES: &[Route] = &[
    Route::own(PATH, html, "the web page"),
    Route::own("/netlox/v1/page.css", css, "its looks"),
    Route::own("/netlox/v1/page.js", script, "what it does"),
];

fn html(_: &Gateway, _: &Call) -> Answered {
    Ok(Answer::asset("text/html; charset=utf-8", include_str!("../web/page.html")))
}

fn css(_: &Gateway, _: &Call) -> Answered {
    Ok(Answer::asset("text/css; charset=utf-8", include_str!("../web/page.css")))
}

fn script(_: &Gateway, _: &Call) -> Answered {
    Ok(Answer::asset("text/javascript; charset=utf-8", include_str!("../web/page.js")))
}
