//! The canvas of drawings, as SVG that can be used in a paper without changes.
//!
//! Owns: the canvas, its width, and the typeface. Never: knows what is drawn.

use atrapos_cli::error::CliError;
use plotters::coord::Shift;
use plotters::prelude::*;

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(crate) type Drawn = Result<(), Box<dyn std::error::Error>>;

/// The colour of lines that only separate.
pub(crate) const FAINT: RGBColor = RGBColor(187, 187, 187);
pub(crate) const WIDTH: u32 = 960;
pub(crate) const FONT: &str = "sans-serif";

/// Draws into a string.
pub(crate) fn svg(height: u32, draw: impl FnOnce(&Area<'_>) -> Drawn) -> Result<String, CliError> {
    let mut text = String::new();
    let failed =
        |error: &dyn std::fmt::Display| CliError::failed(format!("the result cannot be drawn: {error}"));
    {
        let area = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        area.fill(&WHITE).map_err(|error| failed(&error))?;
        draw(&area).map_err(|error| failed(&error))?;
        area.present().map_err(|error| failed(&error))?;
    }
    Ok(text)
}
