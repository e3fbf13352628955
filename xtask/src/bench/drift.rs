//! `cargo xtask bench drift`: change points of iteration times by four methods, as docs/results/drift.md.
use super::rows::write_page;
use crate::run::{example, output};
use anyhow::Result;
use std::path::Path;

/// Which series are drawn. Chosen when the page was first made, played once; another page takes another one.
const SEED: &str = "20261126";
/// Labelled series, where the machine has them.
const LABELLED: &str = "../shared/data/field/39-pipemorph-labelled-iterations/small.csv";

/// Plays all series in release mode and writes the page.
pub(crate) fn measure(root: &Path) -> Result<()> {
    let program = example(root, "mycroft-diagnose", "drift")?;
    let labelled = root.join(LABELLED);
    if !labelled.exists() {
        eprintln!("{LABELLED} is not there: its part of the page is left out");
    }
    let text = output(root, &program, &[SEED, &labelled.to_string_lossy()])?;
    let mut page = String::from("# Drift: change points of the iteration time\n\n");
    page.push_str("Written by `cargo xtask bench drift`; do not edit.\n\n");
    page.push_str(&format!(
        "FALCON's Tables 4 and 5 played again on synthetic series: 392 jobs of computation, 6 of them slow, and 107 of \
         communication, 43 of them slow; 10,000 iterations each (80 minutes and 5 hours), slowdowns of 10 and 24 minutes in the mean, \
         one or two a job. Noise has heavy tails (0.5 to 2 and 1 to 4 %), with checkpoints, pauses, and jitter of one to four \
         iterations, which is healthy; the paper's own traces are not public. Seed {SEED}, played once. Intervals are Wilson's at \
         95 %. The paper's FPR and FNR have other denominators than ours. A change is right within 20 iterations of an onset or an \
         end.\n\n"
    ));
    page.push_str(&text);
    write_page(root, "drift.md", &page)
}
