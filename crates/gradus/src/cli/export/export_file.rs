//! The file of an export. It appears only when it is complete, together with its manifest.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use gradus_report::json::write_line;
use serde_json::Value as Json;
use tempfile::NamedTempFile;

/// Creates a file that gets its name when it is complete. The user's umask decides who may read it; temporary files
/// are otherwise for their owner alone.
pub(super) fn new_export_file(folder: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new().permissions(std::fs::Permissions::from_mode(0o666)).tempfile_in(folder)
}

/// An export that is being written.
pub(super) enum ExportFile {
    /// Rows are written at once, and there is no manifest. On a terminal, control characters are escaped.
    StandardOutput {
        out: BufWriter<io::Stdout>,
        row: Vec<u8>,
    },
    Named {
        rows: BufWriter<NamedTempFile>,
        path: PathBuf,
    },
    /// A device or a pipe, which is written to and never replaced.
    Special(BufWriter<File>),
}

impl ExportFile {
    /// Opens the target; `-` is standard output.
    pub(super) fn create(path: &Path) -> anyhow::Result<ExportFile> {
        if path.as_os_str() == "-" {
            return Ok(ExportFile::StandardOutput { out: BufWriter::new(io::stdout()), row: Vec::new() });
        }
        let failed = |error: io::Error| {
            let reason = match error.kind() {
                io::ErrorKind::NotFound => "no such folder".to_owned(),
                io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
                _ => error.to_string(),
            };
            anyhow::anyhow!("{}: cannot be written: {reason}", path.display())
        };
        let known = std::fs::metadata(path).ok();
        if known.as_ref().is_some_and(std::fs::Metadata::is_dir) {
            anyhow::bail!("{}: cannot be written: it is a folder", path.display());
        }
        if known.is_some_and(|known| !known.is_file()) {
            return Ok(ExportFile::Special(BufWriter::new(File::create(path).map_err(failed)?)));
        }
        // What a link points to is replaced, not the link.
        let path = &std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = new_export_file(folder).map_err(failed)?;
        Ok(ExportFile::Named { rows: BufWriter::new(file), path: path.to_owned() })
    }

    /// Renames the file to its final name, and writes the manifest next to it.
    pub(super) fn finish(self, manifest: &Json) -> anyhow::Result<()> {
        let (rows, path) = match self {
            ExportFile::StandardOutput { mut out, .. } => return Ok(out.flush()?),
            ExportFile::Special(mut rows) => return Ok(rows.flush()?),
            ExportFile::Named { rows, path } => (rows, path),
        };
        let file = rows.into_inner().map_err(io::IntoInnerError::into_error)?;
        let mut name = path.as_os_str().to_owned();
        name.push(".manifest.json");
        std::fs::write(PathBuf::from(name), format!("{}\n", serde_json::to_string_pretty(manifest)?))?;
        file.persist(&path)?;
        Ok(())
    }
}

impl Write for ExportFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            ExportFile::StandardOutput { out, row } => {
                let end = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
                row.extend_from_slice(&bytes[..end]);
                if row.ends_with(b"\n") {
                    write_line(&serde_json::from_slice::<Json>(&std::mem::take(row))?, out)?;
                }
                Ok(end)
            }
            ExportFile::Named { rows, .. } => rows.write(bytes),
            ExportFile::Special(rows) => rows.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            ExportFile::StandardOutput { out, .. } => out.flush(),
            ExportFile::Named { rows, .. } => rows.flush(),
            ExportFile::Special(rows) => rows.flush(),
        }
    }
}
