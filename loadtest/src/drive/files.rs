use super::{DriveError, manifests};
use crate::workload::{Update, UpdateKind, Workload};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use tokio::fs;

/// Writes Gateway API objects into a directory, each file by renaming, so that no reader sees half of one.
///
/// A translator makes its own resources of them, with the same fleets and the same marks.
#[derive(Debug)]
pub struct FilesDriver {
    directory: PathBuf,
}

/// Says that what is in a directory may be replaced. Readers skip names that begin with a dot.
const OURS: &str = ".loadtest";
const CLASS: &str = "class.yaml";

impl FilesDriver {
    /// The directory is made if there is none. It has to be empty, or of an earlier run.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    pub(super) async fn set_up(&mut self, workload: &mut Workload) -> Result<(), DriveError> {
        let resources = workload.resources();
        if resources.secrets > 0 {
            return Err(DriveError::Unsupported("secrets of clusters"));
        }
        self.clear().await?;
        self.write(CLASS, &manifests::class()).await?;
        for fleet in workload.fleets() {
            let folder = folder_of(fleet.as_str());
            let path = self.directory.join(folder);
            fs::create_dir_all(&path).await.map_err(|cause| failed(&path, cause))?;
            let gateway = manifests::gateway(folder, resources);
            self.write(&format!("{folder}/gateway.yaml"), &gateway).await?;
            for at in 0..resources.clusters {
                let service = manifests::service(folder, resources, at);
                self.write(&format!("{folder}/app-{at:06}.yaml"), &service).await?;
                self.write_endpoints(workload, folder, at, 0).await?;
            }
            for at in 0..resources.listeners {
                self.write_mark(folder, at, 0).await?;
            }
        }
        Ok(())
    }

    pub(super) async fn change(
        &mut self,
        workload: &mut Workload,
        update: Update,
    ) -> Result<(), DriveError> {
        if matches!(update.kind, UpdateKind::Clusters | UpdateKind::Full) {
            return Err(DriveError::Unsupported("that all clusters change"));
        }
        workload.change(update);
        let touched = workload.touched(update);
        for fleet in workload.fleets().get(touched.fleets).unwrap_or_default() {
            let folder = folder_of(fleet.as_str());
            for at in touched.endpoints.clone() {
                self.write_endpoints(workload, folder, at, update.number).await?;
            }
            for at in touched.tables.clone() {
                self.write_mark(folder, at, update.number).await?;
            }
        }
        Ok(())
    }

    async fn write_endpoints(
        &self,
        workload: &Workload,
        folder: &str,
        at: usize,
        number: u32,
    ) -> Result<(), DriveError> {
        let slice = manifests::endpoints(folder, workload.resources(), at, number);
        self.write(&format!("{folder}/app-{at:06}.endpoints.yaml"), &slice).await
    }

    async fn write_mark(&self, folder: &str, at: usize, number: u32) -> Result<(), DriveError> {
        let route = manifests::marked_route(folder, at, number);
        self.write(&format!("{folder}/change-{at:06}.yaml"), &route).await
    }

    async fn write(&self, name: &str, text: &str) -> Result<(), DriveError> {
        let path = self.directory.join(name);
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let beside = path.with_file_name(format!(".{file}.new"));
        let written = async {
            fs::write(&beside, text).await?;
            fs::rename(&beside, &path).await
        };
        written.await.map_err(|cause| failed(&path, cause))
    }

    /// Takes away what an earlier run left, and nothing else.
    async fn clear(&self) -> Result<(), DriveError> {
        let failed = |cause| failed(&self.directory, cause);
        fs::create_dir_all(&self.directory).await.map_err(failed)?;
        let ours = self.directory.join(OURS);
        if fs::try_exists(&ours).await.map_err(failed)? {
            return self.remove_all().await.map_err(failed);
        }
        let mut entries = fs::read_dir(&self.directory).await.map_err(failed)?;
        if let Some(found) = entries.next_entry().await.map_err(failed)? {
            let (path, found) = (self.directory.clone(), found.file_name());
            let found = found.to_string_lossy().into_owned();
            return Err(DriveError::NotOurs { path, found });
        }
        fs::write(&ours, "Files here are replaced by load tests.\n").await.map_err(failed)
    }

    async fn remove_all(&self) -> io::Result<()> {
        let mut entries = fs::read_dir(&self.directory).await?;
        while let Some(entry) = entries.next_entry().await? {
            let name = entry.file_name();
            if entry.file_type().await?.is_dir() && name.to_string_lossy().starts_with("fleet-") {
                fs::remove_dir_all(entry.path()).await?;
            }
        }
        match fs::remove_file(self.directory.join(CLASS)).await {
            Err(cause) if cause.kind() != ErrorKind::NotFound => Err(cause),
            _ => Ok(()),
        }
    }
}

/// The name of its Gateway.
fn folder_of(fleet: &str) -> &str {
    fleet.rsplit_once('/').map_or(fleet, |(_, name)| name)
}

fn failed(path: &Path, cause: io::Error) -> DriveError {
    DriveError::File { path: path.to_owned(), cause }
}
