//! The comparison table of the software Orin and silicon in `docs/silicon.md`.

use std::fmt::Write;

use super::case::Case;
use super::compare::{Difference, Tolerance};
use super::data::Data;
use super::silicon::Opinion;

/// Start marker of the table in the document.
pub const BEGIN: &str = "<!-- silicon: written by `cargo xtask silicon table` -->";
/// End marker.
pub const END: &str = "<!-- silicon: end -->";

/// The lines between the markers, for the model's outputs by case.
///
/// # Errors
///
/// If the stored results do not match the cases.
pub fn render<'a>(
    opinion: &Opinion,
    results: impl Iterator<Item = (&'a Case, &'a [Data])>,
) -> Result<String, super::silicon::Error> {
    let Some(machine) = opinion.machine() else {
        return Ok("No results of silicon are stored yet.\n".to_owned());
    };
    let (mut rows, mut total, mut cases, mut without) = (String::new(), Difference::default(), 0, Vec::new());
    for (case, outputs) in results {
        let Some(difference) = opinion.compare(case, outputs)? else {
            without.push(case.kernel);
            continue;
        };
        cases += 1;
        total = total.and(difference);
        let _ = writeln!(
            rows,
            "| `{}` | {} | {} | {} | {} |",
            case.kernel,
            difference.elements,
            difference.equal,
            ulp(case, difference),
            case.tolerance,
        );
    }
    let mut text = format!(
        "Silicon is an {} (compute capability {}, driver for CUDA {}) that ran the same sources under NVIDIA's \
         driver.\n{} of {} elements of {cases} kernels have equal bits.\n\n",
        machine.device, machine.capability, machine.driver, total.equal, total.elements
    );
    if !without.is_empty() {
        let _ = writeln!(text, "Without a result of silicon: {}.\n", without.join(", "));
    }
    text.push_str("| kernel | elements | equal bits | max ulp | tolerance |\n|---|---|---|---|---|\n");
    text.push_str(&rows);
    Ok(text)
}

/// The largest distance as text, or why it is meaningless.
fn ulp(case: &Case, difference: Difference) -> String {
    match case.tolerance {
        _ if difference.max_ulp == u64::MAX => "differs".to_owned(),
        // Around zero, units in the last place are meaningless.
        Tolerance::Near { absolute, .. } if absolute != 0.0 && difference.max_ulp > 1 << 12 => {
            "> 4096".to_owned()
        }
        _ => difference.max_ulp.to_string(),
    }
}

/// `document` with `table` between the markers; `None` if it has no markers.
pub fn insert(document: &str, table: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{table}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_replaces_the_previous_one() {
        let document = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let new = insert(&document, "| new |\n").unwrap();
        assert_eq!(new, format!("a\n{BEGIN}\n\n| new |\n\n{END}\nb\n"));
        assert_eq!(insert(&new, "| new |\n").unwrap(), new);
        assert_eq!(insert("no marks", "x"), None);
    }
}
