//! The Helm chart, packed as `helm package` packs it: helm itself is not needed.
use super::packing::{Packing, run_at};
use super::product::VERSION;
use anyhow::{Context as _, Result};

/// Makes `mycroft-VERSION.tgz`.
pub(super) fn chart(packing: &Packing<'_>) -> Result<()> {
    let file = packing.out.join(format!("mycroft-{VERSION}.tgz")).to_string_lossy().into_owned();
    let time = format!("--mtime=@{}", packing.time);
    let owner = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX", &time];
    // The alert rules are a link to those that machines without Kubernetes get.
    let how = ["--create", "--dereference", "--use-compress-program=gzip -n", "--file", &file, "mycroft"];
    run_at(packing, &packing.root.join("deploy/helm"), "tar", &[&owner[..], &how].concat())
        .context("the chart needs tar and gzip")
}
