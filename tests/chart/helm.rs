use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The values that charts are rendered with: those of `ci/`, and none.
pub(crate) const CASES: &[&str] = &["", "minimal", "everything", "alternatives"];

pub(crate) const NAMESPACE: &str = "heliograph-system";

/// An object that a chart renders.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    /// As helm wrote it: YAML of Kubernetes is not quite that of others.
    pub(crate) text: String,
    pub(crate) value: Value,
}

impl Object {
    pub(crate) fn kind(&self) -> &str {
        self.value["kind"].as_str().unwrap()
    }

    pub(crate) fn name(&self) -> &str {
        self.value["metadata"]["name"].as_str().unwrap()
    }

    /// The pods that it makes, if it makes any.
    pub(crate) fn pod(&self) -> Option<&Value> {
        let spec = &self.value["spec"];
        match self.kind() {
            "Deployment" | "Job" => Some(&spec["template"]["spec"]),
            "CronJob" => Some(&spec["jobTemplate"]["spec"]["template"]["spec"]),
            _ => None,
        }
    }

    /// What its container is started with.
    pub(crate) fn args(&self) -> Vec<String> {
        let args = &self.pod().unwrap()["containers"][0]["args"];
        args.as_array().unwrap().iter().map(|arg| arg.as_str().unwrap().to_owned()).collect()
    }
}

pub(crate) fn charts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts")
}

/// The flag that names the values of a case.
pub(crate) fn values(case: &str) -> Vec<String> {
    let file = || charts().join(format!("heliograph/ci/{case}-values.yaml")).display().to_string();
    if case.is_empty() { Vec::new() } else { vec![format!("--values={}", file())] }
}

pub(crate) fn run(command: &[&str], chart: &str, flags: &[String]) -> Output {
    let program = std::env::var_os("HELM")
        .expect("HELM is to name the helm whose path `scripts/tools helm` prints");
    Command::new(program)
        .args(command)
        .arg(charts().join(chart))
        .arg(format!("--namespace={NAMESPACE}"))
        .args(flags)
        // Nothing of the user's own.
        .env("HOME", std::env::temp_dir())
        .env_remove("KUBECONFIG")
        .output()
        .unwrap()
}

/// Renders as a release of the name heliograph, or says why not.
pub(crate) fn render(chart: &str, flags: &[String]) -> Result<Vec<Object>, String> {
    let output = run(&["template", "heliograph"], chart, flags);
    if !output.status.success() {
        return Err(String::from_utf8(output.stderr).unwrap());
    }
    let text = String::from_utf8(output.stdout).unwrap();
    let documents = text.split("---\n").filter(|document| document.contains("kind: "));
    let objects = documents.map(|text| Object {
        text: text.to_owned(),
        value: serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}:\n{text}")),
    });
    Ok(objects.collect())
}

pub(crate) fn case(name: &str) -> Vec<Object> {
    render("heliograph", &values(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// With single values, as in `redis.url=redis://here`.
pub(crate) fn set(settings: &[&str]) -> Result<Vec<Object>, String> {
    let flags: Vec<String> = settings.iter().map(|setting| format!("--set={setting}")).collect();
    render("heliograph", &flags)
}

/// What helm says after an install. `helm template` does not show it, so it is made an object of a copy of the chart.
pub(crate) fn notes(settings: &[&str]) -> String {
    let copy = tempfile::tempdir().unwrap();
    let chart = charts().join("heliograph");
    copy_folder(&chart, copy.path());
    let file = |name: &str| copy.path().join("templates").join(name);
    let notes = fs::read_to_string(file("NOTES.txt")).unwrap();
    fs::write(file("_notes.tpl"), format!("{{{{- define \"notes\" }}}}{notes}{{{{- end }}}}"))
        .unwrap();
    let object = "kind: Notes\nmetadata: {name: notes}\nsaid: {{ include \"notes\" . | toJson }}\n";
    fs::write(file("notes.yaml"), object).unwrap();
    let flags: Vec<String> = settings.iter().map(|setting| format!("--set={setting}")).collect();
    // An absolute path stands for itself.
    let objects = render(copy.path().to_str().unwrap(), &flags).unwrap();
    find(&objects, "Notes", "notes").value["said"].as_str().unwrap().to_owned()
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[track_caller]
pub(crate) fn find<'a>(objects: &'a [Object], kind: &str, name: &str) -> &'a Object {
    let mut found = objects.iter().filter(|object| object.kind() == kind && object.name() == name);
    found.next().unwrap_or_else(|| panic!("there is no {kind} {name}"))
}
